"""Base facts that evaluations share, and their changes.

A `FactBase` numbers texts, holds the base relations with the access paths made so far,
and the verdicts of built-in tests. Several programs may be evaluated over one, and stay
up to date with it (`lace.engine.engine`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lace.columns.dictionary import Dictionary
from lace.columns.index import Members, RowSet
from lace.columns.keys import choose, distinct_ids, distinct_sorted, nothing
from lace.columns.relation import EVERYTHING, NAME_AT, PARTITIONED, ColumnPart, Relation, StoredPart
from lace.engine.load import columns_of, group_facts, intern_values
from lace.engine.predicate_cache import Verdicts
from lace.facts.catalogue import RECORD_PREDICATES
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.columns.dictionary import Ids, StoredTexts, Texts
    from lace.columns.keys import Look
    from lace.columns.relation import Part, StoredColumns
    from lace.engine.load import GroupedFacts
    from lace.facts.extract import Reads
    from lace.facts.lines import Fact


Columns: TypeAlias = "Mapping[PredicateKey, tuple[Sequence[Ids], int]]"
"""Columns of numbers and how many rows they have, by predicate."""

_AT_ONCE: Final = 2**18
"""Values that are numbered between two looks at the supervisor: about 0.2 s."""
_LEAST_ROOM: Final = 4096
"""Numbers to spare for texts that come later; beyond that everything is numbered again."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that came and rows that went, by predicate; neither has a row of the other."""

    added: Mapping[PredicateKey, Relation] = field(default_factory=dict)
    removed: Mapping[PredicateKey, Relation] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class FactBase:
    """Base relations over one dictionary.

    `size` is above every number given so far, with room to spare; `generation` changes
    when everything kept by number has become void.
    """

    def __init__(
        self,
        stored: StoredTexts | None = None,
        *,
        max_value_bytes: int,
        dictionary: Texts | None = None,
    ) -> None:
        self.dictionary: Texts = Dictionary(stored) if dictionary is None else dictionary
        self.relations: dict[PredicateKey, Relation] = {}
        self.generation = 0
        self._max_value_bytes = max_value_bytes
        self._sets: dict[PredicateKey, RowSet] = {}
        self.size = 0
        self.verdicts = Verdicts(self.dictionary, 0)
        self.make_room()

    def make_room(self) -> bool:
        """See that size is above every number; tells whether all was numbered again."""
        if self.size and len(self.dictionary) <= self.size:
            return False
        self.size = len(self.dictionary) + max(_LEAST_ROOM, len(self.dictionary) // 4)
        self.verdicts = Verdicts(self.dictionary, self.size)
        self.relations = {key: found.renumbered() for key, found in self.relations.items()}
        self._sets.clear()
        self.generation += 1
        return True

    @property
    def path_bytes(self) -> int:
        """How many bytes access paths and verdicts take, beside the facts."""
        return self.verdicts.size + sum(
            part.path_bytes
            for relation in self.relations.values()
            for part in relation.parts
            if isinstance(part, ColumnPart)
        )

    @property
    def max_value_bytes(self) -> int:
        """How long a value may be."""
        return self._max_value_bytes

    def intern(self, facts: Iterable[Fact] | GroupedFacts, look: Look = nothing) -> Columns:
        """Return facts as columns of numbers; their values are checked.

        `look` is called between two stretches of many values; what it raises ends this.
        """
        made: dict[PredicateKey, tuple[Sequence[Ids], int]] = {}
        grouped = group_facts(facts)
        # One search for all of them is quicker than one for each predicate.
        values = list(chain.from_iterable(each for key, each in grouped.items() if key.arity))
        found: list[Ids] = [np.empty(0, np.int32)]
        for first in range(0, len(values), _AT_ONCE):
            look()
            some = values if len(values) <= _AT_ONCE else values[first : first + _AT_ONCE]
            found.append(intern_values(some, self.dictionary, self._max_value_bytes))
        ids = found[1] if len(found) == 2 else np.concatenate(found)
        for key, each in grouped.items():
            own, ids = (ids[: len(each)], ids[len(each) :]) if key.arity else (ids[:0], ids)
            made[key] = columns_of(key, own), len(each) // max(key.arity, 1)
        return made

    def change(
        self,
        added: Iterable[Fact] | GroupedFacts,
        removed: Iterable[Fact] | GroupedFacts = (),
        look: Look = nothing,
    ) -> Changes:
        """Take facts out, then add facts; returns what really changed.

        `look` is called between two stretches of many values or rows; if it raises, nothing
        changes.
        """
        gone, come = self.intern(removed, look), self.intern(added, look)
        return self.change_columns(come, gone, look)

    def change_columns(self, come: Columns, gone: Columns, look: Look = nothing) -> Changes:
        """Take rows of numbers out, then add rows; returns what really changed.

        `look` is called between two stretches of many rows; if it raises, nothing changes.
        """
        look()
        self.make_room()
        try:
            # What goes is found before rows are added to the sets.
            removed = self._removed(come, gone, look)
            changes = Changes(self._added(come, look), removed)
            self.apply(changes, look)
        except BaseException:
            self._forget_sets({*come, *gone})
            raise
        return changes

    def _removed(self, come: Columns, gone: Columns, look: Look) -> dict[PredicateKey, Relation]:
        """Return the rows of those to take out that are there, and do not come at once."""
        made: dict[PredicateKey, Relation] = {}
        for key, (columns, rows) in gone.items():
            look()
            wanted, count = RowSet(key.arity, self.size).add(columns, rows, look)
            going = self._known(key, look).contains(wanted, count, look)
            if key in come:  # what goes and comes at once stays
                fresh = RowSet.of(*come[key], self.size, look)
                going &= ~fresh.contains(wanted, count, look)
            if going.any():
                made[key] = Relation.of(choose(wanted, going, look), int(going.sum()))
        return made

    def _added(self, come: Columns, look: Look) -> dict[PredicateKey, Relation]:
        """Return the rows that are new; the sets have them from now on."""
        made: dict[PredicateKey, Relation] = {}
        for key, (columns, rows) in come.items():
            look()
            new, count = self._known(key, look).add(columns, rows, look)
            if count:
                made[key] = Relation.of(new, count)
        return made

    def apply(self, changes: Changes, look: Look = nothing) -> None:
        """Change the relations; what is added is not there yet, what is removed is.

        If `look` raises, no relation has changed.
        """
        made: dict[PredicateKey, Relation] = {}
        try:
            for key, gone in changes.removed.items():
                made[key] = self._without(key, gone, look)
            for key, come in changes.added.items():
                look()
                present = made.get(key) or self.relations.get(key) or Relation(key.arity)
                made[key] = present.with_rows(come.columns(), come.rows)
        except BaseException:
            self._forget_sets(changes.removed)
            raise
        self.relations.update(made)

    def _without(self, key: PredicateKey, gone: Relation, look: Look) -> Relation:
        """Return a relation without some rows, and take them out of its set."""
        look()
        columns = gone.columns()
        rows = RowSet.of(columns, gone.rows, self.size, look)
        made = self.relations[key].without(rows, columns, look)
        if key in self._sets:
            self._sets[key].discard(columns, gone.rows, look)
        return made

    def _forget_sets(self, keys: Iterable[PredicateKey]) -> None:
        """Drop sets that are half changed; they are made again of the relations."""
        for key in keys:
            self._sets.pop(key, None)

    def _known(self, key: PredicateKey, look: Look) -> RowSet:
        """Return the rows of a predicate as a set, which stays up to date with changes."""
        found = self._sets.get(key)
        if found is None:
            present = self.relations.get(key) or Relation(key.arity)
            found = RowSet.of(present.columns(), present.rows, self.size, look)
            self._sets[key] = found
        return found


# -- Changes of base facts taken together: what came and what went between two moments.


class Difference:
    """What came and what went, however often: rows that did both in the end did neither."""

    def __init__(self, base: FactBase) -> None:
        self._base = base
        self.added: dict[PredicateKey, Relation] = {}
        self.removed: dict[PredicateKey, Relation] = {}

    def note(self, changes: Changes, look: Look = nothing) -> None:
        """Take in a change: rows that were not there, and rows that were.

        `look` is called between two stretches of many rows. If it raises, a part of the change
        may have been taken in.
        """
        for key, gone in changes.removed.items():
            self._move(gone, key, self.added, self.removed, look)
        for key, come in changes.added.items():
            self._move(come, key, self.removed, self.added, look)

    def _move(
        self,
        rows: Relation,
        key: PredicateKey,
        away: dict[PredicateKey, Relation],
        to: dict[PredicateKey, Relation],
        look: Look,
    ) -> None:
        """Take rows away from where they are, and put the others of them elsewhere."""
        columns, count = rows.columns(), rows.rows
        if key in away and away[key].rows:
            size, held = len(self._base.dictionary), away[key]
            known = RowSet.of(held.columns(), held.rows, size, look)
            back = known.contains(columns, count, look)
            if back.any():
                some = choose(columns, back, look)
                away[key] = held.without(RowSet.of(some, int(back.sum()), size, look), some, look)
            columns, count = choose(columns, ~back, look), int((~back).sum())
        if count:
            to[key] = (to.get(key) or Relation(key.arity)).with_rows(columns, count)

    @property
    def columns(self) -> tuple[Columns, Columns]:
        """The rows that came and those that went, in numbers of the base."""
        come, gone = (
            {key: (found.columns(), found.rows) for key, found in each.items()}
            for each in (self.added, self.removed)
        )
        return come, gone


def only(changes: Changes, keys: Iterable[PredicateKey]) -> Changes:
    """Return the part of changes that concerns some predicates."""
    wanted = set(keys)
    return Changes(
        {key: found for key, found in changes.added.items() if key in wanted},
        {key: found for key, found in changes.removed.items() if key in wanted},
    )


# -- Rows that were written to stored columns since they were opened, in numbers of a fact base.
#
# A base numbers texts that are new to it behind the stored ones. When these grow, the numbers
# that they get in the files are taken by others here, so rows that come are translated.

RECORD_KEYS: Final = tuple(
    PredicateKey(found.name, found.arity) for found in RECORD_PREDICATES.values()
)
_UNKNOWN: Final = -1


class ColumnFollower:
    """How far stored columns were read, and what their later numbers are in a base."""

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


# -- The facts of records as base facts: stored columns, and what came or went since.
#
# A record's facts come and go together, and are a function of its hash alone. So a record
# is removed by its number, and one that comes back needs no comparing.

_HAVE = PredicateKey("Have", 1)
_KEYS = RECORD_KEYS


class RecordBase:
    """A fact base of records; `count` says how many, and is the caller's to keep right."""

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
