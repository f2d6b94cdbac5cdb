"""Listening for WebSockets: which requests are upgraded, and what a client proves."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from websockets.asyncio.server import ServerConnection, serve

from lace.iltp.address import INTERLACE_PATH
from lace.transport.connections import Bound
from lace.transport.duplex import ABORT_SECONDS, OPEN_SECONDS, WRITE_HIGH_WATER, Proven
from lace.transport.faults import ConnectionOptionError
from lace.transport.sockets import listening_sockets, peer_host_and_port
from lace.transport.tls import certificate_fingerprint, channel_digest
from lace.transport.websocket.stream import (
    MAX_FRAME_BYTES,
    MAX_UNREAD_FRAMES,
    PING_SECONDS,
    SILENT,
    GuardedConnection,
    WebSocketStream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from websockets.http11 import Request, Response

    from lace.iltp.address import LinkAddress
    from lace.transport.connections import Acceptor
    from lace.transport.tls import ServerTls


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
