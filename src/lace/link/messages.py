"""Translation between a stream and a machine: items to events, messages to bytes (060).

Nothing here waits or decides: the state of the machine says whether a batch or a block is next.
Records of a batch become events in groups, which are validated together.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.limits import DEFAULT_SETTINGS
from lace.exchange import events as happened
from lace.exchange.failures import Failure, InterlaceFailure
from lace.iltp.items import (
    NEED_MORE,
    PREFACE,
    SERVER_FULL,
    Blank,
    Comment,
    Facts,
    OversizedRecord,
    RecordItem,
    Resource,
    StreamEnd,
    StreamError,
    StreamFault,
)
from lace.iltp.reader import Reader
from lace.iltp.resources import MAX_RESOURCE_LINES, ResourceStore
from lace.iltp.writer import Writer
from lace.rules.limits import PEER_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.exchange.effects import SendBlock
    from lace.exchange.events import Event
    from lace.facts.lines import Fact
    from lace.record.reader import RawRecord
    from lace.rules.limits import RuleLimits


# -- The messages of a party to its peer.


@dataclass(frozen=True, slots=True)
class BlockMessage:
    """A block of facts, after the modules that it needs."""

    effect: SendBlock


@dataclass(frozen=True, slots=True)
class Records:
    """The bytes of some records of a batch, in order."""

    records: list[bytes]


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A requested record that is not sent."""

    record: str


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch."""


@dataclass(frozen=True, slots=True)
class EndMessage:
    """The end of the stream."""


Message: TypeAlias = BlockMessage | Records | NotAvailable | BatchEnd | EndMessage


def beside_records(message: Message, size: int) -> tuple[int, bool]:
    """Return the bytes of a message without its records, and whether it reconciles."""
    if isinstance(message, Records):
        return size - sum(map(len, message.records)), False
    return size, isinstance(message, BlockMessage) and message.effect.is_reconciling


GROUP_RECORDS: Final = 8_000
"""The most records of one event."""
GROUP_BYTES: Final = 8 * 2**20
"""The record bytes at which an event is full."""
LARGE_SETUP_BYTES: Final = 16 * 1024
"""The size from which a setup block, with its rules, takes long to check."""
LARGE_BLOCK_BYTES: Final = 512 * 1024
"""The size from which any other block takes long."""
PROGRESS_BYTES: Final = 2**20
"""Received bytes that count as progress of the peer (G47b)."""

_FAILURES: Final = {
    StreamFault.BLOCK_SIZE: Failure.OVERSIZED_BLOCK,
    StreamFault.RECORD: Failure.FRAMING_LOST,
    StreamFault.CUT: Failure.PEER_CLOSED,
}


def failure_of(error: StreamError) -> InterlaceFailure:
    """Return the failure of an exchange for an error of its stream."""
    failure = _FAILURES.get(error.fault, Failure.MALFORMED_BLOCK)
    hint = error.hint
    if hint is None and error.fault is StreamFault.PREFACE:
        hint = "the peer is not Lace, or not at this address: check host, port and scheme"
    return InterlaceFailure(failure, error.message, rule=error.rule, place=error.place, hint=hint)


class Inbound:
    """The peer's bytes as events."""

    def __init__(
        self,
        *,
        max_block_bytes: int,
        max_data_bytes: int,
        max_early_bytes: int | None = None,
        max_resource_bytes: int = DEFAULT_SETTINGS.max_resource_bytes,
        limits: RuleLimits = PEER_LIMITS,
    ) -> None:
        # The number of rules of a selector is checked where it is used as an operand: this side's
        # own selector, which has another limit, may come back here.
        limits = replace(limits, max_rules=MAX_RESOURCE_LINES)
        self._reader = Reader(
            max_block_bytes=max_block_bytes,
            max_data_bytes=max_data_bytes,
            resources=ResourceStore(limits=limits, max_total_bytes=max_resource_bytes),
        )
        self._max_block_bytes = max_block_bytes
        self._max_early_bytes = min(max_early_bytes or max_block_bytes, max_block_bytes)
        self._facts: list[Fact] = []
        self._modules: dict[str, bytes] = {}
        self._group: list[RawRecord] = []
        self._group_bytes = 0
        self._is_batch = False
        self._made: deque[Event] = deque()
        self._progress = 0
        self._counted = self._record_bytes = 0
        self.received = 0
        """The bytes received."""
        self.has_ended = False
        self.records = 0
        """The records received."""
        self.says_full = False
        """Whether the peer has refused the link because it is full."""

    def feed(self, data: bytes) -> None:
        """Take bytes; empty at the end."""
        if not data:
            self._reader.end()
            return
        self.received += len(data)
        self._progress += len(data)
        self._reader.feed(data)
        if self._progress >= PROGRESS_BYTES:
            self._progress = 0
            self._made.append(happened.Progressed())

    def is_large(self, *, is_early: bool) -> bool:
        """Return whether the next block is so large that its step takes long."""
        size = self.received - self._counted - self._record_bytes
        return size > (LARGE_SETUP_BYTES if is_early else LARGE_BLOCK_BYTES)

    def next_event(self, *, is_batch: bool, is_early: bool = False) -> Event | None:
        """Return the next event; None when more bytes are needed."""
        while not self._made:
            if self._reader.at_boundary:
                self._is_batch = is_batch
                self._reader.expect(
                    batch=is_batch,
                    max_block_bytes=self._max_early_bytes if is_early else self._max_block_bytes,
                    limit="max_setup_block_size" if is_early else "max_fact_block_size",
                )
            try:
                item = self._reader.next_event()
            except StreamError as error:
                self._hand_on()  # the records before the error are whole
                if self._made:
                    break
                raise failure_of(error) from error
            if item is NEED_MORE:
                return None
            if isinstance(item, StreamEnd):
                if self.has_ended:
                    return None
                self.has_ended = True
                self._hand_on()
                self._made.append(happened.Ended())
            elif isinstance(item, Facts):
                self._take_facts(item.facts)
            elif isinstance(item, RecordItem):
                self._take_record(item.raw)
            elif isinstance(item, OversizedRecord):
                self._hand_on()
                self._record_bytes += item.size
                self._made.append(happened.RecordLost(item.id, item.size))
            elif isinstance(item, Resource):
                self._modules[item.id] = item.body
            elif isinstance(item, Blank):
                self._end_block()
            elif isinstance(item, Comment) and item.offset == len(PREFACE):
                self.says_full = item.text == SERVER_FULL
        return self._made.popleft()

    def release(self) -> None:
        """Drop what was not taken."""
        self._facts, self._group, self._modules = [], [], {}
        self._made.clear()
        self._reader = Reader()

    def hand_on(self) -> Event | None:
        """Return the event of records that wait for more of their group; None without any."""
        self._hand_on()
        return self._made.popleft() if self._made else None

    def _take_facts(self, facts: tuple[Fact, ...]) -> None:
        if not self._is_batch:
            self._facts += facts
            return
        for fact in facts:
            if fact[0] == "NotAvailable" and len(fact) == 2:
                self._hand_on()
                self._made.append(happened.Unavailable(fact[1]))
            else:
                self._facts.append(fact)

    def _take_record(self, raw: RawRecord) -> None:
        self._group.append(raw)
        self.records += 1
        self._group_bytes += len(raw.data)
        self._record_bytes += len(raw.data)
        if len(self._group) == GROUP_RECORDS or self._group_bytes >= GROUP_BYTES:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._group:
            self._made.append(happened.RecordsReceived(tuple(self._group)))
            self._group, self._group_bytes = [], 0

    def _end_block(self) -> None:
        self._hand_on()
        facts, self._facts = tuple(self._facts), []
        size = self._size()
        if not self._is_batch:
            modules, self._modules = self._modules, {}
            self._made.append(happened.BlockReceived(facts, modules, size))
        elif facts:  # a TickReady alone, which is not a step (G54d), or malformed
            self._made.append(happened.BlockReceived(facts, size=size))
        else:
            self._made.append(happened.BatchEnded(size))

    def _size(self) -> int:
        """Return the bytes since the last block or batch, without those of records."""
        size = self._reader.offset - self._counted - self._record_bytes
        self._counted, self._record_bytes = self._reader.offset, 0
        return size


class Outbound:
    """Messages as bytes."""

    def __init__(self, *, max_block_bytes: int) -> None:
        self._writer = Writer(max_block_bytes=max_block_bytes)
        self._is_begun = self._in_batch = False
        self.records = 0
        """The records sent."""

    def pieces(self, message: Message) -> Iterator[bytes]:
        """Yield the bytes of a message; nothing for the end."""
        writer = self._writer
        if not self._is_begun:
            self._is_begun = True
            yield from writer.preface()
        match message:
            case BlockMessage(effect):
                writer.expect(batch=False)
                yield from writer.block_pieces(effect.facts, dict(effect.modules))
            case Records(records):
                self._begin_batch()
                self.records += len(records)
                yield from writer.stored_records(records)
            case NotAvailable(record):
                self._begin_batch()
                yield from writer.facts([("NotAvailable", record)])
            case BatchEnd():
                self._begin_batch()
                yield from writer.blank()
                self._in_batch = False
            case EndMessage():
                pass

    def _begin_batch(self) -> None:
        if not self._in_batch:
            self._writer.expect(batch=True)
            self._in_batch = True
