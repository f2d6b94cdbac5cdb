"""Case 14: a peer that wants to know whether this side has a record.

It requests a record that was not advertised to it: one that is here and hidden, and one that
is nowhere. Expected: both are answered `NotAvailable`, with the same bytes but for the name,
and such loops count toward the limit, so that asking ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.links import hashes, plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hostile.kit import Attacked

pytestmark = pytest.mark.slow

LOOPS = 4


def probe(target: Attacked, record: str) -> bytes:
    """Ask for a record in every loop until the server ends; returns what it said after hello."""
    peer = target.connect()
    peer.enter()
    listing, _ = peer.read_block()
    assert listing == []
    start = len(peer.got)
    for loop in range(LOOPS):
        if loop:
            assert peer.read_block()[0] == []
        peer.block([])
        assert peer.read_block()[0] == []
        peer.block([("MayRequest", record)])
        assert peer.read_batch() == ([], [record])
        peer.send(b"\n")
    peer.outcome()
    return peer.got[start:]


@pytest.mark.requirement("050-179", "050-234")
def test_hidden_and_absent_are_alike(tmp_path: Path) -> None:
    with attacked(tmp_path, "--set", f"max_loop_iterations={LOOPS}") as target:
        hidden = sorted(hashes(target.host))[0]
        absent = str(plex("nowhere").id)
        answers = []
        for count, record in enumerate((hidden, absent), 1):
            answers.append(probe(target, record).replace(record.encode(), b"?"))
            target.said("outcome=unfinished", count)
        assert answers[0] == answers[1]
        assert answers[0].count(b"NotAvailable('?')\n") == LOOPS
        for peer in target.peers:  # the names are those that the peers themselves have sent
            peer.got = peer.got.replace(hidden.encode(), b"")
        assert hidden not in target.server.errors
        assert absent not in target.server.errors
