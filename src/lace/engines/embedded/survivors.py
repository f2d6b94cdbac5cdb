"""Which values of a variable are worth trying: those that the engine finds in whole bindings.

A search that goes value by value would try many in vain where few take part in any
binding. The engine tells them all at once, on whole columns. It knows nothing of
heights, so a value that survives is not yet certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lace.algebra.deltas import from_goal
from lace.algebra.lower import lower_rule
from lace.algebra.nodes import Branch, Fixpoint, RelationalProgram
from lace.algebra.passes.prune import prune_columns
from lace.engines.embedded.items import variables_of
from lace.engines.embedded.keys import distinct_ids
from lace.engines.embedded.relation import Relation
from lace.engines.embedded.steps import run_plan
from lace.rules.syntax import Atom, Rule, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.algebra.nodes import Project
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.items import Binding
    from lace.engines.embedded.state import State
    from lace.rules.syntax import BodyAtom

__all__ = ["Survivors"]


class Survivors:
    """Questions to the engine about the bindings of some items of a body."""

    def __init__(self, state: State, rule: int, items: Sequence[BodyAtom]) -> None:
        self._state = state
        self._rule = rule
        self._items = tuple(items)
        self._used = frozenset(name for item in items for name in variables_of(item))
        self._plans: dict[tuple[str, ...], Project] = {}

    def values(self, name: str, binding: Binding) -> Ids | None:
        """Return the values that a variable has in bindings that go on from a given one.

        None when the engine cannot be asked, since a value has no number.
        """
        state = self._state
        bound = [each for each in binding if each in self._used]
        numbers = [state.dictionary.find(binding[each]) for each in bound]
        if not all(0 <= number < state.size for number in numbers):
            return None
        saved = state.goal
        state.budget.rule = self._rule
        try:
            state.goal = Relation.of([np.array([each], np.int32) for each in numbers], 1)
            plan = state.compiled(self._plan((*bound, name)))
            found = [
                distinct_ids(frame.columns[name], state.size) for frame in run_plan(plan, state)
            ]
        finally:
            state.goal = saved
        return np.unique(np.concatenate([np.empty(0, np.int32), *found]))

    def _plan(self, names: tuple[str, ...]) -> Project:
        """Return the plan from values of all these variables but the last to those of the last."""
        found = self._plans.get(names)
        if found is None:
            head = Atom("Asked", tuple(map(Variable, names)))
            branch = Branch(self._rule, head.key, lower_rule(Rule(head, self._items)))
            asked = from_goal(branch, tuple(range(len(names) - 1)))
            asked = replace(asked, terms=(Variable(names[-1]),))
            step = Fixpoint((head.key,), (replace(branch, plan=asked),), recursive=False)
            pruned = prune_columns(RelationalProgram((step,), frozenset(), ()))
            found = self._plans[names] = pruned.steps[0].branches[0].plan
        return found
