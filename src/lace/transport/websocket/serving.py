"""Listening for WebSockets: what is refused before the upgrade, and what a client proves."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from websockets.asyncio.server import ServerConnection, serve

from lace.transport.accepting import Bound
from lace.transport.faults import ConnectionOptionError
from lace.transport.sockets import listening_sockets, peer_host_and_port
from lace.transport.stream import ABORT_SECONDS, OPEN_SECONDS, WRITE_HIGH_WATER, Proven
from lace.transport.tls import certificate_fingerprint, channel_digest
from lace.transport.upgrade import FULL
from lace.transport.websocket.guard import (
    MAX_FRAME_BYTES,
    MAX_UNREAD_FRAMES,
    PING_SECONDS,
    SILENT,
    GuardedConnection,
)
from lace.transport.websocket.stream import WebSocketStream

if TYPE_CHECKING:
    from websockets.http11 import Request, Response

    from lace.iltp.address import Address
    from lace.transport.accepting import Acceptor
    from lace.transport.tls import ServerTls
    from lace.transport.upgrade import UpgradeRules

__all__ = ["listen_websocket"]


class _ServerSide(GuardedConnection, ServerConnection):
    """A server's connection that is guarded."""


async def listen_websocket(
    address: Address,
    acceptor: Acceptor,
    *,
    rules: UpgradeRules,
    tls: ServerTls | None,
    channel_certificate: bytes | None = None,
    inherited: int | None = None,
) -> Bound:
    """Listen on an address, and give each connection to the acceptor.

    Args:
        address: where.
        acceptor: who takes the connections.
        rules: which requests are taken.
        tls: certificate and key, for `wss`.
        channel_certificate: the certificate of a proxy that ends TLS before this server.
        inherited: the descriptor of a listening socket that was handed over.

    Raises:
        ListenError: the address cannot be had.
    """
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
    bound: Address, connection: ServerConnection, tls: ServerTls | None, channel: str | None
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
