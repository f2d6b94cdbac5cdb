"""Rows that were written to stored columns since they were opened, in numbers of a fact base.

A base numbers texts that are new to it behind the stored ones. When these grow, the numbers
that they get in the files are taken by others here, so rows that come are translated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lace.engines.embedded.keys import distinct_ids
from lace.engines.embedded.stored_part import NAME_AT, PARTITIONED
from lace.facts.catalogue import RECORD_PREDICATES
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.factbase import FactBase
    from lace.engines.embedded.stored_part import StoredColumns
    from lace.facts.extract import Reads

__all__ = ["RECORD_KEYS", "ColumnFollower"]

RECORD_KEYS: Final = tuple(
    PredicateKey(found.name, found.arity) for found in RECORD_PREDICATES.values()
)
_UNKNOWN: Final = -1


class ColumnFollower:
    """How far stored columns were read, and what their later numbers are in a base.

    Args:
        base: the fact base.
        columns: the stored columns that it has; None for none yet.
    """

    def __init__(self, base: FactBase, columns: StoredColumns | None) -> None:
        self._base = base
        self._generation = None if columns is None else columns.generation
        self._rows = {key: 0 if columns is None else columns.rows(key.name) for key in RECORD_KEYS}
        self._first = 0 if columns is None else len(columns.dictionary)
        self._numbers: Ids = np.empty(0, np.int32)
        """What the stored texts from `_first` on are numbered here."""

    def continues(self, columns: StoredColumns) -> bool:
        """Tell whether columns are the ones that were read, perhaps grown since."""
        return self._generation is None or columns.generation == self._generation

    def take(self, columns: StoredColumns, reads: Reads) -> dict[PredicateKey, list[Ids]]:
        """Return the rows that came since the last time, as far as somebody reads them."""
        self._generation = columns.generation
        found = {key: self._chosen(key, columns, reads) for key in RECORD_KEYS if key.name in reads}
        for key in RECORD_KEYS:
            self._rows[key] = columns.rows(key.name)
        size = len(columns.dictionary)
        self._translate(columns, [column for each in found.values() for column in each], size)
        return {key: [self._here(column) for column in each] for key, each in found.items()}

    def _chosen(self, key: PredicateKey, columns: StoredColumns, reads: Reads) -> list[Ids]:
        """Return the new rows of a predicate that somebody reads, in stored numbers."""
        rows = columns.rows_from(key.name, self._rows[key])
        names = reads[key.name]
        if names is None or key.name not in PARTITIONED:
            return rows
        numbers = columns.dictionary.find(sorted(names))
        mask = np.isin(rows[NAME_AT], numbers[numbers >= 0])
        return [column[mask] for column in rows]

    def _translate(self, columns: StoredColumns, found: list[Ids], size: int) -> None:
        """Give numbers here to stored texts that come up for the first time."""
        more = np.full(size - self._first - len(self._numbers), _UNKNOWN, np.int32)
        self._numbers = np.concatenate([self._numbers, more])
        if not found:
            return
        later = np.concatenate(found)
        later = later[later >= self._first] - self._first
        fresh = distinct_ids(later[self._numbers[later] == _UNKNOWN], len(self._numbers))
        texts = columns.dictionary.texts((fresh + self._first).astype(np.int32))
        self._numbers[fresh] = self._base.dictionary.intern_all(texts)

    def _here(self, column: Ids) -> Ids:
        made = column.copy()
        later = made >= self._first
        made[later] = self._numbers[made[later] - self._first]
        return made
