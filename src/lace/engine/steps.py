"""Plans as steps over frames: how an ordered plan runs on columns.

A step takes a frame and gives one, or several when it would grow too long: the rest of
the plan then runs for each. Rows are
counted before they are visited, so a blow-up is stopped before it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lace.columns import costs
from lace.columns.index import Members
from lace.columns.keys import stretches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lace.algebra.nodes import CountTest, RankTest, Scan
    from lace.columns.dictionary import Ids
    from lace.columns.index import Index, Slots
    from lace.columns.keys import Flags
    from lace.columns.relation import Pattern, Selection
    from lace.engine.budget import Budget
    from lace.engine.predicate_cache import Verdicts
    from lace.rules.syntax import Test


# -- Frames: rows as columns by variable, and what is too long for one of them.

MAX_FRAME_ROWS: Final = 2**21
"""Rows that one frame has at most; longer results are worked off frame by frame."""
FRAME_ROW_BYTES: Final = 32
"""What a row takes while a frame is made, beside its columns: numbers of rows and keys."""


@dataclass(slots=True)
class Frame:
    """Rows as columns by variable."""

    rows: int
    columns: Mapping[str, Ids]

    @property
    def size(self) -> int:
        """How many bytes its columns take."""
        return sum(column.nbytes for column in self.columns.values())

    def kept(self, mask: Flags, names: Sequence[str]) -> Frame:
        """Return the rows that a mask keeps, with these columns."""
        rows = int(np.count_nonzero(mask))
        if rows == self.rows:
            return Frame(rows, {name: self.columns[name] for name in names})
        return Frame(rows, {name: self.columns[name][mask] for name in names})


@dataclass(frozen=True, slots=True)
class Frames:
    """Rows that are too many for one frame; going through them again makes them again.

    `size` is how many bytes are held until the last of them is made.
    """

    rows: int
    make: Callable[[], Iterator[Frame]]
    size: int = 0

    def __iter__(self) -> Iterator[Frame]:
        return self.make()


UNIT: Final = Frame(1, {})
"""One row without columns: what every plan starts from."""


class _Expand(Protocol):
    def __call__(self, first: int, last: int) -> Frame: ...


def in_frames(total: int, expand: _Expand, size: int = 0) -> Frame | Frames:
    """Return `total` rows, which can be made in stretches, as one frame or as several."""
    if total <= MAX_FRAME_ROWS:
        return expand(0, total) if total else Frame(0, {})
    return Frames(
        total,
        lambda: (
            expand(first, min(first + MAX_FRAME_ROWS, total))
            for first in range(0, total, MAX_FRAME_ROWS)
        ),
        size,
    )


def joined_frames(sources: Sequence[Frame | Frames], names: Sequence[str]) -> Frame | Frames:
    """Return the rows of several parts together, as one frame where they are few."""
    rows = sum(source.rows for source in sources)
    if rows <= MAX_FRAME_ROWS:
        short = [frame for source in sources for frame in _each(source) if frame.rows]
        return _concatenated(short, names) if short else Frame(0, {})

    def gathered() -> Iterator[Frame]:
        waiting: list[Frame] = []
        count = 0
        for each in (frame for source in sources for frame in _each(source) if frame.rows):
            if waiting and count + each.rows > MAX_FRAME_ROWS:
                yield _concatenated(waiting, names)
                waiting, count = [], 0
            waiting.append(each)
            count += each.rows
        if waiting:
            yield _concatenated(waiting, names)

    waiting_bytes = (FRAME_ROW_BYTES + 4 * len(names)) * MAX_FRAME_ROWS
    return Frames(rows, gathered, sum(source.size for source in sources) + waiting_bytes)


def _each(source: Frame | Frames) -> Iterator[Frame]:
    return iter((source,)) if isinstance(source, Frame) else iter(source)


def _concatenated(frames: Sequence[Frame], names: Sequence[str]) -> Frame:
    if len(frames) == 1:
        return frames[0]
    return Frame(
        sum(frame.rows for frame in frames),
        {name: np.concatenate([frame.columns[name] for frame in frames]) for name in names},
    )


def multiplied(frame: Frame, other: Frame, names: Sequence[str]) -> Frame | Frames:
    """Return every combination of the rows of two frames."""
    total = frame.rows * other.rows
    if frame.rows == 1 and not frame.columns and other.rows <= MAX_FRAME_ROWS:
        return Frame(other.rows, {name: other.columns[name] for name in names})

    def expand(first: int, last: int) -> Frame:
        left, right = np.divmod(np.arange(first, last), other.rows)
        return Frame(
            last - first,
            {
                name: other.columns[name][right]
                if name in other.columns
                else frame.columns[name][left]
                for name in names
            },
        )

    return in_frames(total, expand, frame.size + other.size)


def multiplied_by_all(
    frame: Frame, others: Sequence[Frame], names: Sequence[str]
) -> Frame | Frames:
    """Return every combination of the rows of a frame with those of others.

    What is too long for one frame is made when it is its turn: only the others are held.
    """
    if len(others) == 1:
        return multiplied(frame, others[0], names)

    def each(other: Frame) -> Frames:
        return Frames(
            frame.rows * other.rows,
            lambda: _each(multiplied(frame, other, names)),
            other.size,
        )

    made = joined_frames([each(other) for other in others], names)
    return made if isinstance(made, Frame) else replace(made, size=made.size + frame.size)


_SCANNED_SHARE: Final = 16
"""A scan without an index is read whole when at least this share of it is looked for."""


_NO_ROWS: Final = np.empty(0, np.intp)


class Context(Protocol):
    """What steps need to know while they run."""

    size: int
    budget: Budget
    verdicts: Verdicts

    def selections(self, scan: Scan, pattern: Pattern) -> list[Selection]:
        """Return the rows that a scan reads and that fit a pattern, part by part."""
        ...

    def index(self, selection: Selection, positions: tuple[int, ...]) -> Index:
        """Return rows by their values at some positions; what it costs to make is counted."""
        ...

    def members(self, selection: Selection, position: int) -> Members:
        """Return the set of values at a position; what it costs to make is counted."""
        ...

    def count_mask(self, test: CountTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a count test holds."""
        ...

    def rank_mask(self, test: RankTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a rank test holds."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """How a scan is read: the rows that fit, where its columns are, which are compared.

    `keys` are the positions of the columns that are shared.
    """

    scan: Scan
    pattern: Pattern
    positions: Mapping[str, int]
    shared: tuple[str, ...]
    fresh: tuple[str, ...]
    keys: tuple[int, ...]


class PlanStep(Protocol):
    """One step of a plan."""

    def apply(self, frame: Frame, context: Context) -> Frame | Frames:
        """Return what becomes of a frame."""
        ...


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Steps, from one row without columns to the rows that make facts."""

    steps: tuple[PlanStep, ...]


def run_plan(plan: StepPlan, context: Context) -> Iterator[Frame]:
    """Yield the frames of a plan that have rows."""
    steps, budget = plan.steps, context.budget
    frame, at, held = UNIT, 0, 0  # held are the bytes of the frame
    levels: list[_Level] = []  # of frames that are still to come, the last one first
    try:
        while True:
            while at < len(steps) and frame.rows:
                made = steps[at].apply(frame, context)
                at += 1
                if isinstance(made, Frames):
                    _look_ahead(steps, at, made, context)
                    levels.append(_Level(iter(made), at, made.size))
                    budget.hold(made.size)
                    break
                # It is held, also when it is measured while the next one is made.
                more, held, frame = made.size - held, made.size, made
                budget.hold(more)
            else:
                if frame.rows:
                    yield frame
            frame = made = UNIT  # nothing that is passed on is kept here
            budget.hold(-held)
            held = 0
            while levels:
                level = levels[-1]
                budget.reserve(level.next_size)
                following = next(level.frames, None)
                if following is None:
                    budget.hold(-level.size)
                    levels.pop()
                elif following.rows:
                    level.next_size = _frame_bytes(following.rows, len(following.columns))
                    held, frame, at = following.size, following, level.at
                    budget.hold(held)
                    del following
                    break
            else:
                return
    finally:
        budget.hold(-held - sum(level.size for level in levels))


@dataclass(slots=True)
class _Level:
    """Frames that a step makes one after the other, and the step that they go to.

    `size` is what they hold, and `next_size` what it takes to make one more; the step has
    counted the first one.
    """

    frames: Iterator[Frame]
    at: int
    size: int
    next_size: int = 0


def _look_ahead(steps: tuple[PlanStep, ...], at: int, frames: Frames, context: Context) -> None:
    """Stop a join that many frames would go through before the first of them does.

    Each frame alone may stay within the budget and keep the engine busy for hours all the
    same. So where the sum could pass the budget, it is counted first. A peer's budget is too
    small for that, and looking ahead would cost some of it.
    """
    if context.budget.is_weighted:
        return
    following = next((j for j in range(at, len(steps)) if isinstance(steps[j], JoinStep)), None)
    if following is None or any(isinstance(steps[j], ProductStep) for j in range(at, following)):
        return
    join = steps[following]
    if not isinstance(join, JoinStep):
        raise AssertionError("the step that was found is a join")
    if context.budget.allows(frames.rows * join.most(context)):
        return
    with context.budget.probing():
        total = 0
        for each in frames:
            for step in steps[at:following]:
                tested = step.apply(each, context)
                if not isinstance(tested, Frame):
                    raise AssertionError("a step that is no join gives one frame")
                each = tested
                if not each.rows:
                    break
            else:
                total += join.cost(each, context)
                if not context.budget.allows(total):
                    break
    if not context.budget.allows(total):
        context.budget.spend(total)


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Every combination of a row with the rows of a scan that agree with it."""

    access: Access
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame | Frames:
        """Return the combinations."""
        access = self.access
        selections = context.selections(access.scan, access.pattern)
        if not selections:
            return Frame(0, {})
        frames: list[Frame | Frames] = []
        for selection in selections:
            if access.shared:
                made = self._probe(frame, selection, context)
            elif frame is UNIT:
                made = self._start(selection, context)
            else:
                made = self._multiply(frame, selection, context)
            if len(selections) == 1:
                return made
            frames.append(made)
        return joined_frames(frames, self.columns)

    def most(self, context: Context) -> int:
        """Return the most rows that this makes of one row."""
        access = self.access
        selections = context.selections(access.scan, access.pattern)
        if not access.shared:
            return sum(selection.rows for selection in selections)
        return sum(context.index(selection, access.keys).longest for selection in selections)

    def cost(self, frame: Frame, context: Context) -> int:
        """Return how many rows this makes of a frame, without making them."""
        access = self.access
        total = 0
        for selection in context.selections(access.scan, access.pattern):
            if not access.shared:
                total += frame.rows * selection.rows
                continue
            index = context.index(selection, access.keys)
            slots = index.find([frame.columns[name] for name in access.shared])
            slots = slots[slots >= 0]
            total += int((index.starts[slots + 1] - index.starts[slots]).sum())
        return total

    def _start(self, selection: Selection, context: Context) -> Frame | Frames:
        rows, positions = selection.rows, self.access.positions
        context.budget.spend(rows, costs.ROW)  # whole columns are passed on
        columns = {name: selection.column(positions[name]) for name in self.columns}
        return in_frames(
            rows,
            lambda first, last: Frame(
                last - first, {name: column[first:last] for name, column in columns.items()}
            ),
        )

    def _probe(self, frame: Frame, selection: Selection, context: Context) -> Frame | Frames:
        access = self.access
        scanned = self._scan(frame, selection, context)
        if scanned is not None:
            return scanned
        index = context.index(selection, access.keys)
        context.budget.charge(index.units(frame.rows) * frame.rows, index.bytes_to_find(frame.rows))
        slots = index.find([frame.columns[name] for name in access.shared])
        hits = slots >= 0
        cells = len(self.columns)
        if index.is_unique:
            kept = frame.kept(hits, [name for name in self.columns if name in frame.columns])
            context.budget.spend(
                frame.rows + kept.rows,
                costs.row(cells) * kept.rows,
                _frame_bytes(frame.rows, cells),
            )
            columns = dict(kept.columns)
            rows = index.rows_at(slots if kept.rows == frame.rows else slots[hits])
            for name in access.fresh:
                columns[name] = selection.column(access.positions[name])[rows]
            return Frame(kept.rows, columns)
        old = np.flatnonzero(hits)
        slots = slots[old]
        begins = index.starts[slots]
        lengths = index.starts[slots + 1] - begins
        total = int(lengths.sum())
        context.budget.spend(
            frame.rows + total,
            costs.row(cells) * total,
            _frame_bytes(frame.rows, 0) + _frame_bytes(total, cells),
        )
        ends = np.cumsum(lengths)

        def expand(first: int, last: int) -> Frame:
            """Return the combinations from one number to another."""
            source, begin, length = old, begins, lengths
            if last - first < total:
                low, high = np.searchsorted(ends, [first, last - 1], side="right").tolist()
                source, begin = old[low : high + 1], begins[low : high + 1].copy()
                length = lengths[low : high + 1].copy()
                skipped = first - int(ends[low] - lengths[low])
                begin[0] += skipped
                length[0] -= skipped
                length[-1] -= int(ends[high]) - last
            rows = np.repeat(begin - np.cumsum(length) + length, length)
            rows += np.arange(last - first)
            rows = index.rows_at(rows)
            columns = {
                name: np.repeat(frame.columns[name][source], length)
                for name in self.columns
                if name in frame.columns
            }
            for name in access.fresh:
                columns[name] = selection.column(access.positions[name])[rows]
            return Frame(last - first, columns)

        return in_frames(total, expand, frame.size + FRAME_ROW_BYTES * len(old))

    def _scan(self, frame: Frame, selection: Selection, context: Context) -> Frame | Frames | None:
        """Return the combinations by looking at each row of the scan, where that is worth it.

        Many rows that bring nothing but their key are matched in less time than an index of
        the scan takes to make. Which way is taken shows in the order of rows alone.
        """
        access = self.access
        if (
            len(access.shared) > 1
            or frame.rows * _SCANNED_SHARE < selection.rows
            or any(name in frame.columns and name != access.shared[0] for name in self.columns)
            or selection.has_index(access.keys)
        ):
            return None
        context.budget.charge(
            costs.SORTED * frame.rows + costs.ROW * selection.rows, context.size + selection.rows
        )
        members = Members(frame.columns[access.shared[0]], context.size)
        if members.count < frame.rows:
            return None
        rows = _rows_among(members, selection.column(access.keys[0]), context.budget)
        cells = len(self.columns)
        context.budget.spend(
            frame.rows + len(rows),
            costs.ROW * frame.rows + costs.row(cells) * len(rows),
            _frame_bytes(len(rows), cells),
        )
        values = {name: selection.column(access.positions[name]) for name in self.columns}
        return in_frames(
            len(rows),
            lambda first, last: Frame(
                last - first, {name: column[rows[first:last]] for name, column in values.items()}
            ),
            rows.nbytes,
        )

    def _multiply(self, frame: Frame, selection: Selection, context: Context) -> Frame | Frames:
        access = self.access
        values = {name: selection.column(access.positions[name]) for name in access.fresh}
        total, cells = frame.rows * selection.rows, len(self.columns)
        context.budget.spend(total, costs.row(cells) * total, _frame_bytes(total, cells))
        return multiplied(frame, Frame(selection.rows, values), self.columns)


def _rows_among(members: Members, column: Ids, budget: Budget) -> Slots:
    """Return the rows whose value is in a set, with looks at the budget."""
    found = []
    for stretch in stretches_of(len(column)):
        budget.check()
        found.append(np.flatnonzero(members.mask(column[stretch])) + stretch.start)
    return found[0] if len(found) == 1 else np.concatenate([_NO_ROWS, *found])


def _frame_bytes(rows: int, columns: int) -> int:
    """Return about what it takes to make a frame of rows, or the first one of many."""
    return (FRAME_ROW_BYTES + 4 * columns) * min(rows, MAX_FRAME_ROWS)


def _matches(access: Access, frame: Frame, context: Context, kept: int) -> Flags:
    """Tell which rows agree with some row of a scan; `kept` columns of them are kept."""
    selections = context.selections(access.scan, access.pattern)
    context.budget.spend(
        frame.rows,
        (costs.ROW * len(selections) + costs.row(kept)) * frame.rows + costs.STEP * len(selections),
        _frame_bytes(frame.rows, kept),
    )
    mask: Flags | None = None
    for selection in selections:
        if not access.shared:
            return np.ones(frame.rows, np.bool_)
        if len(access.shared) == 1:
            members = context.members(selection, access.keys[0])
            context.budget.charge(members.units(frame.rows) * frame.rows)
            found = members.mask(frame.columns[access.shared[0]])
        else:
            index = context.index(selection, access.keys)
            context.budget.charge(
                index.units(frame.rows) * frame.rows, index.bytes_to_find(frame.rows)
            )
            found = index.find([frame.columns[name] for name in access.shared]) >= 0
        mask = found if mask is None else mask | found
    return np.zeros(frame.rows, np.bool_) if mask is None else mask


@dataclass(frozen=True, slots=True)
class SemiJoinStep:
    """The rows that agree with some row of a scan."""

    access: Access
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        return frame.kept(_matches(self.access, frame, context, len(self.columns)), self.columns)


@dataclass(frozen=True, slots=True)
class AntiJoinStep:
    """The rows that agree with no row of a scan."""

    access: Access
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        matches = _matches(self.access, frame, context, len(self.columns))
        return frame.kept(~matches, self.columns)


def _spend_test(frame: Frame, columns: tuple[str, ...], context: Context) -> None:
    rows, cells = frame.rows, len(columns)
    context.budget.spend(rows, (costs.ROW + costs.row(cells)) * rows, _frame_bytes(rows, cells))


@dataclass(frozen=True, slots=True)
class FilterStep:
    """The rows for which a built-in test holds."""

    test: Test
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        _spend_test(frame, self.columns, context)
        mask = context.verdicts.mask(self.test, frame.columns, frame.rows, context.budget)
        return frame.kept(mask, self.columns)


@dataclass(frozen=True, slots=True)
class CountStep:
    """The rows for which a count meets its bound."""

    test: CountTest
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        _spend_test(frame, self.columns, context)
        return frame.kept(context.count_mask(self.test, frame), self.columns)


@dataclass(frozen=True, slots=True)
class RankStep:
    """The rows for which a rank meets its bound."""

    test: RankTest
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        _spend_test(frame, self.columns, context)
        return frame.kept(context.rank_mask(self.test, frame), self.columns)


@dataclass(frozen=True, slots=True)
class ExistsStep:
    """All rows, if another plan has any."""

    plan: StepPlan
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return all rows or none."""
        if any(True for _ in run_plan(self.plan, context)):
            return frame
        return Frame(0, {})


@dataclass(frozen=True, slots=True)
class ProductStep:
    """Every combination with the rows of another plan."""

    plan: StepPlan
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame | Frames:
        """Return the combinations."""
        budget = context.budget
        others: list[Frame] = []
        with budget.temporaries():
            for other in run_plan(self.plan, context):
                total, cells = frame.rows * other.rows, len(self.columns)
                budget.spend(total, costs.row(cells) * total, _frame_bytes(total, cells))
                budget.take(other.size)
                others.append(other)
            return multiplied_by_all(frame, others, self.columns)
