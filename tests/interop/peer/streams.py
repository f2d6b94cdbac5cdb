"""Addresses, and the byte streams behind them: sockets, pipes, somebody else's WebSocket."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import websocket

from tests.interop.peer.text import PeerError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

__all__ = ["Address", "PipeStream", "SocketStream", "Stream", "WebSocketStream", "connect", "parse"]

SECONDS = 30.0
PIECE = 65536
DEFAULT_PORTS = {"tcp": 4790, "ws": 80, "wss": 443}
_NETWORK = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#\[\]]+)(?::([1-9][0-9]{0,4}))?(/interlace)?")


class Stream(Protocol):
    """Bytes in both directions; the ends are independent."""

    certificate: bytes | None
    concurrent: bool
    """Whether one thread may write while another reads."""

    def read(self) -> bytes:
        """Wait for bytes; empty at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Send all bytes."""
        ...

    def end(self) -> None:
        """Say that nothing more is written."""
        ...

    def close(self) -> None:
        """Give the stream up."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    """A standard address string, taken apart."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""


def parse(text: str) -> Address:
    """Read an address string of 060."""
    if text == "stdio":
        return Address("stdio")
    scheme, _, rest = text.partition(":")
    if scheme == "unix" and rest.startswith("/"):
        return Address("unix", path=rest)
    match = _NETWORK.fullmatch(rest)
    if scheme not in DEFAULT_PORTS or match is None or (scheme == "tcp" and match[3]):
        raise PeerError(f"not a standard address: {text!r}")
    port = int(match[2]) if match[2] else DEFAULT_PORTS[scheme]
    if port > 65535:
        raise PeerError(f"not a port: {text!r}")
    return Address(scheme, match[1].strip("[]"), port, "" if scheme == "tcp" else "/interlace")


class SocketStream:
    """A connected stream socket."""

    certificate: bytes | None = None
    concurrent = True

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(SECONDS)
        self._socket = connected

    def read(self) -> bytes:
        try:
            return self._socket.recv(PIECE)
        except ConnectionResetError:
            return b""

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class PipeStream:
    """Two pipes: one to read, one to write."""

    certificate: bytes | None = None
    concurrent = True

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target = source, target

    def read(self) -> bytes:
        # One system call: a buffered read would wait until it has all that it asks for.
        return self._source.read(PIECE) or b""

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._target.write(view) :]

    def end(self) -> None:
        with suppress(OSError):
            self._target.close()

    def close(self) -> None:
        self.end()
        self._source.close()


class WebSocketStream:
    """A connection of the `websocket-client` package."""

    concurrent = False  # a TLS connection is not for two threads

    def __init__(self, address: Address, authority: Path | None) -> None:
        name = f"[{address.host}]" if ":" in address.host else address.host
        url = f"{address.scheme}://{name}:{address.port}{address.path}"
        options = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": str(authority)} if authority else {}
        self._connection = websocket.create_connection(
            url, timeout=SECONDS, sslopt=options, suppress_origin=True
        )
        below = self._connection.sock
        self.certificate = (
            below.getpeercert(binary_form=True) if isinstance(below, ssl.SSLSocket) else None
        )

    def read(self) -> bytes:
        while True:
            try:
                opcode, data = self._connection.recv_data()
            except (websocket.WebSocketConnectionClosedException, ConnectionResetError):
                return b""
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return b""
            if opcode != websocket.ABNF.OPCODE_BINARY:
                raise PeerError("a WebSocket message that is not binary [060-75]")
            if data:
                return bytes(data)

    def write(self, data: bytes) -> None:
        # In pieces that have nothing to do with blocks or records: they carry no meaning.
        for at in range(0, len(data), 1000):
            try:
                self._connection.send_binary(data[at : at + 1000])
            except websocket.WebSocketException as error:
                raise OSError("the WebSocket is closed") from error

    def end(self) -> None:
        with suppress(OSError, websocket.WebSocketException):
            self._connection.send_close()

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.close()


def connect(text: str, *, authority: Path | None = None) -> Stream:
    """Open the stream of an address."""
    address = parse(text)
    if address.scheme == "unix":
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(address.path)
        return SocketStream(connected)
    if address.scheme == "tcp":
        return SocketStream(socket.create_connection((address.host, address.port), SECONDS))
    if address.scheme in ("ws", "wss"):
        return WebSocketStream(address, authority)
    raise PeerError(f"{text} is not an address to connect to")
