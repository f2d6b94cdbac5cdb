"""A party: one machine with its store, clock and evaluator; its effects carried out.

What a machine wants to say comes out as messages, in order: blocks, records, the end of a
batch, the end of all. Who moves them to the peer, and brings the peer's, is the caller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.driver.evaluator import StoreEvaluator
from lace.errors import LaceError
from lace.interlacing import effects as wanted
from lace.interlacing import events as happened
from lace.record.validate import ValidRecord, frame_record, validate_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.interlacing.effects import Effect
    from lace.interlacing.events import Event
    from lace.interlacing.machine import Machine
    from lace.interlacing.result import Outcome
    from lace.record.reader import RawRecord
    from lace.store.sqlite.store import SqliteStore

__all__ = ["BatchEnd", "Block", "End", "Message", "NotAvailable", "Party", "Records"]

RECORDS_AT_ONCE: Final = 8_000
"""Records that are moved, validated and stored together."""
BYTES_AT_ONCE: Final = 16 * 2**20
_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """A block of facts, with the modules that go before it."""

    effect: wanted.SendBlock


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a batch, in their order."""

    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A requested record that is not sent."""

    record: str


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the stream."""


Message: TypeAlias = Block | Records | NotAvailable | BatchEnd | End


class Party:
    """One side of an exchange.

    Args:
        machine: the machine, not started.
        store: the side's records.
        settings: limits of evaluations.
        transport: the address of the connection.
        clock: gives the time.
        random_bytes: randomness for checking signatures together.
        encrypted: whether the transport is proven to be confidential.
    """

    def __init__(
        self,
        machine: Machine,
        store: SqliteStore,
        settings: Settings,
        *,
        transport: str,
        clock: Callable[[], Tai],
        random_bytes: Callable[[int], bytes],
        encrypted: bool = False,
    ) -> None:
        self.machine = machine
        self._store = store
        self._settings = settings
        self._transport, self._encrypted = transport, encrypted
        self._clock = clock
        self._random_bytes = random_bytes
        self._evaluator: StoreEvaluator | None = None
        self._batch: Iterator[Message] | None = None
        self._waiting: deque[Message] = deque()
        self.alarm: Tai | None = None
        self.reports: list[Outcome] = []

    def take(self, event: Event) -> None:
        """Give the machine an event, and carry out what it wants."""
        events: deque[Event] = deque([event])
        while events:
            now = self._clock()
            for effect in self.machine.receive(events.popleft(), now):
                try:
                    answer = self._do(effect)
                except LaceError as error:
                    for last in self.machine.fail(error):
                        self._do(last)
                    return
                if answer is not None:
                    events.append(answer)

    def _do(self, effect: Effect) -> Event | None:
        match effect:
            case wanted.SendBlock():
                self._waiting.append(Block(effect))
            case wanted.Agree(executable, terms, _):
                self._evaluator = StoreEvaluator(
                    self._store,
                    executable,
                    terms,
                    transport=self._transport,
                    encrypted=self._encrypted,
                    max_value_bytes=self._settings.max_value_bytes,
                    max_line_bytes=self.machine.config.max_line_bytes,
                )
            case wanted.Evaluate():
                return self._evaluating().evaluate(effect)
            case wanted.Describe():
                return self._evaluating().describe(effect)
            case wanted.Validate(records):
                return happened.Validated(tuple(_outcomes(records, self._random_bytes)))
            case wanted.Admit(records):
                admission = self._store.admit(records)
                return happened.Admitted(len(admission.stored) + admission.known)
            case wanted.SendBatch():
                self._batch = self._sending(effect)
            case wanted.Wake(at):
                self.alarm = at
            case wanted.Report(outcome):
                self.reports.append(outcome)
            case wanted.Close():
                self._waiting.append(End())
            case wanted.SaveCursor():
                pass
        return None

    def _evaluating(self) -> StoreEvaluator:
        if self._evaluator is None:
            raise AssertionError("evaluations come after both sides agree")
        return self._evaluator

    def messages(self) -> Iterator[Message]:
        """Yield what is to be sent now, as it is made."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._batch is None:
                return
            message = next(self._batch, None)
            if message is None:
                self._batch = None
            else:
                yield message

    def _sending(self, effect: wanted.SendBatch) -> Iterator[Message]:
        """Load and give out records, as many as the budget allows, then tell the machine."""
        until = self._clock().shift(effect.most_seconds * _SECOND)
        sent: list[str] = []
        missing = list(effect.unavailable)
        size = piece_bytes = 0
        piece: list[RawRecord] = []
        with self._store.snapshot() as snapshot:
            for record, raw in snapshot.bytes_of(effect.records):
                piece.append(frame_record(raw, len(raw)))
                sent.append(record)
                size += len(raw)
                piece_bytes += len(raw)
                if len(piece) == RECORDS_AT_ONCE or piece_bytes >= BYTES_AT_ONCE:
                    yield Records(tuple(piece))
                    piece, piece_bytes = [], 0
                    if self._clock() >= until:
                        break
                if size >= effect.most_bytes:
                    break
            else:
                missing += sorted(set(effect.records).difference(sent))
        if piece:
            yield Records(tuple(piece))
        yield from map(NotAvailable, missing)
        yield BatchEnd()
        self.take(happened.BatchSent(tuple(sent), tuple(missing), size))


def _outcomes(
    records: Sequence[RawRecord], random_bytes: Callable[[int], bytes]
) -> Iterator[ValidRecord | str]:
    for raw, outcome in zip(records, validate_many(records, random_bytes), strict=True):
        if not isinstance(outcome, ValidRecord):
            yield outcome.message
        elif outcome.hash_text != raw.claimed:
            yield "the record is not the one that its markline names"
        else:
            yield outcome
