"""Upgrades: which HTTP requests become WebSockets.

Lines of bytes are the path and the headers of a request. The answer is a refusal or none, never
an error; a request with an Origin that is not allowed, or without a Host of this server, is
always refused, and a refusal says nothing that the request said.
"""

from __future__ import annotations

from fuzz.harness import Target
from lace.iltp.address import parse_address
from lace.transport.websocket import UpgradeRules

__all__ = ["TARGET"]

_PAGE = "https://example.com"
_RULES = [
    UpgradeRules(address=parse_address(text, for_serving=True), origins=frozenset({_PAGE}))
    for text in ("ws:127.0.0.1:0", "ws:0.0.0.0:0", "wss:example.com:0", "ws:[::1]:0")
]
_PIECES = (
    *(b"/interlace\n", b"Host: ", b"Origin: ", b"Upgrade: websocket\n", b"localhost", b"127.0.0.1"),
    *(b"[::1]", b":80", b".", b"\n", b"https://example.com", b"\xe2\x84\xaa", b"[", b"]", b","),
)


def _seeds() -> list[bytes]:
    usual = b"/interlace\nHost: 127.0.0.1:80\nUpgrade: websocket\n"
    return [usual, usual + b"Origin: https://example.com\n", b"/\nHost: a.b\n", b""]


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    path, *lines = raw.decode("latin-1").split("\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers.setdefault(name.lower(), []).append(value)
    for rules in _RULES:
        refusal = rules.refusal(path, lambda name: headers.get(name.lower(), []))
        if refusal is None:
            assert path == "/interlace"
            assert len(headers["host"]) == 1
            assert [each.lower() for each in headers.get("origin", [_PAGE])] == [_PAGE]
            continue
        assert refusal.status in (403, 404, 426)
        for values in headers.values():
            assert not any(len(each) > 20 and each in refusal.text for each in values)


TARGET = Target(name="upgrades", check=check, seeds=_seeds, pieces=_PIECES)
