"""Unix sockets: the system says which user is at the other end (060).

A socket is for its owner alone from its first moment. A socket file that a dead server
left is replaced; nothing else ever is. Who starts at the same time waits, holding a lock
on the folder, so that no server takes away the socket of another.

Apart from `listening`: one module for each transport.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.errors import Place
from lace.iltp.address import MAX_UNIX_PATH_BYTES
from lace.transport.connections import Bound, CountingSocket
from lace.transport.duplex import Proven, SocketProtocol
from lace.transport.faults import ListenError, connect_error, listen_error
from lace.transport.sockets import inherited_socket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.iltp.address import LinkAddress
    from lace.record.ids import Verifier
    from lace.transport.connections import Acceptor
    from lace.transport.duplex import ByteStream


_BACKLOG: Final = 128
_NOT_FOR_OTHERS: Final = 0o177
_LOCK_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.02
_LINUX_CREDENTIALS: Final = struct.Struct("3i")
_BSD_CREDENTIALS: Final = struct.Struct("2Ih16I")
_BSD_LEVEL: Final = 0
_BSD_PEER: Final = 1


def peer_uid(opened: socket.socket) -> int | None:
    """Return the user of the process at the other end; None where the system cannot say."""
    try:
        option = getattr(socket, "SO_PEERCRED", None)
        if option is not None:
            raw = opened.getsockopt(socket.SOL_SOCKET, option, _LINUX_CREDENTIALS.size)
            return int(_LINUX_CREDENTIALS.unpack(raw)[1])
        raw = opened.getsockopt(_BSD_LEVEL, _BSD_PEER, _BSD_CREDENTIALS.size)
        return int(_BSD_CREDENTIALS.unpack(raw)[1])
    except (OSError, struct.error):
        return None


def _prove(
    address: LinkAddress, opened: socket.socket, verifiers: Mapping[int, Verifier]
) -> Proven:
    uid = peer_uid(opened)
    return Proven(
        transport=address.transport_text,
        peer=None if uid is None else verifiers.get(uid),
        peer_uid=uid,
        place=_place_of(opened),
    )


def _place_of(opened: socket.socket) -> str:
    return f"uid {peer_uid(opened)}"


async def connect_unix(
    address: LinkAddress, *, verifiers: Mapping[int, Verifier], seconds: float
) -> ByteStream:
    """Return a stream to a server; `verifiers` says who the users are."""
    loop = asyncio.get_running_loop()
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        async with asyncio.timeout(seconds):
            await loop.sock_connect(opened, address.path)
        proven = _prove(address, opened, verifiers)
        transport, protocol = await loop.create_unix_connection(SocketProtocol, sock=opened)
    except OSError as error:
        opened.close()
        raise connect_error(address, error, seconds) from error
    except BaseException:
        opened.close()
        raise
    return protocol.stream(transport, proven)


async def listen_unix(
    address: LinkAddress,
    acceptor: Acceptor,
    *,
    verifiers: Mapping[int, Verifier],
    inherited: int | None = None,
) -> Bound:
    """Listen on a path, and give each connection to the acceptor.

    A socket that was handed over, as a descriptor, stays when this server stops.
    """
    path = Path(address.path)
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise ListenError(
            f"the path of a socket has at most {MAX_UNIX_PATH_BYTES} bytes",
            place=Place(str(address)),
            rule="060-03",
            hint="choose a shorter one, such as unix:/tmp/lace.sock",
        )
    mine: os.stat_result | None = None
    try:
        if inherited is not None:
            opened = inherited_socket(address, inherited)
        else:
            opened, mine = await _listen_in_turn(address, path)
    except OSError as error:
        raise listen_error(address, error) from error

    def made(protocol: SocketProtocol, transport: asyncio.Transport) -> None:
        proven = _prove(address, transport.get_extra_info("socket"), verifiers)
        acceptor.take(protocol.stream(transport, proven), transport)

    opened.count_with(acceptor, _place_of)
    # A Unix server of asyncio may remove the socket by itself; whose it is, it does not know.
    server = await asyncio.get_running_loop().create_server(
        lambda: SocketProtocol(made), sock=opened
    )

    def stop() -> None:
        with suppress(OSError):
            if mine is not None and os.path.samestat(path.lstat(), mine):
                path.unlink()
        server.close()

    return Bound(address, stop, server.wait_closed)


async def _listen_in_turn(
    address: LinkAddress, path: Path
) -> tuple[CountingSocket, os.stat_result]:
    """Listen while no other server of this folder is at it."""
    for tries_left in reversed(range(_LOCK_TRIES)):
        try:
            with _folder_locked(path.parent):
                return _listen_on(address, path)
        except BlockingIOError:
            if not tries_left:
                break
        await asyncio.sleep(_PAUSE_SECONDS)
    raise ListenError(
        "another process holds the folder of the socket locked",
        place=Place(str(address)),
        hint="try again, or choose another folder",
    )


@contextmanager
def _folder_locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _listen_on(address: LinkAddress, path: Path) -> tuple[CountingSocket, os.stat_result]:
    """Return the socket, and its file as it was made."""
    _remove_stale(address, path)
    opened = CountingSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        # Changing the mode afterwards would leave a moment in which others could connect.
        before = os.umask(_NOT_FOR_OTHERS)
        try:
            opened.bind(str(path))
        finally:
            os.umask(before)
        opened.listen(_BACKLOG)  # still locked: until now it looks like a dead server's
        return opened, path.lstat()
    except BaseException:
        opened.close()
        raise


def _remove_stale(address: LinkAddress, path: Path) -> None:
    """Remove the socket of a server that is gone."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError(
            "there is a file that is not a socket",
            place=Place(str(address)),
            hint="choose another path, or remove the file yourself",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # its queue is full: it lives
        except FileNotFoundError:
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
