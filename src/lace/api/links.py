"""Links: exchanges with a server that run beside the program, blocking or not.

A `Link` is for programs with an event loop, and is used in an `async with` block. In a
plain `with` block it is a `BlockingLink`, which waits where the other is awaited.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from lace.base.limits import MAX_EVENT_RECORDS, MAX_LINK_EVENTS
from lace.errors import LaceError, ProtocolError, StoreError, UsageError
from lace.exchange.failures import Failure
from lace.exchange.result import Outcome as Outcome
from lace.link.client import CONNECTING, LoopThread, run_link
from lace.link.events import EventsMissed
from lace.link.events import RecordsStored as RecordsStored
from lace.link.resources import keep_one_arena as keep_one_arena
from lace.link.server import Served as Served
from lace.transport.capture import Capture
from lace.transport.duplex import CloseReason
from lace.transport.faults import TransportError
from lace.transport.listening import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from lace.base.tai import Tai
    from lace.exchange.advertisement import Field as Field
    from lace.exchange.negotiation import Terms as Terms
    from lace.exchange.result import Counters as Counters
    from lace.iltp.address import LinkAddress as LinkAddress
    from lace.link.client import LinkOptions, Opening
    from lace.link.events import Arrival as Arrival
    from lace.link.events import Claims as Claims
    from lace.link.events import DryRun as DryRun
    from lace.link.events import LinkEvent as LinkEvent
    from lace.link.events import LinkStatus as LinkStatus
    from lace.link.session import LinkSession
    from lace.record.ids import Verifier
    from lace.transport.duplex import ByteStream
    from lace.transport.duplex import Proven as Proven
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


def outcome_name(outcome: Outcome) -> str:
    """Return how a link ended, in a word."""
    if outcome.failure is not None:
        return "failed"
    return "fixed-point" if outcome.at_fixed_point else "unfinished"


class LinkObserver:
    """Observes the links of a client or a server; its methods are called in the event loop.

    They do nothing here: override those that you need.
    """

    def listening(self, address: LinkAddress) -> None:
        """A server accepts connections at an address."""

    def opened(self, number: int, proven: Proven) -> None:
        """A link has a connection; links are numbered from 1."""

    def agreed(self, number: int, terms: Terms) -> None:
        """Both sides of a link have agreed on a plan; called again for each later epoch."""

    def heard(self, event: LinkEvent) -> None:
        """Something happened on the link of a client."""

    def ended(self, served: Served) -> None:
        """A link has ended."""

    def lost(self, number: int, reason: str, pause: int, *, failed: bool) -> None:
        """A reconnecting link has ended and begins again after a pause, in seconds.

        `failed` is False where the server ends every exchange at a fixed point.
        """


PAUSES: Final = (0, 1, 2, 4, 8, 15, 30, 60)
"""Seconds before a lost link reconnects, by how often it was lost soon after its begin."""
STEADY_SECONDS: Final = 10.0
"""A link that lasted this long was not lost soon."""
POLL_SECONDS: Final = 2
"""Seconds before reconnecting to a server that ends each exchange at a fixed point."""
_TEMPORARY: Final = frozenset({Failure.PEER_CLOSED, Failure.PHASE_TIMEOUT})
"""Failures after which a link reconnects."""
_SILENT: Final = LinkObserver()


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
        reconnect: connect again when the connection of an open exchange is lost.
        capture: a file that gets all bytes of the connection, as text.
        verifier: the verifier that this side claims; None for nobody.
        observer: observes it.
    """

    def __init__(
        self,
        address: LinkAddress,
        opening: Opening,
        options: LinkOptions,
        clock: Callable[[], Tai],
        connecting: ConnectOptions | None = None,
        *,
        reconnect: bool = False,
        capture: Path | None = None,
        verifier: Verifier | None = None,
        observer: LinkObserver = _SILENT,
    ) -> None:
        self.address = address
        self.verifier = verifier
        """The verifier that this side claims; None for nobody."""
        self._opening, self._options, self._clock = opening, options, clock
        self._connecting, self._reconnects = connecting, reconnect
        self._observer = observer
        self._capture_path = capture
        self._capture: Capture | None = None
        self._number = 0
        self._session: LinkSession | None = None
        self._stopping = asyncio.Event()
        self._stream: ByteStream | None = None
        self._running: asyncio.Task[Outcome] | None = None
        self._error: BaseException | None = None
        self._has_ended = self._is_told = False
        self._blocking: BlockingLink | None = None
        self.queue = EventQueue()
        """What happened, and waits for `events`."""
        self.outcome: Outcome | None = None
        """The outcome, with its failure; None before the end, and that of the last connection
        while a reconnecting link goes on."""

    def __repr__(self) -> str:
        return f"<Link {self.address}: {self._state}>"

    @property
    def _state(self) -> str:
        if self._error is not None:
            return "failed"
        if self._has_ended and self.outcome is not None:
            return self.outcome.reason
        return "not begun" if self._running is None else "running"

    @property
    def scheme(self) -> str:
        """The scheme of its address, as `tcp`."""
        return self.address.scheme

    @property
    def status(self) -> LinkStatus | None:
        """The status at this moment; None while no exchange runs. Any thread may ask."""
        session = self._session
        return None if session is None else session.status

    @property
    def dry_run(self) -> DryRun | None:
        """What would move, and what the peer has learned, of a dry run."""
        return self._options.dry_run

    @property
    def claims(self) -> Claims | None:
        """What the peer claims to have and has requested, if that was asked for."""
        return self._options.claims

    @property
    def capture_problem(self) -> str | None:
        """Why the capture is not complete, if it is not."""
        return None if self._capture is None else self._capture.problem

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

    def _note_end(self, ended: asyncio.Task[Outcome]) -> None:
        """Keep the outcome: it can be read after the event loop has ended."""
        self._has_ended = True
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
        self._stopping.set()
        if self._session is not None:
            self._session.stop()

    def _begin(self, session: LinkSession) -> None:
        self._session = session
        if self._stopping.is_set():
            session.stop()

    def _hear(self, event: LinkEvent) -> None:
        self.queue.put(event)
        self._observer.heard(event)

    async def _connect(self) -> ByteStream:
        stream = await connect(self.address, self._connecting)
        return stream if self._capture is None else self._capture.stream(stream)

    async def _run(self, stream: ByteStream) -> tuple[Outcome, int]:
        """Run one exchange over a connection; returns how many bytes came, too."""
        self._number += 1
        since = time.monotonic()
        outcome: Outcome | None = None
        problem: LaceError | None = None

        def begin(session: LinkSession) -> None:
            self._begin(session)
            self._observer.opened(self._number, stream.proven)

        try:
            outcome = await run_link(
                stream,
                self._opening,
                CONNECTING,
                self._options,
                self._clock,
                began=begin,
                hear=self._hear,
                agreed=lambda terms: self._observer.agreed(self._number, terms),
            )
        except StoreError as error:
            problem = error
            outcome = error.result if isinstance(error.result, Outcome) else None
            raise
        finally:
            await stream.close(CloseReason.ABORT)  # nothing is left to do where it was run
            session, self._session = self._session, None
            status = None if session is None else session.status
            if outcome is not None:
                served = Served(
                    number=self._number,
                    proven=stream.proven,
                    outcome=outcome,
                    error=problem,
                    standing=status,
                    seconds=time.monotonic() - since,
                )
                self._observer.ended(served)
        return outcome, 0 if status is None else status.received

    async def _run_once(self, stream: ByteStream) -> Outcome:
        return (await self._run(stream))[0]

    async def _run_again(self, stream: ByteStream) -> Outcome:
        """Run an open exchange, and connect again when the connection is lost."""
        connected: ByteStream | None = stream
        soon, has_worked = 0, False
        while True:
            since = time.monotonic()
            failed = True
            try:
                connected = connected or await self._connect()
                outcome, received = await self._run(connected)
            except TransportError as error:
                if self.outcome is None:  # it has never worked
                    raise
                outcome, reason = self.outcome, error.log_line()
                if self._stopping.is_set():
                    return outcome
            else:
                self.outcome, reason = outcome, outcome.reason
                # A server that ends may still have taken the connection, and says nothing then.
                is_temporary = _is_temporary(outcome) or (has_worked and not received)
                if self._stopping.is_set() or not is_temporary:
                    return outcome
                has_worked = has_worked or received > 0
                failed = outcome.failure is not None
            connected = None
            soon = soon + 1 if failed and time.monotonic() - since < STEADY_SECONDS else 0
            pause = PAUSES[min(soon, len(PAUSES) - 1)] if failed else POLL_SECONDS
            self._observer.lost(self._number, reason, pause, failed=failed)
            await self._pause(pause)
            if self._stopping.is_set():
                return outcome

    async def _pause(self, seconds: float) -> None:
        """Wait before connecting again, or until it is to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def __aenter__(self) -> Self:
        if self._capture_path is not None:
            self._capture = Capture(self._capture_path)
        try:
            self._stream = stream = await self._connect()
        except BaseException:
            self._close_capture()
            raise
        run = self._run_again if self._reconnects else self._run_once
        self._running = asyncio.create_task(run(stream))
        # What was told before the end is told first.
        loop = asyncio.get_running_loop()
        self._running.add_done_callback(lambda _done: loop.call_soon(self.queue.end))
        return self

    def _close_capture(self) -> None:
        if self._capture is not None:
            self._capture.close()

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
            self._close_capture()

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


def _is_temporary(outcome: Outcome) -> bool:
    return outcome.failure is None or outcome.failure.failure in _TEMPORARY


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
        if self._link._has_ended:
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
