"""What can go wrong with a connection, and the one line that says so.

An error of the system becomes an error of Lace with the address, what happened, and what
to do next. Nothing of it is sent to the peer.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final

from lace.errors import Place, ProtocolError, UsageError

if TYPE_CHECKING:
    from lace.iltp.address import LinkAddress


class TransportError(ProtocolError):
    """A connection cannot be made, or carries what it must not."""


class ServerFullError(TransportError):
    """The server has as many links as it may have, and says so."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__("the server is full", place=place, hint="try again later")


class ListenError(TransportError):
    """An address cannot be listened on."""

    exit_code = 3


class StreamClosedError(TransportError):
    """Bytes for a stream that takes none any more."""

    def __init__(self, transport: str) -> None:
        super().__init__("the connection is closed", place=Place(transport))


class CommandError(UsageError):
    """A command that cannot be started as the other end of a stream."""


class ConnectionOptionError(UsageError):
    """Options that the kind of address does not have, or lacks."""


_UNREACHABLE: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL}
)
_TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FILES_HINT: Final = "close other programs, or allow more open files with `ulimit -n`"
_HOST_MISMATCH: Final = frozenset({62, 64})
_EXPIRED: Final = frozenset({9, 10})
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})


def connect_error(address: LinkAddress, error: Exception, seconds: float) -> TransportError:
    """Return the error for a connection that could not be made.

    Args:
        address: where to.
        error: what the system said.
        seconds: how long an answer was waited for.
    """
    message, hint = _why_not_connected(address, error, seconds)
    return TransportError(message, place=Place(str(address)), hint=hint)


def _why_not_connected(address: LinkAddress, error: Exception, seconds: float) -> tuple[str, str]:
    match error:
        case socket.gaierror():
            return _why_not_found(error)
        case ssl.SSLError():
            return _why_no_tls(address, error)
        case TimeoutError():
            return f"no answer within {seconds:g} s", "check the address and any firewall"
        case UnicodeError():
            return "no host can have this name", "check the spelling"
        case OSError() if address.scheme == "unix":
            return _why_no_unix_socket(error)
        case ConnectionResetError() if address.scheme == "wss":
            return (
                "the server closed the connection instead of speaking TLS",
                f"check the port, or that the server is not one of ws:{address.host}",
            )
        case OSError():
            return _why_no_socket(error)
    return f"the connection failed: {type(error).__name__}", "try again"


def _why_not_found(error: socket.gaierror) -> tuple[str, str]:
    if error.errno == socket.EAI_AGAIN:
        return (
            "the host's name cannot be looked up now",
            "check the network, or write the host's IP address",
        )
    return "there is no host of that name", "check the spelling, or write its IP address"


def _why_no_socket(error: OSError) -> tuple[str, str]:
    if error.errno == errno.ECONNREFUSED:
        return (
            "nobody listens there (connection refused)",
            "check host and port, and that `lace serve` is running there",
        )
    if error.errno in _UNREACHABLE:
        return "the host cannot be reached from here", "check the address and the network"
    if isinstance(error, ConnectionError):
        return (
            "the other side closed the connection while it was being opened",
            "check that a Lace server of this kind listens there, and not too many are connected",
        )
    if error.errno in _TOO_MANY_FILES:
        return "this process has too many open files", _FILES_HINT
    return f"the connection failed: {_said(error)}", "check the address and the network"


def _why_no_unix_socket(error: OSError) -> tuple[str, str]:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "there is no such socket", "check the path, and that `lace serve` is running"
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens there any more", "start `lace serve` again"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            "this user may not connect to it",
            "a socket of Lace is for the user who serves it; run as that user",
        )
    if error.errno in (errno.ENOTSOCK, errno.EPROTOTYPE):
        return "this is not a socket that Lace serves", "check the path"
    if error.errno == errno.EAGAIN:
        return "the server is busy", "try again later"
    return _why_no_socket(error)


def _why_no_tls(address: LinkAddress, error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code in _HOST_MISMATCH:
            return (
                f"the server's certificate is not for {address.host}",
                "connect by a name that the certificate has",
            )
        if code in _EXPIRED:
            return (
                "the server's certificate is not valid now",
                "renew it, or check this machine's clock",
            )
        if code in _UNKNOWN_ISSUER:
            return (
                "the server's certificate comes from nobody who is trusted here",
                "name the authority's certificate with --ca FILE, or pin the server's key with "
                "--peer V --tls-pin",
            )
        return f"the server's certificate is refused: {error.verify_message}", "ask for a new one"
    reason = str(error.reason or "")
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return (
            "the server does not speak TLS there",
            f"connect to ws:{address.host}, or another port",
        )
    if "UNSUPPORTED_PROTOCOL" in reason or "PROTOCOL_VERSION" in reason:
        return "the server has no TLS 1.2 or newer", "ask for a newer server"
    if "ALERT" in reason:
        return (
            f"the server refused the TLS connection ({reason.lower().replace('_', ' ')})",
            "if it asks for a certificate, name one with --tls-cert and --tls-key",
        )
    return f"TLS failed ({reason.lower().replace('_', ' ') or 'no reason given'})", "try again"


def listen_error(address: LinkAddress, error: OSError) -> ListenError:
    """Return the error for an address that cannot be listened on."""
    message, hint = _why_not_listening(address, error)
    return ListenError(message, place=Place(str(address)), hint=hint)


def _why_not_listening(address: LinkAddress, error: OSError) -> tuple[str, str]:
    if isinstance(error, socket.gaierror):
        return _why_not_found(error)
    if error.errno in _TOO_MANY_FILES:
        return "this process has too many open files", _FILES_HINT
    if address.scheme == "unix":
        return _why_no_path(error)
    port = address.effective_port
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use",
            "end the other server, choose another port, or write port 0 for any free one",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not listen on port {port}", "choose a port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            "this machine does not have that address",
            "choose one of its own; 0.0.0.0 or [::] listens everywhere",
        )
    if error.errno == errno.EAFNOSUPPORT:
        return "this machine has no addresses of that kind", "choose an IPv4 address"
    return f"it cannot be listened on: {_said(error)}", "choose another address"


def _why_no_path(error: OSError) -> tuple[str, str]:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "the folder of the socket does not exist", "make it, or choose another path"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "this user may not make a socket there", "choose another folder"
    if error.errno == errno.EADDRINUSE:
        return "another server listens there", "end it, or choose another path"
    return f"no socket can be made there: {_said(error)}", "choose another path"


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__
