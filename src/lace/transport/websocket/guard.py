"""What client and server have in common: limits, silence, and a guard on each connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lace.transport.stream import CLOSE_SECONDS

if TYPE_CHECKING:
    import asyncio

    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_UNREAD_FRAMES",
    "MAX_UNSENT_BYTES",
    "PING_SECONDS",
    "SILENT",
    "Guard",
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


class Guard:
    """Cuts a connection whose peer does not behave, so that none is kept for ever."""

    def __init__(self) -> None:
        self._leaving: asyncio.TimerHandle | None = None

    def watch(self, connection: ClientConnection | ServerConnection) -> None:
        """Look at a connection after bytes came."""
        if connection.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            connection.transport.abort()
        protocol = connection.protocol
        is_over = protocol.close_rcvd is not None or protocol.parser_exc is not None
        if is_over and self._leaving is None:
            abort = connection.transport.abort
            self._leaving = connection.loop.call_later(CLOSE_SECONDS, abort)

    def forget(self) -> None:
        """Note that the connection is gone."""
        if self._leaving is not None:
            self._leaving.cancel()
