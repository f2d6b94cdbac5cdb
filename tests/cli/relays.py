"""A relay between two sides that stops passing bytes on at a given one, until it is told to go on.

While it holds the rest back, no exchange can have ended: whatever a test does to a side then
happens in the middle.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress

__all__ = ["Relay"]

SECONDS = 60.0
PIECE = 16 * 1024


class Relay:
    """Takes one connection and passes bytes on both ways, so many at first.

    Args:
        address: the server's, `tcp:HOST:PORT`.
        most: how many bytes are passed on, both ways together, before the rest is held back.
    """

    def __init__(self, address: str, most: int = sys.maxsize) -> None:
        host, _, port = address.removeprefix("tcp:").rpartition(":")
        self._there = host, int(port)
        self._left = most
        self._lock = threading.Lock()
        self._is_holding, self._may_go_on = threading.Event(), threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.asked, self.answered = bytearray(), bytearray()
        """What the client and what the server has sent."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Relay:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both connections, whatever is still held back."""
        self._may_go_on.set()
        self._server.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SECONDS)
        for end in self._ends:
            end.close()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"tcp:127.0.0.1:{self._server.getsockname()[1]}"

    def wait(self) -> None:
        """Wait until it holds bytes back."""
        assert self._is_holding.wait(SECONDS), "so many bytes never came"

    def go_on(self) -> None:
        """Pass on all that is left, and whatever comes."""
        self._may_go_on.set()

    def _accept(self) -> None:
        with suppress(OSError):
            here, _ = self._server.accept()
            there = socket.create_connection(self._there, SECONDS)
            there.settimeout(None)
            self._ends += [here, there]
            for way in ((here, there, self.asked), (there, here, self.answered)):
                thread = threading.Thread(target=self._copy, args=way, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, seen: bytearray) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE):
                seen += piece
                now = self._share(len(piece))
                target.sendall(piece[:now])
                if now < len(piece):
                    self._is_holding.set()
                    self._may_go_on.wait()
                    target.sendall(piece[now:])
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _share(self, size: int) -> int:
        """Return how many of some bytes may be passed on now."""
        with self._lock:
            if self._may_go_on.is_set():
                return size
            now = min(size, self._left)
            self._left -= now
            return now
