"""Listening sockets that are handed over to a server, as systemd does it."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import SECONDS, Party, Serving, hashes, make_parties
from tests.cli.running import Result, spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

# The process that is to get the socket has its own number in LISTEN_PID: exec keeps it.
HAND_OVER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3, inheritable=True); "
    "os.environ.update(LISTEN_PID=sys.argv[2].replace('own', str(os.getpid())), "
    "LISTEN_FDS=sys.argv[3]); os.execv(sys.argv[4], sys.argv[4:])"
)


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def start(
    parties: tuple[Party, Party],
    handed: int,
    address: str,
    *,
    pid: str = "own",
    count: str = "1",
) -> subprocess.Popen[bytes]:
    left, right = parties
    prefix = (sys.executable, "-c", HAND_OVER, str(handed), pid, count)
    return spawn("serve", address, *right.policy(left), prefix=prefix, pass_fds=(handed,))


@contextmanager
def handed_over(
    parties: tuple[Party, Party], opened: socket.socket, address: str
) -> Iterator[Serving]:
    started = start(parties, opened.fileno(), address)
    try:
        assert started.stdout is not None
        assert started.stderr is not None
        bound = started.stdout.readline().decode().rstrip("\n")
        assert bound, started.stderr.read().decode()
        yield Serving(started, bound)
    finally:
        started.kill()
        started.communicate()


def refused(parties: tuple[Party, Party], handed: int, address: str, **how: str) -> Result:
    started = start(parties, handed, address, **how)
    out, err = started.communicate(timeout=SECONDS)
    return Result(started.returncode, out, err.decode())


@contextmanager
def listening(place: object, family: int = socket.AF_INET) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as opened:
        opened.bind(place)  # type: ignore[arg-type]  # as the family has it
        opened.listen()
        yield opened


@pytest.mark.requirement("060-128")
def test_a_unix_socket(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    path = tmp_path / "lace.sock"
    address = f"unix:{path}"
    with listening(str(path), socket.AF_UNIX) as opened:
        for _ in range(2):  # it is there for the next one
            with handed_over(parties, opened, address) as server:
                assert server.address == address
                done = left.sync(right, address)
                assert done.code == 0, done.err
                assert server.end() == 143
            assert path.is_socket(), "it is the service manager's"
    assert hashes(left) == hashes(right)


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_an_internet_socket(parties: tuple[Party, Party], scheme: str) -> None:
    left, right = parties
    with listening(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        with handed_over(parties, opened, f"{scheme}:127.0.0.1:{port}") as server:
            assert left.sync(right, server.address).code == 0
            assert server.end() == 143
        with handed_over(parties, opened, f"{scheme}:127.0.0.1:0") as server:
            assert f":{port}" in server.address
    assert hashes(left) == hashes(right)


def test_a_connection_waits_until_the_server_is_there(parties: tuple[Party, Party]) -> None:
    with listening(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS) as early,
            handed_over(parties, opened, f"tcp:127.0.0.1:{port}"),
        ):
            assert early.recv(4) == "\N{KNOT}".encode()


def test_what_is_not_taken(parties: tuple[Party, Party], tmp_path: Path) -> None:
    path = tmp_path / "lace.sock"
    with listening(str(path), socket.AF_UNIX) as unix, listening(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        with socket.socket() as idle, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            reader, writer = os.pipe()
            wanted = [
                (unix.fileno(), f"tcp:127.0.0.1:{port}", "of another kind (AF_UNIX)"),
                (tcp.fileno(), f"unix:{path}", "of another kind (AF_INET)"),
                (unix.fileno(), f"unix:{tmp_path}/other.sock", f"listens on {path}"),
                (tcp.fileno(), f"tcp:127.0.0.1:{port % 60_000 + 1}", f"listens on {port}"),
                (idle.fileno(), f"tcp:127.0.0.1:{port}", "does not listen"),
                (datagrams.fileno(), f"tcp:127.0.0.1:{port}", "not a stream socket"),
                (reader, f"tcp:127.0.0.1:{port}", "is no socket"),
            ]
            for handed, address, message in wanted:
                done = refused(parties, handed, address)
                assert done.code == 2, done.err
                assert message in done.err
            many = refused(parties, tcp.fileno(), f"tcp:127.0.0.1:{port}", count="2")
            assert many.code == 2
            assert "one ListenStream=" in many.err
            os.close(reader)
            os.close(writer)
        stranger = refused(parties, tcp.fileno(), f"tcp:127.0.0.1:{port}", pid="1")
        assert stranger.code == 3, "it is not for this process, which then listens itself"
        assert "is in use" in stranger.err
    assert path.is_socket()
