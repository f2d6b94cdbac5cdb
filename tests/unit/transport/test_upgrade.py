"""Which requests become WebSockets."""

from __future__ import annotations

import socket

import pytest

from lace.iltp.address import parse_address
from lace.transport.websocket import UpgradeRules, with_port


def status(
    listened: str,
    *,
    path: str = "/interlace",
    host: str | None = "localhost:80",
    origin: tuple[str, ...] = (),
    upgrade: str = "websocket",
    **more: frozenset[str],
) -> int | None:
    headers = {"Host": [host] if host is not None else [], "Origin": list(origin)}
    rules = UpgradeRules(address=parse_address(listened), **more)
    refusal = rules.refusal(path, lambda name: headers.get(name, [upgrade]))
    return refusal.status if refusal else None


@pytest.mark.parametrize(
    ("listened", "host", "expected"),
    [
        ("ws:127.0.0.1", "127.0.0.1", None),
        ("ws:127.0.0.1", "127.0.0.1:4790", None),
        ("ws:127.0.0.1", "localhost", None),
        ("ws:127.0.0.1", "LOCALHOST.:80", None),
        ("ws:127.0.0.1", "[::1]:80", None),
        ("ws:127.0.0.1", "192.0.2.7", None),
        ("ws:127.0.0.1", "evil.example", 403),
        ("ws:127.0.0.1", "evil.example:4790", 403),
        ("ws:127.0.0.1", "localhost.evil.example", 403),
        ("ws:127.0.0.1", "127.0.0.1.evil.example", 403),
        ("ws:127.0.0.1", "", 403),
        ("ws:127.0.0.1", None, 403),
        ("ws:127.0.0.1", "localhost:80:80", 403),
        ("ws:127.0.0.1", "user@localhost", 403),
        ("ws:127.0.0.1", "localhost/", 403),
        ("ws:127.0.0.1", socket.gethostname(), 403),
        ("ws:Lace.example", "lace.EXAMPLE", None),
        ("ws:lace.example", "other.example", 403),
        ("ws:0.0.0.0", socket.gethostname(), None),
        ("ws:0.0.0.0", "evil.example", 403),
        ("ws:[::]", "evil.example", 403),
        ("wss:0.0.0.0", "lace.example", None),
        ("wss:127.0.0.1", "evil.example", 403),
    ],
)
def test_hosts(listened: str, host: str | None, expected: int | None) -> None:
    assert status(listened, host=host) == expected


def test_more_hosts_and_origins() -> None:
    names = frozenset({"lace.example"})
    assert status("ws:127.0.0.1", host="lace.example", hosts=names) is None
    assert status("ws:127.0.0.1", host="x.lace.example", hosts=names) == 403
    page = frozenset({"https://lace.example"})
    assert status("ws:127.0.0.1", origin=("https://lace.example",), origins=page) is None
    assert status("ws:127.0.0.1", origin=("http://lace.example",), origins=page) == 403


@pytest.mark.parametrize(
    "origin",
    [
        ("http://evil.example",),
        ("http://localhost",),
        ("http://127.0.0.1:4790",),
        ("null",),
        ("",),
        ("file://",),
        ("https://a", "https://a"),
    ],
)
def test_web_pages_are_refused(origin: tuple[str, ...]) -> None:
    assert status("ws:127.0.0.1", origin=origin) == 403


@pytest.mark.requirement("060-10", "060-11", "060-133")
@pytest.mark.parametrize("path", ["/", "/interlace/", "/interlace?x=1", "/note", "//interlace"])
def test_other_paths(path: str) -> None:
    assert status("ws:127.0.0.1", path=path) == 404


def test_other_protocols() -> None:
    assert status("ws:127.0.0.1", upgrade="h2c") == 426
    assert status("ws:127.0.0.1", upgrade="") == 426
    assert status("ws:127.0.0.1", upgrade="WebSocket") is None


def test_host_and_port_of_a_url() -> None:
    assert with_port(parse_address("ws:example.com")) == "example.com:80"
    assert with_port(parse_address("wss:[::1]")) == "[::1]:443"
