"""Enclaves: a program evaluated over facts of its own, and nothing beside them.

An enclave numbers texts by itself, in an order that only its facts decide; it has its
own relations, access paths, plans and budget. So whatever its evaluation does, costs or
fails at is a function of the program and of the facts it was given. Facts that others
hold cannot show in it, not even in the rows it visits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.engines.embedded.budget import Statistics
from lace.engines.embedded.canonical_order import renumber
from lace.engines.embedded.factbase import FactBase
from lace.engines.embedded.keys import RowSet
from lace.engines.embedded.load import GroupedFacts
from lace.engines.embedded.relation import Relation
from lace.engines.embedded.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.engines.embedded.budget import Clock
    from lace.engines.embedded.canonical_order import Identifying
    from lace.engines.embedded.dictionary import Dictionary, Ids
    from lace.engines.embedded.engine import Evaluation
    from lace.engines.embedded.factbase import Changes
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Enclave"]


class Enclave:
    """One program over facts of its own, kept up to date as these change.

    Args:
        program: the program.
        relations: the first facts, in numbers of a dictionary of others.
        identifying: what orders the rows of each of these predicates.
        base: what those numbers mean.
        clock: gives nanoseconds, for statistics.
    """

    def __init__(
        self,
        program: CheckedProgram,
        relations: Mapping[PredicateKey, Relation],
        identifying: Identifying,
        base: FactBase,
        clock: Clock | None = None,
    ) -> None:
        self.program = program
        self._mapped, own = renumber(relations, identifying, base.dictionary, base.size)
        limit = program.limits.max_value_bytes
        self._base = FactBase(self._mapped, max_value_bytes=limit)
        self._base.relations.update(own)
        self._session = Session(self._base, clock)
        self._evaluation: Evaluation | None = None
        self.work = 0
        """The rows that were visited so far."""

    def change(
        self, added: Iterable[Fact] | GroupedFacts, removed: Iterable[Fact] | GroupedFacts = ()
    ) -> Changes | None:
        """Take facts out and add facts, in whatever order they come; grouped ones in theirs.

        Returns:
            All that changed; None when the program has to be evaluated anew.
        """
        before = self._evaluation.statistics if self._evaluation is not None else None
        try:
            changes = self._base.change(_ordered(added), _ordered(removed))
            if not changes:
                return changes
            made = self._session.update(changes).get(self.program)
        except BaseException:
            self._session.forget()  # nothing is built upon what is half done
            raise
        if self._evaluation is not None and self._evaluation.statistics is not before:
            self.work += self._evaluation.statistics.work  # also when a limit stopped it
        return made

    def replace(self, relations: Mapping[PredicateKey, Relation], base: FactBase) -> Changes | None:
        """Give some predicates exactly these rows; those that stay are not touched.

        Args:
            relations: the rows, in numbers of a base.
            base: what those numbers mean. Texts that are new to it get numbers.
        """
        every = np.arange(len(self._base.dictionary), dtype=np.int32)
        numbers = self.numbers_in(base.dictionary, every)
        size = len(base.dictionary)
        come: list[Fact] = []
        gone: list[Fact] = []
        for key, wanted in relations.items():
            found = self._base.relations.get(key) or Relation(key.arity)
            held = tuple(numbers[column] for column in found.columns())
            for facts, (some, rows), (others, count) in (
                (come, (wanted.columns(), wanted.rows), (held, found.rows)),
                (gone, (held, found.rows), (wanted.columns(), wanted.rows)),
            ):
                alone = ~RowSet.of(others, count, size).contains(some, rows)
                chosen = [column[alone] for column in some]
                found_rows = base.dictionary.rows(chosen, int(alone.sum()))
                facts += [(key.name, *row) for row in found_rows]
        return self.change(come, gone)

    def evaluate(
        self, predicates: Iterable[PredicateKey], statistics: Statistics | None = None
    ) -> Evaluation:
        """Return the answer for the facts of now.

        Raises:
            LimitExceeded: it would go beyond a limit of the program.
        """
        spent = statistics if statistics is not None else Statistics()
        before = spent.work
        try:
            self._evaluation = self._session.evaluate(self.program, predicates, spent)
        finally:
            self.work += spent.work - before
        return self._evaluation

    def numbers_in(self, dictionary: Dictionary, ids: Ids) -> Ids:
        """Return the numbers that texts have in another dictionary; those without one get it."""
        if dictionary is not self._mapped.dictionary:
            return dictionary.intern_all(self._base.dictionary.texts(ids))
        mapped = ids < len(self._mapped)
        made = np.empty(len(ids), np.int32)
        made[mapped] = self._mapped.ids[ids[mapped]]
        if not mapped.all():
            texts = self._base.dictionary.texts(ids[~mapped])
            made[~mapped] = dictionary.intern_all(texts)
        return made


def _ordered(facts: Iterable[Fact] | GroupedFacts) -> Iterable[Fact] | GroupedFacts:
    return facts if isinstance(facts, GroupedFacts) else sorted(facts)
