"""Listening sockets that count their connections, from accept to close.

A connection that only begins a handshake, or says nothing at all, uses up a server as one
that works does. So the socket counts, not the protocol above it: one too many is only told so
before anything is set up for it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.transport.accepting import Acceptor, Admission

__all__ = ["CountingSocket"]

REFUSAL_SECONDS: Final = 2.0
"""How long a connection that is turned away may take to hear of it."""


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
            opened.end()

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
        admission = acceptor.admit(place)
        if admission is None:
            with suppress(OSError):
                opened.send(acceptor.farewell)
            opened.close()
            raise ConnectionAbortedError
        counted = _CountedSocket(opened.family, opened.type, opened.proto, opened.detach())
        self._open.add(counted)
        detach = acceptor.attach(counted.fileno(), admission)
        giving_up: asyncio.TimerHandle | None = None
        if admission.is_refused:
            loop = asyncio.get_running_loop()
            giving_up = loop.call_later(REFUSAL_SECONDS, counted.end)

        def release() -> None:
            self._open.discard(counted)
            detach()
            if giving_up is not None:
                giving_up.cancel()

        admission.end = counted.end
        counted.admission, counted.on_close = admission, release
        return counted, name


class _CountedSocket(socket.socket):
    """A connection that notes when the peer sends or takes bytes, and tells when it is closed."""

    admission: Admission | None = None
    on_close: Callable[[], None] | None = None

    def end(self) -> None:
        """End both directions; the owner of the connection sees that as the peer's end."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def recv(self, *arguments: Any) -> bytes:  # noqa: ANN401 - those of a socket
        """Return bytes of the peer."""
        data = super().recv(*arguments)
        self._note(len(data))
        return data

    def recv_into(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Put bytes of the peer into a buffer."""
        size = super().recv_into(*arguments)
        self._note(size)
        return size

    def send(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Send bytes, as many as the system takes."""
        size = super().send(*arguments)
        self._note(size)
        return size

    def sendmsg(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Send several pieces of bytes, as many as the system takes."""
        size = super().sendmsg(*arguments)
        self._note(size)
        return size

    def _note(self, size: int) -> None:
        if size and self.admission is not None:
            self.admission.heard = time.monotonic()

    def close(self) -> None:
        """Close it."""
        super().close()
        tell, self.on_close = self.on_close, None
        if tell is not None:
            tell()
