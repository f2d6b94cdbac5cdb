"""Plans as steps over frames: how an ordered plan runs on columns.

A frame is some rows as columns by variable. A step takes a frame and gives one, or
several when it would grow too long: the rest of the plan then runs for each. Rows are
counted before they are visited, so a blow-up is stopped before it happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.algebra.nodes import CountTest, RankTest, Scan
    from lace.engines.embedded.budget import Budget
    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.keys import Flags
    from lace.engines.embedded.relation import Pattern, Relation, Selection
    from lace.engines.embedded.verdicts import Verdicts
    from lace.rules.syntax import Test

__all__ = [
    "Access",
    "AntiJoinStep",
    "Context",
    "CountStep",
    "ExistsStep",
    "FilterStep",
    "Frame",
    "JoinStep",
    "Plan",
    "ProductStep",
    "RankStep",
    "SemiJoinStep",
    "Step",
    "run_plan",
]

MAX_FRAME_ROWS: Final = 2**21
"""Rows that one frame has at most; longer results are worked off frame by frame."""


@dataclass(slots=True)
class Frame:
    """Rows as columns by variable."""

    rows: int
    columns: Mapping[str, Ids]

    def kept(self, mask: Flags, names: Sequence[str]) -> Frame:
        """Return the rows that a mask keeps, with these columns."""
        rows = int(np.count_nonzero(mask))
        if rows == self.rows:
            return Frame(rows, {name: self.columns[name] for name in names})
        return Frame(rows, {name: self.columns[name][mask] for name in names})


class Context(Protocol):
    """What steps need to know while they run."""

    size: int
    budget: Budget
    verdicts: Verdicts

    def relation(self, scan: Scan) -> Relation:
        """Return the rows that a scan reads."""
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


class Step(Protocol):
    """One step of a plan."""

    def apply(self, frame: Frame, context: Context) -> Frame | Iterator[Frame]:
        """Return what becomes of a frame."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, from one row without columns to the rows that make facts."""

    steps: tuple[Step, ...]


_UNIT: Final = Frame(1, {})


def run_plan(plan: Plan, context: Context) -> Iterator[Frame]:
    """Yield the frames of a plan that have rows."""
    return _run(plan.steps, 0, _UNIT, context)


def _run(steps: tuple[Step, ...], at: int, frame: Frame, context: Context) -> Iterator[Frame]:
    while at < len(steps):
        made = steps[at].apply(frame, context)
        at += 1
        if not isinstance(made, Frame):
            for each in made:
                if each.rows:
                    yield from _run(steps, at, each, context)
            return
        frame = made
        if not frame.rows:
            return
    yield frame


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Every combination of a row with the rows of a scan that agree with it."""

    access: Access
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame | Iterator[Frame]:
        """Return the combinations."""
        access = self.access
        selections = context.relation(access.scan).select(access.pattern)
        if not selections:
            return Frame(0, {})
        frames: list[Iterator[Frame]] = []
        for selection in selections:
            if access.shared:
                made = self._probe(frame, selection, context)
            elif frame is _UNIT:
                made = self._start(selection, context)
            else:
                made = self._multiply(frame, selection, context)
            if len(selections) == 1:
                return made
            frames.append(iter((made,)) if isinstance(made, Frame) else made)
        return _joined(frames, self.columns)

    def _start(self, selection: Selection, context: Context) -> Frame | Iterator[Frame]:
        rows, positions = selection.rows, self.access.positions
        context.budget.spend(rows)
        columns = {name: selection.column(positions[name]) for name in self.columns}
        if rows <= MAX_FRAME_ROWS:
            return Frame(rows, columns)
        return (
            Frame(
                min(MAX_FRAME_ROWS, rows - at),
                {name: column[at : at + MAX_FRAME_ROWS] for name, column in columns.items()},
            )
            for at in range(0, rows, MAX_FRAME_ROWS)
        )

    def _probe(
        self, frame: Frame, selection: Selection, context: Context
    ) -> Frame | Iterator[Frame]:
        access = self.access
        index = selection.index(access.keys, context.size)
        slots = index.find([frame.columns[name] for name in access.shared])
        hits = slots >= 0
        if index.is_unique:
            context.budget.spend(frame.rows)
            kept = frame.kept(hits, [name for name in self.columns if name in frame.columns])
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
        context.budget.spend(frame.rows + total)
        ends = np.cumsum(lengths)

        def expand(first: int, last: int) -> Frame:
            """Return the combinations from one number to another."""
            if first == 0 and last == total:
                which = np.repeat(np.arange(len(old)), lengths)
            else:
                which = np.searchsorted(ends, np.arange(first, last), side="right")
            within = np.arange(first, last) - (ends - lengths)[which]
            rows = index.rows_at(begins[which] + within)
            source = old[which]
            columns = {
                name: frame.columns[name][source] for name in self.columns if name in frame.columns
            }
            for name in access.fresh:
                columns[name] = selection.column(access.positions[name])[rows]
            return Frame(last - first, columns)

        return _in_frames(total, expand)

    def _multiply(
        self, frame: Frame, selection: Selection, context: Context
    ) -> Frame | Iterator[Frame]:
        access = self.access
        values = {name: selection.column(access.positions[name]) for name in access.fresh}
        return multiply(frame, Frame(selection.rows, values), self.columns, context)


def multiply(
    frame: Frame, other: Frame, names: Sequence[str], context: Context
) -> Frame | Iterator[Frame]:
    """Return every combination of the rows of two frames."""
    total = frame.rows * other.rows
    context.budget.spend(total)
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

    return _in_frames(total, expand)


class _Expand(Protocol):
    def __call__(self, first: int, last: int) -> Frame: ...


def _in_frames(total: int, expand: _Expand) -> Frame | Iterator[Frame]:
    if total <= MAX_FRAME_ROWS:
        return expand(0, total) if total else Frame(0, {})
    return (
        expand(first, min(first + MAX_FRAME_ROWS, total))
        for first in range(0, total, MAX_FRAME_ROWS)
    )


def _joined(frames: Sequence[Iterator[Frame]], names: Sequence[str]) -> Frame | Iterator[Frame]:
    """Return frames of several parts as one where they are short."""

    def gathered() -> Iterator[Frame]:
        waiting: list[Frame] = []
        rows = 0
        for each in (frame for source in frames for frame in source if frame.rows):
            if waiting and rows + each.rows > MAX_FRAME_ROWS:
                yield _concatenated(waiting, names)
                waiting, rows = [], 0
            waiting.append(each)
            rows += each.rows
        if waiting:
            yield _concatenated(waiting, names)

    return gathered()


def _concatenated(frames: Sequence[Frame], names: Sequence[str]) -> Frame:
    if len(frames) == 1:
        return frames[0]
    return Frame(
        sum(frame.rows for frame in frames),
        {name: np.concatenate([frame.columns[name] for frame in frames]) for name in names},
    )


def _matches(access: Access, frame: Frame, context: Context) -> Flags:
    """Tell which rows agree with some row of a scan."""
    context.budget.spend(frame.rows)
    relation = context.relation(access.scan)
    mask: Flags | None = None
    for selection in relation.select(access.pattern):
        if not access.shared:
            return np.ones(frame.rows, np.bool_)
        if len(access.shared) == 1:
            members = selection.members(access.keys[0], context.size)
            found = members.mask(frame.columns[access.shared[0]])
        else:
            index = selection.index(access.keys, context.size)
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
        return frame.kept(_matches(self.access, frame, context), self.columns)


@dataclass(frozen=True, slots=True)
class AntiJoinStep:
    """The rows that agree with no row of a scan."""

    access: Access
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        return frame.kept(~_matches(self.access, frame, context), self.columns)


@dataclass(frozen=True, slots=True)
class FilterStep:
    """The rows for which a built-in test holds."""

    test: Test
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        context.budget.spend(frame.rows)
        mask = context.verdicts.mask(self.test, frame.columns, frame.rows)
        return frame.kept(mask, self.columns)


@dataclass(frozen=True, slots=True)
class CountStep:
    """The rows for which a count meets its bound."""

    test: CountTest
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        context.budget.spend(frame.rows)
        return frame.kept(context.count_mask(self.test, frame), self.columns)


@dataclass(frozen=True, slots=True)
class RankStep:
    """The rows for which a rank meets its bound."""

    test: RankTest
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return those rows."""
        context.budget.spend(frame.rows)
        return frame.kept(context.rank_mask(self.test, frame), self.columns)


@dataclass(frozen=True, slots=True)
class ExistsStep:
    """All rows, if another plan has any."""

    plan: Plan
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame:
        """Return all rows or none."""
        if any(True for _ in run_plan(self.plan, context)):
            return frame
        return Frame(0, {})


@dataclass(frozen=True, slots=True)
class ProductStep:
    """Every combination with the rows of another plan."""

    plan: Plan
    columns: tuple[str, ...]

    def apply(self, frame: Frame, context: Context) -> Frame | Iterator[Frame]:
        """Return the combinations."""
        made = [
            multiply(frame, other, self.columns, context) for other in run_plan(self.plan, context)
        ]
        return _joined([iter((x,)) if isinstance(x, Frame) else x for x in made], self.columns)
