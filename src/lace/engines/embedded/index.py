"""What rows are found by: sets of values, and rows by key.

Both answer for whole columns at a time. Small ones search sorted values; a large one is
a table over all numbers, made when enough was asked of it to be worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines import costs
from lace.engines.embedded.keys import (
    PairNumbers,
    distinct_sorted,
    nothing,
    places_in,
    radix_fits,
    radix_keys,
    sort_rows,
    stretches_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.keys import Flags, Keys, Look

__all__ = ["PAIRED_BYTES", "Index", "Members", "Slots"]

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
            self._sorted = distinct_sorted(values)
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

    def without(self, values: Ids) -> Members:
        """Return the set without some values that it has, each given once.

        A table is shared, and what was taken out is kept beside it while that is little.
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
            made._sorted = np.delete(self._sorted, np.searchsorted(self._sorted, values))
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
            keys[stretch] = self._encode([column[stretch] for column in columns], add=True)
        return keys

    def _encode(self, columns: Sequence[Ids], *, add: bool) -> Ids | Keys:
        if len(columns) == 1:
            return columns[0]
        if not self._pairs:
            return radix_keys(columns, self._size)
        keys = columns[0].astype(np.int64)
        for pairs, column in zip(self._pairs, columns[1:-1], strict=True):
            keys = pairs.number(keys, column, add=add)
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
