"""Replay: a capture is read, written again and compared byte by byte, and judged on the way.

Both directions go through the reader and back through the writer. Every record is validated; the
sequence of blocks, the requests and their answers, plan and proofs are judged as far as the two
streams tell. What depends on a store is not: whether a side had to advertise, ask or send more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lace.errors import LaceError, Place, RecordError
from lace.exchange.advertisement import read_claims
from lace.exchange.blocks import Phase, check_block
from lace.exchange.capabilities import capabilities_of
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import proof_context, read_hello, read_setup
from lace.exchange.negotiation import compile_plan, negotiate, read_operand
from lace.iltp.items import Blank, Comment, OversizedRecord, Preface, RecordItem, WriteError
from lace.iltp.reader import differs_at
from lace.iltp.writer import Writer
from lace.policy.plan import LOWERINGS
from lace.record.validate import validate_many
from lace.rules.limits import peer_limits_of
from lace.trace.walk import Broken, ConnectionEnd, Seen, TraceStep, Unread, Wrong, other_way, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.base.limits import Settings
    from lace.exchange.hello import Hello, ProofContext, Setup
    from lace.exchange.negotiation import Terms
    from lace.policy.operand import Operand
    from lace.policy.plan import ExchangePlan
    from lace.policy.schema import Schema
    from lace.record.reader import RawRecord
    from lace.record.seal import RandomBytes
    from lace.trace.files import CaptureFile
    from lace.trace.walk import TraceEvent, Turn
    from lace.transport.capture import Direction


# -- Setup and hello of a captured exchange, judged again: plan, proofs, terms (050, G38-G42).
#
# Both sides' blocks and modules are in a capture, so that everything they agreed on can be computed
# once more, for both. What a transport proves is not in it: neither a user nor, unless it is named,
# the certificate that a proof over TLS contains.

_NOBODY = -1
"""No operand's index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What both sides agreed on, and who each direction is.

    `proven` are verifiers that a hello proved, `claimed` those that a setup claims without a
    signature: only a transport can have proven them, which no capture shows. `unjudged` are
    directions whose proof does not hold by the capture alone; `sources` are the S of each
    direction's advertisements (G42).
    """

    plan_id: str
    link_id: str | None
    mode: int
    schema: Schema
    proven: dict[Direction, str]
    claimed: dict[Direction, str]
    sources: dict[Direction, str]
    unjudged: tuple[Direction, ...]


class Agreement:
    """Judges setup and hello of one connection, epoch by epoch."""

    def __init__(self, settings: Settings, channel: str | None) -> None:
        self._settings, self._channel = settings, channel
        self._modules: dict[str, bytes] = {}
        self._setups: dict[Direction, Setup] = {}
        self._operands: dict[Direction, Operand] = {}
        self.at: Direction = "<"
        """The direction that is, or was last, looked at."""

    def take_setups(self, turns: dict[Direction, Turn]) -> None:
        """Take both setup blocks."""
        for turn in turns.values():
            self._modules.update(turn.modules)
        index = _NOBODY
        for direction, turn in sorted(turns.items(), reverse=True):
            self.at = direction
            block = check_block(turn.facts, Phase.SETUP)
            setup = self._setups[direction] = read_setup(block, local_index=index)
            index = setup.index
        for direction, setup in self._setups.items():
            self.at = direction
            body = self._modules.get(setup.module_id)
            self._operands[direction] = read_operand(setup, body, peer_limits_of(self._settings))

    def take_hellos(self, turns: dict[Direction, Turn]) -> Agreed:
        """Take both hello blocks."""
        hellos: dict[Direction, Hello] = {}
        for direction, turn in turns.items():
            self.at = direction
            hellos[direction] = read_hello(check_block(turn.facts, Phase.HELLO))
        plan = self._plan(hellos[">"].plan_id)
        context = proof_context(
            self._setups[">"], self._setups["<"], plan.id, channel=self._channel
        )
        unjudged: list[Direction] = []
        terms: Terms | None = None
        sources: dict[Direction, str] = {}
        for direction in hellos:
            self.at = direction
            try:
                terms = self._negotiate(direction, plan, hellos, context)
            except InterlaceFailure as failure:
                if failure.failure is not Failure.UNPROVEN_SIGNER or self._channel is not None:
                    raise
                unjudged.append(direction)
                terms = self._negotiate(direction, plan, hellos, None)
            sources[direction] = terms.peer_source
        if terms is None:
            raise AssertionError("there are two hellos")
        return Agreed(
            plan_id=plan.id,
            link_id=terms.link_id,
            mode=terms.mode,
            schema=terms.schema,
            proven={
                direction: hello.signer
                for direction, hello in hellos.items()
                if hello.signer is not None and hello.proof is not None
                if direction not in unjudged
            },
            claimed={
                direction: setup.verifier
                for direction, setup in self._setups.items()
                if setup.verifier is not None and hellos[direction].signer is None
            },
            sources=sources,
            unjudged=tuple(unjudged),
        )

    def check_claims(self, turns: dict[Direction, Turn], agreed: Agreed) -> None:
        """Check that advertisements are whole and name the source of their sender (G42)."""
        for direction, turn in turns.items():
            self.at = direction
            read_claims(turn.facts, agreed.sources[direction], agreed.schema)

    def _plan(self, wanted: str) -> ExchangePlan:
        """Return the plan of both operands, in the lowering that gives the wanted identifier."""
        zero, one = sorted(self._operands.values(), key=lambda operand: operand.index)
        plans = [compile_plan(zero, one, lowering) for lowering in LOWERINGS]
        return next((plan for plan in plans if plan.id == wanted), plans[0])

    def _negotiate(
        self,
        direction: Direction,
        plan: ExchangePlan,
        hellos: dict[Direction, Hello],
        context: ProofContext | None,
    ) -> Terms:
        """Judge the hello of a direction as its receiver does."""
        hello, setup = hellos[direction], self._setups[direction]
        if context is None and hello.proof is not None:
            hello = replace(hello, proof=None)
        # What only the transport can have proven is believed.
        believed = hello.signer if context is None else None
        if hello.signer is None:
            believed = setup.verifier
        return negotiate(
            plan,
            hellos[other_way(direction)],
            hello,
            setup=self._setups[other_way(direction)],
            peer_setup=setup,
            capabilities=capabilities_of(self._settings),
            context=context,
            transport_peer=believed,
        )


WAY_NAMES: Final[dict[Direction, str]] = {">": "sent", "<": "came"}
"""What the directions of a capture are called."""
_GROUP_RECORDS: Final = 500
_GROUP_BYTES: Final = 8 * 2**20
"""Records are validated together, up to this number and size."""


class ReplayError(LaceError):
    """The first thing of a capture that is not as it should be."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """One connection that was replayed, counted from 1.

    `items` were read and written again; `records` among them are valid; `sizes` are bytes each
    way; `agreed` is None where the sides did not come to it.
    """

    number: int
    items: int = 0
    records: int = 0
    sizes: dict[Direction, int] = field(default_factory=dict)
    agreed: Agreed | None = None
    end: ConnectionEnd | None = None


class _Rewriting:
    """One direction: the bytes as they were captured, and as they are written again."""

    def __init__(self, settings: Settings) -> None:
        self._writer = Writer(max_block_bytes=settings.max_fact_block_size)
        self._captured = bytearray()
        self._offset = 0
        self._is_start = True
        self._after_record = False

    def capture(self, piece: bytes) -> None:
        """Take bytes of the capture."""
        self._captured += piece

    def write(self, seen: Seen) -> None:
        """Write an item again and compare."""
        item = seen.item
        if self._is_start:
            self._writer.expect(batch=seen.stage.is_batch)
        self._is_start = isinstance(item, Blank | Preface) or (
            self._is_start and isinstance(item, Comment)
        )
        for piece in self._writer.write(item):
            self._compare(piece)
        self._after_record = isinstance(item, RecordItem)

    def _compare(self, piece: bytes) -> None:
        if not self._captured.startswith(piece):
            found = self._captured[: len(piece)]
            at = differs_at(bytes(found), piece)
            raise ReplayError(
                "what is written again differs from what was captured",
                place=Place(offset=self._offset + (len(found) if at < 0 else at)),
            )
        del self._captured[: len(piece)]
        self._offset += len(piece)

    def finish(self) -> None:
        """Check that nothing is left."""
        # The LF after a last record is written with what follows.
        left = self._captured.removeprefix(b"\n") if self._after_record else self._captured
        if left:
            raise ReplayError(
                f"{len(left):,} bytes are not written again", place=Place(offset=self._offset)
            )


class _Replay:
    """The replay of one connection."""

    def __init__(
        self, number: int, settings: Settings, random_bytes: RandomBytes, channel: str | None
    ) -> None:
        self._settings, self._random_bytes = settings, random_bytes
        self._ways: dict[Direction, _Rewriting] = {
            ">": _Rewriting(settings),
            "<": _Rewriting(settings),
        }
        self._agreement = Agreement(settings, channel)
        self._group: list[RawRecord] = []
        self._group_bytes = 0
        self._group_way: Direction = ">"
        self.result = Replayed(number=number)

    def capture(self, direction: Direction, piece: bytes) -> None:
        """Take bytes of the capture."""
        self._ways[direction].capture(piece)

    def take(self, event: TraceEvent) -> None:
        """Judge what the walk tells."""
        match event:
            case Seen():
                self._item(event)
            case TraceStep():
                self._step(event)
            case Wrong(direction, stage, offset, failure):
                raise _at(failure, direction, offset, f", in {stage}")
            case Broken(direction, stage, error):
                raise _at(error, direction, error.offset, f", in {stage}")
            case Unread(direction, stage, offset, size):
                raise ReplayError(
                    f"{size:,} bytes follow after the other side's end, in {stage}",
                    place=_place(direction, offset),
                )
            case ConnectionEnd():
                self._validate()
                for direction, way in self._ways.items():
                    _in_way(direction, way.finish)
                self.result.sizes, self.result.end = dict(event.offsets), event

    def _item(self, seen: Seen) -> None:
        item, direction = seen.item, seen.direction
        if isinstance(item, OversizedRecord):
            raise ReplayError(
                f"a record of {item.size:,} bytes is above max_data_bytes",
                place=_place(direction, item.offset),
                rule="010-size-limit",
                hint="raise it: --set max_data_bytes=N",
            )
        _in_way(direction, lambda: self._ways[direction].write(seen), item.offset)
        self.result.items += 1
        if isinstance(item, RecordItem):
            self._add(direction, item.raw)

    def _add(self, direction: Direction, raw: RawRecord) -> None:
        if direction != self._group_way:
            self._validate()
            self._group_way = direction
        self._group.append(raw)
        self._group_bytes += len(raw.data)
        if len(self._group) >= _GROUP_RECORDS or self._group_bytes >= _GROUP_BYTES:
            self._validate()

    def _validate(self) -> None:
        group, self._group, self._group_bytes = self._group, [], 0
        for raw, outcome in zip(group, validate_many(group, self._random_bytes), strict=True):
            if isinstance(outcome, RecordError):
                offset = outcome.place.offset if outcome.place else None
                raise _at(outcome, self._group_way, raw.offset if offset is None else offset)
            if outcome.hash_text != raw.claimed:
                raise ReplayError(
                    "the record is not the one that its markline names",
                    place=_place(self._group_way, raw.offset),
                )
        self.result.records += len(group)

    def _step(self, step: TraceStep) -> None:
        turns = step.turns
        try:
            if step.stage.phase == "setup":
                self._agreement.take_setups(turns)
            elif step.stage.phase == "hello":
                self.result.agreed = self._agreement.take_hellos(turns)
            elif step.stage.phase == "advertise" and self.result.agreed is not None:
                self._agreement.check_claims(turns, self.result.agreed)
        except LaceError as error:
            at = self._agreement.at
            raise _at(error, at, turns[at].offset, f", in {step.stage}") from None


def _place(direction: Direction, offset: int | None) -> Place:
    return Place(WAY_NAMES[direction], offset=offset)


def _at(error: LaceError, direction: Direction, offset: int, where: str = "") -> ReplayError:
    """Return an error as that of a replay."""
    return ReplayError(
        f"{error.message}{where}",
        rule=error.rule,
        place=_place(direction, offset),
        hint=error.hint,
    )


def _in_way(direction: Direction, work: Callable[[], None], offset: int | None = None) -> None:
    try:
        work()
    except WriteError as error:
        raise _at(error, direction, offset or 0) from None
    except ReplayError as error:
        error.place = _place(direction, error.place.offset if error.place else offset)
        raise


def replay(
    capture: CaptureFile,
    settings: Settings,
    random_bytes: RandomBytes,
    *,
    channel: str | None = None,
) -> Iterator[Replayed]:
    """Yield each connection of a capture when it is replayed."""
    number = 0
    while capture.begin():
        number += 1
        made = _Replay(number, settings, random_bytes, channel)
        try:
            for event in walk(capture, settings, made.capture):
                made.take(event)
        except ReplayError as error:
            place = error.place
            source = place.source if place else None
            error.place = Place(
                f"connection {number}, {source}", offset=place.offset if place else None
            )
            raise
        yield made.result
