"""Changes of base facts taken together: what came and what went between two moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.engines.embedded.factbase import Changes
from lace.engines.embedded.keys import RowSet
from lace.engines.embedded.relation import Relation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.engines.embedded.factbase import Columns, FactBase
    from lace.rules.syntax import PredicateKey

__all__ = ["Difference", "only"]


class Difference:
    """What came and what went, however often: rows that did both in the end did neither."""

    def __init__(self, base: FactBase) -> None:
        self._base = base
        self.added: dict[PredicateKey, Relation] = {}
        self.removed: dict[PredicateKey, Relation] = {}

    def note(self, changes: Changes) -> None:
        """Take in a change: rows that were not there, and rows that were."""
        for key, gone in changes.removed.items():
            self._move(gone, key, self.added, self.removed)
        for key, come in changes.added.items():
            self._move(come, key, self.removed, self.added)

    def _move(
        self,
        rows: Relation,
        key: PredicateKey,
        away: dict[PredicateKey, Relation],
        to: dict[PredicateKey, Relation],
    ) -> None:
        """Take rows away from where they are, and put the others of them elsewhere."""
        columns, count = rows.columns(), rows.rows
        if key in away and away[key].rows:
            size, held = len(self._base.dictionary), away[key]
            back = RowSet.of(held.columns(), held.rows, size).contains(columns, count)
            if back.any():
                some = tuple(column[back] for column in columns)
                away[key] = held.without(RowSet.of(some, int(back.sum()), size), some)
            columns, count = tuple(column[~back] for column in columns), int((~back).sum())
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
