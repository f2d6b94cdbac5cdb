"""Byte streams, and their form over the transports of asyncio: an inbox and an outlet.

The standard library's stream reader forgets what it holds when a connection is reset, so
that the last bytes of a peer could be lost. This one gives them out first.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from lace.transport.faults import StreamClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.record.ids import Verifier


# -- Asking the system whether the other end of a connection is closed.
#
# A stream that holds much unread takes no more from the system, and so does not see the peer's
# end. The system knows it all the same.

# Not every system tells a peer that only ended its writing; then a reset is seen, and no more.
_EVENTS: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Tell whether the peer has ended its writing, or the connection is broken."""
    source = transport.get_extra_info("socket") or transport.get_extra_info("pipe")
    if source is None or source.fileno() < 0:
        return True
    asking = select.poll()
    asking.register(source.fileno(), _EVENTS)
    return any(events & _EVENTS for _, events in asking.poll(0))


# -- A stream of bytes between two processes, and what its transport proves about it.
#
# Bindings make streams; the driver of an exchange reads and writes them. Nothing here
# knows what the bytes mean. A stream holds a bounded number of bytes in each direction:
# a peer that sends faster than it is read waits, and so does a writer that the peer does
# not read (060).

PIECE_BYTES: Final = 64 * 1024
"""What is given to the system at once, and the largest WebSocket frame that is sent."""
READ_HIGH_WATER: Final = 256 * 1024
"""Unread bytes at which a stream stops receiving."""
READ_LOW_WATER: Final = 64 * 1024
"""Unread bytes at which it goes on."""
MAX_UNREAD_BYTES: Final = READ_HIGH_WATER + 256 * 1024
"""The most that it holds unread: the mark, and what the event loop reads at once."""
WRITE_HIGH_WATER: Final = 64 * 1024
"""Unsent bytes at which a writer waits; at most a piece more is held."""
OPEN_SECONDS: Final = 10.0
"""How long opening a connection may take, with all its handshakes."""
CLOSE_SECONDS: Final = 5.0
"""How long the end of a stream waits for the peer's end (G47b)."""
ABORT_SECONDS: Final = 1.0
"""How long an abort tries to tell its code, where a transport has codes."""


class Ending(Enum):
    """How the bytes of the peer ended."""

    CLEAN = "the peer ended its stream"
    ABORTED = "the peer aborted"
    CUT = "the connection broke"
    HERE = "this side closed the stream"


class CloseReason(Enum):
    """Why a stream is closed; its value is the code that a WebSocket tells the peer."""

    DONE = 1000
    LEAVING = 1001
    ABORT = 1008


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What the transport proves about a connection, and nothing that a peer merely says.

    Attributes:
        transport: the text of `Transport(S)` (G62).
        encrypted: whether `TransportEncrypted()` holds: TLS ends in this process.
        is_pinned: whether that holds once hello has proven a pinned key over `channel`.
        peer: the verifier that the peer's uid or certificate is mapped to.
        channel: on TLS, the digest of the server's certificate (G39b).
        peer_uid: the user of the process at the other end, on a Unix socket.
        place: where the peer is, for messages and for counting connections.
    """

    transport: str
    encrypted: bool = False
    is_pinned: bool = False
    peer: Verifier | None = None
    channel: str | None = None
    peer_uid: int | None = None
    place: str = ""


class ByteStream(Protocol):
    """A connection: two directions of bytes that do not wait for each other.

    One task at a time reads, and one at a time writes; both may be cancelled. A
    cancelled read loses nothing. A cancelled write has sent an unknown part, so that
    closing with `CloseReason.ABORT` is all that is left to do.
    """

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        ...

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come."""
        ...

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        ...

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes as soon as there are any, and none at the end.

        A connection that breaks ends as well: what came before is read first, and
        `ending` tells the difference.
        """
        ...

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them; they must not change."""
        ...

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side; reading goes on.

        The peer of a WebSocket cannot send any more once it has seen this.
        """
        ...

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream and free what it holds; a second call does nothing.

        `DONE` lets the peer have all that was written: it ends writing, reads past what
        the peer still sends to its end, and waits `CLOSE_SECONDS` at most. The other
        reasons drop what was not sent.
        """
        ...


class Inbox:
    """What came and was not read yet; it stops its source while that is much."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._held = bytearray()
        self._source: asyncio.ReadTransport | None = None
        self._is_paused = False
        self._is_read = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def unread(self) -> int:
        """How many bytes are held."""
        return len(self._held)

    @property
    def is_cut_off(self) -> bool:
        """Whether the other end is closed, also while no bytes are taken."""
        return self._source is not None and has_hung_up(self._source)

    def attach(self, source: asyncio.ReadTransport) -> None:
        """Take bytes from this transport."""
        self._source = source

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._held += data
        self._wake()
        if len(self._held) >= READ_HIGH_WATER and not self._is_paused and self._source:
            self._is_paused = True
            self._source.pause_reading()

    def end(self, ending: Ending) -> None:
        """Note that no more bytes come; the first reason counts."""
        if self.ending is None:
            self.ending = ending
        self._wake()

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        if most < 1:
            raise ValueError("a read asks for at least one byte")
        if self._is_read:
            raise RuntimeError("another task reads this stream")
        self._is_read = True
        try:
            while not self._held:
                if self.ending is not None:
                    return b""
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        finally:
            self._is_read, self._waiter = False, None
        with memoryview(self._held) as view:
            data = bytes(view[:most])
        del self._held[: len(data)]
        if self._is_paused and len(self._held) <= READ_LOW_WATER and self._source:
            self._is_paused = False
            self._source.resume_reading()
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Outlet:
    """Sends bytes in pieces, and waits while the system takes no more."""

    def __init__(self) -> None:
        self.is_ended = False
        self._sink: asyncio.WriteTransport | None = None
        self._is_written = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_full = False

    def attach(self, sink: asyncio.WriteTransport) -> None:
        """Send to this transport."""
        sink.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._sink = sink

    def pause(self) -> None:
        """Note that the transport holds much."""
        self._is_full = True

    def resume(self) -> None:
        """Note that it holds little again, or will never send anything more."""
        self._is_full = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def lose(self) -> None:
        """Note that nothing can be sent any more."""
        self.is_ended = True
        self.resume()

    async def write(self, data: bytes | memoryview) -> bool:
        """Send bytes; False when nothing can be sent any more."""
        if self._is_written:
            raise RuntimeError("another task writes to this stream")
        self._is_written = True
        try:
            view = memoryview(data)
            for start in range(0, len(view), PIECE_BYTES):
                if not self._give(view[start : start + PIECE_BYTES]):
                    return False
                if self._is_full:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
            return not self.is_ended
        finally:
            self._is_written, self._waiter = False, None

    def _give(self, piece: memoryview) -> bool:
        if self.is_ended or self._sink is None or self._sink.is_closing():
            return False
        self._sink.write(piece)
        return True

    def end(self) -> None:
        """Send the end behind all that was written."""
        if not self.is_ended and self._sink is not None and not self._sink.is_closing():
            with suppress(
                OSError
            ):  # it was reset, and the loop has not seen it: read, it is an end
                self._sink.write_eof()
        self.is_ended = True


class SocketProtocol(asyncio.Protocol):
    """The two directions of a socket."""

    def __init__(
        self,
        on_made: Callable[[SocketProtocol, asyncio.Transport], None] | None = None,
    ) -> None:
        self.inbox, self.outlet = Inbox(), Outlet()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_made = on_made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if not isinstance(transport, asyncio.Transport):
            raise AssertionError("a socket's transport has two directions")
        self.inbox.attach(transport)
        self.outlet.attach(transport)
        if self._on_made:
            self._on_made(self, transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self.inbox.feed(data)

    def eof_received(self) -> bool:
        """Take the peer's end; this side may go on sending."""
        self.inbox.end(Ending.CLEAN)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """End both directions."""
        self.inbox.end(Ending.CUT if error else Ending.HERE)
        self.outlet.lose()
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """Let writers wait."""
        self.outlet.pause()

    def resume_writing(self) -> None:
        """Let writers go on."""
        self.outlet.resume()

    def stream(self, transport: asyncio.Transport, proven: Proven) -> DuplexStream:
        """Return the stream of this connection."""
        return DuplexStream(
            proven,
            self.inbox,
            self.outlet,
            shut=transport.close,
            cut=transport.abort,
            lost=(self.lost,),
        )


class InputProtocol(asyncio.Protocol):
    """The end of a pipe that is read."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.ReadTransport):
            self.inbox.attach(transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self.inbox.feed(data)

    def eof_received(self) -> None:
        """Take the end."""
        self.inbox.end(Ending.CLEAN)

    def connection_lost(self, error: Exception | None) -> None:
        """End reading."""
        self.inbox.end(Ending.CUT if error else Ending.HERE)
        if not self.lost.done():
            self.lost.set_result(None)


class OutputProtocol(asyncio.BaseProtocol):
    """The end of a pipe that is written."""

    def __init__(self) -> None:
        self.outlet = Outlet()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.WriteTransport):
            self.outlet.attach(transport)

    def pause_writing(self) -> None:
        """Let writers wait."""
        self.outlet.pause()

    def resume_writing(self) -> None:
        """Let writers go on."""
        self.outlet.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """End writing."""
        self.outlet.lose()
        if not self.lost.done():
            self.lost.set_result(None)


class DuplexStream:
    """A `ByteStream` over an inbox and an outlet."""

    def __init__(
        self,
        proven: Proven,
        inbox: Inbox,
        outlet: Outlet,
        *,
        shut: Callable[[], None],
        cut: Callable[[], None],
        lost: tuple[asyncio.Future[None], ...],
    ) -> None:
        self._proven = proven
        self._inbox, self._outlet = inbox, outlet
        self._shut, self._cut = shut, cut
        self._lost = lost

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        return self._proven

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come, or are not read yet."""
        return None if self._inbox.unread else self._inbox.ending

    @property
    def unread(self) -> int:
        """How many bytes came and were not read."""
        return self._inbox.unread

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        return self._inbox.ending is not None or self._inbox.is_cut_off

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        return await self._inbox.read(most)

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them."""
        if not await self._outlet.write(data):
            raise StreamClosedError(self._proven.transport)

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side."""
        self._outlet.end()

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream; see `ByteStream.close`."""
        try:
            if reason is CloseReason.DONE and not all(future.done() for future in self._lost):
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._leave()
        finally:
            self._cut()
            self._inbox.end(Ending.HERE)
            await asyncio.wait(self._lost)

    async def _leave(self) -> None:
        """Read on to the peer's end: closing over unread bytes would reset the connection."""
        self._outlet.end()
        with suppress(RuntimeError):  # another task reads, and sees the end by itself
            while await self._inbox.read(READ_HIGH_WATER):
                pass
        self._shut()
        await asyncio.wait(self._lost)
