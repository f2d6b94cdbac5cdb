"""The state of an evaluation: numbers, relations, plans; what steps ask for while they run."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.algebra.lower import from_change, from_goal, places
from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    RankTest,
    Scan,
    SemiJoin,
    Unit,
    Version,
    count_atoms,
    scans_of,
)
from lace.algebra.passes.order import order_joins
from lace.columns import costs
from lace.columns.index import PAIRED_BYTES, Index, RowSet
from lace.columns.keys import distinct_sorted, places_in, sort_keys, stretches_of
from lace.columns.relation import EVERYTHING, ColumnPart, Pattern, Relation
from lace.engine.predicate_cache import Verdicts
from lace.engine.steps import (
    Access,
    AntiJoinStep,
    CountStep,
    ExistsStep,
    FilterStep,
    JoinStep,
    PlanStep,
    ProductStep,
    RankStep,
    SemiJoinStep,
    StepPlan,
    run_plan,
)
from lace.rules.builtins import count_bound
from lace.rules.syntax import Anonymous, Constant, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.algebra.nodes import Branch, Project, RelationalProgram
    from lace.columns.dictionary import Ids, Texts
    from lace.columns.index import Members, Slots
    from lace.columns.keys import Flags
    from lace.columns.relation import Selection
    from lace.engine.budget import Budget
    from lace.engine.steps import Frame
    from lace.rules.syntax import IntCompare, LexCompare, Operator, PredicateKey


# -- From a relational plan to steps: joins in order, constants as numbers, columns placed.

_NOTHING: Final = Unit()
"""The input of a test that a step holds: what it tests comes as a frame."""


def pattern_of(scan: Scan, dictionary: Texts) -> tuple[Pattern, dict[str, int]]:
    """Return which rows fit a scan, and the position of each variable."""
    constants: list[tuple[int, int]] = []
    equal: list[tuple[int, int]] = []
    positions: dict[str, int] = {}
    for at, term in enumerate(scan.terms):
        match term:
            case Constant():
                constants.append((at, dictionary.intern(term.value)))
            case Variable():
                first = positions.setdefault(term.name, at)
                if first != at:
                    equal.append((first, at))
            case Anonymous():
                pass
    if not constants and not equal:
        return EVERYTHING, positions
    return Pattern(tuple(constants), tuple(equal)), positions


def access_to(scan: Scan, bound: tuple[str, ...], dictionary: Texts) -> Access:
    """Return how a scan is read when some columns have values already."""
    pattern, positions = pattern_of(scan, dictionary)
    shared = tuple(name for name in scan.columns if name in bound)
    fresh = tuple(name for name in scan.columns if name not in bound)
    keys = tuple(positions[name] for name in shared)
    return Access(scan, pattern, positions, shared, fresh, keys)


def compile_plan(node: Node, dictionary: Texts) -> StepPlan:
    """Return the steps of a plan whose joins are in order."""
    steps: list[PlanStep] = []
    while not isinstance(node, Unit):
        step, node = _compile(node, dictionary)
        steps.append(step)
    return StepPlan(tuple(reversed(steps)))


def _compile(node: Node, dictionary: Texts) -> tuple[PlanStep, Node]:
    match node:
        case Join((left, Scan() as right), columns):
            access = access_to(right, left.columns, dictionary)
            fresh = tuple(name for name in access.fresh if name in columns)
            return JoinStep(replace(access, fresh=fresh), columns), left
        case Join((left, right), columns):
            return ProductStep(compile_plan(right, dictionary), columns), left
        case SemiJoin(left, Scan() as right, columns):
            return SemiJoinStep(access_to(right, left.columns, dictionary), columns), left
        case SemiJoin(left, right, columns):
            return ExistsStep(compile_plan(right, dictionary), columns), left
        case AntiJoin(left, right, columns):
            return AntiJoinStep(access_to(right, left.columns, dictionary), columns), left
        case Filter(below, test, columns):
            return FilterStep(test, columns), below
        case CountTest(input=below, columns=columns):
            return CountStep(replace(node, input=_NOTHING), columns), below
        case RankTest(input=below, columns=columns):
            return RankStep(replace(node, input=_NOTHING), columns), below
        case _:
            raise AssertionError(f"not an ordered plan: {type(node).__name__}")


# -- Bounded counts: how many facts a rule would make for a key, as far as the answer needs.

_SLICE_WORK: Final = 2**20
"""Combinations of keys and rows to look at before keys that are certain are dropped."""
_REMEMBERED_BYTES: Final = 20
"""What a fact takes beside its values while it is counted."""
_LEAST_SLICE: Final = 16
_MANY_ROWS: Final = 64
"""Rows that a join makes of one row, from which on it is done slice by slice."""


def bounded_counts(
    state: EvaluationState, test: CountTest, frame: Frame, enough: int
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
    keys, count = distinct.add(asked, frame.rows, state.budget.check)
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
        state: EvaluationState,
        pattern: Pattern,
        at: tuple[int, ...],
        keys: tuple[Ids, ...],
        count: int,
        enough: int,
    ) -> None:
        self._state, self._pattern, self._at = state, pattern, at
        self._enough = enough
        if at:
            index = Index(keys, count, state.size, state.budget.check)
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
        self, branch: Branch, plan: StepPlan, step: JoinStep, open_keys: npt.NDArray[np.intp]
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
        look = self._state.budget.check
        self._seen = RowSet.of(kept, int(stays.sum()), self._state.size, look)

    def _take(self, rows: int) -> None:
        """Count the memory of facts that are remembered, or of some that no longer are."""
        self._state.budget.take(rows * (_REMEMBERED_BYTES + 4 * self._arity))

    def _goal(self, which: npt.NDArray[np.intp]) -> Relation:
        return Relation.of([column[which] for column in self._keys], len(which))

    def _collect(self, branch: Branch, plan: StepPlan) -> None:
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
            fresh, count = self._seen.add(columns, rows, budget.check)
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


def _longest(plan: StepPlan, state: EvaluationState) -> JoinStep | None:
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


# -- Count tests: by index, by rank, or by a bounded count of facts that are never made.
#
# The facts of a predicate that exists as a relation are counted by its index. Those of a
# predicate that nothing reads but counts are made only as far as the answer needs: for the
# keys that are asked about, a slice of the facts they come from at a time, and a key whose
# count has passed the bound is asked about no more.

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

    def __init__(self, state: EvaluationState) -> None:
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


def _beyond(values: Ids, test: LexCompare | IntCompare, state: EvaluationState) -> Counts:
    """Return for each value how many others compare so with it."""
    look = state.budget.check
    (ranks,) = state.verdicts.ranks(test).of(values, budget=state.budget)
    valid = ranks >= 0
    ordered = sort_keys(ranks[valid], look)
    if test.operator == ">":
        counts = len(ordered) - places_in(ordered, ranks, "right", look)
    else:
        counts = places_in(ordered, ranks, "left", look)
    return np.where(valid, counts, 0)


def _beyond_in_group(
    items: Ids, groups: Ids, test: LexCompare | IntCompare, state: EvaluationState
) -> Counts:
    """Return for each item how many others of its group compare so with it."""
    look = state.budget.check
    (marks,) = state.verdicts.ranks(test).of(items, budget=state.budget)
    valid = marks >= 0
    ranks = places_in(distinct_sorted(marks[valid], look), marks, "left", look)
    span = int(ranks.max(initial=0)) + 2
    lowest = groups.astype(np.int64) * span
    keys = lowest + ranks
    ordered = sort_keys(keys[valid], look)
    if test.operator == ">":
        ends = places_in(ordered, lowest + span, "left", look)
        counts = ends - places_in(ordered, keys, "right", look)
    else:
        begins = places_in(ordered, lowest, "left", look)
        counts = places_in(ordered, keys, "left", look) - begins
    return np.where(valid, counts, 0)


Relations: TypeAlias = "dict[PredicateKey, Relation]"
Rows: TypeAlias = "tuple[tuple[Ids, ...], int]"
WHOLE: Final = -2
"""The plan of a rule that starts from no change."""
GOAL: Final = -1
"""The plan of a rule that starts from the facts asked about."""
_MOST_FLAG_BYTES: Final = 2**20
"""What the sets of derived rows take together for flags before they have many rows."""
_NEW_PLAN_BITS: Final = 3
"""A plan is made again when a relation has grown or shrunk by this power of two."""


_VALUE_BYTES: Final = 4
_PIECE_BYTES: Final = 512
"""What arrays of facts take beside their values, and whatever refers to them."""
_INDEX_BYTES: Final = 40
"""What a row takes while an index is made of it: its key, the order, where each key begins."""


@dataclass(slots=True)
class _Planned:
    """A plan, and how large what it reads was when its joins were ordered."""

    reads: tuple[PredicateKey, ...]
    sizes: list[int] = field(default_factory=list)
    plan: StepPlan | None = None


class EvaluationState:
    """Everything that an evaluation knows.

    `relations` has what scans read; `sets` has the rows of derived relations, by which
    duplicates are found; `changed` has what a plan that starts from a change reads, `goal`
    the facts that one asks about, `sliced` the rows to take for one place of a body.
    `virtual` are the predicates whose facts are not made, because they are only counted;
    `places` has what `lace.algebra.lower.places` says of each rule.
    """

    def __init__(
        self,
        program: RelationalProgram,
        dictionary: Texts,
        size: int,
        relations: Relations,
        budget: Budget,
        verdicts: Verdicts | None = None,
    ) -> None:
        self.program = program
        self.dictionary = dictionary
        self.size = size
        self.relations = relations
        self.sets: dict[PredicateKey, RowSet] = {}
        self.changed: Mapping[PredicateKey, Relation] = {}
        self.found_bytes = 0
        """Bytes of facts that are found, and in no relation yet."""
        self.pieces = 0
        """How many times facts were found; each time they are arrays of their own."""
        self.goal: Relation | None = None
        self.sliced: tuple[int, Relation] | None = None
        self.virtual = set(program.counted)
        self.budget = budget
        self.verdicts = verdicts or Verdicts(dictionary, size)
        # Held by what it belongs to alone: what a state has may be large, and goes with it.
        self.counting = Counting(weakref.proxy(self))
        self.branches: dict[PredicateKey, list[Branch]] = {}
        for step in program.steps:
            for branch in step.branches:
                self.branches.setdefault(branch.predicate, []).append(branch)
        self.places: dict[int, tuple[tuple[Scan, bool], ...]] = {
            branch.rule: tuple(places(branch.plan))
            for step in program.steps
            for branch in step.branches
        }
        self._plans: dict[tuple[int, int], _Planned] = {}

    def copy(self) -> EvaluationState:
        """Return a state that goes its own way from here; it shares all that never changes."""
        made = EvaluationState(
            self.program,
            self.dictionary,
            self.size,
            dict(self.relations),
            self.budget,
            self.verdicts,
        )
        made.virtual = set(self.virtual)
        made._plans = self._plans
        return made

    def derived_set(self, predicate: PredicateKey) -> RowSet:
        """Return the rows of a derived predicate, as a set."""
        found = self.sets.get(predicate)
        if found is None:
            flags = sum(each.flag_bytes for each in self.sets.values())
            fits = self.size**predicate.arity <= _MOST_FLAG_BYTES - flags
            found = RowSet(predicate.arity, self.size, may_flag=fits)
            present = self._all(predicate)
            columns = present.columns()
            for stretch in stretches_of(present.rows):  # all at once would take more memory
                self.budget.check()
                rows = stretch.stop - stretch.start
                found.add(tuple(column[stretch] for column in columns), rows, self.budget.check)
            self.sets[predicate] = found
        return found

    def clear(self, predicate: PredicateKey) -> None:
        """Forget all facts of a derived predicate."""
        self.relations[predicate] = Relation(predicate.arity)
        self.sets.pop(predicate, None)

    def relation(self, scan: Scan) -> Relation:
        """Return the rows that a scan reads."""
        if scan.version is Version.ALL:
            if self.sliced is not None and scan.occurrence == self.sliced[0]:
                return self.sliced[1]
            return self._all(scan.predicate)
        if scan.version is Version.CHANGED:
            return self.changed[scan.predicate]
        if self.goal is None:
            raise AssertionError("a plan for a goal runs with a goal")
        return self.goal

    def _all(self, predicate: PredicateKey) -> Relation:
        found = self.relations.get(predicate)
        if found is None:
            found = self.relations[predicate] = Relation(predicate.arity)
        return found

    def selections(self, scan: Scan, pattern: Pattern) -> list[Selection]:
        """Return the rows that a scan reads and that fit a pattern, part by part."""
        relation = self.relation(scan)
        if self.budget.is_weighted and pattern is not EVERYTHING:
            compared = len(pattern.constants) + len(pattern.equal)
            for part in relation.parts:
                if not part.has(pattern):
                    self.budget.charge(
                        costs.STEP + costs.SELECTED * compared * part.rows, 2 * part.rows
                    )
                    rows = part.select(pattern).rows
                    self.budget.charge(
                        costs.CELL * rows, _VALUE_BYTES * (1 + relation.arity) * rows
                    )
        return relation.select(pattern)

    def index(self, selection: Selection, positions: tuple[int, ...]) -> Index:
        """Return rows by their values at some positions; what it costs to make is counted."""
        if self.budget.is_weighted and not selection.has_index(positions):
            rows, paired = selection.rows, max(0, len(positions) - 2)
            units = costs.SORTED + costs.SET_COLUMN * paired
            size = min(self.size, 32 * rows) * 5 + (_INDEX_BYTES + PAIRED_BYTES * paired) * rows
            self.budget.charge(costs.STEP + units * rows, size)
        return selection.index(positions, self.size, self.budget.check)

    def members(self, selection: Selection, position: int) -> Members:
        """Return the set of values at a position; what it costs to make is counted."""
        if self.budget.is_weighted and not selection.has_members(position):
            rows = selection.rows
            self.budget.charge(
                costs.STEP + costs.SORTED * rows,
                min(self.size, 32 * rows) + 3 * _VALUE_BYTES * rows,
            )
        return selection.members(position, self.size, self.budget.check)

    def held_bytes(self, base: Mapping[PredicateKey, Relation]) -> int:
        """Return about what this holds beside base facts: what it made, sets and access paths."""
        made = sum(each.bytes for each in self.sets.values()) + self.counting.size
        for key, relation in self.relations.items():
            if base.get(key) is not relation:
                parts = (part for part in relation.parts if isinstance(part, ColumnPart))
                # A fact is in its relation, and as long as a fixed point runs among the new ones.
                made += sum(part.bytes + part.column_bytes for part in parts)
        for relation in self.changed.values():
            parts = (part for part in relation.parts if isinstance(part, ColumnPart))
            made += sum(part.bytes for part in parts)
        return made + self.found_bytes + _PIECE_BYTES * self.pieces

    def count_mask(self, test: CountTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a count test holds."""
        return self.counting.count_mask(test, frame)

    def rank_mask(self, test: RankTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a rank test holds."""
        return self.counting.rank_mask(test, frame)

    # What the order of joins is chosen by.

    def rows(self, scan: Scan) -> int:
        """Return how many rows a scan has."""
        pattern = pattern_of(scan, self.dictionary)[0]
        return sum(selection.rows for selection in self.selections(scan, pattern))

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        """Return how many different values a scan has in a column; the most, of several."""
        pattern, positions = pattern_of(scan, self.dictionary)
        return max(
            sum(
                self.members(selection, positions[name]).count
                for selection in self.selections(scan, pattern)
            )
            for name in columns
        )

    def plan(self, branch: Branch, start: int = WHOLE) -> StepPlan:
        """Return the steps of a rule, from all facts or from a change at one place."""
        key = (branch.rule, start)
        found = self._plans.get(key)
        if found is None:
            reads = tuple(dict.fromkeys(scan.predicate for scan, _ in scans_of(branch.plan)))
            found = self._plans[key] = _Planned(reads)
        sizes = [self._all(read).rows.bit_length() // _NEW_PLAN_BITS for read in found.reads]
        if found.plan is None or found.sizes != sizes:
            self.budget.rule = branch.rule
            found.plan = self.compiled(self._starting(branch, start))
            found.sizes = sizes
        return found.plan

    def compiled(self, plan: Project) -> StepPlan:
        """Return the steps of a plan that is not kept."""
        self.budget.charge(costs.ATOM * (1 + count_atoms(plan)))
        return compile_plan(order_joins(plan, self).input, self.dictionary)

    def _starting(self, branch: Branch, start: int) -> Project:
        if start == WHOLE:
            return branch.plan
        return from_goal(branch) if start == GOAL else from_change(branch.plan, start)

    def heads(self, branch: Branch, plan: StepPlan) -> Iterator[Rows]:
        """Run a plan of a rule; yields the facts that it makes, repeated ones too."""
        self.budget.rule = branch.rule
        self.budget.charge(costs.APPLICATION)
        terms = branch.plan.terms
        for frame in run_plan(plan, self):
            columns = tuple(
                frame.columns[term.name]
                if isinstance(term, Variable)
                else np.full(frame.rows, self.dictionary.intern(term.value), np.int32)
                for term in terms
            )
            rows = frame.rows
            del frame  # the receiver of the facts decides how long they are held
            yield columns, rows
            del columns
