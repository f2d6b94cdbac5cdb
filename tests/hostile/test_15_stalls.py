"""Case 15: a peer that keeps this side waiting.

It says nothing, stops in the middle, sends a byte now and then, or takes nothing of what it is
sent. Expected: "phase timeout" by an absolute
deadline however the bytes are spread, and nobody else waits; as many as may connect at once
use up nothing but their share.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.iltp.items import PREFACE
from tests.cli.links import EXPOSE_ALL, plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SOON = ("--set", "phase_timeout_seconds=2")
RECORDS, RECORD_BYTES = 1000, 32 * 1024


@pytest.mark.requirement("050-221")
@pytest.mark.parametrize("address", ["tcp:127.0.0.1:0", "unix:{folder}/s"])
def test_silence_and_trickle(tmp_path: Path, address: str) -> None:
    with attacked(tmp_path, *SOON, address=address.format(folder=tmp_path)) as target:
        silent, stopped, trickling = (target.connect() for _ in range(3))
        stopped.send(PREFACE + b"ExchangeOperand('0'")
        trickling.send(PREFACE)
        target.still_serves()
        sent = 0
        while trickling.send(b"A") and sent < 600:
            sent += 1
            time.sleep(0.05)
        assert sent < 600
        for peer in (silent, stopped, trickling):
            assert peer.outcome().startswith(PREFACE) or peer is trickling
        target.said("phase timeout", 3)


def test_so_many_that_nobody_else_fits_in_from_there(tmp_path: Path) -> None:
    """Connections of one address are counted; those that are too many are turned away."""
    with attacked(tmp_path, *SOON) as target:
        peers = [target.connect() for _ in range(40)]
        for peer in peers:
            peer.outcome()
        assert sum(peer.got == b"" for peer in peers) >= 40 - 16
        target.said("phase timeout", 16)


@pytest.mark.requirement("050-221")
def test_a_peer_that_takes_nothing(tmp_path: Path) -> None:
    """It asks for more than a socket holds, says all that it has to, and never reads again."""
    (tmp_path / "everyone.lace").write_text(EXPOSE_ALL)
    with attacked(tmp_path, *SOON, "--expose", tmp_path / "everyone.lace", "--debug") as target:
        with open_lace(target.host.folder) as lace:
            lace.add_all(plex(f"many/{n}", os.urandom(RECORD_BYTES)) for n in range(RECORDS))
        peer = target.connect()
        peer.enter()
        offered, _ = peer.read_block()
        assert len(offered) > RECORDS
        peer.block([])
        peer.read_block()
        peer.block([("MayRequest", fact[1]) for fact in offered if fact[0] == "Advertised"])
        peer.block([])
        target.said("the peer took less than")
        target.said("phase timeout")
        peer.got = b""  # everything is exposed to it
