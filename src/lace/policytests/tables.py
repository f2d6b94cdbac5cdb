"""Tables of a test file, read strictly: what has another type, or no meaning, is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base.text import shorten
from lace.rules.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lace.policytests.places import KeyPath, Problems

__all__ = ["Table", "meant"]

_KINDS: Final = (
    (bool, "true or false"),
    (str, "text"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "an array"),
    (dict, "a table"),
)


def meant(name: str, known: Collection[str], what: str) -> str:
    """Return a hint: the known name most like a name, or all of them.

    >>> meant("sned", ["send", "query"], "keys")
    'did you mean send?'
    """
    near = closest(name, known)
    if near:
        return f"did you mean {near}?"
    shown = sorted(known)
    more = ", …" if len(shown) > 30 else ""
    return f"the {what} are {', '.join(shown[:30])}{more}" if shown else f"there are no {what}"


def _kind(value: object) -> str:
    return next((text for kind, text in _KINDS if isinstance(value, kind)), "a date or a time")


class Table:
    """A table of the file, and the way to it."""

    def __init__(self, values: Mapping[str, object], path: KeyPath, problems: Problems) -> None:
        self._values = values
        self.path = path
        self.problems = problems

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def raw(self, key: str) -> object:
        """Return whatever a key has; None when it is not there."""
        return self._values.get(key)

    def at(self, *more: str | int) -> KeyPath:
        """Return the path of something in the table."""
        return (*self.path, *more)

    def add(
        self, key: str | None, message: str, hint: str | None = None, text: str | None = None
    ) -> None:
        """Note what is wrong with the value of a key, or with the table."""
        path = self.path if key is None else self.at(key)
        self.problems.add(path, message, hint, text)

    def check_keys(self, known: Collection[str]) -> None:
        """Note the keys that mean nothing."""
        for key in self._values:
            if key not in known:
                self.add(key, "there is no such key", meant(key, known, "keys here"))

    def _typed(self, key: str, kind: type, wanted: str) -> object:
        value = self._values.get(key)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self.add(key, f"this is {_kind(value)}, and should be {wanted}")
        return None

    def text(self, key: str) -> str | None:
        """Return a text; None when it is missing."""
        found = self._typed(key, str, "text")
        return found if isinstance(found, str) else None

    def number(self, key: str) -> int | None:
        """Return a whole number."""
        found = self._typed(key, int, "a whole number")
        return found if isinstance(found, int) else None

    def table(self, key: str) -> Table:
        """Return a table; an empty one when it is missing."""
        found = self._typed(key, dict, "a table")
        return Table(found if isinstance(found, dict) else {}, self.at(key), self.problems)

    def items(self, key: str) -> list[object] | None:
        """Return an array of anything."""
        found = self._typed(key, list, "an array")
        return found if isinstance(found, list) else None

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables."""
        made: list[Table] = []
        for number, each in enumerate(self.items(key) or []):
            if isinstance(each, dict):
                made.append(Table(each, self.at(key, number), self.problems))
            else:
                self.add(key, f"item {number + 1} is {_kind(each)}, and should be a table")
        return made

    def texts(self, key: str, *, most: int | None = None, unique: bool = True) -> list[str] | None:
        """Return an array of texts, none of which may be there twice; None when it is missing."""
        found = self.items(key)
        if found is None:
            return None
        if most is not None and len(found) > most:
            self.add(key, f"these are {len(found):,} items, and at most {most:,} are read")
            return []
        made: list[str] = []
        seen: set[str] = set()
        for number, each in enumerate(found, 1):
            if not isinstance(each, str):
                self.add(key, f"item {number} is {_kind(each)}, and should be text")
            elif unique and each in seen:
                self.add(key, f"{shorten(each)!r} is there twice", text=each)
            else:
                made.append(each)
                seen.add(each)
        return made
