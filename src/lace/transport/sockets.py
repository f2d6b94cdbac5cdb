"""TCP sockets for the bindings that use them: names looked up, connected, listened on."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import stat
from typing import TYPE_CHECKING, Final

from lace.errors import Place
from lace.transport.connections import CountingSocket
from lace.transport.faults import ConnectionOptionError, connect_error, listen_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.iltp.address import LinkAddress
    from lace.transport.connections import Acceptor


# -- Listening sockets that a service manager has opened and handed over.
#
# Who hands one over has chosen its address, its owner and its mode; here it is only checked to be
# what the server was told to listen on. It is never removed: it is the service manager's.

_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})
_FAMILIES: Final = {
    "unix": frozenset({socket.AF_UNIX}),
    "tcp": _INTERNET,
    "ws": _INTERNET,
    "wss": _INTERNET,
}


def inherited_socket(address: LinkAddress, descriptor: int) -> CountingSocket:
    """Return the socket that a descriptor of this process is, for an address."""
    families = _FAMILIES.get(address.scheme)
    if families is None:
        raise _refused(address, f"a {address.scheme} address takes no socket", "name another")
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise _refused(
            address,
            f"what was handed over as descriptor {descriptor} is no socket",
            "check the socket unit",
        )
    os.set_inheritable(descriptor, False)
    opened = CountingSocket(fileno=descriptor)
    try:
        _check(address, opened, families)
    except BaseException:
        opened.detach()  # it is not ours to close
        raise
    opened.setblocking(False)
    return opened


def _check(
    address: LinkAddress, opened: socket.socket, families: frozenset[socket.AddressFamily]
) -> None:
    if opened.type != socket.SOCK_STREAM:
        raise _refused(address, "the socket is not a stream socket", "use ListenStream=")
    if not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise _refused(address, "the socket does not listen", "use Accept=no")
    if opened.family not in families:
        raise _refused(
            address,
            f"the socket is of another kind ({opened.family.name})",
            "let the address and ListenStream= be the same",
        )
    name = opened.getsockname()
    if opened.family == socket.AF_UNIX:
        is_same = os.path.realpath(name) == os.path.realpath(address.path)
    else:
        name = name[1]
        is_same = address.effective_port in (0, name)
    if not is_same:
        raise _refused(
            address,
            f"the socket listens on {os.fsdecode(name) if isinstance(name, bytes) else name}",
            "let the address and ListenStream= be the same",
        )


def _refused(address: LinkAddress, message: str, hint: str) -> ConnectionOptionError:
    return ConnectionOptionError(message, place=Place(str(address)), hint=hint)


_BACKLOG: Final = 128
_PORT_TRIES: Final = 16
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""What a machine says that resolves `localhost` to ::1 and has no IPv6."""

_GONE: Final = ("::", 1)


async def connect_socket(address: LinkAddress, seconds: float) -> socket.socket:
    """Return a socket that is connected to a host and port; its addresses are tried in turn."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(
                address.host, address.effective_port, type=socket.SOCK_STREAM
            )
            return await _connect_first(found, seconds)
    except (OSError, UnicodeError) as error:
        raise connect_error(address, error, seconds) from error


_Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


async def _connect_first(found: Sequence[_Info], seconds: float) -> socket.socket:
    last: OSError = OSError(errno.EADDRNOTAVAIL, "no address")
    for family, kind, protocol, _, place in found:
        try:
            opened = socket.socket(family, kind, protocol)
        except OSError as error:
            last = error
            continue
        try:
            opened.setblocking(False)
            _keep_alive(opened)
            async with asyncio.timeout(seconds / len(found)):
                await asyncio.get_running_loop().sock_connect(opened, place)
        except OSError as error:
            opened.close()
            last = error
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise last


def _keep_alive(opened: socket.socket) -> None:
    """Let the system notice a peer that is gone: an exchange may wait without a timeout."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def listening_sockets(
    address: LinkAddress, acceptor: Acceptor, inherited: int | None = None
) -> list[CountingSocket]:
    """Return sockets that listen on all addresses of a host, on one port.

    Port 0 picks a free one. `[::]` takes IPv4 connections as well. The acceptor counts
    their connections by host. A socket that was handed over, as a descriptor, is used alone.
    """
    if inherited is not None:
        return [_counted(inherited_socket(address, inherited), acceptor)]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            address.host,
            address.effective_port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        places = list(dict.fromkeys((family, place[0]) for family, _, _, _, place in found))
        port = address.effective_port or 0
        for tries_left in reversed(range(_PORT_TRIES)):
            try:
                opened = _listen_on_all(places, port)
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE or not tries_left:
                    raise
            else:
                return [_counted(one, acceptor) for one in opened]
    except UnicodeError as error:
        raise listen_error(address, OSError(errno.EADDRNOTAVAIL, str(error))) from error
    except OSError as error:
        raise listen_error(address, error) from error
    raise AssertionError("a try returns or raises")


def _counted(opened: CountingSocket, acceptor: Acceptor) -> CountingSocket:
    """Have connections counted by host, and kept alive; those that are accepted inherit it."""
    _keep_alive(opened)
    opened.count_with(acceptor, lambda peer: _plain_host(peer.getpeername()[0]))
    return opened


def _listen_on_all(
    places: Sequence[tuple[socket.AddressFamily, object]], port: int
) -> list[CountingSocket]:
    opened: list[CountingSocket] = []
    absent: OSError | None = None
    try:
        for family, host in places:
            try:
                opened.append(_listen_on(family, str(host), port))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
                continue
            port = opened[0].getsockname()[1]
        if not opened:
            raise absent or OSError(errno.EADDRNOTAVAIL, "no address")
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened


def _listen_on(family: socket.AddressFamily, host: str, port: int) -> CountingSocket:
    # asyncio switches TCP_NODELAY on only where the protocol is named.
    opened = CountingSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            everywhere = ipaddress.IPv6Address(host.partition("%")[0]).is_unspecified
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if everywhere else 1)
        opened.setblocking(False)
        opened.bind((host, port))
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


def peer_host_and_port(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Return the address of the other end, as an `LinkAddress` would have it: without a zone."""
    name = transport.get_extra_info("peername")
    if not name:  # it left before it was looked at
        return _GONE
    return _plain_host(str(name[0])), int(name[1])


def _plain_host(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(address)
