"""Count tests: by index, by rank, or by a bounded count of facts that are never made.

The facts of a predicate that exists as a relation are counted by its index. Those of a
predicate that nothing reads but counts are made only as far as the answer needs: for the
keys that are asked about, a slice of the facts they come from at a time, and a key whose
count has passed the bound is asked about no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.engines import costs
from lace.engines.embedded.bounded import bounded_counts
from lace.engines.embedded.index import Index
from lace.engines.embedded.planning import access_to, pattern_of
from lace.rules.builtins import count_bound

if TYPE_CHECKING:
    from lace.algebra.nodes import CountTest, RankTest
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.frames import Frame
    from lace.engines.embedded.keys import Flags
    from lace.engines.embedded.relation import Relation
    from lace.engines.embedded.state import State
    from lace.rules.syntax import IntCompare, LexCompare, Operator

__all__ = ["Counting", "meets"]

Counts = npt.NDArray[np.int64]
_COUNT_BYTES: Final = 48
"""What a row takes while it is counted."""
_MEETS: Final = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def meets(counts: Counts, operator: Operator, bound: str) -> Flags:
    """Tell which counts meet a bound of any number of digits."""
    holds: Flags = _MEETS[operator](counts, count_bound(bound))
    return holds


def enough(operator: Operator, bound: str) -> int:
    """Return the count from which on a test's answer is certain."""
    limit = count_bound(bound)
    return limit if operator in ("<", ">=") else limit + 1


@dataclass(frozen=True, slots=True)
class _Ranked:
    """How many items come behind each item, by the item's number."""

    index: Index
    counts: Counts


class Counting:
    """The count tests of a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ranked: dict[RankTest, tuple[Relation, _Ranked | None]] = {}

    @property
    def size(self) -> int:
        """How many bytes the counts take that are kept."""
        return sum(
            ranked.index.size + ranked.counts.nbytes
            for _, ranked in self._ranked.values()
            if ranked is not None
        )

    def count_mask(self, test: CountTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a count test holds."""
        if test.counted.predicate in self._state.virtual:
            counts = bounded_counts(self._state, test, frame, enough(test.operator, test.bound))
        else:
            counts = self._by_index(test, frame)
        return meets(counts, test.operator, test.bound)

    def _by_index(self, test: CountTest, frame: Frame) -> Counts:
        state, scan = self._state, test.counted
        access = access_to(scan, scan.columns, state.dictionary)
        counts = np.zeros(frame.rows, np.int64)
        for selection in state.selections(scan, access.pattern):
            state.budget.charge(costs.STEP + costs.ROW * frame.rows, _COUNT_BYTES * frame.rows)
            if not access.shared:
                counts += selection.rows
                continue
            index = state.index(selection, access.keys)
            units = index.units(frame.rows) * frame.rows
            state.budget.charge(units, index.bytes_to_find(frame.rows))
            slots = index.find([frame.columns[name] for name in access.shared])
            found = index.starts[slots + 1] - index.starts[slots]
            counts += np.where(slots >= 0, found, 0)
        return counts

    def rank_mask(self, test: RankTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a rank test holds."""
        ranked = self._ranks(test)
        if ranked is None:
            return self.count_mask(test.plain, frame)
        self._state.budget.charge(ranked.index.units(frame.rows) * frame.rows)
        slots = ranked.index.find([frame.columns[test.key]])
        counts = np.where(slots >= 0, ranked.counts[slots], 0)
        return meets(counts, test.plain.operator, test.plain.bound)

    def _ranks(self, test: RankTest) -> _Ranked | None:
        """Return the counts of all items; None when an item has two values to order by."""
        items = self._state.relation(test.items)
        found = self._ranked.get(test)
        if found is None or found[0] is not items:
            found = self._ranked[test] = items, self._count_all(test, items)
        return found[1]

    def _count_all(self, test: RankTest, items: Relation) -> _Ranked | None:
        state = self._state
        pattern, positions = pattern_of(test.items, state.dictionary)
        selections = state.selections(test.items, pattern)
        if not selections:
            empty = np.zeros(1, np.int32)
            return _Ranked(Index([empty - 1], 1, state.size), np.zeros(1, np.int64))
        item, by = (
            np.concatenate([selection.column(positions[name]) for selection in selections])
            for name in (test.item, test.by)
        )
        state.budget.spend(
            2 * len(item), 4 * costs.SORTED * len(item), 4 * _COUNT_BYTES * len(item)
        )
        index = Index([item], len(item), state.size, state.budget.check)
        if not index.is_unique:
            return None
        if index.order is not None:
            item, by = item[index.order], by[index.order]
        counts = np.zeros(len(item), np.int64)
        if test.ahead is not None:
            counts += _beyond(by, test.ahead, state)
        if test.tied is not None:
            counts += _beyond_in_group(item, by, test.tied, state)
        index.order = None
        return _Ranked(index, counts)


def _beyond(values: Ids, test: LexCompare | IntCompare, state: State) -> Counts:
    """Return for each value how many others compare so with it."""
    (ranks,) = state.verdicts.ranks(test).of(values, budget=state.budget)
    valid = ranks >= 0
    ordered = np.sort(ranks[valid])
    if test.operator == ">":
        counts = len(ordered) - np.searchsorted(ordered, ranks, side="right")
    else:
        counts = np.searchsorted(ordered, ranks, side="left")
    return np.where(valid, counts, 0)


def _beyond_in_group(
    items: Ids, groups: Ids, test: LexCompare | IntCompare, state: State
) -> Counts:
    """Return for each item how many others of its group compare so with it."""
    (marks,) = state.verdicts.ranks(test).of(items, budget=state.budget)
    valid = marks >= 0
    ranks = np.searchsorted(np.unique(marks[valid]), marks)
    span = int(ranks.max(initial=0)) + 2
    keys = groups.astype(np.int64) * span + ranks
    ordered = np.sort(keys[valid])
    lowest = groups.astype(np.int64) * span
    if test.operator == ">":
        counts = np.searchsorted(ordered, lowest + span, side="left") - np.searchsorted(
            ordered, keys, side="right"
        )
    else:
        counts = np.searchsorted(ordered, keys, side="left") - np.searchsorted(
            ordered, lowest, side="left"
        )
    return np.where(valid, counts, 0)
