"""A walk through one captured connection: item by item, turn by turn, both directions.

The sides take turns, so the walk reads a turn of each before it goes on; within a turn the side
comes first whose bytes come first in the capture. What a direction may hold next depends on both:
so a stream cannot be read on past a break of the other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lace.exchange.blocks import Phase, advertise_phase, check_block, is_only_tick
from lace.exchange.failures import InterlaceFailure
from lace.exchange.hello import read_hello
from lace.exchange.transfer import Ledger
from lace.iltp.items import (
    NEED_MORE,
    Blank,
    Facts,
    OversizedRecord,
    RecordItem,
    Resource,
    StreamEnd,
    StreamError,
)
from lace.iltp.reader import Reader
from lace.iltp.resources import ResourceStore
from lace.rules.limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from lace.base.limits import Settings
    from lace.facts.lines import Fact
    from lace.iltp.items import Item
    from lace.trace.files import CaptureFile, Way
    from lace.transport.capture import Direction


# -- The course of an exchange as both directions show it: which phase comes next (G46, G47b).
#
# Nothing here knows what the sides have stored or expose. The turns alone tell where an exchange
# is: setup and hello, then loops of advertise, request and transfer, in lockstep. Pure.

PhaseName: TypeAlias = Literal["setup", "hello", "advertise", "request", "transfer"]
PHASES: Final[tuple[PhaseName, ...]] = ("setup", "hello", "advertise", "request", "transfer")


def other_way(direction: Direction) -> Direction:
    """Return the other direction."""
    return "<" if direction == ">" else ">"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where an exchange is; loops and turns are 0 before the first loop."""

    phase: PhaseName
    epoch: int = 1
    loop: int = 0
    turn: int = 0

    @property
    def is_rest(self) -> bool:
        """Whether a loop has ended and no other has begun: an exchange may end or begin again."""
        return self.phase == "advertise" and self.loop > 1 and self.turn == 0

    @property
    def is_batch(self) -> bool:
        """Whether records may come."""
        return self.phase == "transfer"

    def __str__(self) -> str:
        if not self.loop:
            return self.phase if self.epoch == 1 else f"{self.phase} of epoch {self.epoch}"
        turn = f", turn {self.turn}" if self.phase == "advertise" else ""
        return f"loop {self.loop}: {self.phase}{turn}"


@dataclass(slots=True)
class Turn:
    """What one side sent in a turn: a whole block or batch."""

    offset: int
    facts: list[Fact] = field(default_factory=list)
    modules: dict[str, bytes] = field(default_factory=dict)
    records: int = 0
    missing: int = 0

    @property
    def is_setup(self) -> bool:
        """Whether it presents an operand."""
        return any(fact[0] == "ExchangeOperand" for fact in self.facts)

    @property
    def is_tick(self) -> bool:
        """Whether it is a TickReady alone, which is never a step (G54d)."""
        return is_only_tick(self.facts) and not self.records and not self.missing

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not self.facts


class Course:
    """Follows an exchange from turn to turn.

    A block is checked when it is whole (`check`), an answer of a batch when it comes
    (`answer`); when both sides' turns are there, `advance` goes on to the next stage.
    """

    def __init__(self) -> None:
        self.stage = Stage("setup")
        self.mode = 0
        """How advertisements are compared, once both hellos are there."""
        self.is_settled = False
        """Whether neither side requested anything in the loop that ended last."""
        self._ledgers: dict[Direction, Ledger] = {">": Ledger(), "<": Ledger()}
        """What each direction was asked for."""

    def check(self, direction: Direction, turn: Turn) -> None:
        """Check a block or batch that is whole, as far as the stream alone can tell."""
        if turn.is_tick:
            check_block(turn.facts, Phase.TICK)
            return
        stage = self.stage
        is_advertising = stage.phase == "advertise"
        phase = advertise_phase(self.mode, stage.turn) if is_advertising else Phase(stage.phase)
        block = check_block(turn.facts, phase)
        if stage.phase == "request":  # what was not advertised may be asked for as well (G54)
            self._ledgers[other_way(direction)].ask({fact[1] for fact in block.of("MayRequest")})
        elif stage.phase == "transfer":
            self._ledgers[direction].end_batch()

    def answer(self, direction: Direction, record: str, *, is_sent: bool) -> None:
        """Check that a record of a batch, or a NotAvailable, answers a request."""
        ledger = self._ledgers[direction]
        if is_sent:
            ledger.take(record)
        else:
            ledger.miss(record)

    def requests(self, direction: Direction) -> int:
        """Return how many records one direction still has to answer for."""
        return self._ledgers[direction].outstanding

    def renew(self) -> None:
        """Begin a new epoch: one side has presented another operand."""
        self.stage = Stage("setup", epoch=self.stage.epoch + 1)

    def advance(self, turns: Mapping[Direction, Turn]) -> None:
        """Go on to the next stage: both sides' blocks of this one are there."""
        stage = self.stage
        match stage.phase:
            case "setup":
                self.stage = replace(stage, phase="hello")
            case "hello":
                self.mode = min(_mode(turn) for turn in turns.values())
                self.stage = replace(stage, phase="advertise", loop=1)
            case "advertise":
                both_empty = all(turn.is_empty for turn in turns.values())
                if self.mode == 0 or (stage.turn and both_empty):
                    self.stage = replace(stage, phase="request", turn=0)
                else:
                    self.stage = replace(stage, turn=stage.turn + 1)
            case "request":
                self.is_settled = all(turn.is_empty for turn in turns.values())
                self.stage = replace(stage, phase="transfer")
            case "transfer":
                self._ledgers = {">": Ledger(), "<": Ledger()}
                self.stage = replace(stage, phase="advertise", loop=stage.loop + 1)


def _mode(turn: Turn) -> int:
    """Return the mode that a hello offers; one that is malformed was reported already."""
    try:
        return read_hello(check_block(turn.facts, Phase.HELLO)).mode
    except InterlaceFailure:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An item of a stream; `line` is that of the capture on which it begins, or soon before."""

    direction: Direction
    line: int
    stage: Stage
    item: Item
    size: int
    """The bytes of the item."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something legal as a stream that does not belong where it is."""

    direction: Direction
    stage: Stage
    offset: int
    failure: InterlaceFailure


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes that are no stream; nothing is read after them."""

    direction: Direction
    stage: Stage
    error: StreamError


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Both sides' turns of a stage are there."""

    stage: Stage
    turns: dict[Direction, Turn]
    course: Course


@dataclass(frozen=True, slots=True)
class Unread:
    """Bytes after the place where the other direction ended or broke: they cannot be read."""

    direction: Direction
    stage: Stage
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The end of a connection, and how many bytes went each way."""

    stage: Stage
    offsets: dict[Direction, int]
    is_whole: bool
    """Whether it ended after a whole loop."""
    is_settled: bool
    """Whether nothing was requested in that loop."""


TraceEvent: TypeAlias = Seen | Wrong | Broken | TraceStep | Unread | ConnectionEnd
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
        """Where it goes on in the capture; after everything if it does not."""
        return self._way.line if self._reader.buffered else self._way.next_line or sys.maxsize

    def next_item(self, *, is_batch: bool) -> Item | StreamEnd:
        """Return the next item."""
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

    def run(self) -> Iterator[TraceEvent]:
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
        yield ConnectionEnd(stage, offsets, is_whole, is_whole and self._course.is_settled)

    def _turn(self) -> Iterator[TraceEvent]:
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
            yield TraceStep(course.stage, turns, course)
            course.advance(turns)

    def _renew(self, turns: dict[Direction, Turn]) -> Iterator[TraceEvent]:
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

    def _step(self, stream: _Stream) -> Generator[TraceEvent, None, Turn | None]:
        """Read blocks up to one that is a step; None where the stream ends before."""
        while True:
            turn = yield from self._block(stream)
            if turn is None or not turn.is_tick:
                return turn

    def _block(self, stream: _Stream) -> Generator[TraceEvent, None, Turn | None]:
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

    def _take(self, stream: _Stream, turn: Turn, item: Item) -> Iterator[TraceEvent]:
        """Add an item to its turn; what answers a request is checked at once."""
        course, direction = self._course, stream.direction
        answers: list[tuple[str, bool]] = []
        if isinstance(item, Resource):
            turn.modules[item.id] = item.body
        elif isinstance(item, RecordItem | OversizedRecord):
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

    def _check(self, direction: Direction, turn: Turn) -> Iterator[TraceEvent]:
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
) -> Iterator[TraceEvent]:
    """Walk through the connection that a capture is at."""
    streams: dict[Direction, _Stream] = {
        ">": _Stream(capture.sent, ">", settings, taken),
        "<": _Stream(capture.came, "<", settings, taken),
    }
    return _Walk(streams).run()
