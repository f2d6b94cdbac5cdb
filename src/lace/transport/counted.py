"""Listening sockets that count their connections, from accept to close.

A connection that only begins a handshake, or says nothing at all, uses up a server as one
that works does. So the socket counts, not the protocol above it: one too many is closed
before anything is set up for it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.transport.accepting import Acceptor

__all__ = ["CountingSocket"]


class CountingSocket(socket.socket):
    """A listening socket; `count_with` says who counts its connections."""

    _acceptor: Acceptor | None = None
    _place: Callable[[socket.socket], str]
    _open: set[_CountedSocket]

    def count_with(self, acceptor: Acceptor, place: Callable[[socket.socket], str]) -> None:
        """Count connections with an acceptor, by where they come from."""
        self._acceptor, self._place, self._open = acceptor, place, set()

    def end_connections(self) -> None:
        """End all connections that are left, whatever stage they have reached."""
        for opened in self._open:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and where it comes from.

        Raises:
            ConnectionAbortedError: there are too many, and this one is closed. To the
                event loop this is a peer that has left already.
        """
        opened, name = super().accept()
        acceptor = self._acceptor
        if acceptor is None:
            return opened, name
        try:
            place = self._place(opened)
        except OSError:  # it has left already
            opened.close()
            raise ConnectionAbortedError from None
        if not acceptor.admit(place):
            opened.close()
            raise ConnectionAbortedError
        counted = _CountedSocket(opened.family, opened.type, opened.proto, opened.detach())
        self._open.add(counted)

        def release() -> None:
            self._open.discard(counted)
            acceptor.release(place)

        counted.on_close = release
        return counted, name


class _CountedSocket(socket.socket):
    """A connection that tells when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it."""
        super().close()
        tell, self.on_close = self.on_close, None
        if tell is not None:
            tell()
