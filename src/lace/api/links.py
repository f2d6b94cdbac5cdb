"""Links: exchanges with a server that run beside the program, blocking or not.

A `Link` is for programs with an event loop, and is used in an `async with` block. In a
plain `with` block it is a `BlockingLink`, which waits where the other is awaited.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from lace.base.limits import MAX_EVENT_RECORDS, MAX_LINK_EVENTS
from lace.errors import LaceError, ProtocolError, StoreError, UsageError
from lace.exchange.result import Outcome
from lace.link.client import CONNECTING, LoopThread, run_link
from lace.link.events import EventsMissed, RecordsStored
from lace.transport.duplex import CloseReason
from lace.transport.listening import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from lace.base.tai import Tai
    from lace.iltp.address import LinkAddress
    from lace.link.client import LinkOptions, Opening
    from lace.link.events import LinkEvent
    from lace.link.session import LinkSession
    from lace.transport.duplex import ByteStream
    from lace.transport.listening import ConnectOptions


class EventQueue:
    """What happened on a link and was not looked at yet; any thread may look.

    It holds `MAX_LINK_EVENTS` events, where each record that one names counts as one.
    Of more, the oldest are forgotten, and an `EventsMissed` says how many. Records that were
    stored together are told of in pieces, so that not all of them are forgotten at once.
    """

    def __init__(self) -> None:
        self._waiting: deque[LinkEvent] = deque()
        self._weight = self._missed = self._missed_records = 0
        self._told = threading.Condition()
        self._is_over = False
        self.news = asyncio.Event()
        """Set, in the loop of the link, when there is something to look at."""

    def put(self, event: LinkEvent) -> None:
        """Add an event; called in the loop of the link."""
        with self._told:
            for piece in _pieces(event):
                self._waiting.append(piece)
                self._weight += _weight(piece)
            while self._weight > MAX_LINK_EVENTS:
                self._forget(self._waiting.popleft())
            self._told.notify_all()
        self.news.set()

    def _forget(self, event: LinkEvent) -> None:
        weight = _weight(event)
        self._weight -= weight
        self._missed += weight
        if isinstance(event, RecordsStored):
            self._missed_records += len(event.records)

    def end(self) -> None:
        """Say that nothing comes any more."""
        with self._told:
            self._is_over = True
            self._told.notify_all()
        self.news.set()

    def take(self) -> LinkEvent | None:
        """Return the next event, if there is one."""
        with self._told:
            return self._take()

    def _take(self) -> LinkEvent | None:
        if self._missed:
            missed = EventsMissed(self._missed, self._missed_records)
            self._missed = self._missed_records = 0
            return missed
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        self._weight -= _weight(event)
        return event

    @property
    def is_over(self) -> bool:
        """Whether nothing comes any more, beyond what waits."""
        return self._is_over

    def wait(self, seconds: float | None) -> LinkEvent | None:
        """Return the next event, waiting for it; None at the end, or when it takes longer."""
        with self._told:
            self._told.wait_for(lambda: self._waiting or self._missed or self._is_over, seconds)
            return self._take()


def _pieces(event: LinkEvent) -> Iterator[LinkEvent]:
    """Yield an event, in several that name few records each if it names many."""
    if not isinstance(event, RecordsStored) or len(event.records) <= MAX_EVENT_RECORDS:
        yield event
        return
    for start in range(0, len(event.records), MAX_EVENT_RECORDS):
        yield RecordsStored(event.records[start : start + MAX_EVENT_RECORDS])


def _weight(event: LinkEvent) -> int:
    return max(1, len(event.records)) if isinstance(event, RecordsStored) else 1


class Link:
    """An exchange with a server that goes on beside the program.

    As an asynchronous context it connects and begins; at the end of the block a bounded
    exchange is waited for, and an open one is ended.

    >>> async with lace.connect("tcp:example.org", store, policy) as link:  # doctest: +SKIP
    ...     result = await link.result()
    >>> with lace.connect("tcp:example.org", store, policy) as link:  # doctest: +SKIP
    ...     result = link.result()

    Args:
        address: where to.
        opening: opens this side's lace.
        options: how it runs.
        clock: gives the time.
        connecting: how to connect.
    """

    def __init__(
        self,
        address: LinkAddress,
        opening: Opening,
        options: LinkOptions,
        clock: Callable[[], Tai],
        connecting: ConnectOptions | None = None,
    ) -> None:
        self.address = address
        self._opening, self._options, self._clock = opening, options, clock
        self._connecting = connecting
        self._session: LinkSession | None = None
        self._is_stopping = False
        self._stream: ByteStream | None = None
        self._running: asyncio.Task[Outcome] | None = None
        self._error: BaseException | None = None
        self._is_told = False
        self._blocking: BlockingLink | None = None
        self.queue = EventQueue()
        """What happened, and waits for `events`."""
        self.outcome: Outcome | None = None
        """What came of it, with its failure if there was one; None before its end."""

    def __repr__(self) -> str:
        return f"<Link {self.address}: {self._state}>"

    @property
    def _state(self) -> str:
        if self._error is not None:
            return "failed"
        if self.outcome is not None:
            return self.outcome.reason
        return "not begun" if self._running is None else "running"

    async def result(self) -> Outcome:
        """Wait for the end and return the outcome; may be called again.

        Raises:
            ProtocolError: the sides did not agree, the connection broke, or a limit was
                reached; its `result` says what had come of it by then. Valid records that
                were received before stay stored.
            StoreError: the lace could not be read or written.
            UsageError: it has not begun.
        """
        if self._running is None:
            raise UsageError(
                "a link has a result inside of its block",
                hint="as in `async with lace.connect(…) as link`",
            )
        await asyncio.wait([self._running])
        self._note_end(self._running)
        self._is_told = True
        return self._known()

    def _known(self) -> Outcome:
        """Return the outcome once it is known.

        Raises:
            LaceError: as `result` raises it.
        """
        if self._error is not None:
            raise self._error
        if self.outcome is None:
            raise AssertionError("the outcome of a link is known after its end")
        return self.outcome

    @property
    def _is_over(self) -> bool:
        """Whether the outcome is known."""
        return self._error is not None or self.outcome is not None

    def _note_end(self, ended: asyncio.Task[Outcome]) -> None:
        """Keep the outcome: it can be read after the event loop has ended."""
        if ended.cancelled():
            self._error = ProtocolError(
                "the link was given up before its end",
                hint="its block was left with an error; records that had come stay stored",
            )
        elif (error := ended.exception()) is not None:
            self._error = error
            if isinstance(error, StoreError) and isinstance(error.result, Outcome):
                self.outcome = error.result
        else:
            self.outcome = ended.result()
            self._error = failure = self.outcome.failure
            if failure is not None:
                failure.result = self.outcome

    async def events(self) -> AsyncIterator[LinkEvent]:
        """Yield what happens, from the beginning, until the link has ended.

        Each event goes to one who asks. They wait for it, up to a limit: `EventsMissed` tells
        of those that were forgotten.
        """
        queue = self.queue
        while True:
            queue.news.clear()
            while (event := queue.take()) is not None:
                yield event
            if queue.is_over:
                return
            await queue.news.wait()

    def stop(self) -> None:
        """End it once the round that is under way is over."""
        self._is_stopping = True
        if self._session is not None:
            self._session.stop()

    def _begin(self, session: LinkSession) -> None:
        self._session = session
        if self._is_stopping:
            session.stop()

    async def __aenter__(self) -> Self:
        self._stream = stream = await connect(self.address, self._connecting)
        self._running = asyncio.create_task(
            run_link(
                stream,
                self._opening,
                CONNECTING,
                self._options,
                self._clock,
                began=self._begin,
                hear=self.queue.put,
            )
        )
        # What was told before the end is told first.
        loop = asyncio.get_running_loop()
        self._running.add_done_callback(lambda _done: loop.call_soon(self.queue.end))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running, stream = self._running, self._stream
        if running is None or stream is None:
            return
        try:
            if kind is not None:
                running.cancel()
                with suppress(asyncio.CancelledError, LaceError):
                    await running
                return
            if self._options.is_open:
                self.stop()
            if not self._is_told:  # the caller knows of a failure already
                await self.result()
        finally:
            if not running.done():  # the waiting task was cancelled
                running.cancel()
                await asyncio.wait([running])
            self._note_end(running)
            await stream.close(CloseReason.ABORT)  # nothing is left to do where it was run

    def __enter__(self) -> BlockingLink:
        self._blocking = BlockingLink(self)
        return self._blocking

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._blocking is not None:
            self._blocking.close(kind, error, trace)


class BlockingLink:
    """A link whose methods wait; it runs in a thread of its own.

    Args:
        link: the link, which has not begun.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = LoopThread("lace-link")
        try:
            self._loop.call(link.__aenter__())
        except BaseException:
            self._loop.close()
            raise

    def __repr__(self) -> str:
        return f"<BlockingLink {self._link.address}: {self._link._state}>"

    @property
    def outcome(self) -> Outcome | None:
        """What came of it, with its failure if there was one; None before it was asked for.

        It is there after the block as well, unless the lace could not even be opened.
        """
        return self._link.outcome

    def result(self, seconds: float | None = None) -> Outcome:
        """Wait for the end and return the outcome; may be called again, also later.

        Args:
            seconds: wait no longer than this.

        Raises:
            TimeoutError: it goes on; nothing is lost.
            ProtocolError: as `Link.result` raises it.
            StoreError: the lace could not be read or written.
        """
        if self._link._is_over:
            return self._link._known()
        return self._loop.call(self._link.result(), seconds)

    def events(self, seconds: float | None = None) -> Iterator[LinkEvent]:
        """Yield what happens, from the beginning, until the link has ended.

        Args:
            seconds: wait no longer than this for the next event, and end then.
        """
        while (event := self._link.queue.wait(seconds)) is not None:
            yield event

    def stop(self) -> None:
        """End it once the round that is under way is over; after its end nothing happens."""
        self._loop.tell(self._link.stop)

    def close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """End it as the end of its block does."""
        try:
            self._loop.call(self._link.__aexit__(kind, error, trace))
        finally:
            self._loop.close()
