"""Did you mean …? Names close to one that nobody knows, at a bounded cost."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

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

_LIKENESS: Final = 0.8
_COMPARISONS: Final = 20_000


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like a name, or None when none is close.

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
        matcher = difflib.SequenceMatcher(None, plain, _plain(other), autojunk=False)
        if matcher.real_quick_ratio() >= likeness and matcher.ratio() >= likeness:
            best, likeness = other, matcher.ratio() + 1e-9
    return best


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


class Suggester:
    """Looks for close names until its budget of comparisons is spent; then finds none.

    The budget keeps a lacegram with thousands of unknown names from taking long.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = sorted(set(known))
        self._left = _COMPARISONS

    def closest(self, name: str) -> str | None:
        """Return the known name most like a name, or None."""
        near = [other for other in self._known if abs(len(other) - len(name)) <= 3]
        self._left -= len(near)
        return closest(name, near) if self._left >= 0 else None
