"""WebSockets, with and without TLS: the stream in binary messages, split anywhere (060).

How bytes are split into frames and messages means nothing. Text messages are refused.
Before the upgrade a server looks at Host, Origin and path, because any web page can make
a browser connect to it. Nothing is compressed, so that sizes tell nothing about secrets
and small messages cannot become large ones. Redirects and proxies are not followed.

Apart from `listening`: it needs websockets, which is loaded where it is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)
from websockets.protocol import State

from lace.errors import Place
from lace.iltp.address import INTERLACE_PATH
from lace.transport.connections import Bound
from lace.transport.duplex import (
    ABORT_SECONDS,
    CLOSE_SECONDS,
    OPEN_SECONDS,
    PIECE_BYTES,
    WRITE_HIGH_WATER,
    CloseReason,
    Ending,
    Proven,
    has_hung_up,
)
from lace.transport.faults import (
    ConnectionOptionError,
    ServerFullError,
    StreamClosedError,
    TransportError,
    connect_error,
)
from lace.transport.sockets import connect_socket, listening_sockets, peer_host_and_port
from lace.transport.tls import certificate_fingerprint, channel_digest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from websockets.http11 import Request, Response

    from lace.iltp.address import LinkAddress
    from lace.transport.connections import Acceptor
    from lace.transport.duplex import ByteStream
    from lace.transport.tls import ClientTls, ServerTls


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


# -- Which HTTP requests become WebSockets: Host, Origin and path, and the words of a refusal.
#
# Any web page can make a browser connect to a server on its user's machine, and can give
# that machine a name of its own (DNS rebinding). A browser says both: the page in Origin,
# the name in Host. So a request with an Origin is refused unless it was allowed, and Host
# has to be a name of this server.

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_.-]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status and what to say with it."""

    status: int
    text: str


FULL: Final = Refusal(503, "This server is full; try again later.\n")
"""What a server says that has as many connections as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRules:
    """Which requests a server takes.

    Attributes:
        address: where it listens.
        hosts: further names that it has, in small letters.
        origins: web pages that may connect, such as `https://example.com`.
    """

    address: LinkAddress
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def bound(self, address: LinkAddress, port: int) -> LinkAddress:
        """Return the address with its true port, where any free one was asked for."""
        return replace(address, port=port) if address.port == 0 else address

    def refusal(self, path: str, headers: Callable[[str], Sequence[str]]) -> Refusal | None:
        """Return why a request is refused, or None."""
        if not self._has_host(headers("Host")):
            return Refusal(403, "This server does not have that name.\n")
        if not self._has_origin(headers("Origin")):
            return Refusal(403, "Web pages may not connect to this server.\n")
        if path != INTERLACE_PATH:
            return Refusal(404, f"This is a Lace server; its only path is {INTERLACE_PATH}.\n")
        upgrade = ",".join(headers("Upgrade")).lower()
        if "websocket" not in (word.strip() for word in upgrade.split(",")):
            scheme = self.address.scheme
            return Refusal(
                426,
                "This is a Lace server, and it speaks WebSocket only.\n"
                f"Connect with: lace sync {scheme}:HOST{INTERLACE_PATH}\n",
            )
        return None

    def _has_origin(self, values: Sequence[str]) -> bool:
        return not values or (len(values) == 1 and values[0].lower() in self.origins)

    def _has_host(self, values: Sequence[str]) -> bool:
        found = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if not found:
            return False
        host = found[1].strip("[]").lower().removesuffix(".")
        if host in ("localhost", self.address.host.lower()) or host in self.hosts:
            return True
        if _is_ip_address(host):  # no page can give itself a number for a name
            return True
        if not self._listens_everywhere():
            return False
        # TLS has checked the name already; without it, this machine's own is known.
        return self.address.scheme == "wss" or host == socket.gethostname().lower()

    def _listens_everywhere(self) -> bool:
        try:
            return ipaddress.ip_address(self.address.host).is_unspecified
        except ValueError:
            return False


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def with_port(address: LinkAddress) -> str:
    """Return host and port as a URL has them."""
    host = f"[{address.host}]" if address.is_ipv6 else address.host
    return f"{host}:{address.effective_port}"


class _ServerSide(GuardedConnection, ServerConnection):
    """A server's connection that is guarded."""


async def listen_websocket(
    address: LinkAddress,
    acceptor: Acceptor,
    *,
    rules: UpgradeRules,
    tls: ServerTls | None,
    channel_certificate: bytes | None = None,
    inherited: int | None = None,
) -> Bound:
    """Listen on an address, and give each connection to the acceptor."""
    if tls and channel_certificate:
        raise ConnectionOptionError(
            "a server that ends TLS itself has no proxy's certificate",
            hint="leave --channel-cert out",
        )
    acceptor.farewell = b""
    sockets = await listening_sockets(address, acceptor, inherited)
    bound = rules.bound(address, sockets[0].getsockname()[1])
    certificate = tls.certificate if tls else channel_certificate
    channel = channel_digest(certificate) if certificate else None

    def check(connection: ServerConnection, request: Request) -> Response | None:
        refusal = rules.refusal(request.path, request.headers.get_all)
        admission = acceptor.admission_of(connection.transport)
        if refusal is None and admission is not None and admission.is_refused:
            refusal = FULL
        return connection.respond(refusal.status, refusal.text) if refusal else None

    async def handle(connection: ServerConnection) -> None:
        proven = _prove_client(bound, connection, tls, channel)
        stream = WebSocketStream(connection, proven)
        await asyncio.wait({acceptor.take(stream, connection.transport)})

    servers = [
        await serve(
            handle,
            sock=one,
            compression=None,
            process_request=check,
            server_header=None,
            open_timeout=OPEN_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=None,
            close_timeout=None,  # a stream has its own
            max_size=(None, MAX_FRAME_BYTES),
            max_queue=MAX_UNREAD_FRAMES,
            write_limit=WRITE_HIGH_WATER,
            logger=SILENT,
            create_connection=_ServerSide,
            ssl=tls.context if tls else None,
        )
        for one in sockets
    ]

    def stop() -> None:
        for server in servers:
            server.close(close_connections=False)

    async def finish() -> None:
        for one in sockets:  # those that never came to a handler
            one.end_connections()
        with suppress(TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                for server in servers:
                    await server.wait_closed()

    return Bound(bound, stop, finish)


def _prove_client(
    bound: LinkAddress, connection: ServerConnection, tls: ServerTls | None, channel: str | None
) -> Proven:
    certificate = None
    secured = connection.transport.get_extra_info("ssl_object")
    if tls and isinstance(secured, ssl.SSLObject):
        certificate = secured.getpeercert(binary_form=True)
    clients = tls.clients if tls else {}
    return Proven(
        transport=bound.transport_text,
        encrypted=isinstance(secured, ssl.SSLObject),
        peer=clients.get(certificate_fingerprint(certificate)) if certificate else None,
        channel=channel,
        place=peer_host_and_port(connection.transport)[0],
    )


_STATUS_HINTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        403: "connect by the host name that the server listens on",
        404: "check host and port: no Lace server answers there",
        503: "try again later",
    }
)


def _client_side(lost: list[Exception]) -> type[ClientConnection]:
    class ClientSide(GuardedConnection, ClientConnection):
        """A client's connection that is guarded, and notes what broke it."""

        def connection_lost(self, exc: Exception | None) -> None:
            """End."""
            super().connection_lost(exc)
            if exc is not None:
                lost.append(exc)

    return ClientSide


class _DirectConnect(connect):
    """Opens a connection without following redirects: the address is who was asked for."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Refuse."""
        return exc


async def connect_websocket(
    address: LinkAddress, *, tls: ClientTls | None, seconds: float
) -> ByteStream:
    """Return a stream to a server."""
    opened = await connect_socket(address, seconds)
    lost: list[Exception] = []
    try:
        connection = await _DirectConnect(
            f"{address.scheme}://{with_port(address)}{address.path}",
            compression=None,
            user_agent_header=None,
            proxy=None,
            open_timeout=seconds,
            ping_interval=PING_SECONDS,
            ping_timeout=None,
            close_timeout=None,  # a stream has its own
            max_size=(None, MAX_FRAME_BYTES),
            max_queue=MAX_UNREAD_FRAMES,
            write_limit=WRITE_HIGH_WATER,
            logger=SILENT,
            create_connection=_client_side(lost),
            sock=opened,
            ssl=tls.context if tls else None,
        )
    except BaseException as error:
        opened.close()
        if isinstance(error, InvalidMessage) and lost:
            raise connect_error(address, lost[0], seconds) from error
        if isinstance(error, InvalidHandshake):
            raise _handshake_error(address, error) from error
        if isinstance(error, OSError):
            raise connect_error(address, error, seconds) from error
        raise
    return WebSocketStream(connection, _prove_server(address, connection, tls))


def _prove_server(
    address: LinkAddress, connection: ClientConnection, tls: ClientTls | None
) -> Proven:
    channel, encrypted, is_pinned = None, False, False
    secured = connection.transport.get_extra_info("ssl_object")
    if tls and isinstance(secured, ssl.SSLObject):
        certificate = secured.getpeercert(binary_form=True)
        is_verified = tls.context.verify_mode is ssl.CERT_REQUIRED and tls.context.check_hostname
        if certificate:
            channel, encrypted = channel_digest(certificate), is_verified
            is_pinned = tls.is_pinned
    return Proven(
        transport=address.transport_text,
        encrypted=encrypted,
        is_pinned=is_pinned,
        channel=channel,
        place=address.host,
    )


def _handshake_error(address: LinkAddress, error: InvalidHandshake) -> TransportError:
    place = Place(str(address))
    if not isinstance(error, InvalidStatus):
        also = "has too many connections"
        if address.scheme == "wss":  # it cannot say so: the connection ends without an alert
            also += " or does not take this client's certificate"
        return TransportError(
            "the server does not answer as a WebSocket server does",
            place=place,
            hint=f"check host and port; a server that {also} ends one like this too",
        )
    status = error.response.status_code
    if status == FULL.status and (error.response.body or b"").startswith(FULL.text.encode()):
        return ServerFullError(place)
    hint = _STATUS_HINTS.get(status, "check that a Lace server listens there")
    if 300 <= status < 400:
        hint = "the server sends clients elsewhere; connect to that address itself"
    return TransportError(
        f"the server refused the connection (HTTP {status})", place=place, hint=hint
    )
