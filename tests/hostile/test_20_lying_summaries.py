"""Case 20: a peer that advertises without an end, or whose summaries are lies.

More records than one listing may have, claims under another's name, counts and roots that no
set has, and answers that do not fit what was announced. Expected: an abort that names the
limit or the mismatch; nothing of such a listing reaches an evaluation.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.exchange.advertisement import Advertisement
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.summaries import summaries_of
from tests.hostile.kit import MIB, attacked

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact

pytestmark = pytest.mark.slow

ROOT = "A" * 42 + "0"


def listing(count: int, source: str) -> list[Fact]:
    chance = random.Random(4)
    records = [f"P.{b64a.encode(chance.randbytes(32))}.H3" for _ in range(count)]
    return [("Advertised", record, source) for record in records]


@pytest.mark.requirement("050-230")
def test_listings(tmp_path: Path) -> None:
    settings = ("--set", "max_advertisement_records_listed=20000")
    with attacked(tmp_path, *settings, growth=48 * MIB) as target:
        peer = target.connect()
        peer.block(listing(20_001, peer.enter()))
        peer.outcome()
        target.said("too many advertisement records listed")
        peer = target.connect()
        peer.enter()
        peer.block(listing(3, target.honest.verifier))
        peer.outcome()
        target.said("malformed fact block")
        peer = target.connect()
        source = peer.enter()
        peer.block([("AdvertisedField", listing(1, source)[0][1], source, "Group", "0", "u")])
        peer.outcome()
        target.said("malformed fact block", 2)


def told(count: int, source: str) -> tuple[list[Fact], list[Fact]]:
    """Summaries of some records as mode 1 begins with, and the listings of all that they name."""
    claims = [Advertisement(fact[1]) for fact in listing(count, source)]
    own = AdvertisementSet.of(
        [each.record for each in claims], [each.digest(source) for each in claims]
    )
    heads = [each.fact(prefix) for prefix, each in summaries_of(own, 2).items()]
    return heads, [fact for each in claims for fact in each.facts(source)]


def other_root(fact: Fact) -> Fact:
    return (*fact[:3], ROOT)


def other_count(fact: Fact) -> Fact:
    return (*fact[:2], str(int(fact[2]) + 1), fact[3])


def same(fact: Fact) -> Fact:
    return fact


LIES = {
    "nothing": (same, same),
    "root": (other_root, other_root),
    "count": (other_count, other_count),
    "root, in the end": (same, other_root),
    "count, in the end": (same, other_count),
}


@pytest.mark.requirement("050-169", "050-220")
@pytest.mark.parametrize("lie", LIES)
def test_listings_that_are_not_as_announced(tmp_path: Path, lie: str) -> None:
    """Well formed, and asked for; what is announced of one partition is not what is listed."""
    first, last = LIES[lie]
    with attacked(tmp_path) as target:
        peer = target.connect()
        source = peer.enter(mode=1)
        heads, claims = told(5, source)
        peer.block([first(heads[0]), *heads[1:]])
        peer.read_block()
        questions, _ = peer.read_block()
        asked = {fact[1] for fact in questions if fact[0] == "ListAdvertisementPartition"}
        assert asked == {fact[1] for fact in heads}
        peer.block([])
        peer.block([last(heads[0]), *heads[1:], *claims])
        if last is not same:
            assert b"MayRequest" not in peer.outcome(), "nothing of it is evaluated"
            target.said('why="advertisement list root mismatch" rule=050-169')
            return
        facts: list[Fact] = []
        while not facts:
            peer.block([])
            facts, _ = peer.read_block()
        assert facts == sorted(("MayRequest", fact[1]) for fact in claims)


@pytest.mark.requirement("050-169", "050-219", "050-220")
@pytest.mark.parametrize("mode", [1, 2])
def test_summaries(tmp_path: Path, mode: int) -> None:
    lies: list[list[Fact]] = [
        [("AdvertisementPartition", "", "0", ROOT)],
        [("AdvertisementPartition", "", "9999999999999999999", ROOT)],
        [("AdvertisementPartition", "", str(2**22 + 1), ROOT)],
        [("AdvertisementPartition", "zz", "1", ROOT)],
        [("AdvertisementPartition", "", "5", "x")],
        [("AdvertisementPartition", "", "5", ROOT)],
    ]
    with attacked(tmp_path) as target:
        for count, lie in enumerate(lies, 1):
            peer = target.connect()
            source = peer.enter(mode=mode)
            peer.block(lie)
            # Whatever it asks then gets an answer that does not fit.
            peer.block(listing(5, source))
            peer.outcome()
            target.said("outcome=failed", count)
        assert "evaluation" not in target.server.errors
