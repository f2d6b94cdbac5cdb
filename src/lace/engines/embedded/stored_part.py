"""Relations whose rows lie in files: the columns of segments, read as far as rules need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lace.engines.embedded.relation import EVERYTHING, Pattern, Selection

if TYPE_CHECKING:
    from lace.engines.embedded.dictionary import Ids, StoredTexts
    from lace.engines.embedded.index import Members

__all__ = ["NAME_AT", "PARTITIONED", "StoredColumns", "StoredPart"]

PARTITIONED: Final = frozenset({"Field", "RecordLink"})
"""Predicates whose rows can be had by the value of their second position alone."""
NAME_AT: Final = 1
"""The position that they are partitioned by."""


class StoredColumns(Protocol):
    """Columns of record facts that are kept in files and do not change."""

    @property
    def dictionary(self) -> StoredTexts:
        """The texts that the columns' numbers stand for."""
        ...

    @property
    def generation(self) -> str:
        """What is common to columns of which the longer ones continue the shorter."""
        ...

    def check_files(self) -> None:
        """Refuse files that have become shorter."""
        ...

    def rows_from(self, predicate: str, start: int) -> list[Ids]:
        """Return the columns of the rows from one on."""
        ...

    def rows(self, predicate: str, name: int | None = None) -> int:
        """Return how many rows a predicate has, or has with a name at its second position."""
        ...

    def column(self, predicate: str, position: int, name: int | None = None) -> Ids:
        """Return the values at a position of those rows."""
        ...


class _Source:
    """The columns of a predicate, of all rows or of those with one name."""

    __slots__ = ("_columns", "_name", "_predicate")

    def __init__(self, columns: StoredColumns, predicate: str, name: int | None) -> None:
        self._columns, self._predicate, self._name = columns, predicate, name

    def column(self, position: int) -> Ids:
        return self._columns.column(self._predicate, position, self._name)


class StoredPart:
    """The rows of a record predicate in stored columns, except those of removed records.

    `rows` counts those of removed records as well; selections have only the others.
    """

    __slots__ = ("_columns", "_predicate", "_removed", "_selections", "rows")

    def __init__(self, columns: StoredColumns, predicate: str, removed: Members | None) -> None:
        self._columns = columns
        self._predicate = predicate
        self._removed = removed
        self.rows = columns.rows(predicate)
        self._selections: dict[Pattern, Selection] = {}

    def has(self, pattern: Pattern) -> bool:
        """Tell whether the rows that fit a pattern were asked for before."""
        return pattern in self._selections

    def fresh(self) -> StoredPart:
        """Return the same rows without the access paths made so far."""
        return StoredPart(self._columns, self._predicate, self._removed)

    def without(self, removed: Members) -> StoredPart:
        """Return the part with these records removed, and no others."""
        return StoredPart(self._columns, self._predicate, removed)

    def select(self, pattern: Pattern) -> Selection:
        """Return the rows that fit a pattern."""
        found = self._selections.get(pattern)
        if found is None:
            found = self._selections[pattern] = self._select(pattern)
        return found

    def _select(self, pattern: Pattern) -> Selection:
        constants = dict(pattern.constants)
        if self._predicate in PARTITIONED and NAME_AT in constants:
            name = constants.pop(NAME_AT)
            if not constants and not pattern.equal:
                return self._whole(name)
            whole = self.select(Pattern(((NAME_AT, name),)))
            return whole.narrowed(Pattern(tuple(constants.items()), pattern.equal))
        if pattern == EVERYTHING:
            return self._whole(None)
        return self.select(EVERYTHING).narrowed(pattern)

    def _whole(self, name: int | None) -> Selection:
        rows = self._columns.rows(self._predicate, name)
        source = _Source(self._columns, self._predicate, name)
        if self._removed is None or not rows:
            return Selection(source, rows)
        stays = ~self._removed.mask(source.column(0))
        if bool(stays.all()):
            return Selection(source, rows)
        return Selection(source, rows, np.flatnonzero(stays).astype(np.int32))
