"""Fixed points: each pass looks only at what the pass before found.

For each place in a body that reads a predicate of the same fixed point there is a plan
that starts from the new facts there, so no combination of facts is looked at twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lace.columns import costs
from lace.columns.keys import stretches_of
from lace.columns.relation import Relation
from lace.engine.state import WHOLE, Rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lace.algebra.nodes import Branch, Fixpoint
    from lace.engine.state import EvaluationState
    from lace.rules.syntax import PredicateKey


MOST_PLACES: Final = 32
"""Places of one body that have plans of their own in a fixed point."""
Found: TypeAlias = "dict[PredicateKey, list[Rows]]"


def evaluate_fixpoint(state: EvaluationState, step: Fixpoint) -> None:
    """Make all facts of the predicates of a fixed point, which have none yet."""
    for predicate in step.predicates:
        state.clear(predicate)
    inside = frozenset(step.predicates)
    found: Found = {}
    if state.program.distinct.issuperset(step.predicates):
        for branch in step.branches:
            collect_branch(state, branch, found)
        keep(state, found)
        return
    for branch in step.branches:
        if not step.recursive or not any(
            scan.predicate in inside for scan, positive in state.places[branch.rule] if positive
        ):
            apply_branch(state, branch, WHOLE, 1, found)
    run_rounds(state, step, found)


def run_rounds(state: EvaluationState, step: Fixpoint, found: Found, *, first: int = 1) -> Found:
    """Go on from new facts until there are no more; returns all that are new.

    The new facts are in the sets of their predicates already, and not yet in the
    relations.
    """
    inside = frozenset(step.predicates)
    everything: Found = {}
    iteration = first
    while True:
        changed = keep(state, found)
        for predicate, rows in found.items():
            everything.setdefault(predicate, []).extend(rows)
        if not changed or not step.recursive:
            return everything
        iteration += 1
        state.budget.check_iterations(next(iter(changed)), iteration)
        found = {}
        state.changed = changed
        for branch in step.branches:
            for start in starts_of(state, branch, inside & changed.keys()):
                apply_branch(state, branch, start, iteration, found)


def starts_of(
    state: EvaluationState, branch: Branch, changed: Collection[PredicateKey]
) -> list[int]:
    """Return the places of a body that a rule is applied from once some predicates changed.

    A rule with many such places is applied to all facts instead: a plan for each of them
    would take as long as the square of their number.
    """
    places = [
        scan.occurrence
        for scan, positive in state.places[branch.rule]
        if positive and scan.predicate in changed
    ]
    return places if len(places) <= MOST_PLACES else [WHOLE]


def apply_branch(
    state: EvaluationState, branch: Branch, start: int, iteration: int, found: Found
) -> None:
    """Apply a rule; facts that are new go into their set and are found."""
    statistics, predicate = state.budget.statistics, branch.predicate
    run = statistics.begin(branch.rule, iteration)
    try:
        known = state.derived_set(predicate)
        for whole, made in state.heads(branch, state.plan(branch, start)):
            run.made += made
            for stretch in stretches_of(made):
                columns, rows = tuple(each[stretch] for each in whole), stretch.stop - stretch.start
                units = costs.added(rows, known.numbered_columns)
                state.budget.charge(units, known.bytes_to_add(rows))
                fresh, count = known.add(columns, rows, state.budget.check)
                state.budget.check_derived(predicate, known.rows)
                if count:
                    run.new += count
                    found.setdefault(predicate, []).append((fresh, count))
                    state.found_bytes += _bytes_of(predicate, count)
                    state.pieces += 1
                del fresh, columns
            del whole
    finally:
        statistics.end(run)


def collect_branch(state: EvaluationState, branch: Branch, found: Found) -> None:
    """Apply a rule of which no fact is made twice, by it or by others."""
    statistics, predicate = state.budget.statistics, branch.predicate
    run = statistics.begin(branch.rule, 1)
    made = found.setdefault(predicate, [])
    rows = sum(count for _, count in made)
    try:
        for columns, count in state.heads(branch, state.plan(branch)):
            rows += count
            state.budget.charge(costs.CELL * predicate.arity * count, 8 * predicate.arity * count)
            run.made += count
            run.new += count
            state.budget.check_derived(predicate, rows)
            made.append((columns, count))
            state.found_bytes += _bytes_of(predicate, count)
            state.pieces += 1
            del columns
    finally:
        statistics.end(run)


def keep(
    state: EvaluationState, found: Mapping[PredicateKey, Sequence[Rows]]
) -> dict[PredicateKey, Relation]:
    """Add new facts to their relations; returns them as relations of their own."""
    changed: dict[PredicateKey, Relation] = {}
    for predicate, pieces in found.items():
        total = sum(count for _, count in pieces)
        moved = state.relations[predicate].rows_to_add(total)
        state.budget.charge(
            costs.STEP + costs.CELL * predicate.arity * (total + moved),
            _bytes_of(predicate, total + moved),
        )
        columns, rows = concatenated(predicate.arity, pieces)
        if rows:
            changed[predicate] = Relation.of(columns, rows)
            state.relations[predicate] = state.relations[predicate].with_rows(columns, rows)
    state.found_bytes = 0  # they count with their relations
    return changed


def _bytes_of(predicate: PredicateKey, rows: int) -> int:
    """Return the bytes of facts as columns."""
    return 4 * predicate.arity * rows


def concatenated(arity: int, pieces: Iterable[Rows]) -> Rows:
    """Return rows that were found piece by piece as one."""
    parts = [piece for piece in pieces if piece[1]]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return tuple(np.empty(0, np.int32) for _ in range(arity)), 0
    return (
        tuple(np.concatenate([columns[at] for columns, _ in parts]) for at in range(arity)),
        sum(rows for _, rows in parts),
    )
