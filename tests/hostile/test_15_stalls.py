"""Case 15: a peer that keeps this side waiting.

It says nothing, stops in the middle, sends a byte now and then, or takes nothing of what it is
sent. Expected: "phase timeout" by an absolute deadline however the bytes are spread, and nobody
else waits; as many as may connect at once use up nothing but their share, and far less waits in
memory than was asked for. One that writes all it has before it reads anything is served.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.iltp.items import PREFACE
from tests.cli.links import EXPOSE_ALL, hashes, plex
from tests.hostile.kit import MIB, attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SOON = ("--set", "phase_timeout_seconds=2")
RECORDS = 150
"""Records of a mebibyte each: several times what a server may grow by."""
MUCH = ("--set", "service_budget_bytes=1GiB", "--set", "store_cache_bytes=8MiB")
"""So that neither a budget nor the cache of the store is what is measured."""


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
        full = PREFACE + b"# server full\n"
        assert (
            sum(peer.got == full for peer in peers)
            + target.server.errors.count("closed for a new link")
            >= 40 - 16
        )


@pytest.mark.requirement("050-221")
def test_a_peer_that_takes_nothing(tmp_path: Path) -> None:
    """It asks for more than a socket holds, says all that it has to, and never reads again."""
    (tmp_path / "everyone.lace").write_text(EXPOSE_ALL)
    options = (*SOON, *MUCH, "--expose", tmp_path / "everyone.lace", "--debug")
    with attacked(tmp_path, *options, growth=RECORDS * MIB // 3) as target:
        chance = random.Random(15)
        many = [plex(f"many/{n}", chance.randbytes(MIB)) for n in range(RECORDS)]
        for party in (target.host, target.honest):  # whom they would take too long for
            with open_lace(party.folder) as lace:
                lace.add_all(many)
        target.measure()
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


@pytest.mark.requirement("060-98")
def test_both_write_at_once(tmp_path: Path) -> None:
    """Each has more to send than sockets hold; the peer reads nothing until it has sent all."""
    (tmp_path / "everyone.lace").write_text(EXPOSE_ALL)
    with attacked(tmp_path, *MUCH, "--expose", tmp_path / "everyone.lace") as target:
        with open_lace(target.host.folder) as lace:
            lace.add_all(plex(f"theirs/{n}", os.urandom(MIB)) for n in range(24))
        mine = {str(each.id): each for each in (plex(f"{n}", os.urandom(MIB)) for n in range(24))}
        peer = target.connect()
        source = peer.enter()
        offered, _ = peer.read_block()
        peer.block([("Advertised", record, source) for record in sorted(mine)])
        wanted, _ = peer.read_block()
        assert {fact[1] for fact in wanted} == set(mine)
        asked = [fact[1] for fact in offered if fact[0] == "Advertised"]
        peer.block([("MayRequest", record) for record in asked])
        for fact in wanted:
            assert peer.send(mine[fact[1]].bytes + b"\n"), "it is read while it writes"
        assert peer.send(b"\n")
        assert peer.skip_batch() == len(asked) >= 24
        peer.end()
        peer.outcome()
        target.said("peer closed early")
        assert hashes(target.host) >= set(mine)
        peer.got = b""  # everything is exposed to it
