"""The embedded engine's front: facts in, an evaluation out.

`evaluate` is a pure function of a program and facts. An `Evaluation` holds the answer as
numbers; texts are made when they are asked for, and so are the facts of predicates that
the rest only counts.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lace.algebra.lower import lower_program, needed_steps, step_numbers
from lace.columns.dictionary import Dictionary
from lace.engine.budget import Budget, Statistics
from lace.engine.factbase import FactBase
from lace.engine.incremental import update_state
from lace.engine.load import count_classes, group_facts, intern_constants, intern_rows, relations_of
from lace.engine.seminaive import evaluate_fixpoint
from lace.engine.state import EvaluationState
from lace.errors import LimitExceeded
from lace.rules.limits import OWN_LIMITS, check_arity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.algebra.nodes import RelationalProgram
    from lace.columns.dictionary import Ids
    from lace.columns.relation import Relation
    from lace.engine.budget import Clock, Supervisor
    from lace.engine.derivation_depth import Heights
    from lace.engine.factbase import Changes
    from lace.engine.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey


def evaluate(
    checked: CheckedProgram,
    facts: Iterable[Fact] | GroupedFacts,
    *,
    predicates: Iterable[PredicateKey] | None = None,
    statistics: Statistics | None = None,
    program: RelationalProgram | None = None,
    supervisor: Supervisor | None = None,
) -> Evaluation:
    """Evaluate checked rules over facts."""
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
    relations = relations_of(columns, size, budget.check)
    budget.check_base(*count_classes(relations))
    state = EvaluationState(program or lower_program(checked), dictionary, size, relations, budget)
    made = Evaluation(checked, state)
    made.run(predicates)
    return made


class Evaluation:
    """An answer: the relations of derived predicates, made as far as they were asked for."""

    def __init__(self, checked: CheckedProgram, state: EvaluationState) -> None:
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


# -- Sessions: evaluations that stay up to date while facts change.
#
# A session holds base facts and the evaluations of the programs asked so far. When facts
# come or go, every evaluation is brought up to date from the change alone. What it answers
# is always what a full evaluation of the facts of that moment would.

_MAX_PROGRAMS: Final = 64
"""Programs whose evaluations are kept; the one asked longest ago goes first."""


class EvaluationSession:
    """Evaluations over facts that change."""

    def __init__(
        self,
        base: FactBase | None = None,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.base = base or FactBase(max_value_bytes=OWN_LIMITS.max_value_bytes)
        self._clock = clock
        self.supervisor = supervisor
        self._evaluations: OrderedDict[CheckedProgram, Evaluation] = OrderedDict()
        self._generation = self.base.generation

    def evaluate(
        self,
        checked: CheckedProgram,
        predicates: Iterable[PredicateKey] | None = None,
        statistics: Statistics | None = None,
    ) -> Evaluation:
        """Return the evaluation of a program over the facts of now.

        What is done now, if anything, is noted in the statistics; what was done for earlier
        facts is not done again.
        """
        self._check_generation()
        found = self._evaluations.get(checked)
        if found is None:
            found = self._begin(checked)
        found.state.budget = self._budget(checked, statistics)
        self._evaluations.move_to_end(checked)
        try:
            found.run(predicates)
        except BaseException:
            self._evaluations.pop(checked, None)  # what is half done is not built upon
            raise
        finally:
            found.state.budget.settle()
        while len(self._evaluations) > _MAX_PROGRAMS:
            self._evaluations.popitem(last=False)
        return found

    def _begin(self, checked: CheckedProgram) -> Evaluation:
        base = self.base
        intern_constants(checked, base.dictionary)
        if base.make_room():
            self._check_generation()
        budget = self._budget(checked)
        budget.check_base(*count_classes(base.relations))
        relations = dict(base.relations)
        state = EvaluationState(
            lower_program(checked), base.dictionary, base.size, relations, budget, base.verdicts
        )
        made = self._evaluations[checked] = Evaluation(checked, state)
        return made

    def forget(self) -> None:
        """Forget all evaluations; numbers and access paths stay."""
        self._evaluations.clear()

    def _budget(self, checked: CheckedProgram, statistics: Statistics | None = None) -> Budget:
        if statistics is None:
            statistics = Statistics(self._clock) if self._clock is not None else Statistics()
        made = Budget(checked, statistics, supervisor=self.supervisor)
        # Weakly: evaluations keep their budget, and would keep the facts until garbage is found.
        this = weakref.proxy(self)
        made.measure_by(lambda: this._held_bytes())
        return made

    def _held_bytes(self) -> int:
        """Return what evaluations hold beside the facts: what they made, and access paths."""
        states = [evaluation.state for evaluation in self._evaluations.values()]
        return self.base.path_bytes + sum(state.held_bytes(self.base.relations) for state in states)

    def change(
        self, added: Iterable[Fact], removed: Iterable[Fact] = ()
    ) -> dict[CheckedProgram, Changes]:
        """Take facts out and add facts, and bring every evaluation up to date."""
        return self.update(self.base.change(added, removed))

    def update(self, changes: Changes) -> dict[CheckedProgram, Changes]:
        """Bring every evaluation up to date with a change that the base has made.

        One that goes beyond a limit is dropped: the next question for it raises the error.

        Returns:
            All that changed for each program that is still up to date, base facts too.
        """
        made: dict[CheckedProgram, Changes] = {}
        if not self._check_generation() or not changes:
            return made
        for checked, evaluation in list(self._evaluations.items()):
            budget = self._budget(checked)
            try:
                budget.check_base(*count_classes(self.base.relations))
                made[checked] = evaluation.update(self.base.relations, changes, budget)
            except LimitExceeded:
                del self._evaluations[checked]
            except BaseException:
                self._evaluations.clear()  # what is half done is not built upon
                raise
            finally:
                budget.settle()
        return made

    def _check_generation(self) -> bool:
        """Drop evaluations by numbers that are void; tells whether there was no need to."""
        if self.base.generation == self._generation:
            return True
        self._evaluations.clear()
        self._generation = self.base.generation
        return False
