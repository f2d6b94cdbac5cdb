"""Rows as single numbers, and sets of them: what duplicates are found by.

A row of numbers below `size` is one int64 as long as it fits; longer rows are numbered
pair by pair. A set of rows is a table of flags while all possible rows are few, and else
a few sorted runs, of which small ones are merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.engines.embedded.dictionary import Ids

__all__ = [
    "AT_ONCE",
    "Flags",
    "Keys",
    "Look",
    "PairNumbers",
    "RowSet",
    "distinct_ids",
    "distinct_sorted",
    "nothing",
    "places_in",
    "radix_fits",
    "radix_keys",
    "sort_rows",
    "stretches_of",
]

Keys: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Look: TypeAlias = "Callable[[], None]"
"""Looks at the budget between two stretches of a long operation; it may wait, or raise."""
AT_ONCE: Final = 2**19
"""Rows that are sorted, numbered or added to a set between two looks: about 0.1 s."""
_MOST_MERGED: Final = 2**24
"""Keys of a run that is merged of others."""
_MOST_NUMBERED: Final = 2**22
"""The same where the keys have numbers beside them."""
_SAMPLED: Final = 2**11
"""The distance of two samples of a sorted run."""
_CACHED: Final = 2**14
"""Sorted keys among which others are found quickly in any order."""
_LARGEST_KEY: Final = 2**62
_LEAST_SHARE: Final = 1024
"""A set has a table of flags from the first row in this many possible ones on."""
_FEW_ADDS: Final = 8
"""This many additions go without a table of flags although it would have room."""
_FLAGS_SHARE: Final = 16
"""Flags pay when there are at least this share of values."""
_ADDED_BYTES: Final = 48
"""What a row takes while it is added to a set: its key, sorted, compared and merged."""
_MERGED_BYTES: Final = 12
"""What a key takes while its run is merged with another one."""
_PAIR_BYTES: Final = 32
"""What the number of a pair takes while others are merged with it."""
_MAX_FLAGS: Final = 2**26
"""Possible rows up to which a set is a table of flags, a byte each."""


def radix_fits(size: int, arity: int) -> bool:
    """Tell whether rows of this many numbers below size are numbers themselves."""
    return bool(max(size, 2) ** arity < _LARGEST_KEY)


def radix_keys(columns: Sequence[Ids], size: int) -> Keys:
    """Return rows as numbers to the base of size."""
    keys = columns[0].astype(np.int64)
    for column in columns[1:]:
        keys *= size
        keys += column
    return keys


def nothing() -> None:
    """Look at no budget."""


def stretches_of(rows: int) -> Iterator[slice]:
    """Yield slices of this number of rows, each processed at once."""
    return (slice(first, min(first + AT_ONCE, rows)) for first in range(0, rows, AT_ONCE))


def places_in(
    ordered: npt.NDArray[Any], probe: npt.NDArray[Any], side: Literal["left", "right"] = "left"
) -> npt.NDArray[np.intp]:
    """Return where values belong among sorted ones, as `np.searchsorted` does.

    Many values are looked for in their order: at random, each step of each search would wait
    for memory.
    """
    if len(ordered) <= _CACHED or len(probe) <= 1:
        return np.searchsorted(ordered, probe, side)
    if bool((probe[1:] >= probe[:-1]).all()):
        return np.searchsorted(ordered, probe, side)
    order = np.argsort(probe)
    found = np.empty(len(probe), np.intp)
    found[order] = np.searchsorted(ordered, probe[order], side)
    return found


def sort_rows(keys: npt.NDArray[Any], look: Look = nothing) -> tuple[Ids, npt.NDArray[Any]]:
    """Return the numbers of rows in the order of their keys, and the keys in order.

    Many keys are sorted in runs. Samples of these say where to cut all runs, so that the
    pieces between two cuts are about as long as a run, with a look before each of them.
    """
    count = len(keys)
    if count <= AT_ONCE:
        order = np.argsort(keys).astype(np.int32)
        return order, keys[order]
    runs: list[tuple[Ids, npt.NDArray[Any]]] = []
    for stretch in stretches_of(count):
        look()
        found = np.argsort(keys[stretch])
        runs.append(((found + stretch.start).astype(np.int32), keys[stretch][found]))
    samples = np.sort(np.concatenate([run[_SAMPLED::_SAMPLED] for _, run in runs]))
    cuts = samples[AT_ONCE // _SAMPLED :: AT_ONCE // _SAMPLED].tolist()
    begins = [0] * len(runs)
    orders: Ids = np.empty(count, np.int32)
    made = np.empty(count, keys.dtype)
    at = 0
    for cut in [*cuts, None]:
        look()
        ends = [len(run) if cut is None else int(np.searchsorted(run, cut)) for _, run in runs]
        ranges = [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
        piece = np.concatenate([run[each] for (_, run), each in zip(runs, ranges, strict=True)])
        merged = np.argsort(piece, kind="stable")
        end = at + len(piece)
        made[at:end] = piece[merged]
        rows = np.concatenate([rows[each] for (rows, _), each in zip(runs, ranges, strict=True)])
        orders[at:end] = rows[merged]
        begins, at = ends, end
    return orders, made


def distinct_sorted(keys: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the different keys, sorted; `np.unique` would load more of NumPy first."""
    if len(keys) < 2:
        return keys
    keys = np.sort(keys)
    first = np.empty(len(keys), np.bool_)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def distinct_ids(ids: Ids, size: int) -> Ids:
    """Return the different numbers of a column, all below size, sorted."""
    if len(ids) * _FLAGS_SHARE < size:
        return np.unique(ids)
    flags = np.zeros(size, np.bool_)
    flags[ids] = True
    return np.flatnonzero(flags).astype(np.int32)


class _Runs:
    """Sorted runs of different keys; each has at most half the length of the one before.

    Runs that are long enough stay as they are: merging them would take too long at once.
    """

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return sum(run.nbytes for run in self._runs)

    def missing(self, keys: Keys) -> Flags:
        """Tell which keys are in no run."""
        absent = np.ones(len(keys), np.bool_)
        for run in self._runs:
            at = places_in(run, keys)
            at[at == len(run)] = 0
            absent &= run[at] != keys
        return absent

    def clear(self) -> list[Keys]:
        """Take everything out; returns the runs."""
        runs, self._runs = self._runs, []
        return runs

    def discard(self, keys: Keys) -> None:
        """Take sorted keys out."""
        kept: list[Keys] = []
        for run in self._runs:
            at = np.searchsorted(keys, run)
            at[at == len(keys)] = 0
            stays = run[keys[at] != run]
            if len(stays):
                kept.append(stays)
        self._runs = kept

    def add(self, keys: Keys) -> None:
        """Add sorted keys that are in no run."""
        if not len(keys):
            return
        while self._runs and _merges(len(self._runs[-1]), len(keys), _MOST_MERGED):
            keys = np.concatenate((self._runs.pop(), keys))
            keys.sort(kind="stable")
        self._runs.append(keys)

    def merged_by(self, count: int) -> int:
        """Return how many keys are in the longest run that adding some at most makes."""
        for run in reversed(self._runs):
            if not _merges(len(run), count, _MOST_MERGED):
                break
            count += len(run)
        return count


def _merges(before: int, count: int, most: int) -> bool:
    """Tell whether a run is merged with one before it."""
    return before < 2 * count and before + count <= most


class PairNumbers:
    """Numbers for pairs of numbers, given in the order in which the pairs come."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._runs: list[tuple[Keys, Keys]] = []
        self._count = 0

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return sum(keys.nbytes + codes.nbytes for keys, codes in self._runs)

    def number(self, left: Keys, right: Ids, *, add: bool) -> Keys:
        """Return the number of each pair; a new one gets the next, or without `add` -1."""
        keys = left * self._size + right
        order = np.argsort(keys)
        ordered: Keys = keys[order]
        is_first = np.ones(len(keys), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        distinct = ordered[is_first]
        numbers = np.full(len(distinct), -1, np.int64)
        for run, codes in self._runs:
            at = np.searchsorted(run, distinct)
            at[at == len(run)] = 0
            found = run[at] == distinct
            numbers[found] = codes[at[found]]
        if add:
            new = numbers < 0
            numbers[new] = np.arange(self._count, self._count + np.count_nonzero(new))
            self._count += int(np.count_nonzero(new))
            added: Keys = distinct[new]
            self._add(added, numbers[new])
        made: Keys = np.empty(len(keys), np.int64)
        made[order] = numbers[np.cumsum(is_first) - 1]
        made[left < 0] = -1
        return made

    def _add(self, keys: Keys, codes: Keys) -> None:
        if not len(keys):
            return
        while self._runs and _merges(len(self._runs[-1][0]), len(keys), _MOST_NUMBERED):
            more, more_codes = self._runs.pop()
            keys, codes = np.concatenate((more, keys)), np.concatenate((more_codes, codes))
            order = np.argsort(keys, kind="stable")
            keys, codes = keys[order], codes[order]
        self._runs.append((keys, codes))


class RowSet:
    """A growing set of rows of one arity, of numbers below size.

    One that `may_flag` goes over to a table of flags, however few rows it has, once it was
    added to several times: each row that is added to flags takes a page of memory at worst,
    each time that rows are added to runs takes a search.
    """

    def __init__(
        self, arity: int, size: int, *, may_flag: bool = False, look: Look = nothing
    ) -> None:
        self._arity = arity
        self._look = look
        self._size = max(size, 1)
        self._direct = radix_fits(self._size, arity)
        self._pairs = [] if self._direct else [PairNumbers(size) for _ in range(arity - 2)]
        self._possible = self._size**arity if self._direct else 0
        self._flags: Flags | None = None
        self._adds_until_flags = _FEW_ADDS if may_flag else -1
        self._runs = _Runs()
        self.rows = 0

    @property
    def size(self) -> int:
        """What all numbers are below."""
        return self._size

    @property
    def flag_bytes(self) -> int:
        """How many bytes its table of flags takes, or may come to take."""
        has_or_may = self._flags is not None or self._adds_until_flags >= 0
        return self._possible if has_or_may else 0

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        flags = 0 if self._flags is None else self._flags.nbytes
        return flags + self._runs.bytes + sum(each.bytes for each in self._pairs)

    @property
    def numbered_columns(self) -> int:
        """How many columns have pairs that are numbered, because a row is no single number."""
        return len(self._pairs)

    def bytes_to_add(self, count: int) -> int:
        """Return an upper estimate of the bytes that adding rows takes."""
        per_row = _ADDED_BYTES + _PAIR_BYTES * len(self._pairs)
        merged = _MERGED_BYTES * self._runs.merged_by(count)
        if self._flags is None and 0 < self._possible <= _MAX_FLAGS:
            return per_row * count + merged + self._possible
        return per_row * count + merged

    def _keys(self, columns: Sequence[Ids], count: int, *, add: bool) -> Keys:
        if not columns:
            return np.zeros(count, np.int64)
        if self._direct:
            return radix_keys(columns, self._size)
        keys = columns[0].astype(np.int64)
        for pairs, column in zip(self._pairs, columns[1:-1], strict=True):
            self._look()
            keys = pairs.number(keys, column, add=add)
        self._look()
        made: Keys = keys * self._size + columns[-1]
        made[keys < 0] = -1
        return made

    def contains(self, columns: Sequence[Ids], count: int) -> Flags:
        """Tell which rows are in the set."""
        keys = self._keys(columns, count, add=False)
        if self._flags is not None:
            return self._flags[keys]
        return ~self._runs.missing(keys)

    def add(self, columns: Sequence[Ids], count: int) -> tuple[tuple[Ids, ...], int]:
        """Add rows; returns those that are new, each once."""
        if self._flags is None and 0 < self._possible <= _MAX_FLAGS:
            self._make_flags(count)
        if self._flags is not None:
            return self._add_flags(columns, count, self._flags)
        keys = self._keys(columns, count, add=True)
        if self._direct:
            fresh = distinct_sorted(keys)
            fresh = fresh[self._runs.missing(fresh)]
            self._runs.add(fresh)
        else:
            distinct, at = np.unique(keys, return_index=True)
            new = self._runs.missing(distinct)
            self._runs.add(distinct[new])
            chosen = at[new]
            self.rows += len(chosen)
            return tuple(column[chosen] for column in columns), len(chosen)
        self.rows += len(fresh)
        return self._columns(fresh), len(fresh)

    def _make_flags(self, more: int) -> None:
        """Go over to a table of flags when there are enough rows for its size, or additions."""
        self._adds_until_flags -= 1
        if not self._adds_until_flags or (self.rows + more) * _LEAST_SHARE >= self._possible:
            self._flags = np.zeros(self._possible, np.bool_)
            for run in self._runs.clear():
                self._flags[run] = True

    def _add_flags(
        self, columns: Sequence[Ids], count: int, flags: Flags
    ) -> tuple[tuple[Ids, ...], int]:
        keys = columns[0] if self._arity == 1 else self._keys(columns, count, add=True)
        fresh = keys[~flags[keys]]
        flags[fresh] = True
        if len(fresh) * _FLAGS_SHARE > len(flags):
            rows = int(np.count_nonzero(flags))
            if rows - self.rows < len(fresh):  # some are there twice
                fresh = distinct_sorted(fresh)
        else:
            fresh = distinct_sorted(fresh)
        self.rows += len(fresh)
        return self._columns(fresh), len(fresh)

    def discard(self, columns: Sequence[Ids], count: int) -> None:
        """Take rows out that are in the set, each given once."""
        if not count:
            return
        keys = self._keys(columns, count, add=False)
        if self._flags is not None:
            self._flags[keys] = False
        else:
            self._runs.discard(distinct_sorted(keys))
        self.rows -= count

    def _columns(self, keys: Keys | Ids) -> tuple[Ids, ...]:
        columns: list[Ids] = []
        for _ in range(self._arity - 1):
            keys, last = np.divmod(keys, self._size)
            columns.append(last.astype(np.int32))
        if self._arity:
            columns.append(keys.astype(np.int32, copy=False))
        return tuple(reversed(columns))

    @classmethod
    def of(cls, columns: Sequence[Ids], count: int, size: int) -> RowSet:
        """Return the set of given rows."""
        made = cls(len(columns), size)
        made.add(columns, count)
        return made
