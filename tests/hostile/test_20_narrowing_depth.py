"""Case 20: a peer that narrows without end, to make this side hash ever smaller partitions.

Expected: a question beyond the depth that both agreed on ends the exchange, whichever side's limit
it is; a question at that depth is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.base import b64a
from lace.exchange.merkle import EMPTY_ROOT
from tests.cli.links import hashes
from tests.hostile.kit import Peer, attacked

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.seal import SigningKey
    from tests.hostile.kit import Attacked

pytestmark = pytest.mark.slow

LIST, NARROW = "ListAdvertisementPartition", "NarrowAdvertisementPartition"
PARTITION, CHILDREN = "AdvertisementPartition", "AdvertisementChildren"
SELECT = "SelectHave(P) :- Have(P), Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
"""Not the honest peer's selector: under another plan no cursor is kept."""
DEPTH = 4
# Depth counts from the prefixes of turn 0: two characters in mode 1, none in mode 2. The children
# of a partition are one deeper than it is.
LAST = {(1, NARROW): 5, (1, LIST): 6, (2, NARROW): 3, (2, LIST): 4}


def ask(target: Attacked, key: SigningKey, mode: int, *question: str, depth: int) -> Peer:
    """Enter as somebody to whom all is exposed, and ask one question in turn 1."""
    peer = target.connect()
    hello = peer.meet(SELECT, key=key)
    facts = [fact for fact in hello.facts if fact[1:2] != ("max_narrowing_depth",)]
    limits = [("HelloLimit", "max_narrowing_depth", str(depth))]
    peer.block([*facts, *limits, ("HelloLimit", "reconcile", str(mode))])
    summary, _ = peer.read_block()
    assert {fact[0] for fact in summary} == {PARTITION}
    empty = PARTITION, "", "0", b64a.encode(EMPTY_ROOT)
    peer.block([empty] if mode == 2 else [])
    peer.block([question])
    return peer


@pytest.mark.requirement("050-232")
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("limits", [(DEPTH, 12), (12, DEPTH)], ids=["ours", "theirs"])
def test_the_depth_of_narrowing(tmp_path: Path, mode: int, limits: tuple[int, int]) -> None:
    ours, theirs = limits
    with attacked(tmp_path, "--set", f"max_narrowing_depth={ours}") as target:
        with open_lace(target.honest.folder, read_only=True) as lace:
            key = lace.signing_key()
        assert key is not None
        payload = sorted(hashes(target.host))[0][2:-3]
        for count, kind in enumerate((LIST, NARROW), 1):
            last = LAST[mode, kind]
            peer = ask(target, key, mode, kind, payload[:last], depth=theirs)
            assert peer.read_block()[0] == [], "it has no question of its own"
            peer.block([])
            answer, _ = peer.read_block()
            told = {"Advertised"} if kind == LIST else set()
            told |= {CHILDREN if (mode, kind) == (2, NARROW) else PARTITION}
            assert {fact[0] for fact in answer} == told
            peer = ask(target, key, mode, kind, payload[: last + 1], depth=theirs)
            assert peer.outcome() in (b"", b"\n"), "at most its empty block of this turn"
            target.said("narrowing depth exceeded", count)
        for peer in target.peers:  # all that is here was exposed to it
            peer.got = b""
