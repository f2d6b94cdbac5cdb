"""The course of an exchange as both directions show it: which phase comes next (G46, G47b).

Nothing here knows what the sides have stored or expose. The turns alone tell where an exchange
stands: setup and hello, then loops of advertise, request and transfer, in lockstep. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lace.interlacing.blocks import check_block
from lace.interlacing.failures import InterlaceFailure
from lace.interlacing.hello import read_hello
from lace.interlacing.ledger import Ledger
from lace.interlacing.vocabulary import Phase, advertise_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.facts.lines import Fact
    from lace.transport.captured import Direction

__all__ = ["PHASES", "Course", "PhaseName", "Stage", "Turn", "other_way"]

PhaseName: TypeAlias = Literal["setup", "hello", "advertise", "request", "transfer"]
PHASES: Final[tuple[PhaseName, ...]] = ("setup", "hello", "advertise", "request", "transfer")
_TICK: Final = "TickReady"


def other_way(direction: Direction) -> Direction:
    """Return the other direction."""
    return "<" if direction == ">" else ">"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where an exchange stands; loops and turns are 0 before the first loop."""

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
        is_alone = bool(self.facts) and not self.records and not self.missing
        return is_alone and all(fact[0] == _TICK for fact in self.facts)

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
        """Check a block or batch that is whole, as far as the stream alone can tell.

        Raises:
            InterlaceFailure: it does not belong here, or is malformed.
        """
        if turn.is_tick:
            check_block(turn.facts, Phase.TICK)
            return
        stage = self.stage
        block = check_block(turn.facts, self._vocabulary())
        if stage.phase == "request":
            self._check_requests(direction, {fact[1] for fact in block.of("MayRequest")})
        elif stage.phase == "transfer":
            self._ledgers[direction].end_batch()

    def _vocabulary(self) -> Phase:
        stage = self.stage
        if stage.phase == "advertise":
            return advertise_phase(self.mode, stage.turn)
        return {
            "setup": Phase.SETUP,
            "hello": Phase.HELLO,
            "request": Phase.REQUEST,
            "transfer": Phase.TRANSFER,
        }[stage.phase]

    def _check_requests(self, direction: Direction, wanted: set[str]) -> None:
        """Take a request list; what was not advertised may be asked for as well (G54)."""
        self._ledgers[other_way(direction)].ask(wanted)

    def answer(self, direction: Direction, record: str, *, is_sent: bool) -> None:
        """Check that a record of a batch, or a NotAvailable, answers a request.

        Raises:
            InterlaceFailure: nobody asked for it, or it was answered before.
        """
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
    """Return the mode that a hello offers; one that is malformed was told of already."""
    try:
        return read_hello(check_block(turn.facts, Phase.HELLO)).mode
    except InterlaceFailure:
        return 0
