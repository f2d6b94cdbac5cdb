"""Input that no honest peer sends, or that an honest one sends only rarely, in whole exchanges.

Single blocks that are wrong are in `test_machine_failures`, turns that lie in `test_reconcile`.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pytest

import lace
from lace.base import b64a
from lace.exchange import events as happened
from lace.exchange.advertisement import Advertisement, advertisement_facts
from lace.exchange.capabilities import SECOND, Capabilities, ExchangeLimits
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.machine import Machine
from lace.exchange.summaries import LIST, NARROW, children_fact, partition_fact
from lace.exchange.transitions import State
from lace.policy.schema import Schema
from lace.store.sqlite.store import SqliteStore
from tests.conformance.test_050_interlace import blocks, world_of
from tests.simulator.bent import bent_world
from tests.simulator.policies import EXPOSURES, SELECTORS, START, pool
from tests.simulator.side import _FACTS
from tests.store.samples import key, plex, valid
from tests.unit.exchange.reconciling import (
    WIDE,
    Party,
    check,
    claims_of,
    reconcile,
    set_of,
    some_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lace.exchange.effects import Effect, Evaluate
    from lace.facts.lines import Fact
    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission
    from tests.simulator.side import Item, Side

requirement = pytest.mark.requirement
EVERYTHING = SELECTORS[0].rules
FEW = {"reconcile_mode": 0, "max_advertisement_records_listed": 5}
SOURCE = "V." + "B" * 42 + "0.H3"


def honest(item: Item) -> list[Item]:
    return [item]


# -- too much ----------------------------------------------------------------------------------


def many_records(count: int) -> list[str]:
    rnd = random.Random(3)
    return [f"P.{b64a.encode(rnd.randbytes(32))}.H3" for _ in range(count)]


@requirement("050-228", "050-230")
@pytest.mark.parametrize("count", [100_000, 100_001])
def test_one_hundred_thousand_may_be_listed_and_one_more_may_not(count: int) -> None:
    """By default; either side names the limit and says what to do."""
    assert WIDE.listed == ExchangeLimits().max_advertisement_records_listed == 100_000
    records = many_records(count)
    listing: list[Fact] = [("Advertised", record, SOURCE) for record in records]
    asker, teller = (
        Party(0, 0, {}),
        Party(1, 0, {record: Advertisement(record) for record in records}),
    )
    if count == 100_000:
        asker.at.receive(listing)
        assert len(asker.at.result) == count
        assert len(teller.block()) == count
        return
    for do in (lambda: asker.at.receive(listing), teller.block):
        with pytest.raises(InterlaceFailure, match="100,001") as caught:
            do()
        assert caught.value.failure is Failure.LISTING_LIMIT
        assert caught.value.rule == "050-230"
        assert "the limit is 100,000" in caught.value.detail
        assert caught.value.hint == (
            "the limit is max_advertisement_records_listed=100000; "
            "raise it on both sides with --set max_advertisement_records_listed=N"
        )


@requirement("050-230")
@pytest.mark.parametrize("mode", [1, 2])
def test_more_than_may_be_listed_is_narrowed_instead(mode: int) -> None:
    """The limit is of one listing: partitions that are larger are divided."""
    limits = replace(WIDE, listed=50)
    records = many_records(2_000)
    a = Party(0, mode, {}, limits=limits)
    b = Party(1, mode, claims_of(records, Party(0, 0, {}).schema), limits=limits)
    reconcile(a, b)
    check(a, b)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    """Two laces that list in full, and not much."""
    with (
        lace.open(tmp_path / "left", settings=FEW) as left,
        lace.open(tmp_path / "right", settings=FEW) as right,
    ):
        for number, each in enumerate((left, right), 1):
            each.keys.add(key(number))
            each.keys.set_default(key(number).verifier)
        yield left, right


def policy(select: str = EVERYTHING) -> lace.Policy:
    return lace.Policy(select=select, exposures=[EXPOSURES[0]])


@requirement("050-112", "050-228", "050-230")
def test_the_limit_of_listings_is_raised_on_both_sides(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path
) -> None:
    left, right = sides
    left.add_all([plex(f"n/{n}") for n in range(6)])
    with pytest.raises(lace.ProtocolError, match="max_advertisement_records_listed") as caught:
        lace.interlace(left, right, policy(), policy())
    assert isinstance(caught.value, InterlaceFailure)
    assert caught.value.exit_code == 1
    assert not len(right)
    left.close()
    right.close()
    more = {"reconcile_mode": 0, "max_advertisement_records_listed": 6}
    with lace.open(tmp_path / "left", settings=more) as left:
        with (
            lace.open(tmp_path / "right", settings=FEW) as right,
            pytest.raises(lace.ProtocolError, match="max_advertisement_records_listed"),
        ):
            lace.interlace(left, right, policy(), policy())
        with lace.open(tmp_path / "right", settings=more) as right:
            assert lace.interlace(left, right, policy(), policy())
            assert len(right) == 6


# -- records of other formats ------------------------------------------------------------------


@dataclass(frozen=True)
class Foreign:
    """What stands in a store for a record of a format that this program cannot read."""

    hash_text: str
    bytes: bytes = b"whatever"


def with_foreign(side: Side, *records: str) -> None:
    """Let a side have, and advertise, records of another format."""
    for record in records:
        side.store[record] = cast("ValidRecord", Foreign(record))
        _FACTS[record] = [("Have", record)]


@requirement("020-03", "050-121", "050-156")
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("offered", [frozenset({"H3"}), frozenset({"H3", "H9"})])
def test_records_of_other_formats_in_every_mode(mode: int, offered: frozenset[str]) -> None:
    """They are part of what is advertised, counted and hashed; nobody requests them."""
    theirs = {f"{kind}.{payload}.H9" for kind, payload in zip("BPS", many_payloads(3), strict=True)}
    means = Capabilities(mode=mode, formats=offered)
    ours = Capabilities(mode=mode)
    world = world_of([], list(pool()[:9]), means=ours)
    world.plan.capabilities = ours, means
    with_foreign(world.sides[1], *theirs)
    world.connect()
    for side in world.sides:
        side.is_strict = False
    world.run()
    a = world.sides[0]
    assert a.outcome is not None
    assert a.outcome.at_fixed_point, a.outcome.reason
    assert a.machine._loops is not None
    assert theirs < set(a.machine._loops.states.theirs)
    assert set(a.store) == {record.hash_text for record in pool()[:9]}
    assert not theirs & set(a.asked)


@requirement("050-121", "050-160")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_hashes_too_short_for_partitions_are_advertised_in_mode_0_only(mode: int) -> None:
    """A payload shorter than a prefix is in no partition of that length."""
    short, long = "P.x.H9", f"P.{many_payloads(1)[0]}.H9"
    world = world_of([], list(pool()[:9]), means=Capabilities(mode=mode))
    with_foreign(world.sides[1], short, long)
    for side in world.sides:
        side.is_strict = False
    world.run()
    a, b = world.sides
    for side in world.sides:
        assert side.outcome is not None
        assert side.outcome.at_fixed_point, side.outcome.reason
    assert a.machine._loops is not None
    assert b.machine._loops is not None
    found = set(a.machine._loops.states.theirs)
    assert found == set(b.machine._loops.states.own)
    assert long in found
    assert (short in found) is (mode == 0)
    assert set(a.store) == {record.hash_text for record in pool()[:9]}


@requirement("050-121", "050-169")
def test_a_peer_that_lists_a_hash_too_short_for_partitions() -> None:
    """Mode 1 has two characters at least: the refusal says why."""
    a = Party(0, 1, {})
    b = Party(1, 1, claims_of(many_records(3), Party(0, 0, {}).schema))

    def bend(_turn: int, facts: list[Fact]) -> list[Fact]:
        told = any(fact[0] == "Advertised" for fact in facts)
        return [*facts, ("Advertised", "P.x.H9", SOURCE)] if told else facts

    with pytest.raises(InterlaceFailure, match="too short for partitions; mode 0 alone") as caught:
        reconcile(a, b, bend)
    assert caught.value.failure is Failure.MALFORMED_BLOCK
    assert caught.value.rule == "G44"


@requirement("050-06", "050-18", "050-121")
def test_the_machine_itself_requests_no_other_format() -> None:
    """Even where an evaluator would let it."""
    foreign = f"P.{many_payloads(1)[0]}.H9"
    world = world_of([], list(pool()[:3]), means=Capabilities(mode=0))
    a, b = world.sides
    with_foreign(b, foreign)
    for side in world.sides:
        side.is_strict = False
    evaluate = a._evaluate

    def lavish(effect: Evaluate) -> happened.EvaluationDone:
        found = evaluate(effect)
        if not effect.most_requests:
            return found
        return replace(found, requestable=(*found.requestable, foreign))

    a._evaluate = lavish  # type: ignore[method-assign]
    world.run()
    assert foreign not in a.asked
    assert set(a.store) == {record.hash_text for record in pool()[:3]}
    assert a.outcome is not None
    assert a.outcome.at_fixed_point


@requirement("020-03", "050-121")
def test_records_of_other_formats_with_real_stores(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as advertised for rules, and nothing is left to be requested for their sake."""
    left, right = sides
    records = right.add_all([plex(f"n/{n}") for n in range(3)])
    receive = Machine.receive
    seen: list[str] = []

    def bending(self: Machine, event: happened.Event, *now: lace.Tai) -> list[Effect]:
        is_listing = isinstance(event, happened.BlockReceived) and any(
            fact[0] == "Advertised" for fact in event.facts
        )
        if is_listing and self.config.operand.index == 0:
            assert isinstance(event, happened.BlockReceived)
            source = event.facts[0][2]
            event = replace(event, facts=(*event.facts, ("Advertised", "P.x.H9", source)))
            seen.append(source)
        return receive(self, event, *now)

    monkeypatch.setattr(Machine, "receive", bending)
    done = lace.interlace(left, right, policy(), policy())
    assert seen
    assert done
    assert set(done.left.received) == set(records)
    assert done.left.counters.requested == 3
    assert done.left.counters.pending_here == 0


def many_payloads(count: int) -> list[str]:
    rnd = random.Random(4)
    return [b64a.encode(rnd.randbytes(40)) for _ in range(count)]


# -- claims ------------------------------------------------------------------------------------


@requirement("050-45", "050-152")
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("is_trusting", [False, True])
def test_a_claim_that_is_left_out(mode: int, *, is_trusting: bool) -> None:
    """X1: silence can lure as well as a lie; what differs is rejected, unless that is allowed."""
    (bait,) = valid(plex("links/1", group="v", at=START + 3, data="bait"))
    world = bent_world(honest, mode=mode, selector="not v")
    a, liar = world.sides
    object.__setattr__(a.config, "store_differing", is_trusting)
    describe = liar._describe

    def leave_out(record: str, source: str) -> Advertisement:
        made = describe(record, source)
        return made if record != bait.hash_text else made._replace(fields=())

    liar._describe = leave_out  # type: ignore[method-assign]
    liar._ask_engine = lambda: (frozenset(liar.store), frozenset())  # type: ignore[method-assign]
    liar.store[bait.hash_text] = bait
    world.run()
    assert a.outcome is not None
    assert a.outcome.at_fixed_point
    rejected = {} if is_trusting else {bait.hash_text: "advertised claims differ"}
    assert dict(a.outcome.rejected) == rejected
    assert (bait.hash_text in a.store) is is_trusting


# -- withdrawals -------------------------------------------------------------------------------


@requirement("050-169", "050-220")
def test_what_is_listed_twice_is_claimed_as_before() -> None:
    """Else one claim would count for the root and X1, and rules would see the other."""
    schema = Schema(names=frozenset({"Group"}))
    rnd = random.Random(1)
    shared = [each for each in many_records(600) if each[2] != "0"]
    hidden, beside = (f"P.{lead}{some_record(rnd)[4:]}" for lead in ("0a", "0b"))
    a = Party(0, 2, claims_of(shared, schema), schema)
    true = claims_of([*shared, hidden, beside, *(some_record(rnd) for _ in range(5))], schema)
    false = {**true, hidden: Advertisement(hidden, (("Group", "0", "wanted"),))}
    states = [(set_of(each, a.other), each) for each in (true, false)]

    def answer(kind: str, prefix: str) -> list[Fact]:
        state, claims = states[prefix != "0a"]
        if kind == NARROW:
            return [children_fact(states[0][0], prefix)]
        if kind != LIST:
            return []
        listed = (claims[record] for record in state.records(prefix))
        return [partition_fact(state, prefix), *advertisement_facts(listed, a.other)]

    def talk() -> None:
        a.block()
        a.receive([partition_fact(states[0][0], "")])
        # It follows: what the peer asks for it asks for, too, and searches for the rest later.
        told: list[Fact] = [(LIST, "0a")]
        for _ in range(20):
            asked = a.block()
            a.receive(told)
            told = list(itertools.chain.from_iterable(answer(*each[:2]) for each in asked))

    with pytest.raises(InterlaceFailure, match=f"lists {hidden} twice") as caught:
        talk()
    assert a.at.listed[hidden] == true[hidden]
    assert caught.value.failure is Failure.ROOT_MISMATCH


@requirement("050-157", "050-195", "050-201")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_a_peer_withdraws_is_no_claim_any_more(mode: int) -> None:
    """In an open exchange; advertisements do not only grow."""
    takes_u = (
        "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u')."
    )
    unwanted = valid(*(plex(f"links/{n}", group="v", at=START) for n in range(3)))
    world = world_of(
        [],
        [*pool()[:5], *unwanted],
        rules=(takes_u, EVERYTHING),
        means=Capabilities(mode=mode),
        is_open=True,
    )
    world.run()
    a, b = world.sides
    gone, *stay = (each.hash_text for each in unwanted)
    assert a.machine._loops is not None
    assert {gone, *stay} < set(a.machine._loops.states.theirs)
    del b.store[gone]
    b.happen(happened.Changed(), world.now(b))
    world.run()
    assert a.machine.state is b.machine.state is State.WAITING
    assert gone not in a.machine._loops.states.theirs
    assert set(stay) < set(a.machine._loops.states.theirs)
    assert gone not in a._claims
    withdrawn = [fact for block in blocks(b) for fact in block if fact[0].endswith("Withdrawn")]
    assert withdrawn == ([("AdvertisementWithdrawn", gone)] if mode == 2 else [])
    assert gone not in a.asked


@requirement("050-07", "050-179", "050-226")
def test_a_peer_that_removes_what_it_advertised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real stores: when the first record arrives, all the others are gone."""
    admit = SqliteStore.admit
    settings = {"service_budget_bytes": 1}
    with (
        lace.open(tmp_path / "left") as left,
        lace.open(tmp_path / "right", settings=settings) as right,
    ):
        records = right.add_all([plex(f"n/{n}") for n in range(5)])

        def noting(self: SqliteStore, found: Sequence[ValidRecord]) -> Admission:
            done = admit(self, found)
            if self is left.store:
                right.remove(*(set(records) - {found[0].hash_text}))
            return done

        monkeypatch.setattr(SqliteStore, "admit", noting)
        done = lace.interlace(left, right, policy(), policy())
        assert done
        assert len(left) == len(right) == len(done.left.received) == 1
        # Whatever was advertised once more before it went is asked for, and said to be gone.
        assert done.left.counters.requested == 5 + len(done.left.not_available)
        assert done.left.counters.pending_here == 0


# -- clocks ------------------------------------------------------------------------------------


@requirement("050-136", "050-137", "050-138", "050-139", "050-140")
@pytest.mark.parametrize(
    ("shift", "is_followed"),
    [(1, False), (-1_000, False), (5_000, True), (0, True)],
    ids=["not aligned", "before the start", "far ahead", "honest"],
)
def test_a_peer_s_ticks_never_lead_and_wrong_ones_are_not_heard(
    shift: int, *, is_followed: bool
) -> None:
    """A tick is the smaller of both: a peer can hold time back, and not push it."""
    timed = next(each for each in SELECTORS if each.name == "in time")

    def bend(item: Item) -> list[Item]:
        if not isinstance(item, happened.BlockReceived):
            return [item]
        facts = tuple(
            (fact[0], str(lace.Tai(fact[1]).shift(shift * SECOND)))
            if fact[0] == "TickReady"
            else fact
            for fact in item.facts
        )
        return [replace(item, facts=facts)]

    world = bent_world(bend, selector=timed.name, is_open=True)
    world.run()
    world.wait(45)
    a = world.sides[0]
    assert a.machine.state is not State.CLOSED, a.outcome
    assert all(before <= after for before, after in itertools.pairwise(a.ticks))
    assert a.ticks[-1] <= world.now(a), "no evaluation is ahead of one's own clock"
    assert (a.ticks[-1] > a.ticks[0]) is is_followed
