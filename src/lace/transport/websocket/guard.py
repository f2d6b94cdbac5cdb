"""What client and server have in common: limits, silence, and a guard on each connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from websockets.asyncio.connection import Connection

from lace.transport.stream import CLOSE_SECONDS

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_UNREAD_FRAMES",
    "MAX_UNSENT_BYTES",
    "PING_SECONDS",
    "SILENT",
    "GuardedConnection",
]

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
