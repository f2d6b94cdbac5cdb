"""What rows are found by: sets of rows, sets of values, and rows by key.

All answer for whole columns at a time. Small ones search sorted keys; a large one is a table
over all numbers, made when enough was asked of it to be worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.columns import costs
from lace.columns.keys import (
    FLAGS_SHARE,
    choose,
    distinct_sorted,
    first_ones,
    is_short,
    nothing,
    places_in,
    radix_fits,
    radix_keys,
    sort_rows,
    stretches_of,
    stretches_with_looks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.columns.dictionary import Ids
    from lace.columns.keys import Flags, Keys, Look


_MOST_MERGED: Final = 2**24
"""Keys of a run that is merged of others."""
_MOST_NUMBERED: Final = 2**22
"""The same where the keys have numbers beside them."""
_LEAST_SHARE: Final = 1024
"""A set has a table of flags from the first row in this many possible ones on."""
_FEW_ADDS: Final = 8
"""This many additions go without a table of flags although it would have room."""
_ADDED_BYTES: Final = 48
"""What a row takes while it is added to a set: its key, sorted, compared and merged."""
_MERGED_BYTES: Final = 12
"""What a key takes while its run is merged with another one."""
_PAIR_BYTES: Final = 32
"""What the number of a pair takes while others are merged with it."""
_MAX_FLAGS: Final = 2**26
"""Possible rows up to which a set is a table of flags, a byte each."""


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

    def missing(self, keys: Keys, look: Look = nothing) -> Flags:
        """Tell which keys are in no run."""
        absent = np.ones(len(keys), np.bool_)
        if not is_short(len(keys)):
            for stretch in stretches_with_looks(len(keys), look):
                absent[stretch] = self.missing(keys[stretch])
            return absent
        for run in self._runs:
            at = places_in(run, keys)
            at[at == len(run)] = 0
            absent &= run[at] != keys
        return absent

    def clear(self) -> list[Keys]:
        """Take everything out; returns the runs."""
        runs, self._runs = self._runs, []
        return runs

    def discard(self, keys: Keys, look: Look = nothing) -> None:
        """Take sorted keys out."""
        kept: list[Keys] = []
        for run in self._runs:
            at = places_in(keys, run, look=look)
            at[at == len(keys)] = 0
            (stays,) = choose([run], keys[at] != run, look)
            if len(stays):
                kept.append(stays)
        self._runs = kept

    def add(self, keys: Keys, look: Look = nothing) -> None:
        """Add sorted keys that are in no run."""
        if not len(keys):
            return
        while self._runs and _merges(len(self._runs[-1]), len(keys), _MOST_MERGED):
            look()
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

    def number(self, left: Keys, right: Ids, *, add: bool, look: Look = nothing) -> Keys:
        """Return the number of each pair; a new one gets the next, or without `add` -1.

        `look` is called between two stretches of many pairs.
        """
        keys = left * self._size + right
        if not is_short(len(keys)):
            made = self._number_many(keys, look, add=add)
        else:
            made = self._number_some(keys, look, add=add)
        made[left < 0] = -1
        return made

    def _number_some(self, keys: Keys, look: Look, *, add: bool) -> Keys:
        order = np.argsort(keys)
        ordered: Keys = keys[order]
        is_first = first_ones(ordered)
        distinct = ordered[is_first]
        numbers = self._find(distinct)
        if add:
            new = numbers < 0
            numbers[new] = np.arange(self._count, self._count + np.count_nonzero(new))
            self._count += int(np.count_nonzero(new))
            self._add(distinct[new], numbers[new], look)
        made: Keys = np.empty(len(keys), np.int64)
        made[order] = numbers[np.cumsum(is_first) - 1]
        return made

    def _number_many(self, keys: Keys, look: Look, *, add: bool) -> Keys:
        order, ordered = sort_rows(keys, look)
        is_first = first_ones(ordered)
        (distinct,) = choose([ordered], is_first, look)
        numbers: Keys = np.empty(len(distinct), np.int64)
        for stretch in stretches_with_looks(len(distinct), look):
            numbers[stretch] = self._find(distinct[stretch])
        if add:
            self._number_new(distinct, numbers, look)
        made: Keys = np.empty(len(keys), np.int64)
        before = -1
        for stretch in stretches_with_looks(len(keys), look):
            at = np.cumsum(is_first[stretch]) + before
            made[order[stretch]] = numbers[at]
            before = int(at[-1])
        return made

    def _number_new(self, pairs: Keys, numbers: Keys, look: Look) -> None:
        """Give numbers to different pairs in order that have no number, and keep them."""
        first = self._count
        for stretch in stretches_with_looks(len(pairs), look):
            new = numbers[stretch] < 0
            behind = self._count + int(np.count_nonzero(new))
            numbers[stretch][new] = np.arange(self._count, behind)
            self._count = behind
        keys, codes = choose([pairs, numbers], numbers >= first, look)
        self._add(keys, codes, look)

    def _find(self, pairs: Keys) -> Keys:
        """Return the numbers of different pairs in order, -1 for those that have no number."""
        numbers = np.full(len(pairs), -1, np.int64)
        for run, codes in self._runs:
            at = np.searchsorted(run, pairs)
            at[at == len(run)] = 0
            found = run[at] == pairs
            numbers[found] = codes[at[found]]
        return numbers

    def _add(self, keys: Keys, codes: Keys, look: Look) -> None:
        if not len(keys):
            return
        while self._runs and _merges(len(self._runs[-1][0]), len(keys), _MOST_NUMBERED):
            look()
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

    Long operations call `look` between two stretches of rows. If it raises while rows are
    added or taken out, some of them may be in the set and others not: drop the set then. Each
    call is given its own, because a set may outlive the evaluation that made it.
    """

    def __init__(self, arity: int, size: int, *, may_flag: bool = False) -> None:
        self._arity = arity
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

    def _keys(self, columns: Sequence[Ids], count: int, look: Look, *, add: bool) -> Keys:
        if not columns:
            return np.zeros(count, np.int64)
        if self._direct:
            return radix_keys(columns, self._size, look)
        keys = columns[0].astype(np.int64)
        for pairs, column in zip(self._pairs, columns[1:-1], strict=True):
            look()
            keys = pairs.number(keys, column, add=add, look=look)
        look()
        made: Keys = keys * self._size + columns[-1]
        made[keys < 0] = -1
        return made

    def contains(self, columns: Sequence[Ids], count: int, look: Look = nothing) -> Flags:
        """Tell which rows are in the set."""
        if not is_short(count):
            found = np.empty(count, np.bool_)
            for stretch, some, rows in _in_stretches(columns, count, look):
                found[stretch] = self.contains(some, rows, look)
            return found
        keys = self._keys(columns, count, look, add=False)
        if self._flags is not None:
            return self._flags[keys]
        return ~self._runs.missing(keys)

    def add(
        self, columns: Sequence[Ids], count: int, look: Look = nothing
    ) -> tuple[tuple[Ids, ...], int]:
        """Add rows; returns those that are new, each once."""
        if self._flags is None and 0 < self._possible <= _MAX_FLAGS:
            self._make_flags(count)
        if self._flags is not None:
            return self._add_flags(columns, count, self._flags, look)
        if not is_short(count):
            return self._add_many(columns, count, look)
        keys = self._keys(columns, count, look, add=True)
        if self._direct:
            fresh = distinct_sorted(keys)
            fresh = fresh[self._runs.missing(fresh)]
            self._runs.add(fresh, look)
        else:
            distinct, at = np.unique(keys, return_index=True)
            new = self._runs.missing(distinct)
            self._runs.add(distinct[new], look)
            chosen = at[new]
            self.rows += len(chosen)
            return tuple(column[chosen] for column in columns), len(chosen)
        self.rows += len(fresh)
        return self._columns(fresh), len(fresh)

    def _add_many(
        self, columns: Sequence[Ids], count: int, look: Look
    ) -> tuple[tuple[Ids, ...], int]:
        keys = self._keys(columns, count, look, add=True)
        if not self._direct:
            return self._add_many_numbered(columns, keys, look)
        fresh = distinct_sorted(keys, look)
        (fresh,) = choose([fresh], self._runs.missing(fresh, look), look)
        self._runs.add(fresh, look)
        self.rows += len(fresh)
        parts = [
            self._columns(fresh[stretch]) for stretch in stretches_with_looks(len(fresh), look)
        ]
        return _concatenated(parts, self._arity), len(fresh)

    def _add_many_numbered(
        self, columns: Sequence[Ids], keys: Keys, look: Look
    ) -> tuple[tuple[Ids, ...], int]:
        """Add many rows whose keys do not give their values."""
        distinct, at = _distinct_rows(keys, look)
        new = self._runs.missing(distinct, look)
        (fresh,) = choose([distinct], new, look)
        self._runs.add(fresh, look)
        (chosen,) = choose([at], new, look)
        self.rows += len(chosen)
        made: list[Ids] = []
        for column in columns:
            look()
            made.append(column[chosen])
        return tuple(made), len(chosen)

    def _make_flags(self, more: int) -> None:
        """Go over to a table of flags when there are enough rows for its size, or additions."""
        self._adds_until_flags -= 1
        if not self._adds_until_flags or (self.rows + more) * _LEAST_SHARE >= self._possible:
            self._flags = np.zeros(self._possible, np.bool_)
            for run in self._runs.clear():
                self._flags[run] = True

    def _add_flags(
        self, columns: Sequence[Ids], count: int, flags: Flags, look: Look
    ) -> tuple[tuple[Ids, ...], int]:
        if not is_short(count):
            before = self.rows
            parts = [
                self._add_flags(some, rows, flags, look)[0]
                for _, some, rows in _in_stretches(columns, count, look)
            ]
            return _concatenated(parts, self._arity), self.rows - before
        keys = columns[0] if self._arity == 1 else self._keys(columns, count, look, add=True)
        fresh = keys[~flags[keys]]
        flags[fresh] = True
        if len(fresh) * FLAGS_SHARE > len(flags):
            rows = int(np.count_nonzero(flags))
            if rows - self.rows < len(fresh):  # some are there twice
                fresh = distinct_sorted(fresh)
        else:
            fresh = distinct_sorted(fresh)
        self.rows += len(fresh)
        return self._columns(fresh), len(fresh)

    def discard(self, columns: Sequence[Ids], count: int, look: Look = nothing) -> None:
        """Take rows out that are in the set, each given once."""
        if not count:
            return
        keys = self._keys(columns, count, look, add=False)
        if self._flags is not None:
            for stretch in stretches_with_looks(len(keys), look):
                self._flags[keys[stretch]] = False
        else:
            self._runs.discard(distinct_sorted(keys, look), look)
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
    def of(cls, columns: Sequence[Ids], count: int, size: int, look: Look = nothing) -> RowSet:
        """Return the set of given rows."""
        made = cls(len(columns), size)
        made.add(columns, count, look)
        return made


def _in_stretches(
    columns: Sequence[Ids], count: int, look: Look
) -> Iterator[tuple[slice, list[Ids], int]]:
    """Yield where each stretch of rows is, its columns and how many rows it has, after a look."""
    for stretch in stretches_of(count):
        look()
        yield stretch, [column[stretch] for column in columns], stretch.stop - stretch.start


def _concatenated(parts: Sequence[Sequence[Ids]], arity: int) -> tuple[Ids, ...]:
    none = [np.empty(0, np.int32)]
    return tuple(np.concatenate(none + [part[at] for part in parts]) for at in range(arity))


def _distinct_rows(keys: Keys, look: Look) -> tuple[Keys, npt.NDArray[Any]]:
    """Return the different keys of many rows, sorted, and a row of each."""
    order, ordered = sort_rows(keys, look)
    is_first = first_ones(ordered)
    (rows,) = choose([order], is_first, look)
    (distinct,) = choose([ordered], is_first, look)
    return distinct, rows


Slots = npt.NDArray[np.signedinteger[Any]]
_TABLE_SHARE: Final = 32
"""A table pays when the values, or what was asked, are at least this share of all numbers."""
_SMALL: Final = 4096
_FOUND_BYTES: Final = 48
"""What a row takes while it is looked for: its key, the keys in order, and where they are."""
PAIRED_BYTES: Final = 80
"""What a row takes for each column of its key beyond two, while pairs of values are numbered."""


class Members:
    """The set of a column's values."""

    __slots__ = ("_asked", "_flags", "_gone", "_size", "_sorted", "count")

    def __init__(self, values: Ids, size: int, look: Look = nothing) -> None:
        self._size = size
        self._asked = 0
        self._flags: Flags | None = None
        self._gone: Ids | None = None
        self._sorted: Ids = values
        if size <= _SMALL or len(values) * _TABLE_SHARE >= size:
            self.count = int(np.count_nonzero(self._flag(look)))
        else:
            self._sorted = distinct_sorted(values, look)
            self.count = len(self._sorted)

    @property
    def size(self) -> int:
        """How many bytes it takes, beside the column."""
        flags = 0 if self._flags is None else self._flags.nbytes
        return flags + self._sorted.nbytes

    def _flag(self, look: Look = nothing) -> Flags:
        self._flags = flags = np.zeros(self._size, np.bool_)
        for stretch in stretches_of(len(self._sorted)):
            look()
            flags[self._sorted[stretch]] = True
        return flags

    def units(self, rows: int) -> int:
        """Return the cost of each row if this number of rows is looked up next."""
        if self._flags is not None or (self._asked + rows) * _TABLE_SHARE >= self._size:
            return costs.PROBE
        return costs.PROBE if len(self._sorted) <= _SMALL else costs.SEARCHED

    def mask(self, probe: Ids) -> Flags:
        """Tell which values are in the set."""
        flags = self._flags
        if flags is None:
            self._asked += len(probe)
            if self._asked * _TABLE_SHARE >= self._size:
                flags = self._flag()
        if flags is None:
            return _among(probe, self._sorted)
        if self._gone is None:
            return flags[probe]
        if len(probe) > _SMALL:
            return self._settle(self._gone)[probe]
        return flags[probe] & ~_among(probe, self._gone)

    def _settle(self, gone: Ids) -> Flags:
        """Take values out of a table of one's own."""
        if self._flags is None:
            raise AssertionError("only a table has values to take out")
        self._flags = flags = self._flags.copy()
        flags[gone] = False
        self._gone = None
        return flags

    def without(self, values: Ids, look: Look = nothing) -> Members:
        """Return the set without some values that it has, each given once.

        A table is shared, and what was taken out is kept beside it while that is little.
        `look` is called between two stretches of many values.
        """
        made = object.__new__(Members)
        made._size, made._asked = self._size, self._asked
        made.count = self.count - len(values)
        made._flags, made._gone, made._sorted = self._flags, None, self._sorted
        if self._flags is not None:
            gone = values if self._gone is None else np.concatenate((self._gone, values))
            if len(gone) > _SMALL:
                made._settle(gone)
            else:
                made._gone = np.sort(gone)
        else:
            made._sorted = np.delete(self._sorted, places_in(self._sorted, values, look=look))
        return made


def _among(probe: Ids, ordered: Ids) -> Flags:
    """Tell which values are among some that are sorted."""
    if not len(ordered):
        return np.zeros(len(probe), np.bool_)
    at = places_in(ordered, probe)
    at[at == len(ordered)] = 0
    found: Flags = ordered[at] == probe
    return found


class Index:
    """Rows in the order of their keys, and where each key begins."""

    __slots__ = (
        "_asked",
        "_is_single",
        "_pairs",
        "_rows",
        "_size",
        "_sorted",
        "_starts",
        "_table",
        "is_unique",
        "order",
    )

    def __init__(self, columns: Sequence[Ids], rows: int, size: int, look: Look = nothing) -> None:
        self._size = size
        self._asked = 0
        self._table: Ids | None = None
        self._is_single = len(columns) == 1
        direct = radix_fits(size, len(columns))
        self._pairs = [] if direct else [PairNumbers(size) for _ in columns[2:]]
        self.order: Ids | None = None
        self._rows = rows
        self._sorted: Ids | Keys | None = None
        self._starts: npt.NDArray[np.intp] | None = None
        self.is_unique = False
        if len(columns) == 1 and size <= _TABLE_SHARE * rows and rows > _SMALL:
            self._number(columns[0], look)
        if not self.is_unique:
            self._sort(self._encode_all(columns, look), look)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        arrays = (self._table, self.order, self._sorted, self._starts)
        pairs = sum(each.bytes for each in self._pairs)
        return pairs + sum(each.nbytes for each in arrays if each is not None)

    def _number(self, keys: Ids, look: Look) -> None:
        """Make a table of rows by key, if no two rows have the same: quicker than sorting."""
        flags = np.zeros(self._size, np.bool_)
        for stretch in stretches_of(self._rows):
            look()
            flags[keys[stretch]] = True
        if np.count_nonzero(flags) == self._rows:
            self.is_unique = True
            self._table = np.full(self._size, -1, np.int32)
            for stretch in stretches_of(self._rows):
                look()
                rows = np.arange(stretch.start, stretch.stop, dtype=np.int32)
                self._table[keys[stretch]] = rows

    def _sort(self, keys: Ids | Keys, look: Look) -> None:
        rows = self._rows
        if rows > 1 and not bool((keys[1:] >= keys[:-1]).all()):
            self.order, keys = sort_rows(keys, look)
        first = np.empty(rows, np.bool_)
        first[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        begins = np.flatnonzero(first)
        self.is_unique = len(begins) == rows
        self._sorted = keys if self.is_unique else keys[begins]
        self._starts = np.append(begins, rows)

    @property
    def starts(self) -> npt.NDArray[np.intp]:
        """Where the rows of each key begin, and at last where they end."""
        if self._starts is None:
            self._starts = np.arange(self._rows + 1)
        return self._starts

    @property
    def longest(self) -> int:
        """How many rows the most frequent key has."""
        if self.is_unique:
            return 1
        return int((self.starts[1:] - self.starts[:-1]).max(initial=0))

    @property
    def keys(self) -> int:
        """How many different keys there are."""
        return len(self._sorted) if self._sorted is not None else self._rows

    def _encode_all(self, columns: Sequence[Ids], look: Look) -> Ids | Keys:
        """Return the keys of all rows; pairs get their numbers in stretches."""
        if not self._pairs:
            return self._encode(columns, add=True)
        keys = np.empty(self._rows, np.int64)
        for stretch in stretches_of(self._rows):
            look()
            some = [column[stretch] for column in columns]
            keys[stretch] = self._encode(some, add=True, look=look)
        return keys

    def _encode(self, columns: Sequence[Ids], *, add: bool, look: Look = nothing) -> Ids | Keys:
        if len(columns) == 1:
            return columns[0]
        if not self._pairs:
            return radix_keys(columns, self._size)
        keys = columns[0].astype(np.int64)
        for pairs, column in zip(self._pairs, columns[1:-1], strict=True):
            keys = pairs.number(keys, column, add=add, look=look)
        made: Keys = keys * self._size + columns[-1]
        made[keys < 0] = -1
        return made

    def units(self, rows: int) -> int:
        """Return the cost of each row if this number of rows is looked up next."""
        keys = self._sorted
        if self._table is not None or keys is None:
            return costs.PROBE
        if self._is_single and self._makes_table(rows, len(keys)):
            return costs.PROBE
        if self._is_single and len(keys) <= _SMALL:
            return costs.PROBE
        return costs.SEARCHED + costs.SET_COLUMN * len(self._pairs)

    def bytes_to_find(self, rows: int) -> int:
        """Return an upper estimate of the bytes that looking for rows takes."""
        return (_FOUND_BYTES + PAIRED_BYTES * len(self._pairs)) * rows

    def _makes_table(self, rows: int, keys: int) -> bool:
        return (self._asked + rows) * _TABLE_SHARE >= self._size and keys > _SMALL // 16

    def find(self, columns: Sequence[Ids]) -> Slots:
        """Return the number of each row's key, -1 where there is no such key."""
        probe = self._encode(columns, add=False)
        keys = self._sorted
        if len(columns) == 1 and keys is not None and self._table is None:
            makes_table = self._makes_table(len(probe), len(keys))
            self._asked += len(probe)
            if makes_table:
                self._table = np.full(self._size, -1, np.int32)
                self._table[keys] = np.arange(len(keys), dtype=np.int32)
        if self._table is not None:
            return self._table[probe].astype(np.intp)
        if keys is None:
            raise AssertionError("an index has sorted keys or a table")
        at = places_in(keys, probe)
        at[at == len(keys)] = 0
        at[keys[at] != probe] = -1
        return at

    def rows_at(self, positions: Slots) -> Slots:
        """Return the row numbers at positions of the sorted order."""
        return positions if self.order is None else self.order[positions]
