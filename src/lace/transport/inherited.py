"""Listening sockets that a service manager has opened and handed over.

Who hands one over has chosen its address, its owner and its mode; here it is only checked to be
what the server was told to listen on. It is never removed: it is the service manager's.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING, Final

from lace.errors import Place
from lace.transport.counted import CountingSocket
from lace.transport.faults import ConnectionOptionError

if TYPE_CHECKING:
    from lace.iltp.address import Address

__all__ = ["inherited_socket"]

_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})
_FAMILIES: Final = {
    "unix": frozenset({socket.AF_UNIX}),
    "tcp": _INTERNET,
    "ws": _INTERNET,
    "wss": _INTERNET,
}


def inherited_socket(address: Address, descriptor: int) -> CountingSocket:
    """Return the socket that a descriptor of this process is, for an address.

    Raises:
        ConnectionOptionError: it is no listening socket, or one of another address.
    """
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
    address: Address, opened: socket.socket, families: frozenset[socket.AddressFamily]
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


def _refused(address: Address, message: str, hint: str) -> ConnectionOptionError:
    return ConnectionOptionError(message, place=Place(str(address)), hint=hint)
