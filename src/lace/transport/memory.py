"""A stream between two links of one process: bytes are handed over in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

from lace.transport.duplex import CLOSE_SECONDS, CloseReason, Ending, Proven
from lace.transport.faults import StreamClosedError

MEMORY: Final = Proven(transport="memory")
"""What is proven about a stream within this process: that it is one."""
MAX_BUFFER_BYTES: Final = 256 * 1024
"""Unread bytes at which a writer waits, and the most that it adds to them at once."""


class _Pipe:
    """One direction: a buffer that one task writes and another one reads, in one event loop."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._held: deque[memoryview] = deque()
        self._size = 0
        self._is_read = self._is_written = False
        self._changed = asyncio.Event()

    @property
    def unread(self) -> int:
        """The number of bytes that are held."""
        return self._size

    @property
    def has_ended(self) -> bool:
        """Whether no more bytes come."""
        return self.ending is not None

    async def write(self, data: bytes | memoryview) -> bool:
        """Add bytes, waiting while many are unread; False when the pipe has ended."""
        if self._is_written:
            raise RuntimeError("another task writes to this stream")
        self._is_written = True
        try:
            for start in range(0, len(data), MAX_BUFFER_BYTES):
                if self.has_ended:
                    break
                piece = memoryview(data)[start : start + MAX_BUFFER_BYTES]
                self._held.append(piece)
                self._size += len(piece)
                self._changed.set()
                while self._size >= MAX_BUFFER_BYTES and not self.has_ended:
                    await self._wait()
            return not self.has_ended
        finally:
            self._is_written = False

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        if most < 1:
            raise ValueError("a read asks for at least one byte")
        if self._is_read:
            raise RuntimeError("another task reads this stream")
        self._is_read = True
        try:
            while not self._held and not self.has_ended:
                await self._wait()
        finally:
            self._is_read = False
        if not self._held:
            return b""
        piece = self._held.popleft()
        if len(piece) > most:
            self._held.appendleft(piece[most:])
            piece = piece[:most]
        self._size -= len(piece)
        self._changed.set()
        return bytes(piece)

    def end(self, ending: Ending) -> None:
        """Note that no more bytes come; the first reason counts."""
        if self.ending is None:
            self.ending = ending
        self._changed.set()

    def drop(self) -> None:
        """Forget what is unread."""
        self._held.clear()
        self._size = 0

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class MemoryStream:
    """One end of a stream within this process: a `ByteStream`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        return MEMORY

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come, or are not read yet."""
        return None if self._incoming.unread else self._incoming.ending

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        return self._incoming.has_ended

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        return await self._incoming.read(most)

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them."""
        if not await self._outgoing.write(data):
            raise StreamClosedError(MEMORY.transport)

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side."""
        self._outgoing.end(Ending.CLEAN)

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream; see `ByteStream.close`."""
        if reason is CloseReason.DONE:
            self._outgoing.end(Ending.CLEAN)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._read_to_end()
        self._outgoing.end(Ending.ABORTED)
        self._incoming.end(Ending.HERE)
        self._incoming.drop()

    async def _read_to_end(self) -> None:
        with suppress(RuntimeError):  # another task reads, and sees the end by itself
            while await self._incoming.read(MAX_BUFFER_BYTES):
                pass


def memory_streams() -> tuple[MemoryStream, MemoryStream]:
    """Return the two ends of a stream; what one writes, the other reads."""
    there, back = _Pipe(), _Pipe()
    return MemoryStream(back, there), MemoryStream(there, back)
