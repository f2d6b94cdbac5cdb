"""A `TextShape` of several variables, answered for whole columns at once.

Which texts begin with a text is a stretch of the texts in their order, and which end with
one a stretch of their order from behind. So a pair of texts takes a few comparisons of
numbers, and only different values are looked at as texts. What is left of the meaning are
lengths, and where delimiters stand. The meaning is that of `lace.rules.builtins.text_shape`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.ranks import in_order, stretches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engines.budget import Budget
    from lace.engines.embedded.keys import Flags

__all__ = ["Values", "shape_mask"]

_Numbers = npt.NDArray[np.int64]
_LAST: Final = 0x10FFFF
"""The last code point."""
_CHARACTER_BYTES: Final = 16
"""What a character takes while delimiters are looked for."""


@dataclass(frozen=True, slots=True)
class Values:
    """The different values of a column, and for each row which of them it has."""

    texts: Sequence[str]
    at: _Numbers

    @property
    def lengths(self) -> _Numbers:
        """How many characters the value of each row has."""
        made: _Numbers = np.fromiter(map(len, self.texts), np.int64, len(self.texts))[self.at]
        return made


def shape_mask(text: Values, start: Values, delimiters: str, end: Values, budget: Budget) -> Flags:
    """Tell for which rows a text has a shape."""
    lengths, skipped, closing = text.lengths, start.lengths, end.lengths
    mask = _begin(text.texts, start.texts, budget).among(text.at, start.at)
    mask &= _begin(_turned(text.texts, budget), _turned(end.texts, budget), budget).among(
        text.at, end.at
    )
    budget.check()
    if not delimiters:
        mask &= lengths >= skipped + closing
        return mask
    rows = np.flatnonzero(mask)
    at, last = text.at[rows], (lengths - closing - 1)[rows]
    mask[rows] = _delimited(text.texts, at, skipped[rows], last, delimiters, budget)
    return mask


@dataclass(frozen=True, slots=True)
class _Stretches:
    """The places of texts in their order, and from where to where others are their beginnings."""

    places: _Numbers
    first: _Numbers
    behind: _Numbers

    def among(self, texts: _Numbers, beginnings: _Numbers) -> Flags:
        """Tell which texts begin so, by their numbers."""
        places = self.places[texts]
        mask: Flags = places >= self.first[beginnings]
        mask &= places < self.behind[beginnings]
        return mask


def _turned(texts: Sequence[str], budget: Budget) -> list[str]:
    return [each[::-1] for some in stretches(texts, budget) for each in some]


def _begin(texts: Sequence[str], beginnings: Sequence[str], budget: Budget) -> _Stretches:
    order = in_order(texts, list(range(len(texts))), budget)
    ordered = [texts[at] for at in order]
    places = np.empty(len(texts), np.int64)
    places[np.array(order, np.intp)] = np.arange(len(texts))
    first: list[int] = []
    behind: list[int] = []
    for some in stretches(beginnings, budget):
        for each in some:
            first.append(bisect_left(ordered, each))
            after = _after(each)
            behind.append(len(ordered) if after is None else bisect_left(ordered, after))
    return _Stretches(places, np.array(first, np.int64), np.array(behind, np.int64))


def _after(text: str) -> str | None:
    """Return the first text behind all that begin with one; None when there is no such text."""
    shorter = text.rstrip(chr(_LAST))
    return shorter[:-1] + chr(ord(shorter[-1]) + 1) if shorter else None


def _delimited(
    texts: Sequence[str],
    at: _Numbers,
    skipped: _Numbers,
    last: _Numbers,
    delimiters: str,
    budget: Budget,
) -> Flags:
    """Tell where a delimiter stands at `last`, with something before it and none of them in that.

    Args:
        texts: the texts.
        at: the text of each row.
        skipped: where what is before the delimiter begins.
        last: where the delimiter has to stand; what follows is known to be right.
        delimiters: the delimiters.
        budget: what counts the memory.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    budget.take(_CHARACTER_BYTES * int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    wanted = np.frombuffer(delimiters.encode("utf-32-le", "surrogatepass"), np.uint32)
    # One more stands before all texts, so that every place has one before it.
    found = np.append(np.int64(-1), np.flatnonzero(np.isin(points, wanted)))
    places = begins[at] + last
    which = np.searchsorted(found, places)
    which[which == len(found)] = 0
    mask: Flags = (last > skipped) & (found[which] == places)
    mask &= found[np.maximum(which - 1, 0)] < begins[at] + skipped
    return mask
