"""The order of texts by number, so that comparing two columns of texts compares two of ranks.

A rank is a mark on a scale with room between two marks. A few texts that are new are put
between those that are known; all are only put in order again when there are many new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np

from lace.engines import costs
from lace.engines.embedded.keys import distinct_ids
from lace.rules.builtins import integer_rank
from lace.rules.syntax import IntCompare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.engines.budget import Budget
    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.engines.embedded.keys import Look
    from lace.rules.syntax import LexCompare

__all__ = ["Ranks", "fetched", "in_order", "sort_in_runs", "stretches", "text_bytes"]

_Item = TypeVar("_Item")
_Key: TypeAlias = "str | tuple[int, int, str]"
_SCALE: Final = 2**31 - 2
"""The highest mark."""
_UNRANKED: Final = -2
_NO_INTEGER: Final = -1
_FEW_SHARE: Final = 32
"""New texts that are at most this share of those known are put between them."""
_FETCHED: Final = 2**14
"""Texts that are fetched between two looks at the budget."""
_TEXT_BYTES: Final = 88
"""What a text takes in memory beside its characters, about."""
_KEY_BYTES: Final = 128
"""What the key of an integer takes beside its digits, about."""
_PLACE_BYTES: Final = 64
"""What a text takes while texts are sorted: its places in runs, and in the order."""
_ORDER_BYTES: Final = 48
"""What a text takes that is in order already, while others are put between."""
_STRETCH: Final = 2**12
"""Texts that are worked off one by one between two looks at the budget."""
_RUN: Final = 2**16
"""Texts that are sorted between two looks at the budget."""
_SAMPLED: Final = 2**10
"""The distance of two samples of a run."""


def fetched(dictionary: Texts, ids: Ids, budget: Budget) -> list[str]:
    """Return the texts of numbers; what they cost and take is counted as they come."""
    made: list[str] = []
    for first in range(0, len(ids), _FETCHED):
        some = ids[first : first + _FETCHED]
        budget.charge(costs.TEXT * len(some))
        texts = dictionary.texts(some)
        budget.charge(costs.CHARACTER * sum(map(len, texts)))
        budget.take(text_bytes(texts))
        made += texts
    return made


def text_bytes(texts: Sequence[str]) -> int:
    """Return about what texts take in memory: one, two or four bytes for each character."""
    if all(map(str.isascii, texts)):
        return _TEXT_BYTES * len(texts) + sum(map(len, texts))
    return _TEXT_BYTES * len(texts) + sum(map(_characters_bytes, texts))


def _characters_bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    # A character beyond the first 2^16 makes all of them as wide as itself.
    is_wide = len(text.encode("utf-16-le", "surrogatepass")) > 2 * len(text)
    return (4 if is_wide else 2) * len(text)


def stretches(items: Sequence[_Item], budget: Budget) -> Iterator[Sequence[_Item]]:
    """Yield items in short stretches, with a look at the budget before each."""
    for first in range(0, len(items), _STRETCH):
        budget.check()
        yield items[first : first + _STRETCH]


def in_order(keys: Sequence[Any], places: list[int], budget: Budget) -> list[int]:
    """Return places sorted by their keys, with a look at the budget now and then."""
    budget.take(_PLACE_BYTES * len(places))
    return sort_in_runs(keys, places, budget.check)


def sort_in_runs(keys: Sequence[Any], places: list[int], look: Look) -> list[int]:
    """Return places sorted by their keys, with a look now and then.

    They are sorted in runs. Samples of these at equal distances say where to cut all runs, so
    that the pieces between two cuts are about as many as one run, whatever order they came in.
    """
    key = keys.__getitem__
    runs: list[list[int]] = []
    for first in range(0, len(places), _RUN):
        look()
        runs.append(sorted(places[first : first + _RUN], key=key))
    if len(runs) <= 1:
        return runs[0] if runs else []
    samples = sorted((at for run in runs for at in run[_SAMPLED::_SAMPLED]), key=key)
    made: list[int] = []
    begins = [0] * len(runs)
    for cut in samples[_RUN // _SAMPLED :: _RUN // _SAMPLED]:
        look()
        ends = [
            bisect_left(run, key(cut), begin, key=key)
            for run, begin in zip(runs, begins, strict=True)
        ]
        pieces = zip(runs, begins, ends, strict=True)
        made += sorted(chain.from_iterable(run[low:high] for run, low, high in pieces), key=key)
        begins = ends
    look()
    last = zip(runs, begins, strict=True)
    return made + sorted(chain.from_iterable(run[begin:] for run, begin in last), key=key)


class Ranks:
    """The order of texts, by number: as bytes, or as integers (-1 for any other text)."""

    def __init__(self, dictionary: Texts, kind: type[LexCompare | IntCompare]) -> None:
        self._dictionary = dictionary
        self._as_integers = kind is IntCompare
        self._ranks = np.full(0, _UNRANKED, np.int32)
        self._known = np.empty(0, np.int32)
        # The numbers of texts with different keys in their order, and their marks.
        self._order = np.empty(0, np.int32)
        self._marks = np.empty(0, np.int32)

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(each.nbytes for each in (self._ranks, self._known, self._order, self._marks))

    def has(self, *columns: Ids) -> bool:
        """Tell whether all values of columns have a rank already."""
        size = len(self._ranks)
        return all(
            bool((column < size).all()) and bool((self._ranks[column] != _UNRANKED).all())
            for column in columns
        )

    def of(self, *columns: Ids, budget: Budget) -> list[Ids]:
        """Return the ranks of the values of columns; they compare as the values do."""
        missing: list[Ids] = []
        size = len(self._dictionary)
        if len(self._ranks) < size:
            budget.reserve(4 * size)
            wider = np.full(size, _UNRANKED, np.int32)
            wider[: len(self._ranks)] = self._ranks
            self._ranks = wider
        for column in columns:
            unknown = column[self._ranks[column] == _UNRANKED]
            if len(unknown):
                missing.append(unknown)
        if missing:
            self._add(distinct_ids(np.concatenate(missing), size), budget)
        return [self._ranks[column] for column in columns]

    def _add(self, ids: Ids, budget: Budget) -> None:
        """Give ranks to numbers that have none; the ranks given before may change."""
        with budget.temporaries():
            if len(ids) * _FEW_SHARE > len(self._known):
                self._rank_all(np.concatenate([self._known, ids]), budget)
            else:
                self._insert(ids, budget)

    def _keys(self, ids: Ids, budget: Budget) -> Sequence[_Key | None]:
        texts = fetched(self._dictionary, ids, budget)
        if not self._as_integers:
            # Code points sort as UTF-8 bytes do, so the texts need not be encoded.
            return texts
        budget.charge(costs.INTEGER * len(texts))
        budget.take(text_bytes(texts) + _KEY_BYTES * len(texts))
        keys: list[_Key | None] = []
        for some in stretches(texts, budget):
            keys += map(integer_rank, some)
        return keys

    def _rank_all(self, ids: Ids, budget: Budget) -> None:
        """Put all of these numbers in order; nothing is changed before that is done."""
        keys = self._keys(ids, budget)
        order = in_order(keys, [at for at, key in enumerate(keys) if key is not None], budget)
        first: list[int] = []
        before: _Key | None = None
        for some in stretches(range(len(order)), budget):
            for place in some:
                key = keys[order[place]]
                if key != before:
                    first.append(place)
                before = key
        self._known = ids
        self._ranks[ids] = _NO_INTEGER
        begins = np.array(first, np.intp)
        ordered = ids[np.array(order, np.intp)] if order else ids[:0]
        self._order, self._marks = ordered[begins], _spread(len(first))
        self._ranks[ordered] = np.repeat(self._marks, np.diff(np.append(begins, len(order))))

    def _insert(self, ids: Ids, budget: Budget) -> None:
        """Put a few numbers between those in order; nothing is changed before all have places."""
        budget.charge(costs.INSERTED_TEXT * len(ids))
        budget.take(_ORDER_BYTES * len(self._order))
        keys = self._keys(ids, budget)
        valid = in_order(keys, [at for at, key in enumerate(keys) if key is not None], budget)
        new: list[list[int]] = []  # those of one key together
        places: list[int] = []
        equal: list[int] = []  # those whose key is in the order already
        marks: list[int] = []
        before: _Key | None = None
        for some in stretches(valid, budget):
            for at in some:
                key = keys[at]
                if key is None:
                    raise AssertionError("what is no integer has no place")
                if new and key == before:
                    new[-1].append(at)
                    continue
                before = key
                place = _place(key, self._key_at, len(self._order), places[-1] if places else 0)
                if place < len(self._order) and self._key_at(place) == key:
                    equal.append(at)
                    marks.append(int(self._marks[place]))
                    before = None  # one of the same key finds its place by itself
                    continue
                new.append([at])
                places.append(place)
        # Marks may move for those that are new now; so all that have one are known before.
        self._known = np.concatenate([self._known, ids])
        self._ranks[ids] = _NO_INTEGER
        self._ranks[ids[equal]] = marks
        if new:
            self._squeeze(np.array(places, np.intp), [ids[each] for each in new])

    def _key_at(self, place: int) -> _Key:
        text = self._dictionary.text(int(self._order[place]))
        key: _Key | None = integer_rank(text) if self._as_integers else text
        if key is None:
            raise AssertionError("only integers are in the order")
        return key

    def _squeeze(
        self, places: Ids | np.ndarray[tuple[int], np.dtype[np.intp]], new: list[Ids]
    ) -> None:
        """Give marks to texts before some places of the order; each has a key of its own."""
        old_marks, known = self._marks, self._known
        self._order = np.insert(self._order, places, [each[0] for each in new])
        at = places + np.arange(len(places))  # where the new ones are now
        marks = np.insert(old_marks.astype(np.int64), places, -1)
        edges = np.concatenate(([0], old_marks, [_SCALE])).astype(np.int64)
        _, first, count = np.unique(places, return_index=True, return_counts=True)
        nth = np.arange(len(places)) - np.repeat(first, count)
        low, high = edges[places], edges[places + 1]
        share = (high - low) // (np.repeat(count, count) + 1)
        if int(share.min()) > 0:
            marks[at] = low + share * (nth + 1)
            self._marks = marks.astype(np.int32)
        else:  # there is no room left somewhere
            self._marks = _spread(len(marks))
            ranked = known[self._ranks[known] >= 0]
            stays = np.ones(len(marks), np.bool_)
            stays[at] = False
            moved = self._marks[stays]
            self._ranks[ranked] = moved[np.searchsorted(old_marks, self._ranks[ranked])]
        for place, ids in zip(at.tolist(), new, strict=True):
            self._ranks[ids] = self._marks[place]


def _spread(count: int) -> Ids:
    """Return `count` marks with the same room before, between and after them."""
    room = max(_SCALE // (count + 1), 1)
    return (np.arange(1, count + 1, dtype=np.int64) * room).astype(np.int32)


def _place(key: _Key, key_at: Callable[[int], _Key], high: int, low: int) -> int:
    """Return the first place whose key is not below one."""
    while low < high:
        middle = (low + high) // 2
        if key_at(middle) < key:  # type: ignore[operator]
            low = middle + 1
        else:
            high = middle
    return low
