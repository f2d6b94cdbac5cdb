"""TCP: host and port, without any proof of who is there and without encryption (060).

On the side that connects, `Transport` is the address as it was written; on the side that
accepts it is the host and port of the peer.

Apart from `listening`: one module for each transport.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from lace.iltp.address import LinkAddress
from lace.transport.connections import Bound
from lace.transport.duplex import Proven, SocketProtocol
from lace.transport.sockets import connect_socket, listening_sockets, peer_host_and_port

if TYPE_CHECKING:
    from lace.transport.connections import Acceptor
    from lace.transport.duplex import ByteStream


async def connect_tcp(address: LinkAddress, *, seconds: float) -> ByteStream:
    """Return a stream to a server."""
    opened = await connect_socket(address, seconds)
    transport, protocol = await asyncio.get_running_loop().create_connection(
        SocketProtocol, sock=opened
    )
    proven = Proven(transport=address.transport_text, place=address.host)
    return protocol.stream(transport, proven)


async def listen_tcp(
    address: LinkAddress, acceptor: Acceptor, *, inherited: int | None = None
) -> Bound:
    """Listen on an address, and give each connection to the acceptor."""
    sockets = await listening_sockets(address, acceptor, inherited)
    bound = replace(address, port=sockets[0].getsockname()[1])

    def made(protocol: SocketProtocol, transport: asyncio.Transport) -> None:
        host, port = peer_host_and_port(transport)
        remote = LinkAddress(scheme="tcp", host=host, port=port)
        proven = Proven(transport=remote.transport_text, place=host)
        acceptor.take(protocol.stream(transport, proven), transport)

    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: SocketProtocol(made), sock=one) for one in sockets]

    def stop() -> None:
        for server in servers:
            server.close()

    async def finish() -> None:
        for server in servers:
            await server.wait_closed()

    return Bound(bound, stop, finish)
