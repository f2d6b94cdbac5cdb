"""Whoever is no Lace at the other end: one line that says so, exit code 4; others are served."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import Party, make_parties, serving
from tests.cli.running import Result, call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.transport.certificates import Certificates

pytestmark = pytest.mark.slow

SECONDS = 60.0
SOON = ("--set", "phase_timeout_seconds=1")


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def closes(connection: socket.socket) -> None:
    """Say nothing and go; bytes that nobody read would make a reset of it."""
    connection.recv(65536)


def is_silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def speaks_ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    connection.recv(65536)


def speaks_http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def refuses_tls(connection: socket.socket) -> None:
    """Answer as a TLS server does that was not spoken TLS to."""
    connection.recv(65536)
    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


def sync_with(
    behave: Callable[[socket.socket], None], scheme: str, parties: tuple[Party, Party]
) -> Result:
    left, right = parties
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection = server.accept()[0]
            connection.settimeout(SECONDS)
            with connection:
                behave(connection)

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"{scheme}:127.0.0.1:{server.getsockname()[1]}"
        done = call("sync", address, *left.policy(right), *SOON)
        thread.join()
    return done


@pytest.mark.requirement("060-26", "050-221")
@pytest.mark.parametrize(
    ("scheme", "behave", "said"),
    [
        ("tcp", closes, "the peer is not Lace, or not at this address"),
        ("tcp", is_silent, "phase timeout: 1 s while waiting for the peer's setup"),
        ("tcp", speaks_ssh, "the peer seems to speak SSH"),
        ("tcp", speaks_http, "the peer seems to speak HTTP"),
        ("tcp", refuses_tls, "the peer seems to speak TLS"),
        ("ws", closes, "the server does not answer as a WebSocket server does"),
        ("ws", speaks_ssh, "the server does not answer as a WebSocket server does"),
        ("ws", speaks_http, "the server refused the connection (HTTP 404)"),
        ("ws", refuses_tls, "the server does not answer as a WebSocket server does"),
        ("wss", closes, "the server closed the connection instead of speaking TLS"),
        ("wss", speaks_ssh, "the server does not speak TLS there"),
        ("wss", speaks_http, "the server does not speak TLS there"),
    ],
)
def test_servers_that_are_no_lace(
    parties: tuple[Party, Party],
    scheme: str,
    behave: Callable[[socket.socket], None],
    said: str,
) -> None:
    done = sync_with(behave, scheme, parties)
    assert done.code == 4
    lines = [line for line in done.err.splitlines() if "warning" not in line]
    assert len(lines) == 1, done.err
    assert lines[0].startswith(f"lace: {scheme}:127.0.0.1:")
    assert said in lines[0]


def test_a_host_that_is_none(parties: tuple[Party, Party]) -> None:
    left, right = parties
    done = call("sync", "tcp:no-such-host.invalid:4790", *left.policy(right))
    assert done.code == 4
    assert "there is no host of that name" in done.err


@pytest.mark.requirement("060-26", "050-221")
def test_clients_that_are_no_lace(parties: tuple[Party, Party], certificates: Certificates) -> None:
    """A browser, a TLS client, an SSH client, one that goes and one that is silent."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--debug", *SOON) as server:
        port = int(server.address.rpartition(":")[2])

        def visit(raw: bytes, *, stays: bool = False) -> None:
            with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
                connection.sendall(raw)
                if not stays:
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        for count, (raw, said) in enumerate(
            [
                (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "the peer seems to speak HTTP"),
                (b"SSH-2.0-OpenSSH_9.6\r\n", "the peer seems to speak SSH"),
                (b"", "the stream ended before its preface"),
            ],
            1,
        ):
            visit(raw)
            server.wait_for("outcome=failed", count)
            server.wait_for(said)
        visit(b"", stays=True)
        server.wait_for("phase timeout")
        context = ssl.create_default_context(cafile=certificates.certificate("authority"))
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS) as raw_connection,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(raw_connection, server_hostname="127.0.0.1")
        server.wait_for("the peer seems to begin TLS")
        good = left.sync(right, server.address)
        assert good.code == 0, good.err
