"""Heights: for every fact, how many rules must follow one another to derive it.

A base fact has height 0, a derived one 1 more than the highest positive fact of its
lowest derivation. When an evaluation is complete, whatever rules negate or count is
fixed, so all rules behind a predicate run as one fixed point, in step: the pass in which
a fact appears is its height. That fixed point is made beside the finished relations: its
predicates have names of their own, and only heads and positive atoms use those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.algebra.lower import places
from lace.algebra.nodes import Branch, Fixpoint, Join, Node, Project, Unit, parts_of, replace_input
from lace.columns.relation import Relation
from lace.engine.budget import Budget, Statistics
from lace.engine.seminaive import MOST_PLACES, apply_branch, concatenated
from lace.engine.state import WHOLE, EvaluationState
from lace.rules.syntax import PredicateKey, Use

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.algebra.nodes import Scan
    from lace.engine.engine import Evaluation
    from lace.engine.seminaive import Found
    from lace.engine.state import Rows


_MARK: Final = "^"
"""Begins the name of a predicate whose facts come in the order of their heights."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The facts of a predicate in the order of their heights.

    `rounds` are the heights that occur, `ends` how many facts have that height or less.
    """

    relation: Relation
    rounds: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def below(self, height: int) -> int:
        """Return how many facts have less than a height; they are the first ones."""
        at = int(self.rounds.searchsorted(height))
        return int(self.ends[at - 1]) if at else 0

    def height(self, row: int) -> int:
        """Return the height of the fact in a row."""
        return int(self.rounds[self.ends.searchsorted(row, side="right")])


@dataclass(frozen=True, slots=True)
class Heights:
    """The heights of all facts that a predicate's facts may be derived from."""

    ranked: Mapping[PredicateKey, Ranked]
    read: Mapping[PredicateKey, Relation]
    size: int

    def fits(self, state: EvaluationState) -> bool:
        """Tell whether what they were made from is still what is there."""
        return self.size == state.size and all(
            state.relations.get(key) is relation for key, relation in self.read.items()
        )


def finished_state(evaluation: Evaluation) -> EvaluationState:
    """Return a state that reads the relations of an evaluation, with limits of its own."""
    source = evaluation.state
    budget = Budget(
        evaluation.checked,
        Statistics(source.budget.statistics.clock),
        supervisor=source.budget.supervisor,
    )
    made = EvaluationState(
        source.program, source.dictionary, source.size, dict(source.relations), budget
    )
    made.virtual = set(source.virtual)
    made.verdicts = source.verdicts
    return made


def heights_for(evaluation: Evaluation, key: PredicateKey) -> Heights:
    """Return the heights behind a derived predicate; they are kept while nothing changes."""
    evaluation.run([key])
    kept = evaluation.heights.get(key)
    if kept is not None and kept.fits(evaluation.state):
        return kept
    made = _find(evaluation, key)
    evaluation.heights.update(dict.fromkeys(made.ranked, made))
    return made


def _find(evaluation: Evaluation, key: PredicateKey) -> Heights:
    relations = evaluation.state.relations
    reach = evaluation.checked.dependencies.reach(key) | {key}
    virtual = evaluation.state.virtual
    read = {
        each: relations.setdefault(each, Relation(each.arity))
        for each in sorted(reach)
        if each not in virtual
    }
    cone = _cone(evaluation, key)
    state = finished_state(evaluation)
    step = Fixpoint(
        tuple(_marked(each) for each in cone),
        tuple(
            Branch(branch.rule, _marked(branch.predicate), _positive_marked(branch.plan, cone))
            for each in cone
            for branch in state.branches[each]
        ),
        recursive=True,
    )
    strata = sum(not cone.keys().isdisjoint(each.predicates) for each in state.program.steps)
    rounds = _rounds(state, step, strata)
    ranked = {each: _ranked(each, rounds.get(_marked(each), {})) for each in cone}
    return Heights(ranked, read, state.size)


def _cone(evaluation: Evaluation, key: PredicateKey) -> dict[PredicateKey, None]:
    """Return the derived predicates that facts of a predicate are derived from."""
    dependencies = evaluation.checked.dependencies
    found = {key: None}
    waiting = [key]
    while waiting:
        for edge in dependencies.edges_from(waiting.pop()):
            target = edge.target
            if edge.use is Use.POSITIVE and target not in found and dependencies.is_derived(target):
                found[target] = None
                waiting.append(target)
    return found


def _marked(key: PredicateKey) -> PredicateKey:
    return PredicateKey(_MARK + key.name, key.arity)


def _positive_marked(plan: Project, cone: Mapping[PredicateKey, None]) -> Project:
    """Return a plan that joins marked predicates; what it negates or counts stays."""
    scans, conditions = parts_of(plan.input)
    marked = tuple(
        replace(scan, predicate=_marked(scan.predicate)) if scan.predicate in cone else scan
        for scan in scans
    )
    node = _joined(marked)
    for condition in conditions:
        node = replace_input(condition, node, node.columns)
    return Project(node, plan.terms)


def _joined(scans: tuple[Scan, ...]) -> Node:
    if len(scans) > 1:
        columns = tuple(dict.fromkeys(name for scan in scans for name in scan.columns))
        return Join(scans, columns)
    return scans[0] if scans else Unit()


def _rounds(
    state: EvaluationState, step: Fixpoint, strata: int
) -> dict[PredicateKey, dict[int, Rows]]:
    """Run a fixed point; returns what each pass finds, by predicate.

    It takes the passes of several strata, each of which may have as many as are allowed.
    """
    inside = frozenset(step.predicates)
    for predicate in step.predicates:
        state.clear(predicate)
    starts = [
        (
            branch,
            [
                scan
                for scan, positive in places(branch.plan)
                if positive and scan.predicate in inside
            ],
        )
        for branch in step.branches
    ]
    made: dict[PredicateKey, dict[int, Rows]] = {}
    found: Found = {}
    height = 1
    for branch, scans in starts:
        if not scans:
            apply_branch(state, branch, WHOLE, height, found)
    while found:
        changed: dict[PredicateKey, Relation] = {}
        for predicate, pieces in found.items():
            columns, rows = made.setdefault(predicate, {})[height] = concatenated(
                predicate.arity, pieces
            )
            changed[predicate] = Relation.of(columns, rows)
            state.relations[predicate] = state.relations[predicate].with_rows(columns, rows)
        height += 1
        some = next(iter(changed))
        plain = PredicateKey(some.name.removeprefix(_MARK), some.arity)
        state.budget.check_iterations(plain, -(-height // strata))
        state.changed, found = changed, {}
        for branch, scans in starts:
            reached = [scan.occurrence for scan in scans if scan.predicate in changed]
            for start in reached if len(reached) <= MOST_PLACES else [WHOLE]:
                apply_branch(state, branch, start, height, found)
    return made


def _ranked(key: PredicateKey, rounds: Mapping[int, Rows]) -> Ranked:
    columns, rows = concatenated(key.arity, rounds.values())
    ends = np.cumsum([count for _, count in rounds.values()], dtype=np.int64)
    return Ranked(Relation.of(columns, rows), np.array(list(rounds), np.int64), ends)
