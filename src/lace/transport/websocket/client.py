"""Connecting to a WebSocket server, and what its handshake proves."""

from __future__ import annotations

import ssl
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus

from lace.errors import Place
from lace.transport.duplex import WRITE_HIGH_WATER, Proven
from lace.transport.faults import ServerFullError, TransportError, connect_error
from lace.transport.sockets import connect_socket
from lace.transport.tls import channel_digest
from lace.transport.websocket.server import FULL, with_port
from lace.transport.websocket.stream import (
    MAX_FRAME_BYTES,
    MAX_UNREAD_FRAMES,
    PING_SECONDS,
    SILENT,
    GuardedConnection,
    WebSocketStream,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.iltp.address import LinkAddress
    from lace.transport.duplex import ByteStream
    from lace.transport.tls import ClientTls


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
