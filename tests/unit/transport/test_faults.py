"""Errors of the system as lines that say what to do."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from lace.iltp.address import parse_address
from lace.transport.faults import StreamClosedError, connect_error, listen_error


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "some reason"
    return error


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("address", "error", "line"),
    [
        ("tcp:h:1", system(errno.ECONNREFUSED), "nobody listens there (connection refused); check"),
        ("tcp:h:1", system(errno.EHOSTUNREACH), "cannot be reached from here; check the address"),
        ("tcp:h:1", system(errno.ENETUNREACH), "cannot be reached from here; check the address"),
        ("tcp:h:1", system(errno.ECONNRESET), "closed the connection while it was being opened;"),
        ("tcp:h:1", system(errno.EMFILE), "too many open files; close other programs"),
        ("tcp:h:1", system(errno.EIO), "the connection failed: Input/output error; check"),
        ("tcp:h:1", TimeoutError(), "no answer within 3 s; check the address and any firewall"),
        ("tcp:h:1", socket.gaierror(socket.EAI_NONAME, "x"), "no host of that name; check the"),
        ("tcp:h:1", socket.gaierror(socket.EAI_AGAIN, "x"), "cannot be looked up now; check the"),
        ("tcp:h:1", UnicodeError("label too long"), "no host can have this name; check"),
        ("tcp:h:1", RuntimeError("secret"), "the connection failed: RuntimeError; try again"),
        ("unix:/x", system(errno.ENOENT), "there is no such socket; check the path"),
        ("unix:/x", system(errno.EACCES), "may not connect to it; a socket of Lace is for"),
        ("unix:/x", system(errno.EPROTOTYPE), "not a socket that Lace serves; check the path"),
        ("unix:/x", system(errno.EAGAIN), "the server is busy; try again later"),
        ("unix:/x", system(errno.ECONNRESET), "closed the connection while it was being opened;"),
        ("wss:h", unverified(62), "the server's certificate is not for h; connect by a name"),
        ("wss:h", unverified(10), "not valid now; renew it, or check this machine's clock"),
        ("wss:h", unverified(20), "comes from nobody who is trusted here; name the authority"),
        ("wss:h", unverified(99), "certificate is refused: some reason; ask"),
        ("wss:h", tls("WRONG_VERSION_NUMBER"), "does not speak TLS there; connect to ws:h"),
        ("wss:h", tls("TLSV1_ALERT_PROTOCOL_VERSION"), "no TLS 1.2 or newer; ask"),
        ("wss:h", tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "refused the TLS connection (tlsv13"),
        ("wss:h", tls("OTHER_THING"), "TLS failed (other thing); try again"),
        ("wss:h", ConnectionResetError(), "closed the connection instead of speaking TLS; check"),
    ],
)
def test_connecting(address: str, error: Exception, line: str) -> None:
    found = connect_error(parse_address(address), error, 3.0)
    assert line in str(found)
    assert str(found).startswith(f"{parse_address(address)}: ")
    assert "\n" not in str(found)
    assert found.exit_code == 4


@pytest.mark.parametrize(
    ("address", "error", "line"),
    [
        ("tcp:h:80", system(errno.EADDRINUSE), "port 80 is in use; end the other server"),
        ("ws:h", system(errno.EACCES), "this user may not listen on port 80; choose a port above"),
        ("tcp:h:1", system(errno.EADDRNOTAVAIL), "does not have that address; choose one"),
        ("tcp:[::1]:1", system(errno.EAFNOSUPPORT), "no addresses of that kind; choose an IPv4"),
        ("tcp:h:1", system(errno.ENFILE), "too many open files; close"),
        ("tcp:h:1", system(errno.EIO), "cannot be listened on: Input/output error; choose"),
        ("tcp:h:1", socket.gaierror(socket.EAI_NONAME, "x"), "no host of that name; check"),
        ("unix:/x", system(errno.ENOENT), "the folder of the socket does not exist; make it"),
        ("unix:/x", system(errno.EROFS), "this user may not make a socket there; choose"),
        ("unix:/x", system(errno.EADDRINUSE), "another server listens there; end it"),
        ("unix:/x", system(errno.EIO), "no socket can be made there: Input/output error; choose"),
    ],
)
def test_listening(address: str, error: OSError, line: str) -> None:
    found = listen_error(parse_address(address), error)
    assert line in str(found)
    assert found.exit_code == 3


def test_a_closed_stream() -> None:
    assert str(StreamClosedError("tcp:h:1")) == "tcp:h:1: the connection is closed"
