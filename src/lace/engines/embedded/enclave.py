"""Enclaves: a program evaluated over facts of its own, and nothing beside them.

An enclave numbers texts by itself, in an order that only its facts decide; it has its
own relations, access paths, plans and budget. So whatever its evaluation does, costs or
fails at is a function of the program and of the facts it was given. Facts that others
hold cannot show in it, not even in the rows it visits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.engines.budget import Cancellation, Statistics
from lace.engines.embedded.canonical_order import in_text_order
from lace.engines.embedded.factbase import FactBase
from lace.engines.embedded.keys import RowSet
from lace.engines.embedded.load import check_values
from lace.engines.embedded.referred import ReferredTexts
from lace.engines.embedded.relation import Relation
from lace.engines.embedded.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.engines.budget import Clock, Supervisor
    from lace.engines.embedded.canonical_order import Identifying
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.engine import Evaluation
    from lace.engines.embedded.factbase import Changes, Columns
    from lace.engines.embedded.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Enclave"]


class Enclave:
    """One program over facts of its own, kept up to date as these change.

    Args:
        program: the program.
        relations: the first facts, in numbers of a base of others.
        identifying: what orders the rows of predicates; of others, all their values do.
        base: what those numbers mean. Texts that are new to it get numbers.
        clock: gives nanoseconds, for statistics.
        supervisor: watches the evaluations.
    """

    def __init__(
        self,
        program: CheckedProgram,
        relations: Mapping[PredicateKey, Relation],
        identifying: Identifying,
        base: FactBase,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.program = program
        self._outer = base
        self._identifying = identifying
        self._supervisor = supervisor or Cancellation()
        self._limit = program.limits.max_value_bytes
        self._texts = ReferredTexts(base.dictionary, np.empty(0, np.int32), self._limit)
        self._base = FactBase(max_value_bytes=self._limit, dictionary=self._texts)
        own = self._own(_columns_of(relations))
        self._base.make_room()
        self._base.relations.update(
            {key: Relation.of(columns, rows) for key, (columns, rows) in own.items()}
        )
        self._session = Session(self._base, clock, supervisor)
        self._evaluation: Evaluation | None = None
        self.work = 0
        """The rows that were visited so far."""

    def _own(self, columns: Columns) -> Columns:
        """Return rows of the base in numbers, and in an order, of one's own."""
        dictionary = self._outer.dictionary
        size = len(dictionary)
        check = self._supervisor.check
        ordered = in_text_order(columns, self._identifying, dictionary, size, check)
        before = len(self._texts)
        made: dict[PredicateKey, tuple[list[Ids], int]] = {}
        for key, (each, rows) in ordered.items():
            made[key] = [self._texts.adopt(column) for column in each], rows
        if self._outer.max_value_bytes > self._limit and len(self._texts) > before:
            try:
                new = np.arange(before, len(self._texts), dtype=np.int32)
                check_values(self._texts.texts(new), self._limit)
            except BaseException:
                self._texts.forget(before)
                raise
        return made

    def change(
        self, added: Iterable[Fact] | GroupedFacts, removed: Iterable[Fact] | GroupedFacts = ()
    ) -> Changes | None:
        """Take facts out and add facts, in whatever order they come.

        Returns:
            All that changed; None when the program has to be evaluated again.
        """
        gone, come = self._outer.intern(removed), self._outer.intern(added)
        return self.change_columns(come, gone)

    def change_columns(self, added: Columns, removed: Columns) -> Changes | None:
        """Take rows out and add rows, in numbers of the base; returns as `change` does."""
        before = self._evaluation.statistics if self._evaluation is not None else None
        try:
            gone, come = self._own(removed), self._own(added)
            changes = self._base.change_columns(come, gone)
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
            base: what those numbers mean, from now on.
        """
        self._outer = base
        self._texts.take_outer(base.dictionary)
        size = len(base.dictionary)
        come: dict[PredicateKey, tuple[list[Ids], int]] = {}
        gone: dict[PredicateKey, tuple[list[Ids], int]] = {}
        for key, wanted in relations.items():
            found = self._base.relations.get(key) or Relation(key.arity)
            held = tuple(map(self.in_base, found.columns()))
            for rows, (some, count), (others, other_count) in (
                (come, (wanted.columns(), wanted.rows), (held, found.rows)),
                (gone, (held, found.rows), (wanted.columns(), wanted.rows)),
            ):
                alone = ~RowSet.of(others, other_count, size).contains(some, count)
                if alone.any():
                    rows[key] = [column[alone] for column in some], int(alone.sum())
        return self.change_columns(come, gone)

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

    def in_base(self, ids: Ids) -> Ids:
        """Return the numbers that texts of the enclave have in the base."""
        return self._texts.ids[ids]


def _columns_of(relations: Mapping[PredicateKey, Relation]) -> Columns:
    return {key: (found.columns(), found.rows) for key, found in relations.items()}
