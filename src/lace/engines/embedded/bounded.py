"""Bounded counts: how many facts a rule would make for a key, as far as the answer needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.algebra.deltas import from_goal
from lace.engines import costs
from lace.engines.embedded.index import Index
from lace.engines.embedded.keys import RowSet
from lace.engines.embedded.planning import pattern_of
from lace.engines.embedded.relation import Relation
from lace.engines.embedded.steps import JoinStep, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.algebra.nodes import Branch, CountTest
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.frames import Frame
    from lace.engines.embedded.index import Slots
    from lace.engines.embedded.keys import Flags
    from lace.engines.embedded.relation import Pattern
    from lace.engines.embedded.state import State

__all__ = ["bounded_counts"]

_SLICE_WORK: Final = 2**20
"""Combinations of keys and rows to look at before keys that are certain are dropped."""
_REMEMBERED_BYTES: Final = 20
"""What a fact takes beside its values while it is counted."""
_LEAST_SLICE: Final = 16
_MANY_ROWS: Final = 64
"""Rows that a join makes of one row, from which on it is done slice by slice."""


def bounded_counts(
    state: State, test: CountTest, frame: Frame, enough: int
) -> npt.NDArray[np.int64]:
    """Return, for each row of a frame, how many facts match; from `enough` on, about."""
    scan = test.counted
    pattern, positions = pattern_of(scan, state.dictionary)
    at = tuple(positions[name] for name in scan.columns)
    asked = [frame.columns[name] for name in scan.columns]
    distinct = RowSet(len(at), state.size)
    state.budget.charge(
        (costs.SET_ROW + costs.SORTED) * frame.rows, distinct.bytes_to_add(frame.rows)
    )
    keys, count = distinct.add(asked, frame.rows)
    counter = _Counter(state, pattern, at, keys, count, enough)
    with state.budget.temporaries():
        for branch in state.branches[scan.predicate]:
            counter.run(branch)
    if not at:
        return np.full(frame.rows, counter.counts[0] if frame.rows else 0, np.int64)
    return counter.counts[counter.index.find(asked)]


class _Counter:
    """Counts for one set of keys, over all rules of a predicate."""

    def __init__(
        self,
        state: State,
        pattern: Pattern,
        at: tuple[int, ...],
        keys: tuple[Ids, ...],
        count: int,
        enough: int,
    ) -> None:
        self._state, self._pattern, self._at = state, pattern, at
        self._enough = enough
        if at:
            index = Index(keys, count, state.size)
            if index.order is not None:
                keys = tuple(column[index.order] for column in keys)
                index.order = None
            self.index = index
        self._keys = keys
        self.counts = np.zeros(max(count, 1), np.int64)
        self._seen: RowSet | None = None
        self._arity = 0
        self._found: list[tuple[tuple[Ids, ...], Slots]] = []

    def run(self, branch: Branch) -> None:
        """Count what one rule makes for the keys that are not certain yet."""
        state = self._state
        open_keys = self._open()
        if not len(open_keys):
            return
        saved = state.goal, state.sliced, state.budget.rule
        state.budget.charge(costs.ROW * len(self.counts), 8 * len(self.counts))
        try:
            state.goal, state.sliced = self._goal(open_keys), None
            plan = state.compiled(from_goal(branch, self._at))
            sliced = _longest(plan, state)
            if sliced is None:
                self._collect(branch, plan)
            else:
                self._by_slices(branch, plan, sliced, open_keys)
        finally:
            state.goal, state.sliced, state.budget.rule = saved

    def _by_slices(
        self, branch: Branch, plan: Plan, step: JoinStep, open_keys: npt.NDArray[np.intp]
    ) -> None:
        state, access = self._state, step.access
        columns, rows = state.relation(access.scan).matching(access.pattern)
        first = 0
        while first < rows and len(open_keys):
            last = first + max(_LEAST_SLICE, _SLICE_WORK // len(open_keys))
            part = [column[first:last] for column in columns]
            state.sliced = access.scan.occurrence, Relation.of(part, min(last, rows) - first)
            state.goal = self._goal(open_keys)
            self._collect(branch, plan)
            still_open = self._open()
            if len(still_open) < len(open_keys):
                self._forget()
            open_keys = still_open
            first = last

    def _open(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.counts < self._enough)

    def _forget(self) -> None:
        """Forget the facts of keys that are certain: only what may be met again is kept."""
        if self._seen is None or not self._at or not self._found:
            return
        columns = tuple(map(np.concatenate, zip(*(each for each, _ in self._found), strict=True)))
        slots = np.concatenate([slots for _, slots in self._found])
        self._state.budget.charge(
            (costs.ROW + costs.SET_ROW) * len(slots), self._seen.bytes_to_add(len(slots))
        )
        stays = self.counts[slots] < self._enough
        kept = tuple(column[stays] for column in columns)
        self._take(int(stays.sum()) - len(stays))
        self._found = [(kept, slots[stays])]
        self._seen = RowSet.of(kept, int(stays.sum()), self._state.size)

    def _take(self, rows: int) -> None:
        """Count the memory of facts that are remembered, or of some that no longer are."""
        self._state.budget.take(rows * (_REMEMBERED_BYTES + 4 * self._arity))

    def _goal(self, which: npt.NDArray[np.intp]) -> Relation:
        return Relation.of([column[which] for column in self._keys], len(which))

    def _collect(self, branch: Branch, plan: Plan) -> None:
        if self._seen is None:
            self._arity = branch.predicate.arity
            self._seen = RowSet(self._arity, self._state.size)
        budget = self._state.budget
        for columns, rows in self._state.heads(branch, plan):
            budget.charge(
                costs.added(rows, self._seen.numbered_columns)
                + costs.PROBE * len(self._at) * rows
                + costs.ROW * len(self.counts),
                self._seen.bytes_to_add(rows) + 8 * len(self.counts),
            )
            fits = self._fits(columns, rows)
            if fits is not None:
                rows = int(np.count_nonzero(fits))
                columns = tuple(column[fits] for column in columns)
            fresh, count = self._seen.add(columns, rows)
            self._take(count)
            budget.check_derived(branch.predicate, self._seen.rows)
            if not self._at:
                self.counts[0] += count
            elif count:
                slots = self.index.find([fresh[position] for position in self._at])
                self.counts += np.bincount(slots, minlength=len(self.counts))
                self._found.append((fresh, slots.astype(np.int32)))

    def _fits(self, columns: Sequence[Ids], rows: int) -> Flags | None:
        if not self._pattern.constants and not self._pattern.equal:
            return None
        fits = np.ones(rows, np.bool_)
        for position, value in self._pattern.constants:
            fits &= columns[position] == value
        for left, right in self._pattern.equal:
            fits &= columns[left] == columns[right]
        return fits


def _longest(plan: Plan, state: State) -> JoinStep | None:
    """Return the join to take slice by slice: one that makes many rows of each."""
    found: list[tuple[int, JoinStep]] = []
    for step in plan.steps:
        if isinstance(step, JoinStep) and step.access.fresh and step.access.scan.occurrence >= 0:
            scan, shared = step.access.scan, step.access.shared
            rows = state.rows(scan)
            growth = rows // max(1, state.distinct(scan, shared)) if shared else rows
            if growth > _MANY_ROWS:
                found.append((growth, step))
    return max(found, key=lambda each: each[0])[1] if found else None
