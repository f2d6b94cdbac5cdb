"""A machine and a peer that does not hold to the rules: every row of the table of failures."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.base.tai import Tai
from lace.errors import EngineError, PolicyError, StoreError
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange import negotiation as handshake
from lace.exchange.capabilities import SECOND, Capabilities, ExchangeLimits
from lace.exchange.failures import Failure
from lace.exchange.machine import Machine
from lace.exchange.transitions import NEXT, Position, State, Trigger
from lace.policy.compile import Compiler
from lace.policy.schema import Schema
from lace.record.validate import frame_record
from tests.simulator.bent import Bend, bent_world, each_record, first_block, outcome_of
from tests.simulator.policies import EXPOSURES, SELECTORS, exposure, operand, pool
from tests.simulator.world import some_world
from tests.store.samples import flip, forged, plex, seal, valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.result import Outcome
    from lace.facts.lines import Fact
    from tests.simulator.side import Item, Side
    from tests.simulator.world import World

Facts = tuple[tuple[str, ...], ...]
OTHER = "V." + "A" * 42 + "0.H3"
ROOT = b64a.encode(b"\x07" * 32)
STRANGER = "P." + "z" * 42 + "0.H3"


def honest(item: Item) -> list[Item]:
    return [item]


def without(name: str) -> Callable[[Facts], Facts]:
    """Leave the facts of a predicate out."""
    return lambda facts: tuple(fact for fact in facts if fact[0] != name)


def plus(*more: Fact) -> Callable[[Facts], Facts]:
    """Add facts."""
    return lambda facts: (*facts, *more)


def turned(name: str, *values: str | None) -> Callable[[Facts], Facts]:
    """Change values of the first fact of a predicate."""

    def change(facts: Facts) -> Facts:
        at = next(at for at, fact in enumerate(facts) if fact[0] == name)
        made = [new if new is not None else old for old, new in zip(facts[at][1:], values)]  # noqa: B905
        return (*facts[:at], (name, *made, *facts[at][1 + len(made) :]), *facts[at + 1 :])

    return change


def drain(side: Side, now: Tai) -> None:
    """Let a side do all that it has to do by itself."""
    while not side.is_quiet:
        side.work(now)


def failed(outcome: Outcome) -> Failure:
    assert outcome.failure is not None, outcome.reason
    assert not outcome.at_fixed_point
    assert outcome.reason == outcome.failure.log_line()
    return outcome.failure.failure


def test_an_honest_peer() -> None:
    for mode in (0, 1, 2):
        found = outcome_of(honest, mode=mode)
        assert found.failure is None
        assert found.at_fixed_point
        assert found.received


# -- setup and hello ---------------------------------------------------------------------------

SETUP = "ExchangeOperand"
HELLO = "HelloExchangePlan"


@pytest.mark.requirement("050-50", "050-51", "050-86", "050-89", "050-215", "050-216")
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (lambda _facts: (), Failure.MALFORMED_BLOCK),
        (without(SETUP), Failure.MALFORMED_BLOCK),
        (plus(("ExchangeOperand", "1", "R." + ROOT, "Opq_1", "selector")), Failure.MALFORMED_BLOCK),
        (plus(("Other", "x")), Failure.MALFORMED_BLOCK),
        (plus(("TickReady", "1640995200:000000000")), Failure.MALFORMED_BLOCK),
        (turned(SETUP, "0"), Failure.EQUAL_INDEXES),
        (turned(SETUP, "2"), Failure.MALFORMED_BLOCK),
        (turned(SETUP, None, "R." + ROOT), Failure.MISSING_MODULE),
        (turned(SETUP, None, None, "Opq_0"), Failure.BAD_CLAIM),
        (turned(SETUP, None, None, None, "exposure"), Failure.MALFORMED_MODULE),
    ],
)
def test_setups(change: Callable[[Facts], Iterable[Fact]], failure: Failure) -> None:
    assert failed(outcome_of(first_block(SETUP, change))) is failure


@pytest.mark.requirement("050-90", "050-216")
@pytest.mark.parametrize("raw", [b"junk", b"SelectHave(P) :- Have(P).\n", b""])
def test_a_module_that_is_not_what_was_announced(raw: bytes) -> None:
    def bend(item: Item) -> list[Item]:
        if isinstance(item, happened.BlockReceived) and item.modules:
            return [replace(item, modules=dict.fromkeys(item.modules, raw))]
        return [item]

    # Both have the same module, so that the first side would have its own copy.
    assert failed(outcome_of(bend)) is Failure.MALFORMED_MODULE


@pytest.mark.requirement("050-53", "050-88")
def test_a_module_that_is_at_hand_need_not_travel() -> None:
    def bend(item: Item) -> list[Item]:
        return [replace(item, modules={}) if isinstance(item, happened.BlockReceived) else item]

    assert outcome_of(bend).at_fixed_point


@pytest.mark.requirement("050-217")
def test_a_plan_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of both sides: no hello is sent."""

    def refuse(*_values: object, **_names: object) -> None:
        raise PolicyError("not these two")

    monkeypatch.setattr(handshake, "make_plan", refuse)
    world = bent_world(honest)
    world.run()
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert failed(outcome) is Failure.PLAN_FAILED
    assert len(world.sides[0].transcript) == 1, "its setup, and nothing more"


@pytest.mark.requirement("050-218")
def test_a_policy_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """This side's own policy for the plan: nothing is evaluated, and it is this side's fault."""

    def refuse(*_values: object, **_names: object) -> None:
        raise PolicyError("not for this viewer")

    monkeypatch.setattr(Compiler, "compile", refuse)
    world = bent_world(honest)
    world.run()
    side = world.sides[0]
    assert side.outcome is not None
    assert failed(side.outcome) is Failure.MALFORMED_POLICY
    assert side.outcome.failure is not None
    assert side.outcome.failure.exit_code == 1
    assert not any(isinstance(each, wanted.Evaluate) for _, _, made in side.trace for each in made)


@pytest.mark.requirement("050-218")
def test_a_policy_of_other_operands_than_the_plan_s() -> None:
    """One operand taken for the other would see all: that is checked once more."""
    world = bent_world(honest, selector="group")
    side = world.sides[0]
    while side.machine.state is not State.HELLO:
        assert world.step()
    held = side.machine._handshake._operands
    assert held is not None
    side.machine._handshake._operands = held[::-1]
    world.run()
    assert side.outcome is not None
    assert failed(side.outcome) is Failure.MALFORMED_POLICY
    assert side.outcome.failure is not None
    assert side.outcome.failure.rule == "040-53"


@pytest.mark.requirement(
    "050-98", "050-101", "050-102", "050-103", "050-104", "050-120", "050-211", "050-212"
)
@pytest.mark.requirement("050-213", "050-214")
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (lambda _facts: (), Failure.MALFORMED_BLOCK),
        (without("HelloExchangePlan"), Failure.MALFORMED_BLOCK),
        (without("HelloTAI"), Failure.MALFORMED_BLOCK),
        (without("HelloTickInterval"), Failure.MALFORMED_BLOCK),
        (without("HelloRecordFormat"), Failure.MALFORMED_BLOCK),
        (plus(("HelloTAI", "1640995200:000000001")), Failure.MALFORMED_BLOCK),
        (turned("HelloExchangePlan", "E." + ROOT), Failure.PLAN_MISMATCH),
        (turned("HelloRecordFormat", "H9"), Failure.NO_COMMON_FORMAT),
        (without("HelloProof"), Failure.UNPROVEN_SIGNER),
        (without("HelloSigner"), Failure.UNPROVEN_SIGNER),
        (
            lambda facts: without("HelloSigner")(without("HelloProof")(facts)),
            Failure.BAD_CLAIM,
        ),
        (plus(("HelloLimit", "max_loop_iterations", "0")), Failure.MALFORMED_LIMIT),
        (plus(("HelloLimit", "max_fact_block_size", "1000")), Failure.MALFORMED_LIMIT),
        (plus(("HelloLimit", "reconcile", "x")), Failure.MALFORMED_LIMIT),
        (turned("HelloTickInterval", "0"), Failure.TICK_INTERVAL),
        (turned("HelloTAI", "1700000301:000000000"), Failure.CLOCK_SKEW),
        (turned("HelloTAI", "1699999000:000000000"), Failure.CLOCK_SKEW),
        (without("HelloAdvertisedField"), Failure.SCHEMA_UNMET),
    ],
)
def test_hellos(change: Callable[[Facts], Iterable[Fact]], failure: Failure) -> None:
    assert failed(outcome_of(first_block(HELLO, change))) is failure


@pytest.mark.requirement("050-113")
def test_unknown_limits_are_passed_over() -> None:
    bend = first_block(HELLO, plus(("HelloLimit", "max_patience", "none")))
    assert outcome_of(bend).at_fixed_point


@pytest.mark.requirement("050-211")
def test_another_peer_than_expected() -> None:
    world = bent_world(honest)
    side = world.sides[0]
    side.machine = Machine(replace(side.config, expected=frozenset({OTHER})))
    side.effects.clear()
    side.happen(happened.Started(), world.now(side))
    world.run()
    assert side.outcome is not None
    assert failed(side.outcome) is Failure.PEER_MISMATCH


# -- advertisements ----------------------------------------------------------------------------


@pytest.mark.requirement("050-215", "050-230")
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (plus(("Advertised", STRANGER, OTHER)), Failure.MALFORMED_BLOCK),
        (turned("AdvertisedField", STRANGER), Failure.MALFORMED_BLOCK),
        (turned("AdvertisedField", None, OTHER), Failure.MALFORMED_BLOCK),
        (turned("AdvertisedField", None, None, "App"), Failure.MALFORMED_BLOCK),
        (
            lambda facts: plus(
                next((*fact[:5], "other") for fact in facts if fact[0] == "AdvertisedField")
            )(facts),
            Failure.MALFORMED_BLOCK,
        ),
        (plus(("MayRequest", STRANGER)), Failure.MALFORMED_BLOCK),
        (plus(("AdvertisementPartition", "", "0", ROOT)), Failure.MALFORMED_BLOCK),
    ],
)
def test_full_listings(change: Callable[[Facts], Iterable[Fact]], failure: Failure) -> None:
    assert failed(outcome_of(first_block("Advertised", change), mode=0)) is failure


@pytest.mark.requirement("050-228", "050-230")
def test_a_listing_above_the_limit_names_it() -> None:
    means = Capabilities(limits=ExchangeLimits(max_advertisement_records_listed=3))
    found = outcome_of(honest, mode=0, means=means)
    assert failed(found) is Failure.LISTING_LIMIT
    assert found.failure is not None
    assert "max_advertisement_records_listed" in str(found.failure.hint)
    many = [("Advertised", f"P.{number:x>42}0.H3", "{S}") for number in range(4)]

    def flood(facts: Facts) -> Facts:
        source = facts[0][2]
        return tuple((name, record, source) for name, record, _ in many)

    few = outcome_of(
        first_block("Advertised", flood),
        mode=0,
        means=means,
        ours=slice(0, 2),
        theirs=slice(4, 6),
    )
    assert failed(few) is Failure.LISTING_LIMIT
    assert few.failure is not None
    assert "the peer lists 4" in few.failure.detail


def test_more_advertisements_than_this_side_takes() -> None:
    means = Capabilities(limits=ExchangeLimits(max_advertised_records=3))
    for mode in (0, 1, 2):
        assert failed(outcome_of(honest, mode=mode, means=means)) is Failure.ADVERTISEMENT_LIMIT


def limited_bytes(size: int) -> Capabilities:
    return Capabilities(limits=ExchangeLimits(max_advertised_bytes=size))


@pytest.mark.requirement("050-228")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_longer_advertisements_than_this_side_takes(mode: int) -> None:
    """Texts count, not records alone; a listing that comes again in a later loop counts once."""
    claims: set[Fact] = set()

    def see(item: Item) -> list[Item]:
        if isinstance(item, happened.BlockReceived):
            claims.update(fact for fact in item.facts if fact[0].startswith("Advertised"))
        return [item]

    assert outcome_of(see, mode=mode).at_fixed_point
    records = sum(len(fact[1]) for fact in claims if fact[0] == "Advertised")
    fields = sum(len(text) for fact in claims for text in fact[3:])
    assert records
    assert fields
    size = records + fields
    assert outcome_of(honest, mode=mode, means=limited_bytes(size)).at_fixed_point
    found = outcome_of(honest, mode=mode, means=limited_bytes(size - 1))
    assert failed(found) is Failure.ADVERTISEMENT_BYTES
    assert found.failure is not None
    assert "max_advertised_bytes" in str(found.failure.hint)


@pytest.mark.requirement("050-228")
def test_values_that_change_from_loop_to_loop_are_added_up() -> None:
    """No loop brings much, but texts of claims that are gone stay in memory."""
    sizes: list[int] = []

    def change(facts: Facts) -> Facts:
        value = f"{len(sizes):04}" * 100
        made = tuple((*fact[:-1], value) if len(fact) == 6 else fact for fact in facts)
        sizes.append(sum(len(text) for fact in made for text in fact))
        return made

    def bend() -> Bend:
        sizes.clear()
        return first_block("Advertised", change, count=100)

    assert outcome_of(bend(), mode=0, selector="any value").failure is None
    assert len(sizes) == 2
    most = limited_bytes(max(sizes))
    found = outcome_of(bend(), mode=0, selector="any value", means=most)
    assert failed(found) is Failure.ADVERTISEMENT_BYTES
    assert len(sizes) == 2


@pytest.mark.requirement("050-169", "050-219", "050-220")
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize(
    ("change", "failures"),
    [
        (
            turned("AdvertisementPartition", None, "3"),
            {Failure.ROOT_MISMATCH, Failure.COUNT_MISMATCH},
        ),
        (turned("AdvertisementPartition", None, None, ROOT), {Failure.ROOT_MISMATCH}),
        (turned("AdvertisementPartition", None, "x"), {Failure.MALFORMED_SUMMARY}),
        (turned("AdvertisementPartition", None, None, "x"), {Failure.MALFORMED_SUMMARY}),
        (turned("AdvertisementPartition", "abc"), {Failure.MALFORMED_SUMMARY}),
        (turned("AdvertisementPartition", "$$"), {Failure.MALFORMED_SUMMARY}),
        (without("AdvertisementPartition"), {Failure.MALFORMED_SUMMARY, Failure.MALFORMED_BLOCK}),
        (
            plus(("AdvertisementPartition", "AB", "0", ROOT)),
            {Failure.MALFORMED_SUMMARY, Failure.MALFORMED_BLOCK},
        ),
        (plus(("Advertised", STRANGER, OTHER)), {Failure.MALFORMED_BLOCK}),
        (plus(("ListAdvertisementPartition", "AB")), {Failure.MALFORMED_BLOCK}),
        (plus(("AdvertisementDelta", ROOT)), {Failure.MALFORMED_BLOCK}),
    ],
)
def test_summaries(
    change: Callable[[Facts], Iterable[Fact]], failures: set[Failure], mode: int
) -> None:
    found = outcome_of(first_block("AdvertisementPartition", change), mode=mode)
    if mode == 1 and found.failure is None:
        assert found.at_fixed_point, "an unannounced partition is empty, in that loop"
        return
    assert failed(found) in failures


# -- requests and transfer ---------------------------------------------------------------------


@pytest.mark.requirement("050-176")
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (plus(("MayRequest", "nothing")), Failure.MALFORMED_BLOCK),
        (plus(("NotAvailable", STRANGER)), Failure.MALFORMED_BLOCK),
        (plus(("Advertised", STRANGER, OTHER)), Failure.MALFORMED_BLOCK),
        (plus(("TickReady", "soon")), Failure.MALFORMED_BLOCK),
    ],
)
def test_requests(change: Callable[[Facts], Iterable[Fact]], failure: Failure) -> None:
    assert failed(outcome_of(first_block("MayRequest", change))) is failure


def first_record(change: Callable[[bytes], list[Item]]) -> Bend:
    """Bend the first record only."""
    done: list[bytes] = []

    def bend(item: bytes) -> list[Item]:
        done.append(item)
        return change(item) if len(done) == 1 else [item]

    return each_record(bend)


@pytest.mark.requirement("050-83", "050-183", "050-224")
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: [raw, raw],
        lambda raw: [raw, bytes(valid(plex("nobody asked", data="x"))[0].bytes)],
        lambda raw: [happened.Unavailable(STRANGER), raw],
        lambda raw: [happened.RecordLost(STRANGER, 5), raw],
        lambda raw: [raw, happened.BatchEnded()],
    ],
)
def test_responses_that_nobody_waits_for(change: Callable[[bytes], list[Item]]) -> None:
    outcome = outcome_of(first_record(change))
    if change(b"x")[-1] == happened.BatchEnded():
        assert failed(outcome) in (Failure.UNREQUESTED_RECORD, Failure.MALFORMED_BLOCK)
    else:
        assert failed(outcome) is Failure.UNREQUESTED_RECORD


@pytest.mark.requirement("050-185", "050-225", "050-227")
@pytest.mark.parametrize("at", [60, -1])
def test_bytes_that_are_not_valid_are_rejected_and_the_round_goes_on(at: int) -> None:
    def spoil(raw: bytes) -> list[Item]:
        return [flip(raw, at % len(raw))]

    world = bent_world(first_record(spoil))
    world.run()
    side = world.sides[0]
    assert side.outcome is not None
    assert side.outcome.failure is None
    assert side.outcome.at_fixed_point
    ((record, _why),) = side.outcome.rejected
    assert record not in side.store
    assert side.asked.count(record) == 1, "not asked for again while its claim is the same"
    assert side.outcome.received


@pytest.mark.requirement("050-183")
def test_another_record_in_the_place_of_one_that_was_asked_for() -> None:
    """A Seal with a false signature has another hash: nobody asked for it."""
    sealed = seal(plex("links/1", at=1_700_000_001, data="sealed"))
    false = forged(sealed)
    (good,) = valid(sealed)
    bend = each_record(lambda raw: [false if raw == bytes(good.bytes) else raw])
    world = bent_world(bend)
    world.kept[1].store[good.hash_text] = good
    world.run()
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert failed(outcome) is Failure.UNREQUESTED_RECORD
    assert good.hash_text not in world.sides[0].store


@pytest.mark.requirement("050-228")
def test_too_many_rejections() -> None:
    means = Capabilities(limits=ExchangeLimits(max_rejected_records=2))
    found = outcome_of(each_record(lambda raw: [flip(raw, -1 % len(raw))]), means=means)
    assert failed(found) is Failure.REJECT_BUDGET


@pytest.mark.requirement("050-227", "050-228")
@pytest.mark.parametrize("rejected", [0, 1])
def test_valid_records_that_came_with_the_last_rejected_one_are_stored(rejected: int) -> None:
    """The exchange ends when they are; whatever was asked for and came is not asked for again."""
    means = Capabilities(limits=ExchangeLimits(max_rejected_records=rejected))
    count = itertools.count()
    world = bent_world(
        each_record(lambda raw: [flip(raw, len(raw) - 1) if next(count) % 3 == 2 else raw]),
        means=means,
    )
    side = world.sides[0]
    world.run()
    assert side.outcome is not None
    assert failed(side.outcome) is Failure.REJECT_BUDGET
    assert "max_rejected_records=" in str(side.outcome.failure)
    refused = dict(side.outcome.rejected)
    assert len(refused) > rejected
    came = set(side.answered) - refused.keys()
    assert len(came) >= 2
    assert came == set(side.outcome.received) <= set(side.store)
    assert side.machine.is_closed
    assert not side.machine.is_ending


@pytest.mark.requirement("050-224", "050-227")
def test_records_that_came_before_one_that_nobody_asked_for_are_stored() -> None:
    sent: list[bytes] = []

    def bend(raw: bytes) -> list[Item]:
        sent.append(raw)
        return [raw] if len(sent) != 3 else [raw, sent[0]]

    world = bent_world(each_record(bend))
    side = world.sides[0]
    world.run()
    assert side.outcome is not None
    assert failed(side.outcome) is Failure.UNREQUESTED_RECORD
    came = {frame_record(raw).claimed for raw in sent[:3]}
    assert came == set(side.outcome.received) <= set(side.store)


@pytest.mark.requirement("050-227")
def test_while_it_ends_nothing_but_storing_counts() -> None:
    """Whatever else happens then; and a store that fails meanwhile ends it at once."""
    world = bent_world(each_record(lambda raw: [raw, raw]))
    side = world.sides[0]
    while not side.machine.is_ending:
        assert world.step()
    assert not side.machine.takes_input
    for event in (happened.Woken(), happened.Stopped(), happened.Ended(), happened.BatchEnded()):
        assert side.machine.receive(event, world.now(side)) == []
    assert side.machine.is_ending
    (close,) = side.machine.fail(StoreError("no space is left"))
    assert isinstance(close, wanted.Close)
    assert failed(close.outcome) is Failure.STORE_FAILED


@pytest.mark.requirement("050-223", "050-233")
def test_the_transfer_limit_ends_both_sides_with_a_partial_result() -> None:
    limits = ExchangeLimits(max_total_transferred_bytes=700, service_budget_bytes=0)
    world = bent_world(honest, means=Capabilities(limits=limits))
    world.run()
    for side in world.sides:
        assert side.outcome is not None
        assert failed(side.outcome) is Failure.TRANSFER_LIMIT
    side = world.sides[0]
    assert side.outcome is not None
    assert side.outcome.received
    assert set(side.outcome.received) == set(side.answered) <= set(side.store)
    assert "max_total_transferred_bytes=700" in str(side.outcome.failure)


@pytest.mark.requirement("050-233")
def test_bytes_are_counted_anew_in_every_round() -> None:
    limits = ExchangeLimits(max_total_transferred_bytes=2_000)
    means = Capabilities(limits=limits)
    world = bent_world(honest, means=means, is_open=True, ours=slice(0, 0), theirs=slice(0, 6))
    a, b = world.sides
    total = 0
    for number in range(30):
        world.run()
        (record,) = valid(plex("links/1", at=1_700_000_000 + number, data=f"more {number}"))
        b.store[record.hash_text] = record
        total += len(record.bytes)
        b.happen(happened.Changed(), world.now(b))
    world.run()
    assert total > 2_000
    assert a.machine.state is State.WAITING
    assert len(a.store) == 31


def lying_world(mode: int, *, store_differing: bool) -> tuple[World, str]:
    """A world whose second side claims of a record of another group that it is of ours."""
    (bait,) = valid(plex("links/1", group="v", at=1_700_000_003, data="bait"))
    world = bent_world(honest, mode=mode)
    a, liar = world.sides
    a.machine = Machine(replace(a.config, store_differing=store_differing))
    a.effects.clear()
    a.happen(happened.Started(), world.now(a))
    describe = liar._describe

    def lie(record: str, source: str) -> Advertisement:
        made = describe(record, source)
        return made if record != bait.hash_text else made._replace(fields=(("Group", "0", "u"),))

    liar._describe = lie  # type: ignore[method-assign]
    liar._ask_engine = lambda: (frozenset(liar.store), frozenset())  # type: ignore[method-assign]
    liar.store[bait.hash_text] = bait
    world.run()
    return world, bait.hash_text


@pytest.mark.requirement("050-45", "050-152")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_claims_that_differ(mode: int) -> None:
    """X1: what was advertised of a record is not what it says."""
    world, bait = lying_world(mode, store_differing=False)
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert outcome.at_fixed_point
    assert dict(outcome.rejected) == {bait: "advertised claims differ"}
    assert outcome.noted == ((Failure.CLAIMS_DIFFER, 1),)
    assert bait not in world.sides[0].store


def test_claims_that_differ_are_stored_where_that_is_asked_for() -> None:
    world, bait = lying_world(0, store_differing=True)
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert not outcome.rejected
    assert bait in world.sides[0].store


@pytest.mark.requirement("050-178", "050-180", "050-181", "050-193")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_is_deferred_is_asked_for_again(mode: int) -> None:
    means = Capabilities(limits=ExchangeLimits(service_budget_bytes=0, max_loop_iterations=2))
    world = bent_world(honest, mode=mode, means=means)
    world.run()
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert outcome.at_fixed_point
    assert len(outcome.received) > 3
    assert outcome.counters.loops > len(outcome.received)
    assert outcome.counters.requested > outcome.counters.answered
    assert not outcome.not_available
    sender = world.sides[1].outcome
    assert sender is not None
    assert 0 < dict(sender.noted)[Failure.SERVICE_BUDGET] < sender.counters.loops


@pytest.mark.requirement("050-180", "050-181")
def test_a_list_without_any_answer_is_deferred_whole_and_counts_toward_the_limit() -> None:
    """G47: a sender that defers everything is no failure, and the exchange ends by its limit."""
    found = outcome_of(each_record(lambda _raw: []), theirs=slice(8, 12), ours=slice(0, 8))
    assert found.failure is None
    assert not found.at_fixed_point
    assert "not at a fixed point" in found.reason
    noted = dict(found.noted)
    assert noted[Failure.UNANSWERED_REQUEST] == found.counters.loops
    assert not found.received


@pytest.mark.requirement("050-180", "050-181")
def test_a_sender_that_defers_everything_for_a_while_is_asked_again() -> None:
    left = 5

    def bend(raw: bytes) -> list[Item]:
        nonlocal left
        left -= 1
        return [] if left > 0 else [raw]

    limits = ExchangeLimits(service_budget_bytes=1)
    found = outcome_of(each_record(bend), means=Capabilities(limits=limits))
    assert found.at_fixed_point, found.reason
    assert 0 < dict(found.noted)[Failure.UNANSWERED_REQUEST] <= 5
    assert found.received


@pytest.mark.requirement("050-79", "050-179", "050-226")
def test_what_is_gone_is_not_available_and_not_asked_for_again() -> None:
    world = bent_world(honest)
    a, b = world.sides
    gone: list[str] = []

    while not gone:
        world.step()
        if (
            b.machine.state is State.REQUESTING
            and b.is_quiet
            and a.machine.state
            in (
                State.REQUESTING,
                State.COMPARING,
            )
        ):
            gone = [each for each in b.store if each not in a.store][:2]
            for record in gone:
                del b.store[record]
    world.run()
    assert a.outcome is not None
    assert a.outcome.failure is None
    assert a.outcome.at_fixed_point
    missing = set(a.outcome.not_available)
    assert missing == set(gone) & set(a.asked)
    assert all(a.asked.count(each) == 1 for each in missing)


def test_not_available_although_it_is_still_advertised() -> None:
    """A peer that never sends is asked once a round; that is a fixed point all the same."""

    def refuse(raw: bytes) -> list[Item]:
        return [happened.Unavailable(frame_record(raw).claimed)]

    world = bent_world(each_record(refuse))
    world.run()
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert outcome.failure is None
    assert outcome.at_fixed_point
    assert not outcome.received
    assert sorted(world.sides[0].asked) == sorted(outcome.not_available)


def test_a_record_too_large_to_be_read() -> None:
    bend = first_record(lambda raw: [happened.RecordLost(frame_record(raw).claimed, 10_000)])
    found = outcome_of(bend)
    assert found.failure is None
    ((_, why),) = found.rejected
    assert why == "record above the local size limit"
    assert found.noted == ((Failure.OVERSIZED_RECORD, 1),)
    assert found.counters.bytes_received > 10_000


@pytest.mark.parametrize(
    "block",
    [
        (),
        (("MayRequest", STRANGER),),
        (("NotAvailable", STRANGER),),
        (("TickReady", "1700000000:000000000"),),
    ],
)
def test_facts_inside_a_batch(block: Facts) -> None:
    bend = first_record(lambda raw: [raw, happened.BlockReceived(block)])
    assert failed(outcome_of(bend)) is Failure.MALFORMED_BLOCK


@pytest.mark.requirement("050-136", "050-137", "050-138")
def test_ticks_out_of_order_before_a_batch_are_passed_over() -> None:
    ticks = ["1700000010:000000000", "1600000000:000000000", "1700000005:000000000"]
    more = [happened.BlockReceived((("TickReady", text),)) for text in ticks]
    assert outcome_of(first_record_before(more)).at_fixed_point
    wrong: list[Item] = [happened.BlockReceived((("TickReady", "tomorrow"),))]
    assert failed(outcome_of(first_record_before(wrong))) is Failure.MALFORMED_BLOCK
    two: list[Item] = [happened.BlockReceived(tuple(("TickReady", text) for text in ticks))]
    assert failed(outcome_of(first_record_before(two))) is Failure.MALFORMED_BLOCK


def first_record_before(items: Iterable[Item]) -> Bend:
    """Put something before the first batch with records."""
    return first_record(lambda raw: [*items, raw])


# -- the end of the stream, and time -----------------------------------------------------------


def small(mode: int = 0) -> World:
    """A short exchange, to be stopped anywhere."""
    return bent_world(honest, mode=mode, selector="all", ours=slice(0, 2), theirs=slice(1, 4))


def stops(mode: int = 0) -> dict[State, int]:
    """Every state that a machine is in, with the number of steps that lead there."""
    world = small(mode)
    found: dict[State, int] = {}
    count = 0
    while not world.sides[0].machine.is_closed:
        found.setdefault(world.sides[0].machine.state, count)
        world.step()
        count += 1
    return found


def at(mode: int, count: int) -> World:
    """A short exchange after so many steps."""
    world = small(mode)
    for _ in range(count):
        world.step()
    return world


BUSY = {State.EVALUATING, State.COMPARING, State.CHECKING}
OURS = {State.SETUP, State.HELLO, State.ADVERTISING, State.REQUESTING, State.TRANSFERRING}


@pytest.mark.requirement("050-210", "050-227")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_an_end_of_stream_anywhere(mode: int) -> None:
    """In a bounded exchange an end is early, wherever it comes."""
    found = stops(mode)
    assert found.keys() >= BUSY | OURS
    for count in found.values():
        world = at(mode, count)
        a = world.sides[0]
        stored = len(a.store)
        a.inbox.clear()
        a.happen(happened.Ended(), world.now(a))
        drain(a, world.now(a))
        assert a.outcome is not None
        assert failed(a.outcome) is Failure.PEER_CLOSED
        assert len(a.store) >= stored


@pytest.mark.requirement("050-221", "050-235")
@pytest.mark.parametrize("mode", [0, 2])
def test_a_peer_that_stalls(mode: int) -> None:
    """Wherever the peer falls silent, the machine asks to be woken and ends then."""
    for state, count in stops(mode).items():
        world = at(mode, count)
        a = world.sides[0]
        drain(a, world.now(a))
        assert a.machine.takes_input, state
        assert a.alarm is not None
        a.happen(happened.Woken(), Tai(str(a.alarm)).shift(-1))
        assert a.machine.outcome is None
        a.happen(happened.Woken(), a.alarm)
        drain(a, a.alarm)
        assert a.outcome is not None
        assert failed(a.outcome) is Failure.PHASE_TIMEOUT


@pytest.mark.requirement("050-221")
def test_trickling_does_not_renew_the_time_and_mebibytes_do() -> None:
    world = bent_world(honest)
    a = world.sides[0]
    while not (a.machine.state is State.TRANSFERRING and sum(map(_is_record, a.inbox)) > 2):
        assert world.step()
    drain(a, world.now(a))
    deadline = a.alarm
    assert deadline is not None
    world.clock += 20 * SECOND
    a._rnd.seed(1)
    a.take(world.now(a))
    drain(a, world.now(a))
    if not a.machine.takes_input:
        return
    assert a.alarm == deadline
    a.happen(happened.Progressed(), world.now(a))
    a.work(world.now(a))
    assert a.alarm is not None
    assert a.alarm > deadline


def _is_record(item: Item) -> bool:
    return isinstance(item, bytes)


@pytest.mark.requirement("050-173")
def test_an_evaluation_that_fails() -> None:
    world = bent_world(honest)
    a = world.sides[0]
    while a.machine.state is not State.EVALUATING:
        world.step()
    (closed,) = a.machine.fail(EngineError("too many tuples"))
    assert isinstance(closed, wanted.Close)
    assert failed(closed.outcome) is Failure.EVALUATION_ERROR
    assert a.machine.fail(EngineError("again")) == []
    assert a.machine.receive(happened.Changed(), world.now(a)) == []


def test_a_store_that_loses_records_is_a_loud_error() -> None:
    world = bent_world(honest)
    a = world.sides[0]
    while not a.answers or not isinstance(a.answers[0], happened.Admitted):
        assert world.step()
    with pytest.raises(AssertionError, match="were to be stored"):
        a.machine.receive(happened.Admitted(0), world.now(a))


# -- legality ----------------------------------------------------------------------------------

PEER_EVENTS: tuple[happened.Event, ...] = (
    happened.BlockReceived(()),
    happened.RecordsReceived(()),
    happened.RecordLost(STRANGER, 1),
    happened.Unavailable(STRANGER),
    happened.BatchEnded(),
)
ANSWERS: tuple[happened.Event, ...] = (
    happened.EvaluationDone((), (), (), 0),
    happened.Described(()),
    happened.Validated(()),
    happened.Admitted(0),
    happened.BatchSent((), (), 0),
    happened.Started(),
)


@pytest.mark.requirement("050-84")
def test_what_is_out_of_phase_ends_the_exchange_and_answers_nobody_waits_for_are_faults() -> None:
    for state, count in {**stops(), State.NEW: 0}.items():
        for event in (*PEER_EVENTS, *ANSWERS):
            if type(event) in NEXT[state]:
                continue
            world = at(0, count)
            a = world.sides[0]
            if state is State.NEW:
                a.machine = Machine(a.config)
            if event in ANSWERS:
                with pytest.raises(AssertionError, match="is no answer"):
                    a.machine.receive(event, world.now(a))
                continue
            *_, closed = a.machine.receive(event, world.now(a))
            assert isinstance(closed, wanted.Close)
            expected = Failure.MALFORMED_BLOCK, Failure.UNREQUESTED_RECORD
            assert failed(closed.outcome) in expected


def test_every_move_of_the_table_is_made_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table alone changes a state, and none of its rows is there for nothing."""
    made: set[tuple[State, Trigger, State]] = set()
    move = Position.move

    def noted(self: Position, trigger: Trigger) -> None:
        before = self.state
        move(self, trigger)
        made.add((before, trigger, self.state))

    monkeypatch.setattr(Position, "move", noted)
    for seed in range(8):
        world = some_world(seed, is_open=(True, True))
        world.connect()
        world.settle()
        for _ in range(4):  # a side that begins a loop, and one that has another operand
            world.disturb()
            world.renew()
            world.settle()
        world.cut()
        world.settle()
    table = {
        (state, trigger, following)
        for state, row in NEXT.items()
        for trigger, following in row.items()
        if isinstance(trigger, Trigger) and trigger is not Trigger.OVER
    }
    assert {move for move in made if move[1] is not Trigger.OVER} == table
    assert {move[2] for move in made if move[1] is Trigger.OVER} == {State.CLOSED}


# -- waiting -----------------------------------------------------------------------------------


def waiting(**means: object) -> World:
    world = bent_world(honest, is_open=True, **means)  # type: ignore[arg-type]
    world.run()
    assert {side.machine.state for side in world.sides} == {State.WAITING}
    return world


@pytest.mark.requirement("050-194", "050-199")
def test_an_end_while_waiting_is_clean() -> None:
    world = waiting()
    a, b = world.sides
    b.happen(happened.Stopped(), world.now(b))
    world.run()
    for side in (a, b):
        assert side.outcome is not None
        assert side.outcome.failure is None
        assert side.outcome.reason == "at a fixed point"


@pytest.mark.requirement("050-199")
def test_an_end_is_clean_while_a_begun_loop_is_unanswered() -> None:
    world = waiting()
    a, _ = world.sides
    record = next(each for each in pool() if each.hash_text not in a.store)
    a.store[record.hash_text] = record
    a.happen(happened.Changed(), world.now(a))
    drain(a, world.now(a))
    a.inbox.clear()
    a.happen(happened.Ended(), world.now(a))
    a.work(world.now(a))
    assert a.outcome is not None
    assert a.outcome.failure is None
    if a.machine._loops is not None and a.machine._loops.ended is None:
        assert a.outcome.reason == "the peer ended the exchange"


def test_an_end_is_clean_while_the_peer_s_begun_loop_is_unanswered() -> None:
    world = waiting(selector="all")
    a, b = world.sides
    (record,) = valid(plex("new", data="new"))
    b.store[record.hash_text] = record
    b.happen(happened.Changed(), world.now(b))
    drain(b, world.now(b))
    assert a.take(world.now(a))
    assert a.machine.state is State.EVALUATING
    a.happen(happened.Ended(), world.now(a))
    drain(a, world.now(a))
    assert a.outcome is not None
    assert a.outcome.failure is None


def test_an_end_within_a_loop_of_an_open_exchange_is_early() -> None:
    world = waiting(selector="all")
    a, b = world.sides
    (record,) = valid(plex("new", data="new"))
    b.store[record.hash_text] = record
    b.happen(happened.Changed(), world.now(b))
    drain(b, world.now(b))
    a.take(world.now(a))
    drain(a, world.now(a))
    a.happen(happened.Ended(), world.now(a))
    a.work(world.now(a))
    assert a.outcome is not None
    assert failed(a.outcome) is Failure.PEER_CLOSED


@pytest.mark.requirement("050-196", "050-197", "050-198")
def test_a_new_setup_wins_over_a_begun_loop() -> None:
    world = waiting(selector="all")
    a, b = world.sides
    before = dict(a.store)
    (record,) = valid(plex("new", data="new"))
    b.store[record.hash_text] = record
    b.happen(happened.Changed(), world.now(b))
    drain(b, world.now(b))
    group = next(each for each in SELECTORS if each.name == "group")
    a.happen(happened.Renewed(operand(group.rules, 0), (exposure(EXPOSURES[0]),)), world.now(a))
    assert a.machine.state is State.SETUP
    first = a.reports[-1].plan_id
    world.run()
    assert {side.machine.state for side in world.sides} == {State.WAITING}
    assert a.reports[-1].plan_id != first
    assert a.reports[-1].at_fixed_point
    assert a.reports[-1].plan_id == b.reports[-1].plan_id
    assert before.keys() <= a.store.keys()


def test_an_end_while_a_new_setup_is_unanswered_is_clean() -> None:
    world = waiting()
    a, _ = world.sides
    group = next(each for each in SELECTORS if each.name == "all")
    a.happen(happened.Renewed(operand(group.rules, 0), (exposure(EXPOSURES[0]),)), world.now(a))
    a.happen(happened.Ended(), world.now(a))
    drain(a, world.now(a))
    assert a.outcome is not None
    assert a.outcome.failure is None
    counters = a.outcome.counters
    assert counters.stored == len(a.outcome.received)


@pytest.mark.requirement("050-84")
def test_a_setup_within_a_round_is_out_of_phase() -> None:
    def again(facts: Facts) -> Facts:
        return (("ExchangeOperand", "1", "R." + ROOT, "Opq_1", "selector"),)

    for mode in (0, 2):
        name = "Advertised" if mode == 0 else "AdvertisementPartition"
        found = outcome_of(first_block(name, again), mode=mode)
        assert failed(found) is Failure.MALFORMED_BLOCK


def test_an_empty_schema_is_enough_for_a_plan_without_fields() -> None:
    means = Capabilities(schema=Schema())
    for mode in (0, 1, 2):
        found = outcome_of(honest, mode=mode, selector="all", means=means)
        assert found.at_fixed_point
        assert len(found.received) == 16


@pytest.mark.requirement("050-134")
def test_who_is_woken_early_announces_no_tick() -> None:
    world = waiting(selector="in time")
    a, _ = world.sides
    assert a.alarm is not None
    assert a.machine.receive(happened.Woken(), world.now(a)) == [wanted.Wake(a.alarm)]
    (block, *_) = a.machine.receive(happened.Woken(), a.alarm)
    assert isinstance(block, wanted.SendBlock)
    assert [fact[0] for fact in block.facts] == ["TickReady"]


@pytest.mark.requirement("050-117", "050-135", "050-197")
def test_without_proofs_states_are_kept_within_one_connection_under_one_plan() -> None:
    """A side without a key sets up anew: the same plan goes on from what was known."""
    world = bent_world(honest, is_open=True, selector="all")
    world.plan.has_keys = False, False
    world.connect()
    world.run()
    a, b = world.sides
    everything = len(a.store)
    rules = [next(each for each in SELECTORS if each.name == name) for name in ("all", "group")]
    for number, selector in enumerate((rules[0], rules[1], rules[0])):
        world.clock += 20 * SECOND
        event = happened.Renewed(operand(selector.rules, 0), a.config.exposures)
        a.happen(event, world.now(a))
        world.run()
        agreed = [each for _, _, made in a.trace for each in made if isinstance(each, wanted.Agree)]
        assert agreed[-1].terms.link_id is None
        known = agreed[-1].known
        assert (known is not None and len(known) == everything) == (number == 0)
    assert a.machine.state is b.machine.state is State.WAITING
    world.clock += 20 * SECOND
    (record,) = valid(plex("new", data="new"))
    a.store[record.hash_text] = record
    a.happen(happened.Changed(), world.now(a))
    world.run()
    told = [each for each in a.transcript if b"TickReady" in each]
    assert told, "the latest tick rides on blocks that are sent anyway"
