"""The facts of records as base facts: stored columns, and what came or went since.

A record's facts come and go together, and are a function of its hash alone. So a record
is removed by its number, and one that comes back needs no comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.engines.embedded.column_follower import RECORD_KEYS, ColumnFollower
from lace.engines.embedded.factbase import Changes, FactBase
from lace.engines.embedded.index import Members
from lace.engines.embedded.keys import distinct_sorted
from lace.engines.embedded.relation import EVERYTHING, ColumnPart, Relation
from lace.engines.embedded.stored_part import StoredPart
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.relation import Part
    from lace.engines.embedded.stored_part import StoredColumns
    from lace.facts.extract import Reads
    from lace.facts.lines import Fact

__all__ = ["RecordBase"]

_HAVE = PredicateKey("Have", 1)
_KEYS = RECORD_KEYS


class RecordBase:
    """A fact base of records; `count` says how many, and is the caller's to keep right.

    Args:
        columns: the stored columns, if there are any.
        removed: the numbers of records in them that are gone, sorted.
        later: the facts of records that are not in the columns.
        max_value_bytes: how long a value may be.
    """

    def __init__(
        self,
        columns: StoredColumns | None,
        removed: Ids,
        later: Iterable[Fact],
        *,
        max_value_bytes: int,
    ) -> None:
        stored = columns.dictionary if columns is not None else None
        self.base = FactBase(stored, max_value_bytes=max_value_bytes)
        self._removed = removed
        self._columns = columns
        self._follower = ColumnFollower(self.base, columns)
        come = self.base.intern(later)
        self.base.make_room()
        for key in _KEYS:
            parts: list[Part] = []
            if columns is not None:
                parts.append(StoredPart(columns, key.name, self._members()))
            self.base.relations[key] = Relation(key.arity, parts)
        for key, (each, rows) in come.items():
            self.base.relations[key] = self.base.relations[key].with_rows(each, rows)
        have = self.base.relations[_HAVE].select(EVERYTHING)
        self.count = sum(selection.rows for selection in have)

    def check_files(self) -> None:
        """Refuse columns whose files have become shorter: to read them would be fatal."""
        if self._columns is not None:
            self._columns.check_files()

    def _members(self) -> Members | None:
        return Members(self._removed, self.base.size) if len(self._removed) else None

    def has(self, records: Sequence[str]) -> list[bool]:
        """Tell which records have their facts here."""
        if not records:
            return []
        ids = self.base.dictionary.find_all(records)
        found = np.zeros(len(ids), np.bool_)
        for selection in self.base.relations[_HAVE].select(EVERYTHING):
            found |= selection.members(0, self.base.size).mask(np.maximum(ids, 0))
        return [bool(each) for each in found & (ids >= 0)]

    def change(self, come: Iterable[Fact], gone: Sequence[str]) -> Changes:
        """Take out records that are here, and add the facts of records that are not."""
        fresh = self.base.intern(come)
        self.base.make_room()
        removed: dict[PredicateKey, Relation] = {}
        if gone:
            removed = self._remove(distinct_sorted(self.base.dictionary.find_all(gone)))
        added = {key: Relation.of(columns, rows) for key, (columns, rows) in fresh.items() if rows}
        changes = Changes(added, removed)
        self.base.apply(Changes(added))
        return changes

    def extend(self, columns: StoredColumns, reads: Reads, later: Iterable[Fact]) -> Changes | None:
        """Add the facts of records that longer columns have, and of later ones.

        Facts that nobody reads are left out. What is known already is not added again, but of
        `later` there is nothing known. None when the columns do not continue the ones before.
        """
        if len(self._removed) or not self._follower.continues(columns):
            return None
        come = self._follower.take(columns, reads)
        further = self.base.intern(later)
        self.base.make_room()
        (have,) = come[_HAVE]
        known = np.zeros(len(have), np.bool_)
        for selection in self.base.relations[_HAVE].select(EVERYTHING):
            known |= selection.members(0, self.base.size).mask(have)
        fresh = Members(have[~known], self.base.size)
        added: dict[PredicateKey, Relation] = {}
        for key, found in come.items():
            mask = fresh.mask(found[0])
            if mask.any():
                added[key] = Relation.of([column[mask] for column in found], int(mask.sum()))
        for key, (each, rows) in further.items():
            added[key] = (added.get(key) or Relation(key.arity)).with_rows(each, rows)
        changes = Changes(added)
        self.base.apply(changes)
        return changes

    def _remove(self, ids: Ids) -> dict[PredicateKey, Relation]:
        """Take the rows of records out of every relation; returns those rows."""
        self._removed = np.union1d(self._removed, ids).astype(np.int32)
        going, everything = Members(ids, self.base.size), self._members()
        removed: dict[PredicateKey, Relation] = {}
        for key in _KEYS:  # what others say of the record stays
            relation = self.base.relations[key]
            pieces: list[Part] = []
            parts: list[Part] = []
            for part in relation.parts:
                whole = part.select(EVERYTHING)
                mask = going.mask(whole.column(0))
                if not mask.any():
                    parts.append(part)
                    continue
                columns = [whole.column(at) for at in range(key.arity)]
                pieces.append(ColumnPart([column[mask] for column in columns], int(mask.sum())))
                if isinstance(part, StoredPart) and everything is not None:
                    parts.append(part.without(everything))
                else:
                    stays = ~mask
                    kept = [column[stays] for column in columns]
                    parts.append(ColumnPart(kept, int(stays.sum())))
            if pieces:
                removed[key] = Relation(key.arity, pieces)
                self.base.relations[key] = Relation(key.arity, parts)
        return removed
