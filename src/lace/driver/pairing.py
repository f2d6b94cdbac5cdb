"""Two parties in one process: their messages are handed over, nothing is serialised.

Everything else is as over a wire: the same machines, the same validation, the same results.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lace.driver.collecting import collecting_rarely
from lace.driver.messages import BatchEnd, Block, End, Message, NotAvailable, Records
from lace.interlacing import events as happened
from lace.interlacing.merkle import KnownRoots
from lace.interlacing.traffic import line_bytes
from lace.record.validate import frame_records

if TYPE_CHECKING:
    from lace.driver.party import Party
    from lace.interlacing.events import Event
    from lace.record.reader import RawRecord

__all__ = ["Pairing"]


class Pairing:
    """A link between two parties."""

    def __init__(self, left: Party, right: Party) -> None:
        self._sides = (left, right)
        self._mail: tuple[deque[Message], deque[Message]] = (deque(), deque())
        """What each side has sent and the other has not taken."""
        self._roots = KnownRoots()

    def start(self) -> None:
        """Start both machines."""
        for side in self._sides:
            side.take(happened.Started())

    def run(self) -> bool:
        """Go on until neither side has anything to say or to take; tells whether one had."""
        has_moved = False
        with collecting_rarely(), self._roots.used():
            while self._step() or any(side.work(wait=True) for side in self._sides):
                has_moved = True
        return has_moved

    def _step(self) -> bool:
        """Let each side say and do what it can now; tells whether anything was done."""
        moved = False
        for at in (0, 1):
            moved = self._move(at) or moved
            moved = self._sides[at].work() or moved
        return moved

    def _move(self, at: int) -> bool:
        """Hand over what one side has sent, as far as the other takes it now."""
        sender, receiver, mail = self._sides[at], self._sides[1 - at], self._mail[at]
        moved = False
        outgoing = sender.messages()
        while True:
            if mail:
                message = mail.popleft()
            else:
                found = next(outgoing, None)
                if found is None:
                    return moved
                message = found
            if not receiver.can_take:
                mail.appendleft(message)
                return moved
            size = _size_of(message)
            sender.count_sent(message, size)
            receiver.count_received(message, size)
            for event in _events(message, receiver.max_data_bytes):
                receiver.take(event)
            moved = True


def _size_of(message: Message) -> int:
    """Return the bytes that a message would have on a stream, or about that many."""
    match message:
        case Block(effect):
            modules = sum(len(name) + len(body) for name, body in effect.modules)
            return line_bytes(effect.facts) + modules
        case Records(records):
            return sum(map(len, records)) + len(records)
        case NotAvailable(record):
            return line_bytes([("NotAvailable", record)]) - 1
        case BatchEnd():
            return 1
        case End():
            return 0


def _events(message: Message, max_data_bytes: int) -> list[Event]:
    """Return what a message is to its receiver."""
    match message:
        case Block(effect):
            return [happened.BlockReceived(effect.facts, dict(effect.modules))]
        case Records(records):
            return _arrivals(frame_records(records), max_data_bytes)
        case NotAvailable(record):
            return [happened.Unavailable(record)]
        case BatchEnd():
            return [happened.BatchEnded()]
        case End():
            return [happened.Ended()]


def _arrivals(records: tuple[RawRecord, ...], max_data_bytes: int) -> list[Event]:
    """Return records that arrive; those above the limit are passed over, as a reader does."""
    large = [raw for raw in records if len(raw.data) - raw.data_at > max_data_bytes]
    made: list[Event] = [happened.RecordLost(raw.claimed, len(raw.data)) for raw in large]
    taken = records
    if large:
        taken = tuple(raw for raw in records if len(raw.data) - raw.data_at <= max_data_bytes)
    return [*made, happened.RecordsReceived(taken)] if taken else made
