"""Case 22: a peer that never settles, or becomes somebody else in the middle of a loop.

It sends another setup where its request list belongs: an abort. It advertises one thing, then
another, then the first again, without an end: the loop limit ends that, and the server says
that it is not at a fixed point.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import EXPOSE_ALL, plex
from tests.hostile.kit import Attacked, Gone, attacked

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
