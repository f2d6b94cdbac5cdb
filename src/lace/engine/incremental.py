"""Increments: after a change of facts, only what follows from the change is computed.

Fixed point by fixed point: facts that may have lost a reason are taken out (whatever
followed from rows that went, or from the absence of rows that came, or from a count
that changed), those that still have one are put back, and what follows from the rest
of the change is added. Where a count of facts that are never made is touched, or nearly
everything may be lost, the fixed point is computed again and compared.

Apart from `engine`: this is the algorithm (delete and rederive), that the interface.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.algebra.nodes import scans_of
from lace.columns import costs
from lace.columns.index import RowSet
from lace.columns.keys import choose
from lace.columns.relation import Relation
from lace.engine.factbase import Changes
from lace.engine.seminaive import (
    MOST_PLACES,
    Found,
    apply_branch,
    concatenated,
    evaluate_fixpoint,
    run_rounds,
    starts_of,
)
from lace.engine.state import GOAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lace.algebra.nodes import Branch, Fixpoint, Scan
    from lace.engine.state import EvaluationState, Relations
    from lace.rules.syntax import PredicateKey


_Changed: TypeAlias = "dict[PredicateKey, Relation]"
_ANEW_SHARE: Final = 2
"""When at least one in this many facts may be lost, it is quicker to start again."""


def update_state(
    state: EvaluationState,
    steps: Iterable[Fixpoint],
    base: Mapping[PredicateKey, Relation],
    changes: Changes,
) -> Changes:
    """Bring derived relations up to date with a change of base facts.

    Returns:
        What came and went, derived facts included.
    """
    old = dict(state.relations)
    added: _Changed = dict(changes.added)
    removed: _Changed = dict(changes.removed)
    for key in added.keys() | removed.keys():
        state.relations[key] = base[key]
        old.setdefault(key, Relation(key.arity))
    for step in steps:
        touched = _touched(state, step, added, removed)
        if touched is None:
            continue
        if touched or not _update_step(state, step, old, added, removed):
            _evaluate_again(state, step, old, added, removed)
    return Changes(added, removed)


def _touched(
    state: EvaluationState, step: Fixpoint, added: _Changed, removed: _Changed
) -> bool | None:
    """Tell whether a change reaches a fixed point: not at all (None), plainly, or by a count."""
    changed = added.keys() | removed.keys()
    plainly = False
    for branch in step.branches:
        for scan, counted in scans_of(branch.plan):
            if counted and scan.predicate in state.virtual:
                if not _below(state, scan.predicate).isdisjoint(changed):
                    return True
            elif scan.predicate in changed:
                plainly = True
    return False if plainly else None


def _below(state: EvaluationState, predicate: PredicateKey) -> set[PredicateKey]:
    """Return what the facts of a predicate that is only counted are made of."""
    found: set[PredicateKey] = set()
    waiting = [predicate]
    while waiting:
        for branch in state.branches.get(waiting.pop(), ()):
            for scan, _ in scans_of(branch.plan):
                if scan.predicate not in found:
                    found.add(scan.predicate)
                    if scan.predicate in state.virtual:
                        waiting.append(scan.predicate)
    return found


def _evaluate_again(
    state: EvaluationState, step: Fixpoint, old: Relations, added: _Changed, removed: _Changed
) -> None:
    before = {key: state.derived_set(key) for key in step.predicates}
    evaluate_fixpoint(state, step)
    for key in step.predicates:
        _note(state, key, old[key], before[key], added, removed)


def _note(
    state: EvaluationState,
    key: PredicateKey,
    old: Relation,
    before: RowSet,
    added: _Changed,
    removed: _Changed,
) -> None:
    """Note in what a relation differs from what it was."""
    look = state.budget.check
    new, after = state.relations[key], state.derived_set(key)
    columns = new.columns()
    come = ~before.contains(columns, new.rows, look)
    if come.any():
        added[key] = Relation.of(choose(columns, come, look), int(come.sum()))
    columns = old.columns()
    gone = ~after.contains(columns, old.rows, look)
    if gone.any():
        removed[key] = Relation.of(choose(columns, gone, look), int(gone.sum()))


def _update_step(
    state: EvaluationState, step: Fixpoint, old: Relations, added: _Changed, removed: _Changed
) -> bool:
    """Update one fixed point; tells whether that was worth it, else nothing has happened."""
    if any(_reaches_many(state, branch, added, removed) for branch in step.branches):
        return False
    lost = _lost(state, step, old, added, removed)
    if lost is None:
        return False
    gone = {key: _take_out(state, key, relation) for key, relation in lost.items()}
    found: Found = {}
    for branch in step.branches:
        if branch.predicate in lost:
            state.goal = lost[branch.predicate]
            apply_branch(state, branch, GOAL, 1, found)
    for branch in step.branches:
        for scan, changed in _reached(state, branch, added, removed):
            state.changed = {scan.predicate: changed}
            apply_branch(state, branch, scan.occurrence, 1, found)
    everything = run_rounds(state, step, found)
    look = state.budget.check
    for key in step.predicates:
        columns, rows = concatenated(key.arity, everything.get(key, ()))
        if key not in gone:
            if rows:
                added[key] = Relation.of(columns, rows)
            continue
        come = ~gone[key].contains(columns, rows, look)
        if come.any():
            added[key] = Relation.of(choose(columns, come, look), int(come.sum()))
        columns = lost[key].columns()
        still = state.derived_set(key).contains(columns, lost[key].rows, look)
        if not still.all():
            kept = choose(columns, ~still, look)
            removed[key] = Relation.of(kept, lost[key].rows - int(still.sum()))
    return True


def _take_out(state: EvaluationState, key: PredicateKey, lost: Relation) -> RowSet:
    """Take facts out of a derived relation and its set; returns them as a set."""
    look, columns = state.budget.check, lost.columns()
    gone = RowSet.of(columns, lost.rows, state.size, look)
    state.relations[key] = state.relations[key].without(gone, columns, look)
    state.derived_set(key).discard(columns, lost.rows, look)
    return gone


def _reaches_many(
    state: EvaluationState,
    branch: Branch,
    added: Mapping[PredicateKey, Relation],
    removed: Mapping[PredicateKey, Relation],
) -> bool:
    """Tell whether a change reaches too many places of a rule for a plan of each."""
    places = chain(_reached(state, branch, added, removed), _reached(state, branch, removed, added))
    return next(islice(places, 2 * MOST_PLACES, None), None) is not None


def _reached(
    state: EvaluationState,
    branch: Branch,
    positive: Mapping[PredicateKey, Relation],
    negated: Mapping[PredicateKey, Relation],
) -> Iterator[tuple[Scan, Relation]]:
    """Yield the places of a rule that a change reaches, with the rows to start from.

    What comes gives new facts by positive atoms and takes facts by negated ones, and what
    goes the other way round. A count may do either, whatever happens to it.
    """
    counted = {scan.occurrence for scan, is_counted in scans_of(branch.plan) if is_counted}
    for scan, is_positive in state.places[branch.rule]:
        key = scan.predicate
        if is_positive:
            if key in positive:
                yield scan, positive[key]
        elif scan.occurrence in counted:
            if key in positive or key in negated:
                yield scan, _both(key, positive, negated)
        elif key in negated:
            yield scan, negated[key]


def _both(
    key: PredicateKey,
    added: Mapping[PredicateKey, Relation],
    removed: Mapping[PredicateKey, Relation],
) -> Relation:
    parts = [part for each in (added.get(key), removed.get(key)) if each for part in each.parts]
    return Relation(key.arity, parts)


def _lost(
    state: EvaluationState, step: Fixpoint, old: Relations, added: _Changed, removed: _Changed
) -> _Changed | None:
    """Return the facts that may have lost a reason, in the state before the change."""
    inside = frozenset(step.predicates)
    new, state.relations = state.relations, old
    lost: dict[PredicateKey, RowSet] = {}
    rows = sum(old[key].rows for key in step.predicates)
    try:
        waiting: Found = {}
        for branch in step.branches:
            for scan, changed in _reached(state, branch, removed, added):
                state.changed = {scan.predicate: changed}
                _lose(state, branch, scan.occurrence, lost, waiting)
        everything: Found = {}
        while waiting:
            for key, pieces in waiting.items():
                everything.setdefault(key, []).extend(pieces)
            if sum(each.rows for each in lost.values()) * _ANEW_SHARE > rows:
                return None
            reached = _relations(waiting)
            state.changed, waiting = reached, {}
            for branch in step.branches:
                for start in starts_of(state, branch, inside & reached.keys()):
                    _lose(state, branch, start, lost, waiting)
    finally:
        state.relations = new
    return _relations(everything)


def _relations(found: Found) -> _Changed:
    return {key: Relation.of(*concatenated(key.arity, pieces)) for key, pieces in found.items()}


def _lose(
    state: EvaluationState,
    branch: Branch,
    start: int,
    lost: dict[PredicateKey, RowSet],
    waiting: Found,
) -> None:
    """Collect the facts of a rule that a change reaches, each once."""
    key = branch.predicate
    known = state.derived_set(key)
    if key not in lost:
        lost[key] = RowSet(key.arity, state.size)
    run = state.budget.statistics.begin(branch.rule, 0)
    try:
        for columns, rows in state.heads(branch, state.plan(branch, start)):
            run.made += rows
            state.budget.charge(
                2 * costs.added(rows, known.numbered_columns), known.bytes_to_add(rows)
            )
            look = state.budget.check
            holds = known.contains(columns, rows, look)
            chosen = choose(columns, holds, look)
            fresh, count = lost[key].add(chosen, int(holds.sum()), look)
            if count:
                waiting.setdefault(key, []).append((fresh, count))
    finally:
        state.budget.statistics.end(run)
