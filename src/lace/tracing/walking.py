"""A walk through one captured connection: item by item, turn by turn, both directions.

The sides take turns, so the walk reads a turn of each before it goes on; within a turn the side
comes first whose bytes come first in the capture. What a direction may hold next depends on both:
so a stream cannot be read on past a break of the other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lace.iltp.faults import StreamError
from lace.iltp.items import (
    NEED_MORE,
    Blank,
    Facts,
    OversizedRecord,
    Resource,
    StoredRecord,
    StreamEnd,
)
from lace.iltp.reader import Reader
from lace.iltp.resources import ResourceStore
from lace.interlacing.failures import InterlaceFailure
from lace.rules.limits import UNLIMITED
from lace.tracing.course import Course, Stage, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from lace.base.limits import Settings
    from lace.iltp.items import Item
    from lace.tracing.files import CaptureFile, Way
    from lace.transport.captured import Direction

__all__ = ["Broken", "End", "Seen", "Step", "Taken", "Told", "Unread", "Wrong", "walk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An item of a stream.

    Attributes:
        direction: which way it went.
        line: the line of the capture on which it begins, or soon before.
        stage: where the exchange stood.
        item: the item.
        size: the bytes that it has taken.
    """

    direction: Direction
    line: int
    stage: Stage
    item: Item
    size: int


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something legal as a stream that does not belong where it stands."""

    direction: Direction
    stage: Stage
    offset: int
    failure: InterlaceFailure


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes that are no stream; nothing is read behind them."""

    direction: Direction
    stage: Stage
    error: StreamError


@dataclass(frozen=True, slots=True)
class Step:
    """Both sides' turns of a stage are there."""

    stage: Stage
    turns: dict[Direction, Turn]
    course: Course


@dataclass(frozen=True, slots=True)
class Unread:
    """Bytes behind the place where the other direction ended or broke: nothing tells what."""

    direction: Direction
    stage: Stage
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a connection.

    Attributes:
        stage: where the exchange stood.
        offsets: how many bytes went each way.
        is_whole: whether it ended behind a whole loop.
        is_settled: whether nothing was requested in that loop.
    """

    stage: Stage
    offsets: dict[Direction, int]
    is_whole: bool
    is_settled: bool


Told: TypeAlias = Seen | Wrong | Broken | Step | Unread | End
Taken: TypeAlias = "Callable[[Direction, bytes], None]"


class _Stream:
    """One direction of a connection."""

    def __init__(self, way: Way, direction: Direction, settings: Settings, taken: Taken) -> None:
        self.direction = direction
        self._way, self._taken = way, taken
        self._reader = Reader(
            max_block_bytes=settings.max_fact_block_size,
            max_data_bytes=settings.max_data_bytes,
            resources=ResourceStore(
                limits=UNLIMITED,  # those of an operand hold where setup is read
                max_total_bytes=settings.max_resource_bytes,
            ),
        )
        self.length = 0
        """The bytes that were read so far."""
        self.is_over = self.is_broken = False

    @property
    def offset(self) -> int:
        """Where the next item begins."""
        return self._reader.offset

    @property
    def line(self) -> int:
        """The line of the capture that it is at."""
        return self._way.line

    @property
    def next_line(self) -> int:
        """Where it goes on in the capture; behind everything if it does not."""
        return self._way.line if self._reader.buffered else self._way.next_line or sys.maxsize

    def next_item(self, *, is_batch: bool) -> Item | StreamEnd:
        """Return the next item.

        Raises:
            StreamError: it is missing.
            CaptureError: the file is no capture.
        """
        reader = self._reader
        if reader.at_boundary:
            reader.expect(batch=is_batch)
        while True:
            event = reader.next_event()
            if event is not NEED_MORE:
                return event
            piece = self._way.piece()
            if piece is None:
                reader.end()
            else:
                self.length += len(piece)
                self._taken(self.direction, piece)
                reader.feed(piece)

    def read_past(self) -> None:
        """Read past what is left of it."""
        while (piece := self._way.piece()) is not None:
            self.length += len(piece)


class _Walk:
    """The state of one walk."""

    def __init__(self, streams: dict[Direction, _Stream]) -> None:
        self._streams = streams
        self._course = Course()

    def run(self) -> Iterator[Told]:
        """Walk to the end."""
        streams = self._streams
        while not any(stream.is_over for stream in streams.values()):
            yield from self._turn()
        stage = self._course.stage
        for direction, stream in streams.items():
            offset = stream.offset
            stream.read_past()
            if stream.length > offset and not stream.is_broken:
                yield Unread(direction, stage, offset, stream.length - offset)
        offsets = {direction: stream.length for direction, stream in streams.items()}
        is_whole = stage.is_rest and not any(stream.is_broken for stream in streams.values())
        yield End(stage, offsets, is_whole, is_whole and self._course.is_settled)

    def _turn(self) -> Iterator[Told]:
        """Read both sides' turns of a stage."""
        course = self._course
        turns: dict[Direction, Turn] = {}
        for stream in sorted(self._streams.values(), key=lambda stream: stream.next_line):
            turn = yield from self._step(stream)
            if turn is not None:
                turns[stream.direction] = turn
        if course.stage.is_rest and any(turn.is_setup for turn in turns.values()):
            course.renew()
            yield from self._renew(turns)
        if len(turns) == len(self._streams):
            yield Step(course.stage, turns, course)
            course.advance(turns)

    def _renew(self, turns: dict[Direction, Turn]) -> Iterator[Told]:
        """Read on where one side has presented another operand and the other has not yet.

        What the other has sent meanwhile is passed over.
        """
        for direction in list(turns):
            if turns[direction].is_setup:
                yield from self._check(direction, turns[direction])
                continue
            turn: Turn | None = turns.pop(direction)
            while turn is not None and not turn.is_setup:
                turn = yield from self._step(self._streams[direction])
            if turn is not None:
                turns[direction] = turn

    def _step(self, stream: _Stream) -> Generator[Told, None, Turn | None]:
        """Read blocks up to one that is a step; None where the stream ends before."""
        while True:
            turn = yield from self._block(stream)
            if turn is None or not turn.is_tick:
                return turn

    def _block(self, stream: _Stream) -> Generator[Told, None, Turn | None]:
        """Read one block or batch."""
        stage, direction = self._course.stage, stream.direction
        turn = Turn(stream.offset)
        while True:
            before = stream.offset
            try:
                item = stream.next_item(is_batch=stage.is_batch)
            except StreamError as error:
                stream.is_over = stream.is_broken = True
                yield Broken(direction, stage, error)
                return None
            if isinstance(item, StreamEnd):
                stream.is_over = True
                return None
            yield Seen(
                direction=direction,
                line=stream.line,
                stage=_stage_of(item, stage),
                item=item,
                size=stream.offset - before,
            )
            if isinstance(item, Blank):
                if not (stage.is_rest and turn.is_setup):  # that is checked as a new epoch's
                    yield from self._check(direction, turn)
                return turn
            yield from self._take(stream, turn, item)

    def _take(self, stream: _Stream, turn: Turn, item: Item) -> Iterator[Told]:
        """Add an item to its turn; what answers a request is checked at once."""
        course, direction = self._course, stream.direction
        answers: list[tuple[str, bool]] = []
        if isinstance(item, Resource):
            turn.modules[item.id] = item.body
        elif isinstance(item, StoredRecord | OversizedRecord):
            turn.records += 1
            answers.append((item.id, True))
        elif isinstance(item, Facts):
            for fact in item.facts:
                if course.stage.is_batch and fact[0] == "NotAvailable" and len(fact) == 2:
                    turn.missing += 1
                    answers.append((fact[1], False))
                else:
                    turn.facts.append(fact)
        for record, is_sent in answers:
            try:
                course.answer(direction, record, is_sent=is_sent)
            except InterlaceFailure as failure:
                yield Wrong(direction, course.stage, item.offset, failure)

    def _check(self, direction: Direction, turn: Turn) -> Iterator[Told]:
        try:
            self._course.check(direction, turn)
        except InterlaceFailure as failure:
            yield Wrong(direction, self._course.stage, turn.offset, failure)


def _stage_of(item: Item, stage: Stage) -> Stage:
    """Return the stage of an item: between loops it may be the setup of a new epoch."""
    is_setup = isinstance(item, Resource) or (
        isinstance(item, Facts) and any(fact[0] == "ExchangeOperand" for fact in item.facts)
    )
    return Stage("setup", epoch=stage.epoch + 1) if stage.is_rest and is_setup else stage


def walk(
    capture: CaptureFile, settings: Settings, taken: Taken = lambda _direction, _piece: None
) -> Iterator[Told]:
    """Walk through the connection that a capture is at.

    Args:
        capture: the capture, at the beginning of a connection.
        settings: the limits of blocks and records.
        taken: gets the bytes of each direction as they are read.

    Raises:
        CaptureError: the file is no capture.
    """
    streams: dict[Direction, _Stream] = {
        ">": _Stream(capture.sent, ">", settings, taken),
        "<": _Stream(capture.came, "<", settings, taken),
    }
    return _Walk(streams).run()
