"""Case 22: a peer that never settles, or becomes somebody else in the middle of a loop.

It sends another setup where its request list belongs, or comes back from a rest as somebody
else without a proof: an abort. It advertises one thing, then another, then the first again,
without an end: the loop limit ends that, and the server says that it is not at a fixed point.
And a server whose own rules change while records are moving: what was not under way goes by the
new ones.
"""

from __future__ import annotations

import itertools
import secrets
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey, open_lace
from lace.record.ids import Verifier
from tests.cli.links import EXPOSE_ALL, hashes, make_parties, plex, serving, wait_until
from tests.cli.policies import EXPOSE_TEAM
from tests.cli.relays import Relay
from tests.cli.running import spawn
from tests.hostile.kit import MIB, Attacked, Gone, attacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.facts.lines import Fact

pytestmark = pytest.mark.slow

WAVERING = (
    "SelectHave(P) :- Have(P).\n"
    "SelectHave(P) :- Have(P), Advertised(Q,S).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S).\n"
)
"""What it has to send depends on what is advertised, so that the exchange goes on."""
FEW_LOOPS = ("--set", "max_loop_iterations=4")
MOST = 200


def test_another_setup_in_the_middle(tmp_path: Path) -> None:
    with attacked(tmp_path, "--open") as target:
        peer = target.connect()
        peer.enter()
        peer.read_block()
        assert peer.ours is not None
        peer.block(peer.ours.facts)
        assert peer.outcome() == b""
        target.said("malformed fact block")


@pytest.mark.requirement("050-98")
@pytest.mark.parametrize("is_proven", [True, False])
def test_another_key_in_the_middle(tmp_path: Path, *, is_proven: bool) -> None:
    """At rest it begins anew as somebody else: that counts only if it is proven, as before."""
    with attacked(tmp_path, "--open") as target:
        own, other = SigningKey.generate(), SigningKey.generate()
        peer = target.connect()
        peer.enter(key=own)
        for _ in range(3):  # nothing is offered, asked for or sent
            facts, _ = peer.read_block()
            assert not facts
            peer.block([])
        if is_proven:
            peer.block(peer.meet(key=other, again=True).facts)
            facts, _ = peer.read_block()
            assert not facts, "another has the same exposures: none"
            peer.end()
            peer.outcome()
            target.said(f"peer={other.verifier}")
            return
        victim = Verifier(target.honest.verifier)
        hello = peer.meet(key=own, claim=str(victim), again=True)
        peer.block(replace(hello, signer=victim).facts)
        assert peer.outcome() == b""
        target.said("signer without valid proof")
        failed = [line for line in target.server.errors.split("\n") if "outcome=failed" in line]
        assert not any(f"peer={victim}" in line for line in failed)


def test_rules_that_change_while_records_move(tmp_path: Path) -> None:
    """SIGHUP in the middle of a transfer: what comes later is shown by the new rules alone."""
    left, right = make_parties(tmp_path)
    with open_lace(right.folder) as lace:
        lace.add_all(plex(f"large/{n}", secrets.token_bytes(MIB)) for n in range(20))
    with (
        serving(right, left, "tcp:127.0.0.1:0", "--open") as server,
        Relay(server.address, 10 * MIB) as relay,
    ):
        started = spawn("sync", relay.address, *left.policy(right), "--open")
        try:
            relay.wait()
            right.view.write_text(EXPOSE_TEAM)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("were read again")
            relay.go_on()
            wait_until(lambda: len(hashes(left)) == 30)
            with open_lace(right.folder) as lace:
                hidden = lace.add(plex("later"))
                shown = lace.add(plex("later", group="team"))
            wait_until(lambda: str(shown) in hashes(left))
            assert str(hidden) not in hashes(left)
            assert server.process.poll() is None
            started.terminate()
            out, err = started.communicate(timeout=60)
        finally:
            started.kill()
            started.communicate()
    assert started.returncode == 143, err
    assert b"at-fixed-point yes" in out
    assert str(hidden) not in hashes(left)


def go_on(target: Attacked, listings: Iterator[list[Fact]], *, asks: bool = False) -> int:
    """Go through loops until the server has enough; returns how many there were.

    The peer has none of what it advertises, and may ask for all that it is offered.
    """
    peer = target.connect()
    source = peer.enter(WAVERING)
    for loops, listing in enumerate(listings):
        try:
            offered, _ = peer.read_block()
            peer.block([(*fact, source) for fact in listing])
            wanted, _ = peer.read_block()
            peer.block([("MayRequest", fact[1]) for fact in offered if asks])
            peer.block([("NotAvailable", fact[1]) for fact in wanted])
            peer.skip_batch()
        except (Gone, OSError):
            peer.end()
            return loops
        assert loops < MOST, "there is no end"
    raise AssertionError("the listings have an end")


def record(number: int) -> Fact:
    return ("Advertised", str(plex(f"flip/{number}").id))


@pytest.mark.requirement("050-228", "050-234")
def test_advertisements_that_come_and_go(tmp_path: Path) -> None:
    """The first loop is progress, because one record is not available; then four are idle."""
    listings = itertools.cycle([[record(1)], []])
    with attacked(tmp_path, *FEW_LOOPS) as target:
        assert go_on(target, listings) == 5
        target.said("outcome=unfinished")


@pytest.mark.requirement("050-228")
def test_always_something_new_that_is_not_there(tmp_path: Path) -> None:
    """A new record in every loop, and none of them can be had: that is no progress for ever."""
    listings = ([record(number)] for number in itertools.count())
    settings = (*FEW_LOOPS, "--set", "max_not_available_records=10")
    with attacked(tmp_path, *settings) as target:
        assert go_on(target, listings) == 14
        target.said("outcome=unfinished")


@pytest.mark.requirement("050-223")
def test_the_same_record_again_and_again(tmp_path: Path) -> None:
    """It asks for what it got in the loop before; the bytes of a round are counted."""
    (tmp_path / "everyone.lace").write_text(EXPOSE_ALL)
    options = ("--expose", tmp_path / "everyone.lace")
    with attacked(tmp_path, *options, "--set", "max_total_transferred_bytes=20000") as target:
        loops = go_on(target, itertools.repeat([]), asks=True)
        assert loops > 1, "it got them more than once"
        target.said("transfer limit exceeded")
        target.peers[-1].got = b""  # everything is exposed to it
