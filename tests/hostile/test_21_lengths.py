"""Case 21: a peer whose records are not as long, or as deep, as they say.

A Data-Length that nobody could hold, one with a sign or in other digits, a record inside a
record inside a record, a head without an end. Expected: "record framing lost", or the record
is read past; nothing is allocated for what was only announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.base.limits import MAX_DATA_LENGTH, MAX_DATA_SETTING
from tests.cli.links import plex
from tests.hostile.kit import MIB, attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

RECORD = plex("long", b"xyz")
HEAD, _, _ = RECORD.bytes.partition(b"Data-Length: ")
OUTER = HEAD.split(b"\xf0\x9f\x96\xa7")[1]
MARK = b"\xf0\x9f\x96\xa7"
LOST = {
    "above all bounds": HEAD + b"Data-Length: 2147483648\n\nx",
    "twenty digits": HEAD + b"Data-Length: 99999999999999999999\n\nx",
    "negative": HEAD + b"Data-Length: -1\n\nx",
    "underscore": HEAD + b"Data-Length: 1_0\n\nx",
    "leading zero": HEAD + b"Data-Length: 01\n\nx",
    "full width": HEAD + "Data-Length: \uff11\n\nx".encode(),
    "shorter than its data": HEAD + b"Data-Length: 1\n\nxyz",
    "deep": (MARK + OUTER) * 1000,
    "a head without an end": MARK + OUTER + b"X: y\n" * (MIB // 4),
}


def test_frames(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        for count, (name, raw) in enumerate(LOST.items(), 1):
            peer = target.connect()
            source = peer.enter()
            peer.read_block()
            peer.block([("Advertised", str(RECORD.id), source)])
            wanted, _ = peer.read_block()
            assert wanted == [("MayRequest", str(RECORD.id))], name
            peer.block([])
            peer.send(raw + b"\n\n")
            peer.outcome()
            target.said("record framing lost", count)


@pytest.mark.parametrize(
    ("announced", "most"),
    [(MAX_DATA_LENGTH, "32MiB"), (MAX_DATA_LENGTH, "900MiB"), (MAX_DATA_SETTING, "900MiB")],
    ids=["two gigabytes", "two gigabytes beside much", "all that may be stored"],
)
def test_a_length_that_is_only_announced(tmp_path: Path, announced: int, most: str) -> None:
    """So much is announced and ten bytes come; then the peer goes."""
    with attacked(tmp_path, "--set", f"max_data_bytes={most}", growth=32 * MIB) as target:
        peer = target.connect()
        source = peer.enter()
        peer.read_block()
        peer.block([("Advertised", str(RECORD.id), source)])
        peer.read_block()
        peer.block([])
        peer.send(HEAD + b"Data-Length: %d\n\nten bytes." % announced)
        target.still_serves()
        peer.end()
        peer.outcome()
        target.said("peer closed early")
