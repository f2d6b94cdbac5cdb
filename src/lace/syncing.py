"""Exchanges with other processes: a side, a stream and a session put together.

A link is one exchange over one connection. The side that connects is operand 0 (G37). Each
link has a lace of its own to work with: what it reads and writes happens in its thread.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from lace.errors import LaceError, StoreError
from lace.store.watching import watching
from lace.transport.listening import connect
from lace.transport.stream import CloseReason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from lace.base.tai import Tai
    from lace.driver.claims import Claims
    from lace.driver.dry_run import DryRun
    from lace.driver.session import Session
    from lace.exchanging import Side
    from lace.iltp.address import Address
    from lace.interlacing.result import Outcome
    from lace.transport.captured import Capture
    from lace.transport.listening import ConnectOptions
    from lace.transport.stream import ByteStream

__all__ = ["ACCEPTING", "CONNECTING", "Link", "LinkOptions", "Opening", "run_link", "sync"]

CONNECTING: Final = 0
"""The operand of the side that connects."""
ACCEPTING: Final = 1
"""The operand of the side that accepts."""

Opening: TypeAlias = "Callable[[], AbstractContextManager[Side]]"
"""Opens what a link works with; called, entered and left outside of the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """How a link runs.

    Attributes:
        is_open: go on after a fixed point.
        is_plain: leave the nonce out, for a peer that knows only 050; nobody proves anything.
        expected: the verifiers that the peer may be; none: anyone.
        dry_run: stop before anything moves; takes note of what would.
        claims: takes note of what the peer claims; nothing is kept then for a next time.
    """

    is_open: bool = False
    is_plain: bool = False
    expected: frozenset[str] = frozenset()
    dry_run: DryRun | None = None
    claims: Claims | None = None


async def run_link(
    stream: ByteStream,
    opening: Opening,
    index: int,
    options: LinkOptions,
    clock: Callable[[], Tai],
    *,
    began: Callable[[Session], None] | None = None,
) -> Outcome:
    """Run one exchange over a stream, which is closed in the end; a failure is in its outcome.

    Args:
        stream: the connection.
        opening: opens this side's lace.
        index: the index of this side's operand.
        options: how it runs.
        clock: gives the time.
        began: gets the session when it begins, to watch it and to stop it.

    Raises:
        StoreError: the lace cannot be opened, read or written; where that has ended the
            exchange, `result` is its outcome.
    """
    # What an exchange needs takes as long to load as all the rest: a server listens before.
    from lace.driver.session import Session
    from lace.exchanging import SideOptions, named, party_of

    async with _opened(opening) as side:
        party = party_of(
            side,
            index,
            clock,
            is_open=options.is_open,
            is_plain=options.is_plain,
            expected=options.expected,
            proven=stream.proven,
            options=SideOptions(keeps_links=options.claims is None),
        )
        session = Session(party, stream, clock, dry_run=options.dry_run, claims=options.claims)
        with watching(side.store.folder, _teller(session)):
            if began is not None:
                began(session)
            outcome = await session.run()
        if isinstance(session.error, StoreError):
            raise named(session.error, "this side's", outcome)
        return outcome


@asynccontextmanager
async def _opened(opening: Opening) -> AsyncIterator[Side]:
    """Open a lace and close it in other threads: both may wait for the disk."""
    opened = opening()
    entering = asyncio.create_task(asyncio.to_thread(opened.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        await asyncio.wait([entering])  # whoever is cancelled meanwhile leaves nothing open
        if entering.exception() is None:
            await asyncio.to_thread(opened.__exit__, None, None, None)


def _teller(session: Session) -> Callable[[], None]:
    """Return what tells a session, from any thread, that records were stored in this process."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(session.look)

    return tell


async def sync(
    address: Address,
    opening: Opening,
    options: LinkOptions,
    clock: Callable[[], Tai],
    *,
    connecting: ConnectOptions | None = None,
    began: Callable[[Session], None] | None = None,
    capture: Capture | None = None,
) -> Outcome:
    """Connect to a server and run one exchange with it; a failure of it is in its outcome.

    Args:
        address: where to.
        opening: opens this side's lace.
        options: how it runs.
        clock: gives the time.
        connecting: how to connect.
        began: gets the session when it begins.
        capture: takes what goes over the wire.

    Raises:
        TransportError: there is no connection to be had.
        StoreError: the lace cannot be opened, read or written.
        UsageError: an option that this kind of address does not have.
    """
    stream = await connect(address, connecting)
    if capture is not None:
        stream = capture.stream(stream)
    try:
        return await run_link(stream, opening, CONNECTING, options, clock, began=began)
    finally:
        await stream.close(CloseReason.ABORT)  # nothing is left to do where it was run


class Link:
    """An exchange with a server that goes on beside the program.

    As an asynchronous context it connects and begins; at the end of the block a bounded
    exchange is waited for, and an open one is ended.

    >>> async with lace.connect("tcp:example.org", store, policy) as link:  # doctest: +SKIP
    ...     result = await link.result()

    Args:
        address: where to.
        opening: opens this side's lace.
        options: how it runs.
        clock: gives the time.
        connecting: how to connect.
    """

    def __init__(
        self,
        address: Address,
        opening: Opening,
        options: LinkOptions,
        clock: Callable[[], Tai],
        connecting: ConnectOptions | None = None,
    ) -> None:
        self.address = address
        self._opening, self._options, self._clock = opening, options, clock
        self._connecting = connecting
        self._session: Session | None = None
        self._is_stopping = False
        self._stream: ByteStream | None = None
        self._running: asyncio.Task[Outcome] | None = None
        self.outcome: Outcome | None = None
        """What came of it, with its failure if there was one; None before its end."""

    async def result(self) -> Outcome:
        """Wait for the end and return what came of it; ask as often as you like.

        Raises:
            ProtocolError: the sides did not agree, the connection broke, or a limit was
                reached; its `result` says what had come of it by then. Valid records that
                were received before stay stored.
            StoreError: the lace could not be read or written.
        """
        if self._running is None:
            raise AssertionError("a link has a result inside of its `async with` block")
        self.outcome = await asyncio.shield(self._running)
        failure = self.outcome.failure
        if failure is not None:
            failure.result = self.outcome
            raise failure
        return self.outcome

    def stop(self) -> None:
        """End it once the round that is under way is over."""
        self._is_stopping = True
        if self._session is not None:
            self._session.stop()

    def _begin(self, session: Session) -> None:
        self._session = session
        if self._is_stopping:
            session.stop()

    async def __aenter__(self) -> Self:
        self._stream = stream = await connect(self.address, self._connecting)
        self._running = asyncio.create_task(
            run_link(
                stream, self._opening, CONNECTING, self._options, self._clock, began=self._begin
            )
        )
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
            if self.outcome is None:  # whoever has asked knows of a failure already
                await self.result()
        finally:
            if not running.done():  # whoever waited here was cancelled
                running.cancel()
                await asyncio.wait([running])
            await stream.close(CloseReason.ABORT)  # nothing is left to do where it was run
