"""Two parties in one process: their messages are handed over, nothing is serialised.

Everything else is as over a wire: the same machines, the same validation, the same results.

Apart from `side`: it needs no stream.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from lace.exchange import events as happened
from lace.exchange.result import line_bytes
from lace.link.bridge import BatchEnd, BlockMessage, EndMessage, Message, NotAvailable, Records
from lace.link.resources import CancelReason, collecting_rarely
from lace.record.validate import frame_records
from lace.store.interface import watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.exchange.events import Event
    from lace.exchange.result import Outcome
    from lace.link.party import Party
    from lace.record.reader import RawRecord
    from lace.store.store_view import ExchangeStore


class Pairing:
    """A link between two parties."""

    def __init__(self, left: Party, right: Party) -> None:
        self._sides = (left, right)
        self._mail: tuple[deque[Message], deque[Message]] = (deque(), deque())
        """What each side has sent and the other has not taken."""

    def start(self) -> None:
        """Start both machines."""
        for side in self._sides:
            side.take(happened.Started())

    def run(self) -> bool:
        """Go on until neither side has anything to say or to take; tells whether one had."""
        has_moved = False
        with collecting_rarely():
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
        case BlockMessage(effect):
            modules = sum(len(name) + len(body) for name, body in effect.modules)
            return line_bytes(effect.facts) + modules
        case Records(records):
            return sum(map(len, records)) + len(records)
        case NotAvailable(record):
            return line_bytes([("NotAvailable", record)]) - 1
        case BatchEnd():
            return 1
        case EndMessage():
            return 0


def _events(message: Message, max_data_bytes: int) -> list[Event]:
    """Return what a message is to its receiver."""
    match message:
        case BlockMessage(effect):
            return [happened.BlockReceived(effect.facts, dict(effect.modules))]
        case Records(records):
            return _arrivals(frame_records(records), max_data_bytes)
        case NotAvailable(record):
            return [happened.Unavailable(record)]
        case BatchEnd():
            return [happened.BatchEnded()]
        case EndMessage():
            return [happened.Ended()]


def _arrivals(records: tuple[RawRecord, ...], max_data_bytes: int) -> list[Event]:
    """Return records that arrive; those above the limit are passed over, as a reader does."""
    large = [raw for raw in records if len(raw.data) - raw.data_at > max_data_bytes]
    made: list[Event] = [happened.RecordLost(raw.claimed, len(raw.data)) for raw in large]
    taken = records
    if large:
        taken = tuple(raw for raw in records if len(raw.data) - raw.data_at <= max_data_bytes)
    return [*made, happened.RecordsReceived(taken)] if taken else made


# -- An open exchange of two parties in one process: it waits for something new, and goes on.
#
# It runs in a thread of its own. Waiting costs nothing but a look at the databases now and
# then, for what other processes store.

LOOK_SECONDS: Final = 1.0
"""How often the databases are looked at."""
_LAST_LOOKS: Final = 3
"""How often there may be news after the wish to stop."""
_CANCEL_SECONDS: Final = 0.25
"""How long an evaluation may go on after the wish to stop."""


class OpenPairing:
    """Two parties, and the thread that runs them until both have ended."""

    def __init__(
        self,
        link: Pairing,
        parties: tuple[Party, Party],
        stores: tuple[ExchangeStore, ExchangeStore],
    ) -> None:
        self._link, self._stores = link, stores
        self.parties = parties
        self._news = threading.Condition()
        self._is_told = self._is_stopping = False
        self._last_looks = _LAST_LOOKS
        self.turns = 0
        """How often there was something to do."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lace-open-exchange", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float | None = None) -> None:
        """End it once what is under way is done, and wait for that; a long evaluation is not."""
        with self._news:
            self._is_stopping = True
            self._news.notify_all()
        until = None if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive() and (until is None or time.monotonic() < until):
            self._thread.join(_CANCEL_SECONDS)
            for party in self.parties:
                if (party.supervisor.seconds or 0.0) >= _CANCEL_SECONDS:
                    party.supervisor.cancel(CancelReason.STOPPED)

    def join(self) -> None:
        """Wait until it has ended, by whatever."""
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds that rounds bring about; tells whether it does."""
        with self._news:
            return self._news.wait_for(lambda: self._is_over or holds(), seconds) and holds()

    @property
    def outcomes(self) -> tuple[Outcome | None, Outcome | None]:
        """What came of it, once it has ended."""
        left, right = self.parties
        return left.outcome, right.outcome

    @property
    def _is_over(self) -> bool:
        return all(party.machine.is_closed for party in self.parties) or self.error is not None

    def _run(self) -> None:
        own = threading.get_ident()
        try:
            with ExitStack() as stack:
                for at in (0, 1):
                    stack.callback(self.parties[at].close)
                    stack.enter_context(watching(self._stores[at].folder, self._teller(own)))
                self._link.start()
                while True:
                    self.turns += self._link.run()
                    with self._news:
                        self._news.notify_all()
                    if self._is_over:
                        return
                    self._wait()
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
            self.error = error
        finally:
            with self._news:
                self._news.notify_all()

    def _teller(self, own: int) -> Callable[[], None]:
        def tell() -> None:
            if threading.get_ident() == own:
                return  # what this exchange stores is no news to it
            with self._news:
                self._is_told = True
                self._news.notify_all()

        return tell

    def _wait(self) -> None:
        """Wait for news, an alarm or the end, and tell the machines."""
        with self._news:
            if not self._is_told and not self._is_stopping:
                self._news.wait(self._seconds_to_wait())
            self._is_told = False
            is_stopping = self._is_stopping
        news = [party.has_news() for party in self.parties]
        if is_stopping and any(news) and self._last_looks:
            self._last_looks -= 1  # what was stored before it was stopped is told
            is_stopping = False
        for party, has_news in zip(self.parties, news, strict=True):
            if is_stopping:
                party.take(happened.Stopped())
            elif has_news:
                party.take(happened.Changed())
            if party.take_alarm():
                party.take(happened.Woken())

    def _seconds_to_wait(self) -> float:
        left = [party.seconds_to_alarm for party in self.parties]
        return min([LOOK_SECONDS, *(each for each in left if each is not None)])
