"""Frames: rows as columns by variable, and what is too long for one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.keys import Flags

__all__ = [
    "FRAME_ROW_BYTES",
    "MAX_FRAME_ROWS",
    "UNIT",
    "Frame",
    "Frames",
    "in_frames",
    "joined_frames",
    "multiplied",
    "multiplied_by_all",
]

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
    """Return `total` rows, which can be made in stretches, as one frame or as several.

    Args:
        total: the number of rows.
        expand: makes the rows from one number to another.
        size: how many bytes it holds for that.
    """
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
