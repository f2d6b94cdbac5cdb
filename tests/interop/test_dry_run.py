"""A dry run with a peer that does what `lace serve` never does, and may do all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import accepting, make_lace, notes
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.text import PeerError, tai_now

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.text import Fact

pytestmark = pytest.mark.slow

HERE, THERE = notes("here", 3), notes("there", 2)
TICKS = 3


class Ticking(Session):
    """It tells how far its clock has come, in blocks of their own, before it asks for records."""

    def tick(self) -> list[Fact]:
        return [("TickReady", tai_now())]

    def turn(self, block: list[Fact]) -> list[Fact]:
        if any(fact[0] == "MayRequest" for fact in block):
            for _ in range(TICKS):
                self.wire.send_block(self.tick())
        return super().turn(block)


class Confused(Ticking):
    """What it tells is no time."""

    def tick(self) -> list[Fact]:
        return [("TickReady", "tomorrow")]


def make_peer() -> Peer:
    peer = Peer()
    peer.add(THERE)
    return peer


@pytest.mark.requirement("050-134")
def test_a_tick_alone_is_no_request_list(tmp_path: Path) -> None:
    lace = make_lace(tmp_path / "here", HERE)
    mine, theirs = {record.id for record in HERE}, {record.id for record in THERE}
    with pytest.raises(PeerError, match="the stream ends"), accepting(make_peer(), Ticking) as peer:
        dry = lace.sync(peer.address, "--dry-run", "--json")
    assert dry.code == 0, dry.err
    found = dry.json()["dry-run"]
    assert set(found["send"]) == mine
    assert set(found["request"]) == theirs
    assert lace.records() == mine
    with accepting(make_peer(), Ticking) as peer:
        done = lace.sync(peer.address)
    assert done.code == 0, done.err
    assert lace.records() == set(peer.peer.records) == mine | theirs


@pytest.mark.requirement("050-136")
def test_a_tick_that_is_no_time_ends_it(tmp_path: Path) -> None:
    lace = make_lace(tmp_path / "here", HERE)
    with pytest.raises((PeerError, ConnectionError)), accepting(make_peer(), Confused) as peer:
        dry = lace.sync(peer.address, "--dry-run", "--json")
    assert dry.code == 4, dry.err
    assert "TickReady" in dry.err
    assert "dry-run" not in dry.json()
