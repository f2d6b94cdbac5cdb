"""Sessions: evaluations that stay up to date while facts change.

A session holds base facts and the evaluations of the programs asked so far. When facts
come or go, every evaluation is brought up to date from the change alone. What it answers
is always what a full evaluation of the facts of that moment would.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lace.algebra.lower import lower_program
from lace.engines.budget import Budget, Statistics
from lace.engines.embedded.engine import Evaluation
from lace.engines.embedded.factbase import FactBase
from lace.engines.embedded.load import count_classes, intern_constants
from lace.engines.embedded.state import State
from lace.errors import LimitExceeded
from lace.rules.limits import OWN_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.engines.budget import Clock, Supervisor
    from lace.engines.embedded.factbase import Changes
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Session"]

_MAX_PROGRAMS: Final = 64
"""Programs whose evaluations are kept; the one asked longest ago goes first."""


class Session:
    """Evaluations over facts that change.

    Args:
        base: the facts.
        clock: gives nanoseconds, for statistics.
        supervisor: watches all evaluations; another one may take its place at any time.
    """

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

        Raises:
            LimitExceeded: it would go beyond a limit; there is no part of an answer.
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
        state = State(
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
