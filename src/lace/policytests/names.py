"""Names in a test file: keys and records, and texts that mention them as `${name}`.

Keys of tests are made from a text, so that a test gives the same hashes everywhere. Anyone who
knows the text has the key: they are for tests and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base.digest import derive
from lace.base.text import shorten
from lace.errors import RecordError
from lace.policytests.tables import Table, meant
from lace.record.ids import Verifier
from lace.record.seal import SigningKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = [
    "NAME",
    "PEER",
    "Key",
    "Substitution",
    "make_test_key",
    "read_keys",
    "stand_in",
]

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""What keys and records may be called."""
PEER: Final = "peer"
"""The name of the peer in facts: its verifier, or its label when it has proven nothing."""

_MENTION: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_TEST_KEY: Final = "test"
_KEY_CONTEXT: Final = "policy-test-key"
_AUX_CONTEXT: Final = "policy-test-aux"


def make_test_key(seed: str) -> SigningKey:
    """Return the signing key of a text, for tests only: anyone can make the same one.

    Its signatures are the same each time too.

    >>> make_test_key("alice").verifier == make_test_key("alice").verifier
    True
    """
    material = derive(_KEY_CONTEXT, seed.encode("utf-8"))
    return SigningKey(material, lambda size: derive(_AUX_CONTEXT, material)[:size])


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a test file names; one that is given by its verifier cannot sign.

    In the rules under test it takes the place of the verifier that it stands for.
    """

    name: str
    verifier: str
    signer: SigningKey | None = None
    stands_for: str | None = None


def read_keys(table: Table) -> dict[str, Key]:
    """Return the keys of the table `keys` by name; what is wrong is noted."""
    found: dict[str, Key] = {}
    owners: dict[str, str] = {}
    for name in table:
        if not _is_name(table, name):
            continue
        key = _read_key(table, name)
        if key is None:
            continue
        for verifier in (key.verifier, key.stands_for):
            if verifier is None:
                continue
            if verifier in owners:
                table.add(name, f"this is the verifier of the key {owners[verifier]} too")
            owners.setdefault(verifier, name)
        found[name] = key
    return found


def _is_name(table: Table, name: str) -> bool:
    if name == PEER:
        table.add(name, "this name means the peer of a case", "choose another name")
    elif not NAME.fullmatch(name):
        table.add(name, "this is no name", "a letter, then letters, digits, _ and -; 64 at most")
    else:
        return True
    return False


def _read_key(table: Table, name: str) -> Key | None:
    if isinstance(table.raw(name), dict):
        inner = table.table(name)
        inner.check_keys(("seed", "stands_for"))
        seed = inner.text("seed")
        signer = make_test_key(name if seed is None else seed)
        stands_for = inner.text("stands_for")
        if stands_for is not None and _verifier(inner, "stands_for", stands_for) is None:
            return None
        return Key(name, signer.verifier, signer, stands_for)
    text = table.text(name)
    if text is None:
        return None
    if text == _TEST_KEY:
        signer = make_test_key(name)
        return Key(name, signer.verifier, signer)
    verifier = _verifier(table, name, text)
    return None if verifier is None else Key(name, verifier)


def _verifier(table: Table, key: str, text: str) -> str | None:
    try:
        return str(Verifier(text))
    except RecordError:
        table.add(
            key,
            f"{shorten(text)!r} is no verifier",
            f'write V.….H3, or "{_TEST_KEY}" for a key that is made for this test',
        )
        return None


def stand_in(raw: bytes, keys: Mapping[str, Key]) -> bytes:
    """Return the text of rules with test keys in the place of those they stand for.

    All verifiers have the same length, so that nothing else moves.
    """
    for key in keys.values():
        if key.stands_for is not None:
            raw = raw.replace(key.stands_for.encode("ascii"), key.verifier.encode("ascii"))
    return raw


class Substitution:
    """Puts in what names mean, and keeps in mind which were used."""

    def __init__(
        self, known: Callable[[str], str | None], names: Callable[[], Collection[str]]
    ) -> None:
        self._known = known
        self._names = names
        self.used: set[str] = set()

    def fill(self, text: str, table: Table, key: str | None) -> str:
        """Return a text with the values of the names that it mentions.

        A name that means nothing is noted at the key, and stays as it is.
        """

        def value(found: re.Match[str]) -> str:
            if found[1] is None:
                return "${"
            self.used.add(found[1])
            made = self._known(found[1])
            if made is None:
                table.add(
                    key,
                    f"nothing is called {shorten(found[1])!r}",
                    meant(found[1], self._names(), "names"),
                    text=found[0],
                )
                return found[0]
            return made

        return _MENTION.sub(value, text)
