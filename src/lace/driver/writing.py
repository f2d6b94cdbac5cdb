"""What a party has to say, as bytes on its stream: made in its thread, written by the event loop.

Writing does not wait for reading. A peer that takes nothing for too long ends the exchange.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lace.driver.messages import End
from lace.errors import LaceError
from lace.interlacing.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lace.driver.bridge import Outbound
    from lace.driver.party import Party
    from lace.driver.party_thread import PartyThread
    from lace.transport.stream import ByteStream

__all__ = ["Writing"]


async def _ignore(_error: LaceError) -> None:
    """Let an error pass: the exchange is over."""


def _nothing() -> None:
    """Wake nobody: the exchange is over."""


class Writing:
    """The way out of one side.

    Args:
        party: the side.
        stream: the connection.
        outbound: makes bytes of messages.
        thread: where the party does everything.
        at_once: about how many bytes are given to the stream at once.
        patience: how many seconds the peer may take for these.
        fail: ends the exchange because of an error.
        wake: has the reader look again; called in the event loop.
    """

    def __init__(
        self,
        party: Party,
        stream: ByteStream,
        outbound: Outbound,
        thread: PartyThread,
        *,
        at_once: int,
        patience: int,
        fail: Callable[[LaceError], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._party, self._stream, self._outbound = party, stream, outbound
        self._thread, self._at_once, self._patience = thread, at_once, patience
        self._fail, self._wake = fail, wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pieces = self._outgoing()
        self._has_said_all = False
        self._to_write = asyncio.Event()
        self.sent = 0
        """The bytes that were sent."""

    def begin_soon(self) -> None:
        """Look for what there is to write; called in the event loop."""
        self._to_write.set()

    async def run(self) -> None:
        """Write until the party has said all, or nobody takes it any more."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._write_all()
        except LaceError as error:  # what this side says cannot be said on a stream
            await self._fail(error)
            self._wake()

    def release(self) -> None:
        """Abandon the pending write: the exchange is over."""
        self._pieces = iter(())
        self._fail, self._wake = _ignore, _nothing

    async def _write_all(self) -> None:
        while True:
            self._to_write.clear()
            pieces, is_end = await self._thread.do(self._gather)
            if pieces:
                try:
                    async with asyncio.timeout(self._patience):
                        await self._stream.write(pieces)
                except TimeoutError:
                    await self._give_up()
                    return
                except LaceError:
                    await self._drop_all()
                    return
                self.sent += len(pieces)
            if is_end:
                return
            if not pieces:
                await self._to_write.wait()

    async def _drop_all(self) -> None:
        """Go on without a peer that takes anything: its end is read as well, and says what it is.

        Only a batch that is being sent would wait for its own end for ever.
        """
        while not self._party.machine.is_closed:
            self._to_write.clear()
            await self._thread.do(self._party.cut_off)
            self._wake()
            if not self._party.machine.is_closed:
                await self._to_write.wait()

    async def _give_up(self) -> None:
        """End because the peer takes nothing; it may have nothing left to send, and stay."""
        failure = InterlaceFailure(
            Failure.PHASE_TIMEOUT,
            f"the peer took less than {self._at_once // 1024} KiB in {self._patience} s",
            hint="raise phase_timeout_seconds if the peer is only slow",
        )
        await self._fail(failure)
        self._wake()

    def _gather(self) -> tuple[bytes, bool]:
        """Return the next bytes to send, about as many as are sent at once."""
        pieces: list[bytes] = []
        size = 0
        while size < self._at_once:
            piece = next(self._pieces, None)
            if piece is None:
                if self._has_said_all:
                    self._wake_soon()  # a reader may wait for what will not come
                    return b"".join(pieces), True
                self._pieces = self._outgoing()
                break
            pieces.append(piece)
            size += len(piece)
        self._wake_soon()
        return b"".join(pieces), False

    def _outgoing(self) -> Iterator[bytes]:
        """Yield the bytes of what is to be sent now, as they are made."""
        for message in self._party.messages():
            if isinstance(message, End):
                self._has_said_all = True
                return
            size = 0
            for piece in self._outbound.pieces(message):
                size += len(piece)
                yield piece
            self._party.count_sent(message, size)

    def _wake_soon(self) -> None:
        """Have the reader look again: what was sent may have made room for what came."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)
