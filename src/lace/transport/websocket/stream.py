"""The stream of a WebSocket: frames in, frames out, and the closing handshake as its end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import State

from lace.errors import Place
from lace.transport.duplex import (
    ABORT_SECONDS,
    CLOSE_SECONDS,
    PIECE_BYTES,
    CloseReason,
    Ending,
    Proven,
    has_hung_up,
)
from lace.transport.faults import StreamClosedError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection


MAX_EMPTY_FRAMES: Final = 1000
"""Frames without a byte that are taken one after another."""
TEXT_CODE: Final = 1003
"""The close code for a text message."""

_CLEAN_CODES: Final = frozenset({1000, 1001, 1005})


class WebSocketStream:
    """A `ByteStream` over the binary messages of a WebSocket."""

    def __init__(self, connection: ClientConnection | ServerConnection, proven: Proven) -> None:
        self._connection = connection
        self._proven = proven
        self._ending: Ending | None = None
        self._held = memoryview(b"")
        self._message: AsyncGenerator[str | bytes, None] | None = None
        self._receiving: asyncio.Task[bytes] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_read = self._is_written = self._is_closed = False
        self._empty_frames = 0

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        return self._proven

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come."""
        return self._ending

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        is_over = self._ending is not None or self._connection.state is not State.OPEN
        return is_over or has_hung_up(self._connection.transport)

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        if most < 1:
            raise ValueError("a read asks for at least one byte")
        if self._is_read:
            raise RuntimeError("another task reads this stream")
        self._is_read = True
        try:
            if not self._held and self._ending is None:
                self._held = memoryview(await self._next_frame())
        finally:
            self._is_read = False
        data = bytes(self._held[:most])
        self._held = self._held[most:]
        return data

    async def _next_frame(self) -> bytes:
        """Return the bytes of the next frame that has any, or none at the end.

        The library loses its place when it is cancelled inside a message, so a task
        receives, and goes on when the reader is cancelled.
        """
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive())
        await asyncio.wait({self._receiving})
        receiving, self._receiving = self._receiving, None
        if receiving.cancelled():
            return b""  # closed meanwhile
        try:
            return receiving.result()
        except ConnectionClosed as closed:
            self._end(_ending_of(closed))
            return b""
        except TransportError:
            self._end(Ending.HERE)
            raise

    async def _receive(self) -> bytes:
        while True:
            message = self._message
            if message is None:
                # The declared type hides that it can be closed.
                message = cast("AsyncGenerator[str | bytes]", self._connection.recv_streaming())
                self._message = message
            try:
                frame = await anext(message)
            except StopAsyncIteration:
                self._message = None
                continue
            if isinstance(frame, str):
                self._begin_close(TEXT_CODE)
                raise self._refusal("the peer sent a text message", "060-76")
            if frame:
                self._empty_frames = 0
                return frame
            self._empty_frames += 1
            if self._empty_frames > MAX_EMPTY_FRAMES:
                self._begin_close(CloseReason.ABORT.value)
                raise self._refusal("the peer sends frames without bytes", "060-77")

    def _refusal(self, message: str, rule: str) -> TransportError:
        return TransportError(message, rule=rule, place=Place(self._proven.transport))

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them."""
        if self._is_written:
            raise RuntimeError("another task writes to this stream")
        self._is_written = True
        try:
            view = memoryview(data)
            for start in range(0, len(view), PIECE_BYTES):
                # Asked first, because sending would wait for the end of the connection.
                if self._closing is not None or self._connection.state is not State.OPEN:
                    raise StreamClosedError(self._proven.transport)
                await self._connection.send(view[start : start + PIECE_BYTES])
        except ConnectionClosed as closed:
            raise StreamClosedError(self._proven.transport) from closed
        finally:
            self._is_written = False

    async def end_writing(self) -> None:
        """Begin the closing handshake; what the peer sent before it sees this is read."""
        self._begin_close(CloseReason.DONE.value)

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream; see `ByteStream.close`."""
        is_done = reason is CloseReason.DONE
        if self._is_closed:
            if not is_done:
                self._connection.transport.abort()
            await self._connection.wait_closed()
            return
        self._is_closed = True
        self._begin_close(reason.value)
        seconds = CLOSE_SECONDS if is_done else ABORT_SECONDS
        before = self._ending
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._discard()
                    await self._connection.wait_closed()
        finally:
            self._connection.transport.abort()
            # A peer echoes the code of an abort; that does not make it the peer's.
            self._ending = before or (is_done and self._ending) or Ending.HERE
            await self._free()

    async def _discard(self) -> None:
        """Read past what the peer still sends: its answer to the close comes behind that."""
        if self._is_read:
            return
        self._held = memoryview(b"")
        try:
            if self._receiving is not None:
                await self._next_frame()
            # Once all is read, the library takes another try for a second reader.
            while self._ending in (None, Ending.HERE):
                message, self._message = self._message, None
                async for _ in message or self._connection.recv_streaming():
                    pass
        except ConnectionClosed as closed:
            self._end(_ending_of(closed))
        except TransportError:
            pass  # it is refused, and over

    async def _free(self) -> None:
        await self._connection.wait_closed()
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait({self._receiving})
            if not self._receiving.cancelled():
                self._receiving.exception()  # seen: nobody waits for it any more
        if self._closing is not None:
            await asyncio.wait({self._closing})
        if self._message is not None:
            with suppress(WebSocketException):
                await self._message.aclose()

    def _begin_close(self, code: int) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._connection.close(code))

    def _end(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending


def _ending_of(closed: ConnectionClosed) -> Ending:
    if closed.rcvd is None:
        return Ending.CUT
    if closed.rcvd.code == CloseReason.ABORT.value:
        return Ending.ABORTED
    return Ending.CLEAN if closed.rcvd.code in _CLEAN_CODES else Ending.CUT


# -- What client and server have in common: limits, silence, and a guard on each connection.

MAX_FRAME_BYTES: Final = 1024 * 1024
"""The largest frame that is taken; messages may have any number of frames."""
MAX_UNREAD_FRAMES: Final = 4
"""Unread frames at which a stream stops receiving."""
MAX_UNSENT_BYTES: Final = 1024 * 1024
"""Unsent bytes at which a connection is cut: a peer that pings and reads no answer."""
PING_SECONDS: Final = 30.0
"""How often a ping keeps a waiting connection alive; nobody is held to answer it."""

# The library reports every refused connection, with bytes of the peer. Nobody is to see them.
SILENT: Final = logging.getLogger("lace.transport.websocket")
SILENT.setLevel(logging.CRITICAL + 1)


class GuardedConnection(Connection):
    """A connection that is cut when its peer does not behave, so that none is kept for ever."""

    _leaving: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes, and look at what the peer does."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.transport.abort()
        is_over = self.protocol.close_rcvd is not None or self.protocol.parser_exc is not None
        if is_over and self._leaving is None:
            self._leaving = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        if self._leaving is not None:
            self._leaving.cancel()
