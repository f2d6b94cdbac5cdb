"""Did you mean …? Names close to one that nobody knows, at a bounded cost."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["FIELD_NAMES", "Suggester", "closest"]

FIELD_NAMES: Final = (
    "Type",
    "Data-Length",
    "Group",
    "App",
    "Name",
    "TAI",
    "Signed-By",
    "Signature",
)
"""The fields that the record formats give; extra headers have names of their own."""

_LIKENESS: Final = 0.74


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like a name, or None when none is close.

    Close names begin with the same letter; capitals, `_` and `-` do not count.

    >>> closest("Feild", ["Field", "Have"])
    'Field'
    """
    plain = _plain(name)
    best, likeness = None, _LIKENESS
    for other in sorted(set(known)):
        if other == name or abs(len(other) - len(name)) > 3:
            continue
        if _plain(other) == plain:
            return other
        if _plain(other)[:1] != plain[:1]:
            continue
        matcher = difflib.SequenceMatcher(None, plain, _plain(other), autojunk=False)
        if matcher.real_quick_ratio() >= likeness and matcher.ratio() >= likeness:
            best, likeness = other, matcher.ratio() + 1e-9
    return best


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


class Suggester:
    """Looks for close names until its budget of comparisons is spent; then finds none.

    One serves a whole lacegram, so that thousands of unknown names do not take long.
    """

    def __init__(self, comparisons: int = 5_000) -> None:
        self._left = comparisons

    def closest(self, name: str, known: Collection[str]) -> str | None:
        """Return the known name most like a name, or None."""
        self._left -= len(known)
        return closest(name, known) if self._left >= 0 else None
