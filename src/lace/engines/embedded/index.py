"""What rows are found by: sets of values, and rows by key.

Both answer for whole columns at a time. Small ones search sorted values; a large one is
a table over all numbers, made when enough was asked of it to be worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.keys import PairNumbers, distinct_sorted, radix_fits, radix_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.keys import Flags, Keys

__all__ = ["Index", "Members", "Slots"]

Slots = npt.NDArray[np.signedinteger[Any]]
_TABLE_SHARE: Final = 32
"""A table pays when the values, or what was asked, are at least this share of all numbers."""
_SMALL: Final = 4096


class Members:
    """The set of a column's values."""

    __slots__ = ("_asked", "_flags", "_gone", "_size", "_sorted", "count")

    def __init__(self, values: Ids, size: int) -> None:
        self._size = size
        self._asked = 0
        self._flags: Flags | None = None
        self._gone: Ids | None = None
        self._sorted: Ids = values
        if size <= _SMALL or len(values) * _TABLE_SHARE >= size:
            self.count = int(np.count_nonzero(self._flag()))
        else:
            self._sorted = distinct_sorted(values)
            self.count = len(self._sorted)

    @property
    def size(self) -> int:
        """How many bytes it takes, beside the column."""
        flags = 0 if self._flags is None else self._flags.nbytes
        return flags + self._sorted.nbytes

    def _flag(self) -> Flags:
        self._flags = flags = np.zeros(self._size, np.bool_)
        flags[self._sorted] = True
        return flags

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
    at = np.searchsorted(ordered, probe)
    at[at == len(ordered)] = 0
    found: Flags = ordered[at] == probe
    return found


class Index:
    """Rows in the order of their keys, and where each key begins."""

    __slots__ = (
        "_asked",
        "_pairs",
        "_rows",
        "_size",
        "_sorted",
        "_starts",
        "_table",
        "is_unique",
        "order",
    )

    def __init__(self, columns: Sequence[Ids], rows: int, size: int) -> None:
        self._size = size
        self._asked = 0
        self._table: Ids | None = None
        direct = radix_fits(size, len(columns))
        self._pairs = [] if direct else [PairNumbers(size) for _ in columns[2:]]
        self.order: Ids | None = None
        self._rows = rows
        self._sorted: Ids | Keys | None = None
        self._starts: npt.NDArray[np.intp] | None = None
        self.is_unique = False
        if len(columns) == 1 and size <= _TABLE_SHARE * rows and rows > _SMALL:
            self._number(columns[0])
        if not self.is_unique:
            self._sort(self._encode(columns, add=True))

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        arrays = (self._table, self.order, self._sorted, self._starts)
        pairs = sum(each.bytes for each in self._pairs)
        return pairs + sum(each.nbytes for each in arrays if each is not None)

    def _number(self, keys: Ids) -> None:
        """Make a table of rows by key, if no two rows have the same: quicker than sorting."""
        flags = np.zeros(self._size, np.bool_)
        flags[keys] = True
        if np.count_nonzero(flags) == self._rows:
            self.is_unique = True
            self._table = np.full(self._size, -1, np.int32)
            self._table[keys] = np.arange(self._rows, dtype=np.int32)

    def _sort(self, keys: Ids | Keys) -> None:
        rows = self._rows
        if rows > 1 and not bool((keys[1:] >= keys[:-1]).all()):
            self.order = np.argsort(keys).astype(np.int32)
            keys = keys[self.order]
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

    def find(self, columns: Sequence[Ids]) -> Slots:
        """Return the number of each row's key, -1 where there is no such key."""
        probe = self._encode(columns, add=False)
        keys = self._sorted
        if len(columns) == 1 and keys is not None and self._table is None:
            self._asked += len(probe)
            if self._asked * _TABLE_SHARE >= self._size and len(keys) > _SMALL // 16:
                self._table = np.full(self._size, -1, np.int32)
                self._table[keys] = np.arange(len(keys), dtype=np.int32)
        if self._table is not None:
            return self._table[probe].astype(np.intp)
        if keys is None:
            raise AssertionError("an index has sorted keys or a table")
        at = np.searchsorted(keys, probe)
        at[at == len(keys)] = 0
        at[keys[at] != probe] = -1
        return at

    def rows_at(self, positions: Slots) -> Slots:
        """Return the row numbers at positions of the sorted order."""
        return positions if self.order is None else self.order[positions]
