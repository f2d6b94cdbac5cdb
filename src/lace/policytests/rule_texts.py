"""The rules that a test file names or holds: selectors, exposures and plain rules."""

from __future__ import annotations

import os.path
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lace.base.text import safe_text, shorten
from lace.policytests.model import Exposed, RuleText
from lace.policytests.names import Key, Substitution, stand_in
from lace.policytests.places import PolicyTestError, read_bounded
from lace.policytests.tables import Table, meant
from lace.record.ids import VERIFIER_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lace.policytests.records import MadeRecord

__all__ = ["MAX_RULE_FILE_BYTES", "RuleReader"]

MAX_RULE_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one file of rules."""

_VERIFIER: Final = re.compile(VERIFIER_PATTERN)


class RuleReader:
    """Reads the rules of one test file, each file once.

    Args:
        folder: where files are looked for.
        name: what messages call the test file.
        keys: whose names texts may mention.
        records: these too, so that rules can name a hash.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        keys: Mapping[str, Key],
        records: Mapping[str, MadeRecord],
    ) -> None:
        self._folder = folder
        self._name = name
        self._keys = keys
        self._records = records
        self._files: dict[str, RuleText] = {}
        self.used = {key.name for key in keys.values() if key.stands_for is not None}
        """What rules and viewers name, and the keys that stand for others in rules."""

    def read(self, table: Table, key: str, *, needed: bool = False) -> RuleText | None:
        """Return the rules of the file that a key names, or of the text in the test file."""
        inline = f"{key}_text"
        found = self._read(table, key, inline)
        if needed and key not in table and inline not in table:
            hint = f'write {key} = "FILE" or {inline} = """…"""'
            if key == "select":
                hint += '; to test plain rules, rules = "FILE"'
            table.add(None, f"{key} is missing", hint)
        return found

    def read_of_case(self, table: Table, key: str) -> RuleText | None:
        """Return rules that a case brings for itself, which are not measured."""
        found = self._read(table, key, f"{key}_text")
        return None if found is None else replace(found, measured=False)

    def read_exposure(self, table: Table) -> Exposed | None:
        """Return an exposure."""
        table.check_keys(("file", "text", "viewer"))
        rules = self._read(table, "file", "text")
        if "file" not in table and "text" not in table:
            table.add(None, "file is missing", 'write file = "FILE" or text = """…"""')
        viewers: list[str | None] = []
        if isinstance(table.raw("viewer"), list):
            named = table.texts("viewer") or []
            viewers = [self.find_viewer(table, each) for each in named]
            if not named:
                table.add("viewer", "no viewer is named", "leave it out to expose to anyone")
        elif "viewer" in table:
            one = table.text("viewer")
            viewers = [None if one is None else self.find_viewer(table, one)]
        if rules is None:
            return None
        return Exposed(rules, tuple(each for each in viewers if each is not None))

    def find_viewer(self, table: Table, name: str) -> str | None:
        """Return the verifier of a viewer: the name of a key, or a verifier."""
        if name in self._keys:
            self.used.add(name)
            return self._keys[name].verifier
        if _VERIFIER.fullmatch(name):
            return name
        hint = meant(name, self._keys, "keys")
        table.add("viewer", f"{shorten(name)!r} is neither a key nor a verifier", hint)
        return None

    def _read(self, table: Table, key: str, inline: str) -> RuleText | None:
        if key in table and inline in table:
            table.add(inline, f"there is {key} too", "name a file, or write the rules here")
            return None
        text = table.text(inline)
        if text is not None:
            return self._inline(table, inline, text)
        file = table.text(key)
        return None if file is None else self._file(table, key, file)

    def _inline(self, table: Table, key: str, text: str) -> RuleText:
        def known(name: str) -> str | None:
            if name in self._keys:
                return self._keys[name].verifier
            return self._records[name].id if name in self._records else None

        substitution = Substitution(known, lambda: [*self._keys, *self._records])
        filled = substitution.fill(text, table, key)
        self.used |= substitution.used
        line = table.problems.first_line(table.at(key), text)
        name = self._name
        if line is None:
            where = (str(each + 1) if isinstance(each, int) else each for each in table.at(key))
            name = " ".join((name, *where))
        above = "\n" * ((line or 1) - 1)  # so that its lines are those of the file
        raw, written = ((above + each).encode("utf-8", "surrogatepass") for each in (filled, text))
        return RuleText(name, stand_in(raw, self._keys), written)

    def _file(self, table: Table, key: str, file: str) -> RuleText | None:
        shown = os.path.normpath(self._folder / file)
        if shown not in self._files:
            try:
                raw = read_bounded(self._folder / file, safe_text(shown), MAX_RULE_FILE_BYTES)
            except PolicyTestError as error:
                told = error.findings[0]
                table.add(key, f"{told.place}: {told.message}")
                return None
            self._files[shown] = RuleText(safe_text(shown), stand_in(raw, self._keys), raw)
        return self._files[shown]
