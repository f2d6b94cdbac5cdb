"""Case 22: a peer that becomes somebody else in the middle of a loop.

It sends another setup where its request list belongs. Expected: an abort. Policies that never
settle end by the loop limit, which the tests of the machine cover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path


def test_another_setup_in_the_middle(tmp_path: Path) -> None:
    with attacked(tmp_path, "--open") as target:
        peer = target.connect()
        peer.enter()
        peer.read_block()
        assert peer.ours is not None
        peer.block(peer.ours.facts)
        assert peer.outcome() == b""
        target.said("malformed fact block")
