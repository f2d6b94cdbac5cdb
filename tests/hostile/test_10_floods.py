"""Case 10: a peer that sends without an end, in all the ways that a stream knows.

One line of a gigabyte, blocks of the shortest facts there are, comments, blank lines,
selectors again and again, empty WebSocket frames and pings. Expected: an abort by a limit on
lines, items or counts, after few bytes, with flat memory; nobody else waits.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from lace.exchange.blocks import format_block
from lace.iltp.items import PREFACE
from tests.cli.policies import ALL
from tests.hostile.kit import MIB, Attacked, Peer, attacked, resource_block

pytestmark = pytest.mark.slow

GIB = 1024 * MIB


def numbered(count: int) -> bytes:
    return b"".join(resource_block(f"{ALL}A{n}(P) :- Have(P).\n") for n in range(count))


FLOODS = {
    "a line of a gigabyte": (PREFACE + b"A('", b"x" * MIB, 8 * MIB, "malformed fact block"),
    "a name of a gigabyte": (PREFACE, b"x" * MIB, 8 * MIB, "malformed fact block"),
    "a comment of a gigabyte": (PREFACE + b"#", b"x" * MIB, 8 * MIB, "malformed fact block"),
    "comments": (PREFACE, b"#x\n" * 2**18, 8 * MIB, "malformed fact block"),
    "a fact between comments": (PREFACE, b"A()\n#\n" * 2**17, 8 * MIB, "oversized fact block"),
    "the shortest facts": (PREFACE, b"A()\n" * 2**18, 8 * MIB, "oversized fact block"),
    "different facts": (PREFACE, b"", 8 * MIB, "oversized fact block"),
    "blank lines": (PREFACE + b"A()\n", b"\n" * MIB, 8 * MIB, "malformed fact block"),
    "no resource": (PREFACE + b"\xf0\x9f\xa7\xa9: R.", b"x" * MIB, 8 * MIB, "malformed"),
    "an endless selector": (
        PREFACE + b"\xf0\x9f\xa7\xa9: R." + b"0" * 43 + b" lacegram\n",
        b"A(P) :- Have(P).\n" * 2**16,
        8 * MIB,
        "malformed fact block",
    ),
    "one selector again": (PREFACE, resource_block(ALL) * 1000, 8 * MIB, "malformed fact block"),
    "many selectors": (PREFACE + numbered(300), b"\n", MIB, "malformed fact block"),
}


def held_by_the_system() -> int:
    """Return how much of what is sent may wait in the buffers of a connection."""
    folder = Path("/proc/sys/net/ipv4")
    return sum(int((folder / name).read_text().split()[-1]) for name in ("tcp_rmem", "tcp_wmem"))


def piece_of(name: str, number: int) -> bytes:
    if name == "different facts":
        return b"".join(b"A%d('%d')\n" % (at, at) for at in range(number << 15, (number + 1) << 15))
    return FLOODS[name][1]


@pytest.mark.requirement("050-222", "050-229")
def test_floods(tmp_path: Path) -> None:
    """One after the other, against one server: whatever stays behind adds up."""
    with attacked(tmp_path, growth=48 * MIB) as target:
        for count, (name, (first, _, taken, said)) in enumerate(FLOODS.items(), 1):
            most = taken + held_by_the_system()
            before = target.server.errors
            peer = target.connect()
            peer.send(first)
            sent = number = 0
            while sent < 2 * most:
                piece = piece_of(name, number)
                if not peer.send(piece):
                    break
                number += 1
                sent += len(piece)
            peer.outcome()
            peer.connection.close()
            target.said("outcome=failed", count)
            assert said in target.server.errors[len(before) :], name
            assert sent <= most, f"{name}: {sent / MIB:.0f} MiB were taken"
            assert target.grown <= target.growth, f"{name}: {target.grown / MIB:.0f} MiB"


@pytest.mark.requirement("050-222")
@pytest.mark.exhaustive
def test_blocks_after_hello(tmp_path: Path) -> None:
    """Behind a hello, blocks may be as large as was agreed; facts that no block has may not."""
    with attacked(tmp_path, growth=224 * MIB) as target:
        for count, line in enumerate((b"A()\n", b"Advertised()\n", b"MayRequest('')\n"), 1):
            peer = target.connect()
            peer.enter()
            peer.flood(line * 2**17, 256 * MIB)
            peer.outcome()
            target.said("outcome=failed", count)


def frame(kind: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    mask = os.urandom(4)
    head = bytes([0x80 * final | kind])
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return head + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def upgraded(ws: Attacked) -> Peer:
    """Connect, and become a WebSocket."""
    peer = ws.connect()
    peer.send(
        b"GET /interlace HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n"
    )
    while b"\r\n\r\n" not in peer.got:
        peer.got += peer.connection.recv(1)
    return peer


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (frame(2, final=False), frame(0, final=False)),
        (b"", frame(2)),
        (b"", frame(9, b"x" * 125)),
        (b"", frame(1, b"x")),
    ],
    ids=["empty fragments", "empty messages", "pings", "text"],
)
def test_websocket_frames(first: bytes, again: bytes, ws: Attacked) -> None:
    peer = upgraded(ws)
    peer.send(first)
    assert peer.flood(again * 1000, 64 * MIB) < 64 * MIB
    peer.outcome()
    assert ws.grown <= ws.growth


def test_a_frame_of_2_63_bytes(ws: Attacked) -> None:
    """It is refused by what it announces. What comes is read past for a moment, then cut off."""
    before = ws.server.errors.count("malformed fact block")
    peer = upgraded(ws)
    peer.send(b"\x82\xff" + b"\x7f" + b"\xff" * 7 + b"abcd")
    pieces = 0
    while peer.send(b"x" * MIB):
        pieces += 1
        time.sleep(0.02)
        assert pieces < 3000, "it is never cut off"
    assert b"exceeds limit of 1048576 bytes" in peer.outcome()
    ws.said("malformed fact block", before + 1)
    assert ws.grown <= ws.growth


def test_format_of_blocks() -> None:
    """The floods are what they are called: an honest block has the same form."""
    assert format_block([("A",)]) == b"A()\n\n"
