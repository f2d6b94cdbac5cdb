"""The embedded engine's front: facts in, an evaluation out.

`evaluate` is a pure function of a program and facts. An `Evaluation` holds the answer as
numbers; texts are made when they are asked for, and so are the facts of predicates that
the rest only counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.algebra.lower import lower_program
from lace.algebra.needs import needed_steps, step_numbers
from lace.engines.budget import Budget, Statistics
from lace.engines.embedded.dictionary import Dictionary
from lace.engines.embedded.incremental import update_state
from lace.engines.embedded.load import (
    count_classes,
    group_facts,
    intern_constants,
    intern_rows,
    relations_of,
)
from lace.engines.embedded.seminaive import evaluate_fixpoint
from lace.engines.embedded.state import State
from lace.rules.limits import check_arity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.algebra.nodes import RelationalProgram
    from lace.engines.budget import Supervisor
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.factbase import Changes
    from lace.engines.embedded.heights import Heights
    from lace.engines.embedded.load import GroupedFacts
    from lace.engines.embedded.relation import Relation
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Evaluation", "evaluate"]


def evaluate(
    checked: CheckedProgram,
    facts: Iterable[Fact] | GroupedFacts,
    *,
    predicates: Iterable[PredicateKey] | None = None,
    statistics: Statistics | None = None,
    program: RelationalProgram | None = None,
    supervisor: Supervisor | None = None,
) -> Evaluation:
    """Evaluate checked rules over facts.

    Args:
        checked: the rules.
        facts: tuples of a predicate name and texts.
        predicates: what is wanted; else every predicate that the rules define.
        statistics: where to note what is done.
        program: the relational program of the rules, if it was made already.
        supervisor: watches the evaluation, and may stop it.

    Raises:
        LimitExceeded: the evaluation would go beyond a limit; there is no part of an answer.
        EngineError: a fact is not made of texts.
    """
    budget = Budget(checked, statistics or Statistics(), supervisor=supervisor)
    dictionary = Dictionary()
    columns: dict[PredicateKey, tuple[list[Ids], int]] = {}
    for key, values in group_facts(facts).items():
        budget.check()
        check_arity(*key, checked.limits)
        each = intern_rows(key, values, dictionary, checked.limits.max_value_bytes)
        columns[key] = each, len(values) // max(key.arity, 1)
    intern_constants(checked, dictionary)
    size = max(1, len(dictionary))
    relations = relations_of(columns, size)
    budget.check_base(*count_classes(relations))
    state = State(program or lower_program(checked), dictionary, size, relations, budget)
    made = Evaluation(checked, state)
    made.run(predicates)
    return made


class Evaluation:
    """An answer: the relations of derived predicates, made as far as they were asked for."""

    def __init__(self, checked: CheckedProgram, state: State) -> None:
        self.checked = checked
        self.state = state
        self.heights: dict[PredicateKey, Heights] = {}
        self._done: set[int] = set()
        self._step_of = step_numbers(state.program)

    @property
    def statistics(self) -> Statistics:
        """What was done so far."""
        return self.state.budget.statistics

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules define."""
        return self.checked.derived

    def run(self, predicates: Iterable[PredicateKey] | None = None) -> None:
        """Make the facts of these predicates; without any, of all that are not only counted."""
        if predicates is None:
            virtual = self.state.virtual
            wanted = [key for key in self._step_of if key not in virtual]
        else:
            wanted = [key for key in predicates if key in self._step_of]
            self.state.virtual.difference_update(wanted)
        if self._done.issuperset(self._step_of[key] for key in wanted):
            return
        for number in needed_steps(self.state.program, wanted, self.state.virtual):
            if number not in self._done:
                evaluate_fixpoint(self.state, self.state.program.steps[number])
                self._done.add(number)

    def run_again(self) -> None:
        """Make everything again that was made; plans and access paths are kept."""
        done, self._done = sorted(self._done), set()
        for number in done:
            evaluate_fixpoint(self.state, self.state.program.steps[number])
            self._done.add(number)

    def update(
        self, base: Mapping[PredicateKey, Relation], changes: Changes, budget: Budget
    ) -> Changes:
        """Bring what was made up to date with a change of base facts; returns all changes."""
        self.state.budget = budget
        for predicate in self.state.branches:
            if predicate in self.state.relations:
                budget.note_derived(predicate, self.state.relations[predicate].rows)
        steps = [self.state.program.steps[number] for number in sorted(self._done)]
        return update_state(self.state, steps, base, changes)

    def copy(self) -> Evaluation:
        """Return this answer as it is now; later updates do not reach it."""
        made = Evaluation(self.checked, self.state.copy())
        made._done = set(self._done)
        return made

    def relation(self, key: PredicateKey) -> Relation:
        """Return the relation of a derived predicate; its facts are made now if need be."""
        self.run([key])
        return self.state.relations[key]

    def made(self, key: PredicateKey) -> int | None:
        """Return how many facts a predicate has; None when they have not been made."""
        if self._step_of[key] not in self._done or key in self.state.virtual:
            return None
        return self.state.relations[key].rows

    def count(self, key: PredicateKey) -> int:
        """Return how many facts a derived predicate has."""
        return self.relation(key).rows

    def texts(self, key: PredicateKey) -> list[tuple[str, ...]]:
        """Return the facts of a derived predicate, as tuples of text in no order."""
        found = self.relation(key)
        return self.state.dictionary.rows(found.columns(), found.rows)
