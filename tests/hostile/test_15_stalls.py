"""Case 15: a peer that keeps this side waiting.

It says nothing, stops in the middle, or sends a byte now and then; one that takes nothing of
what it is sent is in `tests/driver/test_session.py`. Expected: "phase timeout" by an absolute
deadline however the bytes are spread, and nobody else waits; as many as may connect at once
use up nothing but their share.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lace.iltp.items import PREFACE
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

SOON = ("--set", "phase_timeout_seconds=2")


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
