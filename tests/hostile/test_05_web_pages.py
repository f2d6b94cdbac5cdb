"""Case 5: a web page that makes a browser connect to a server on its user's machine.

It sends the requests that a browser would send for it: with its Origin, or under a name of
its own for this machine (DNS rebinding). Expected: 403 in fixed words before the upgrade,
which name neither the lace nor what the request said. A Unix socket is its owner's alone.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from tests.hostile.kit import Attacked, attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)


@pytest.mark.parametrize(
    ("path", "host", "more", "status"),
    [
        ("/interlace", "127.0.0.1", "Origin: https://evil.example\r\n", 403),
        ("/interlace", "127.0.0.1", "Origin: null\r\n", 403),
        ("/interlace", "127.0.0.1", "Origin: http://127.0.0.1\r\n", 403),
        ("/interlace", "evil.example", "", 403),
        ("/interlace", "127.0.0.1\r\nHost: evil.example", "", 403),
        ("/secret-of-evil", "127.0.0.1", "", 404),
    ],
    ids=["foreign", "null", "own", "rebound", "two hosts", "path"],
)
def test_requests_of_pages(path: str, host: str, more: str, status: int, ws: Attacked) -> None:
    peer = ws.connect()
    peer.send(REQUEST.format(path=path, host=host, more=more).encode())
    answer = peer.outcome().decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert "evil" not in answer
    assert str(ws.host.folder) not in answer


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /interlace HTTP/1.1\r\n" + b"X: " + b"y" * 100_000,
        b"GET /interlace HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"GET /" + b"a" * 1_000_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 508,
        b"\0" * 1000,
    ],
    ids=["long header", "many headers", "long path", "tls", "zeros"],
)
def test_requests_that_are_none(raw: bytes, ws: Attacked) -> None:
    peer = ws.connect()
    peer.send(raw)
    peer.end()
    answer = peer.outcome()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


def test_a_unix_socket_is_its_owners(tmp_path: Path) -> None:
    with attacked(tmp_path, address=f"unix:{tmp_path}/s"):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
