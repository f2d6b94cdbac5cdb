"""Case 22: a peer whose policy never settles, or that becomes somebody else in the middle.

It offers what this side has just refused and refuses what it was offered, loop after loop; it
sends another setup in the middle of a loop, or claims another name in an open exchange.
Expected: the loop limit at the latest, with "not at a fixed point"; an abort for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.links import plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

CHANGING = (
    "SelectHave(P) :- Have(P), not Given(P).\nGiven(P) :- Advertised(P,_).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S)."
)


@pytest.mark.requirement("G47")
def test_loops_without_an_end(tmp_path: Path) -> None:
    with attacked(tmp_path, "--set", "max_loop_iterations=5") as target:
        peer = target.connect()
        source = peer.enter(CHANGING)
        bait = [("Advertised", str(plex(f"bait/{n}", group="v").id), source) for n in range(2)]
        for loop in range(20):
            if "loop limit reached" in target.server.errors:
                break
            try:
                peer.read_block()
                peer.block(bait[loop % 2 : loop % 2 + 1])
                wanted, _ = peer.read_block()
                peer.block([])
                peer.read_block()
            except AssertionError:  # it has gone
                break
            peer.send(b"".join(b"NotAvailable('%b')\n" % fact[1].encode() for fact in wanted))
            peer.send(b"\n")
        peer.outcome()
        target.said("loop limit reached")


@pytest.mark.requirement("G36")
def test_another_setup_in_the_middle(tmp_path: Path) -> None:
    with attacked(tmp_path, "--open") as target:
        peer = target.connect()
        peer.enter()
        peer.read_block()
        assert peer.ours is not None
        peer.block(peer.ours.facts)
        assert peer.outcome() == b""
        target.said("malformed fact block")
