"""Two parties in one process: driven step by step, or as links that run in a thread."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import TYPE_CHECKING

from lace.api import now
from lace.exchange import events as happened
from lace.exchange.failures import InterlaceFailure
from lace.exchange.transitions import State
from lace.link.client import LinkOptions, LoopThread
from lace.link.messages import EndMessage, Inbound, Outbound
from lace.link.side import LinkPair, Side, party_of
from tests.link.test_pairing import policy

if TYPE_CHECKING:
    from collections.abc import Callable

    import lace
    from lace.exchange.result import Counters, Outcome
    from lace.link.messages import Message
    from lace.link.party import Party

BLOCK_BYTES = 2**26


class Pairing:
    """Two parties without threads and timers: what one sends, the other reads at once."""

    def __init__(self, left: Party, right: Party) -> None:
        self._ways = [_Way(left, right), _Way(right, left)]

    def start(self) -> None:
        """Start both machines."""
        for way in self._ways:
            way.sender.take(happened.Started())

    def run(self) -> None:
        """Go on until neither side has anything to say or to do."""
        while self._step() or any(way.sender.work(wait=True) for way in self._ways):
            pass

    def _step(self) -> bool:
        moved = [way.move() or way.sender.work() for way in self._ways]
        return any(moved)


class _Way:
    """The bytes from one party to the other."""

    def __init__(self, sender: Party, receiver: Party) -> None:
        self.sender, self._receiver = sender, receiver
        self._outbound = Outbound(max_block_bytes=BLOCK_BYTES)
        self._inbound = Inbound(
            max_block_bytes=BLOCK_BYTES, max_data_bytes=receiver.settings.max_data_bytes
        )

    def move(self) -> bool:
        """Hand over what there is to send, and what the receiver takes; tells if there was any."""
        moved = False
        for message in self.sender.messages():
            self._send(message)
            self._deliver()
            moved = True
        return self._deliver() or moved

    def _deliver(self) -> bool:
        moved = False
        while self._receiver.can_take:
            state = self._receiver.machine.state
            try:
                event = self._inbound.next_event(
                    is_batch=state is State.TRANSFERRING,
                    is_early=state in (State.SETUP, State.HELLO),
                )
            except InterlaceFailure as failure:
                self._receiver.fail(failure)
                return True
            if event is None:
                break
            self._receiver.take(event)
            moved = True
        return moved

    def _send(self, message: Message) -> None:
        if isinstance(message, EndMessage):
            self._inbound.feed(b"")
            return
        pieces = b"".join(self._outbound.pieces(message))
        self.sender.count_sent(message, len(pieces))
        self._inbound.feed(pieces)


class OpenPair:
    """Two links on a memory stream that run in a thread until they are stopped."""

    def __init__(self, left: Party, right: Party) -> None:
        self.parties = left, right
        self._loop = LoopThread("lace-open-pair")
        self._pair = LinkPair(left, right)
        self._running = self._loop.start(self._pair.run())

    def wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds; tells whether it does."""
        until = time.monotonic() + seconds
        while not holds():
            if self._running.done() or time.monotonic() > until:
                return holds()
            time.sleep(0.005)
        return True

    def stop(self, seconds: float) -> None:
        """End both, and wait for that."""
        if not self._running.done():
            self._loop.call(self._pair.stop(), seconds)
        assert not wait([self._running], seconds).not_done
        self._loop.close()

    @property
    def error(self) -> BaseException | None:
        """What kept a link from running to its end."""
        return self._running.exception()

    @property
    def outcomes(self) -> tuple[Outcome | None, Outcome | None]:
        left, right = self.parties
        return left.outcome, right.outcome

    @property
    def counters(self) -> tuple[Counters, Counters]:
        """What both sides have said and done so far."""
        left, right = self.parties
        return left.machine.counters, right.machine.counters


def open_pair(sides: tuple[lace.Lace, lace.Lace]) -> OpenPair:
    """An open exchange of two laces, through these handles; each exposes all to the other."""
    left, right = (
        party_of(
            Side(each.store, each.settings, policy(peer), each.signing_key()),
            at,
            now,
            LinkOptions(is_open=True),
        )
        for at, (each, peer) in enumerate(zip(sides, reversed(sides), strict=True))
    )
    return OpenPair(left, right)
