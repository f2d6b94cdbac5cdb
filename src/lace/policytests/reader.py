"""Reading a test file, strictly: all that is wrong with it is found before anything runs.

The format is described in docs/reference/policy-tests.md. Files that it names are read
relative to its own folder.
"""

from __future__ import annotations

import os.path
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.text import safe_text
from lace.errors import Finding, Place, UsageError
from lace.policytests.case_reader import CaseReader
from lace.policytests.model import PolicyTests
from lace.policytests.names import read_keys
from lace.policytests.places import PolicyTestError, Problems, read_bounded, refused
from lace.policytests.records import RecordMaker
from lace.policytests.rule_texts import RuleReader
from lace.policytests.tables import Table
from lace.rules.checks.undefined import parse_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.policytests.model import Case
    from lace.rules.syntax import PredicateKey

__all__ = [
    "MAX_CASES",
    "MAX_TEST_FILE_BYTES",
    "SUFFIX",
    "find_test_files",
    "read_tests",
]

SUFFIX: Final = ".lacetest.toml"
"""What the names of test files end with."""
MAX_TEST_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_CASES: Final = 1_000
"""Cases of one test file."""

_POLICY_KEYS: Final = (
    "select", "select_text", "peer_select", "peer_select_text", "lowering", "index",
    "allow_undefined",
    "keys", "expose", "records", "facts", "limits", "case",
)  # fmt: skip
_RULES_KEYS: Final = ("rules", "rules_text", "keys", "records", "facts", "limits", "case")
_KEYS: Final = tuple(dict.fromkeys((*_POLICY_KEYS, *_RULES_KEYS)))
_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def find_test_files(arguments: Sequence[str]) -> list[str]:
    """Return the test files that arguments name, each once; of folders all below.

    Raises:
        PolicyTestError: one does not exist, or a folder holds none.
    """
    found: dict[str, None] = {}
    lost: list[Finding] = []
    for argument in arguments:
        if not Path(argument).is_dir():
            found[os.path.normpath(argument)] = None
            continue
        below = sorted(_test_files_below(argument))
        found.update(dict.fromkeys(below))
        if not below:
            message = f"there is no *{SUFFIX} in this folder"
            place = Place(safe_text(argument))
            lost.append(Finding(severity="error", place=place, message=message))
    if lost:
        raise PolicyTestError(tuple(lost))
    return list(found)


def _test_files_below(folder: str) -> Iterator[str]:
    """Yield the test files of a folder and of those in it, but for hidden ones."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(SUFFIX):
                yield os.path.normpath(Path(place) / name)


def read_tests(argument: str) -> PolicyTests:
    """Return what a test file says.

    Raises:
        PolicyTestError: it cannot be read, is no TOML, or says something that makes no sense;
            `findings` has it all.
    """
    name = safe_text(argument)
    raw = read_bounded(Path(argument), name, MAX_TEST_FILE_BYTES)
    try:
        text = raw.decode("utf-8")
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise refused(name, f"byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (None, None)
        message = f"this is no TOML: {_AT.sub('', str(error))}"
        is_named_so = Path(argument).suffix == ".toml"
        hint = None if is_named_so else "policy tests are files *.lacetest.toml"
        raise refused(name, message, line, column, hint) from error
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise refused(name, f"this is no TOML that can be read: {error}") from error
    problems = Problems(name, text.replace("\r\n", "\n"))
    made = _FileReader(Table(values, (), problems), Path(argument).parent).read()
    problems.refuse()
    return made


class _FileReader:
    """Reads the top of a file, and hands its cases on."""

    def __init__(self, top: Table, folder: Path) -> None:
        self._top = top
        self._folder = folder
        self._name = top.problems.name

    def read(self) -> PolicyTests:
        """Return all of it; what is wrong is noted."""
        top = self._top
        top.check_keys(_KEYS)
        plain = "rules" in top or "rules_text" in top
        if plain:
            for key in set(top) & (set(_POLICY_KEYS) - set(_RULES_KEYS)):
                top.add(key, "this is for a policy, and the file tests plain rules")
        keys = read_keys(top.table("keys"))
        maker = RecordMaker(top.table("records"), keys)
        records = maker.make_all()
        texts = RuleReader(self._folder, self._name, keys, records)
        rules = texts.read(top, "rules", needed=True) if plain else None
        select = None if plain else texts.read(top, "select", needed=True)
        allowed = self._allowed()
        exposures = tuple(texts.read_exposure(each) for each in top.tables("expose"))
        reader = CaseReader(top, keys, records, texts, is_plain=plain)
        cases = self._cases(reader)
        if not top.problems:  # else a name that is wrong may be what would have used them
            self._check_unused(texts.used | reader.used, maker, cases)
        return PolicyTests(
            name=self._name,
            select=select,
            rules=rules,
            exposures=tuple(each for each in exposures if each is not None),
            allowed=allowed,
            keys=keys,
            records=records,
            cases=cases,
        )

    def _allowed(self) -> frozenset[PredicateKey]:
        """Return the predicates that nobody defines on purpose."""
        texts = self._top.texts("allow_undefined") or []
        try:
            return parse_allowed(texts)
        except UsageError as error:
            self._top.add("allow_undefined", error.message, error.hint)
            return frozenset()

    def _cases(self, reader: CaseReader) -> tuple[Case, ...]:
        tables = self._top.tables("case")
        if len(tables) > MAX_CASES:
            self._top.add("case", f"these are {len(tables):,} cases; at most {MAX_CASES:,} are run")
            return ()
        if not tables and not isinstance(self._top.raw("case"), list):
            self._top.add(None, "there is no case", "begin one with [[case]]")
        made: list[Case] = []
        lines: dict[str, int | None] = {}
        for table in tables:
            case = reader.read(table)
            if case.name in lines:
                there = f"in line {lines[case.name]}" if lines[case.name] else "above"
                table.add("name", f"a case {there} has this name already")
            lines.setdefault(case.name, case.line)
            made.append(case)
        return tuple(made)

    def _check_unused(self, used: set[str], maker: RecordMaker, cases: tuple[Case, ...]) -> None:
        """Note records and keys that nothing uses: they may be what a mistyped name meant."""
        for case in cases:
            used.update((*case.records, *case.advertised))
        waiting = list(used)
        while waiting:
            for name in maker.mentions.get(waiting.pop(), ()):
                if name not in used:
                    used.add(name)
                    waiting.append(name)
        for kind in ("records", "keys"):
            table = self._top.table(kind)
            for name in table:
                if name not in used:
                    what = "no case uses this record" if kind == "records" else "nothing uses it"
                    table.add(name, what, "take it out")
