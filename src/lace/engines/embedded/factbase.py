"""Base facts that evaluations share, and their changes.

A `FactBase` numbers texts, holds the base relations with the access paths made so far,
and the verdicts of built-in tests. Several programs may be evaluated over one, and stay
up to date with it (`lace.engines.embedded.session`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lace.engines.embedded.dictionary import Dictionary
from lace.engines.embedded.keys import RowSet, nothing
from lace.engines.embedded.load import columns_of, group_facts, intern_values
from lace.engines.embedded.relation import ColumnPart, Relation
from lace.engines.embedded.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids, StoredTexts, Texts
    from lace.engines.embedded.keys import Look
    from lace.engines.embedded.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.syntax import PredicateKey

__all__ = ["Changes", "Columns", "FactBase"]

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

        `look` is called now and then while the values are numbered; if it raises, nothing changes.
        """
        gone, come = self.intern(removed, look), self.intern(added, look)
        look()
        return self.change_columns(come, gone)

    def change_columns(self, come: Columns, gone: Columns) -> Changes:
        """Take rows of numbers out, then add rows; returns what really changed."""
        self.make_room()
        before = {key: self._known(key) for key in {*gone, *come}}
        fresh: dict[PredicateKey, RowSet] = {}
        removed_rows: dict[PredicateKey, Relation] = {}
        added_rows: dict[PredicateKey, Relation] = {}
        for key in come.keys() & gone.keys():
            fresh[key] = RowSet.of(*come[key], self.size)
        for key, (columns, rows) in gone.items():
            wanted, count = RowSet(key.arity, self.size).add(columns, rows)
            going = before[key].contains(wanted, count)
            if key in fresh:  # what goes and comes at once stays
                going &= ~fresh[key].contains(wanted, count)
            chosen = tuple(column[going] for column in wanted)
            if going.any():
                removed_rows[key] = Relation.of(chosen, int(going.sum()))
        for key, (columns, rows) in come.items():
            new, count = before[key].add(columns, rows)
            if count:
                added_rows[key] = Relation.of(new, count)
        changes = Changes(added_rows, removed_rows)
        self.apply(changes)
        return changes

    def apply(self, changes: Changes) -> None:
        """Change the relations; what is added is not there yet, what is removed is."""
        for key, gone in changes.removed.items():
            columns = gone.columns()
            present = self.relations[key]
            rows = RowSet.of(columns, gone.rows, self.size)
            self.relations[key] = present.without(rows, columns)
            if key in self._sets:
                self._sets[key].discard(columns, gone.rows)
        for key, come in changes.added.items():
            present = self.relations.get(key) or Relation(key.arity)
            self.relations[key] = present.with_rows(come.columns(), come.rows)

    def _known(self, key: PredicateKey) -> RowSet:
        """Return the rows of a predicate as a set, which stays up to date with changes."""
        found = self._sets.get(key)
        if found is None:
            present = self.relations.get(key) or Relation(key.arity)
            found = self._sets[key] = RowSet.of(present.columns(), present.rows, self.size)
        return found
