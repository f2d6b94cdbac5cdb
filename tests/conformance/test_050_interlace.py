"""What text 050 requires of an exchange as a whole, shown with two machines and two stores."""

from __future__ import annotations

import dataclasses
import inspect
import random
from typing import TYPE_CHECKING

import pytest

from lace.exchange import advertise, machine, reconcile, transfer
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.advertisement import Advertisement
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.capabilities import SECOND, Capabilities, ExchangeLimits
from lace.exchange.failures import Failure
from lace.exchange.machine import Machine
from lace.exchange.transitions import State
from lace.record.validate import frame_record
from lace.rules.profiles import MAY_REQUEST, MAY_SEND
from tests.simulator.bent import bent_world, first_block
from tests.simulator.policies import EXPOSURES, SELECTORS, START, Selector, pool
from tests.simulator.side import facts_of
from tests.simulator.world import Plan, World
from tests.store.samples import key, plex, seal, valid

if TYPE_CHECKING:
    from lace.record.validate import ValidRecord
    from tests.simulator.side import Item, Side

requirement = pytest.mark.requirement
ALL = SELECTORS[0].rules
LINKS = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'),"
    " Field(P,'Name',_,N), TextShape(N,'links/','','').\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u'),"
    " AdvertisedField(P,S,'App',_,'ding'), AdvertisedField(P,S,'Name',_,N),"
    " TextShape(N,'links/','','').\n"
)
EVIDENCE = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'member').\n"
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'),"
    " Field(P,'Signed-By',_,V), ActiveMember(V).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u'),"
    " AdvertisedField(P,S,'App',_,'member').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u'),"
    " AdvertisedField(P,S,'App',_,'ding'), AdvertisedField(P,S,'Signed-By',_,V),"
    " ActiveMember(V).\n"
    "ActiveMember(V) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'member'),"
    " Field(P,'Name',_,V).\n"
)


def world_of(
    ours: list[ValidRecord],
    theirs: list[ValidRecord],
    *,
    rules: tuple[str, str] = (ALL, ALL),
    exposures: tuple[str, str] = (EXPOSURES[0], EXPOSURES[0]),
    means: Capabilities | None = None,
    is_open: bool = False,
    has_keys: bool = True,
) -> World:
    """Two sides with these records and rules, connected."""
    zero, one = (Selector("rules", each) for each in rules)
    plan = Plan(
        selectors=(zero, one),
        exposures=exposures,
        capabilities=(means or Capabilities(), means or Capabilities()),
        has_keys=(has_keys, has_keys),
        is_open=(is_open, is_open),
    )
    world = World(plan, random.Random(1))
    for kept, records in zip(world.kept, (ours, theirs), strict=True):
        kept.store.update({record.hash_text: record for record in records})
    world.connect()
    return world


def add(world: World, side: Side, record: ValidRecord) -> None:
    """Let somebody else store a record on a side."""
    side.store[record.hash_text] = record
    side.happen(happened.Changed(), world.now(side))


def blocks(side: Side) -> list[tuple[tuple[str, ...], ...]]:
    """The facts of every block that a side's machine wanted sent."""
    return [
        effect.facts
        for _, _, effects in side.trace
        for effect in effects
        if isinstance(effect, wanted.SendBlock)
    ]


def of_kind(side: Side, kind: type) -> list[object]:
    """The effects of a kind, in their order."""
    return [each for _, _, effects in side.trace for each in effects if isinstance(each, kind)]


# -- the model ---------------------------------------------------------------------------------


@requirement("050-01", "050-02", "050-14", "050-24", "050-171")
def test_two_machines_converge_by_events_and_effects_alone() -> None:
    world = world_of(list(pool()[:9]), list(pool()[5:14]))
    world.run()
    a, b = world.sides
    assert set(a.store) == set(b.store) == {each.hash_text for each in pool()[:14]}
    assert a.outcome is not None
    assert a.outcome.at_fixed_point
    assert a.machine is not b.machine


@requirement("050-01", "050-38", "050-146")
def test_a_machine_reads_no_clock_and_does_no_io() -> None:
    for module in (machine, advertise, reconcile, transfer):
        text = inspect.getsource(module)
        for word in ("import time", "import os", "import socket", "datetime", "import random"):
            assert word not in text


@requirement("050-03", "050-04", "050-20")
def test_enforcement_comes_from_the_policy_and_from_nowhere_else() -> None:
    """A peer's module that defines MaySend or MayRequest is refused; its blocks cannot say it."""
    world = world_of([], list(pool()[:3]))
    b = world.sides[1]
    module = f"{ALL}\nMaySend(P) :- Have(P).\n".encode()
    assert isinstance(b.effects[0], wanted.SendBlock)
    block = b.effects[0]
    b.effects[0] = dataclasses.replace(block, modules=((block.modules[0][0], module),))
    world.sides[0].inbox.clear()
    world.run()
    outcome = world.sides[0].outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.MALFORMED_MODULE

    agreed = world_of([], list(pool()[:3]))
    agreed.run()
    (agree,) = of_kind(agreed.sides[0], wanted.Agree)
    assert isinstance(agree, wanted.Agree)
    lowering = agree.executable.lowering.derived
    assert {MAY_SEND, MAY_REQUEST} <= set(lowering)
    for program in (agree.executable.ours, agree.executable.theirs, agree.executable.view):
        assert not {MAY_SEND, MAY_REQUEST} & set(program.derived)


@requirement("050-06", "050-18", "050-174", "050-176")
def test_only_what_may_be_requested_is_advertised_and_missing_is_requested() -> None:
    world = world_of(list(pool()[:9]), list(pool()[5:14]), rules=(LINKS, ALL))
    world.run()
    a = world.sides[0]
    assert a.asked
    selected = {
        each.hash_text
        for each in pool()[9:14]
        if (each.group, each.app) == ("u", "ding") and str(each.name).startswith("links/")
    }
    assert set(a.asked) == selected


@requirement("050-07", "050-17", "050-179")
def test_what_may_be_sent_is_evaluated_again_at_the_moment_of_sending() -> None:
    """A record becomes unsendable between the advertisement and the transfer."""
    rules = (
        "SelectHave(P) :- Have(P), not Stop('yes').\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
        "Stop('yes') :- Have(Q), Field(Q,'Name',_,'stop')."
    )
    world = world_of([], list(pool()[:3]), rules=(ALL, rules))
    a, b = world.sides
    while b.machine.state is not State.REQUESTING or not b.inbox:
        assert world.step()
    (stop,) = valid(plex("stop"))
    add(world, b, stop)
    world.run()
    assert not a.store
    assert a.outcome is not None
    assert set(a.outcome.not_available) == {each.hash_text for each in pool()[:3]}
    assert a.outcome.at_fixed_point


@requirement("050-08", "050-16", "050-19", "050-152")
def test_claims_are_never_facts_of_records() -> None:
    """Rules over Field do not see what a peer claims, until the bytes are there and checked."""
    rules = (
        "SelectHave(P) :- Have(P).\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), Field(P,'Group',_,'u').\n"
    )
    world = world_of([], list(pool()[:9]), rules=(rules, ALL))
    world.run()
    assert not world.sides[0].asked
    assert not world.sides[0].store


@requirement("050-09", "020-43")
def test_inner_records_and_support_are_fetched_by_no_rule_alone() -> None:
    """A Seal is sent whole; the Plex within it is advertised only where it is stored itself."""
    inner = plex("links/7", at=START, data="inner")
    (sealed,) = valid(seal(inner))
    world = world_of([], [sealed])
    world.run()
    a, b = world.sides
    advertised = [fact for block in blocks(b) for fact in block if fact[0] == "Advertised"]
    assert {fact[1] for fact in advertised} == {sealed.hash_text}
    assert set(a.store) == {sealed.hash_text}
    assert str(inner.id) not in {record for block in blocks(a) for fact in block for record in fact}


@requirement("020-03", "050-121")
@pytest.mark.parametrize("mode", [0, 2])
def test_records_of_other_formats_may_be_advertised_and_are_not_requested(mode: int) -> None:
    if mode == 0:
        source = "{S}"

        def foreign(facts: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
            own = next((fact[2] for fact in facts if fact[0] == "Advertised"), source)
            return [*facts, ("Advertised", "P.x.H9", own)]

        world = bent_world(first_block("Advertised", foreign, count=9), mode=0, selector="all")
        world.run()
        a = world.sides[0]
        assert a.outcome is not None
        assert a.outcome.failure is None
        assert "P.x.H9" in set(a.machine._loops.states.theirs)  # type: ignore[union-attr]
        assert "P.x.H9" not in a.asked
        return
    means = Capabilities(formats=frozenset({"H3", "H9"}))
    world = world_of([], list(pool()[:3]), means=means)
    world.run()
    assert all(each.endswith(".H3") for each in world.sides[0].asked)


@requirement("050-122", "050-185")
def test_bytes_of_a_format_that_the_store_does_not_know_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "STORED_FORMATS", frozenset({"H4"}))
    world = bent_world(lambda item: [item], selector="all")
    a = world.sides[0]
    while not any(isinstance(each, happened.Validated) for each in a.answers):
        assert world.step()
    found = a.answers[0]
    assert isinstance(found, happened.Validated)
    a.answers[0] = happened.Validated((Failure.UNSUPPORTED_RECORD.condition, *found.outcomes[1:]))
    world.run()
    assert a.outcome is not None
    assert [why for _, why in a.outcome.rejected] == [Failure.UNSUPPORTED_RECORD.condition]
    assert a.outcome.noted == ((Failure.UNSUPPORTED_RECORD, 1),)
    assert a.outcome.at_fixed_point


@requirement("050-10", "050-192")
def test_a_fixed_point_is_not_equality() -> None:
    world = world_of(list(pool()[:9]), list(pool()[5:14]), exposures=(EXPOSURES[1], EXPOSURES[1]))
    world.run()
    a, b = world.sides
    assert set(a.store) != set(b.store)
    assert a.outcome is not None
    assert a.outcome.at_fixed_point
    world.check_fixed_point()


# -- setup and hello ---------------------------------------------------------------------------


@requirement("050-11", "050-52", "050-53", "050-85", "050-88", "050-91", "050-92", "050-94")
def test_each_side_presents_one_operand_and_both_compute_one_plan() -> None:
    world = world_of([], [], rules=(ALL, LINKS))
    world.run()
    a, b = world.sides
    for side in world.sides:
        setup = blocks(side)[0]
        assert [fact[0] for fact in setup] == ["ExchangeOperand", "ExchangeNonce"]
        (first, *_) = of_kind(side, wanted.SendBlock)
        assert isinstance(first, wanted.SendBlock)
        ((module, raw),) = first.modules
        assert module == setup[0][2]
        assert EXPOSURES[0].encode() not in raw
    assert a.outcome is not None
    assert b.outcome is not None
    assert a.outcome.plan_id == b.outcome.plan_id


@requirement("050-12", "050-13", "050-87", "050-93", "050-196", "050-198")
def test_a_renewed_operand_replaces_the_one_before() -> None:
    world = world_of(list(pool()[:9]), list(pool()[5:14]), rules=(LINKS, ALL), is_open=True)
    world.run()
    a, b = world.sides
    first = a.reports[-1].plan_id
    stored = set(a.store)
    operands = a.config.operand, world_of([], []).sides[0].config.operand
    for operand in operands[::-1]:
        a.happen(happened.Renewed(operand, a.config.exposures), world.now(a))
        world.run()
        assert a.machine.state is b.machine.state is State.WAITING
    plans = [each.plan_id for each in a.reports]
    assert plans[-1] == first, "the same operands, the same plan"
    assert len(set(plans)) == 2
    assert stored < set(a.store)
    # A module travels once in a stream, and each plan is agreed on anew.
    sent = [each.modules for each in of_kind(a, wanted.SendBlock) if each.modules]  # type: ignore[attr-defined]
    assert len(sent) == 2
    assert len(of_kind(a, wanted.Agree)) == 3


@requirement("050-217")
def test_a_plan_that_does_not_compile() -> None:
    world = world_of([], [])
    a = world.sides[0]
    a.machine = Machine(dataclasses.replace(a.config, lowering="no-such-v1"))
    a.effects.clear()
    a.happen(happened.Started(), world.now(a))
    world.run()
    assert a.outcome is not None
    assert a.outcome.failure is not None
    assert a.outcome.failure.failure is Failure.PLAN_FAILED


@requirement("050-116", "050-118", "050-157")
def test_cursors_are_kept_under_the_link_id_and_prove_nothing() -> None:
    world = world_of([], list(pool()[:9]))
    world.run()
    (link,) = world.kept[0].cursors
    assert world.sides[0].outcome is not None
    assert link == world.sides[0].outcome.link_id
    # A cursor of something else is only compared, and what the peer says counts.
    wrong = pool()[20].hash_text
    world.kept[0].cursors[link] = dataclasses.replace(
        world.kept[0].cursors[link], theirs=AdvertisementSet.of([wrong], [bytes(32)])
    )
    world.kept[0].claims[link] = {wrong: Advertisement(wrong)}
    world.kept[1].store[pool()[12].hash_text] = pool()[12]
    world.connect()
    world.run()
    assert pool()[12].hash_text in world.kept[0].store
    assert wrong not in world.sides[0].asked
    anonymous = world_of([], list(pool()[:9]), has_keys=False)
    anonymous.run()
    assert anonymous.kept[0].cursors == {}
    assert anonymous.sides[0].outcome is not None
    assert anonymous.sides[0].outcome.link_id is None


# -- advertising -------------------------------------------------------------------------------


@requirement("050-77", "050-144", "050-151", "050-153")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_is_advertised_is_the_effective_send_set_and_nothing_else(mode: int) -> None:
    world = world_of(
        [], list(pool()[:14]), exposures=(EXPOSURES[0], EXPOSURES[1]), means=Capabilities(mode=mode)
    )
    world.run()
    shown = {each.hash_text for each in pool()[:14] if each.group == "u"}
    named = {value for block in blocks(world.sides[1]) for fact in block for value in fact}
    assert named & {each.hash_text for each in pool()[:14]} == shown
    counts = [
        int(fact[2])
        for block in blocks(world.sides[1])
        for fact in block
        if fact[0] == "AdvertisementPartition" and fact[1] == ""
    ]
    assert all(count == len(shown) for count in counts)


@requirement("050-244", "020-86")
@pytest.mark.parametrize("mode", [1, 2])
def test_summaries_tell_of_what_may_be_sent_and_of_nothing_else(mode: int) -> None:
    """Its count and root, in all or by partition; hidden records do not change a line."""
    shown = [each for each in pool()[:14] if each.group == "u"]
    hidden = [each for each in pool()[:14] if each.group != "u"]
    told = []
    for records in (shown, shown + hidden, shown[:-1]):
        world = world_of(
            [],
            records,
            exposures=(EXPOSURES[0], EXPOSURES[1]),
            means=Capabilities(mode=mode),
        )
        world.run()
        lines = [
            fact
            for block in blocks(world.sides[1])
            for fact in block
            if fact[0] in ("AdvertisementPartition", "AdvertisementChildren")
        ]
        assert lines
        told.append(lines)
    assert told[0] == told[1] != told[2]
    assert sum(int(fact[2]) for fact in told[0] if len(fact[1]) == (2 if mode == 1 else 0)) >= len(
        shown
    )


@requirement("060-151", "050-180")
def test_what_a_batch_of_not_available_lines_does_not_name_is_deferred() -> None:
    gone: list[str] = []

    def bend(item: Item) -> list[Item]:
        if not isinstance(item, bytes):
            return [item]
        if gone:
            return []
        gone.append(frame_record(item).claimed)
        return [happened.Unavailable(gone[0])]

    world = bent_world(bend)
    a = world.sides[0]
    while not gone:
        assert world.step()
    while a.machine.state is State.TRANSFERRING:
        assert world.step()
    assert a.machine.outcome is None, "the phase ended, and the exchange goes on"
    assert not set(gone) & set(a.store)


@requirement("050-44", "050-151")
def test_advertised_fields_are_those_of_020() -> None:
    means = Capabilities(mode=0, offer_all=True)
    world = world_of([], list(pool()[:14]), means=means)
    world.run()
    told = {
        (fact[1], *fact[3:])
        for block in blocks(world.sides[1])
        for fact in block
        if fact[0] == "AdvertisedField"
    }
    held = {
        fact[1:]
        for record in pool()[:14]
        for fact in facts_of(record)
        if fact[0] == "Field" and fact[1] == record.hash_text
    }
    assert told == held


@requirement("050-145")
def test_the_first_evaluation_uses_the_stored_claims() -> None:
    rules = (
        "SelectHave(P) :- Have(P), Advertised(_,_).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    )
    world = world_of(list(pool()[:3]), list(pool()[3:6]), rules=(ALL, ALL))
    world.run()
    again = World(world.plan, random.Random(2), world.kept)
    again.connect()
    again.run()
    (agree,) = of_kind(again.sides[0], wanted.Agree)
    assert isinstance(agree, wanted.Agree)
    assert agree.known is not None
    assert len(agree.known) == 6
    fresh = world_of(list(pool()[:3]), [], rules=(rules, rules))
    fresh.run()
    (first,) = of_kind(fresh.sides[0], wanted.Agree)
    assert isinstance(first, wanted.Agree)
    assert first.known is None
    assert not fresh.sides[1].store


@requirement("050-148", "050-149", "050-150", "050-188", "050-189", "050-190")
def test_records_that_others_store_meanwhile_may_take_part() -> None:
    world = world_of([], list(pool()[:4]))
    a, b = world.sides
    while b.machine.state is not State.TRANSFERRING:
        assert world.step()
    add(world, b, pool()[9])
    world.run()
    assert pool()[9].hash_text in a.store
    assert a.outcome is not None
    assert a.outcome.at_fixed_point
    # What comes after the end is for another exchange.
    b.store[pool()[10].hash_text] = pool()[10]
    b.happen(happened.Changed(), world.now(b))
    world.run()
    assert pool()[10].hash_text not in a.store


# -- requests and rounds -----------------------------------------------------------------------


@requirement("050-172", "050-186", "050-242")
def test_evidence_brings_more_in_a_later_loop() -> None:
    member = plex(str(key(2).verifier), group="u", app="member", at=START)
    letters = [seal(plex(f"links/{n}", app="ding", at=START + n), 1 + n % 2) for n in range(4)]
    world = world_of([], valid(member, *letters), rules=(EVIDENCE, EVIDENCE))
    world.run()
    a = world.sides[0]
    asked = [
        [fact[1] for fact in block if fact[0] == "MayRequest"]
        for block in blocks(a)
        if any(fact[0] == "MayRequest" for fact in block)
    ]
    assert asked[0] == [str(member.id)]
    assert len(asked) == 2
    assert len(a.store) == 3
    assert a.outcome is not None
    assert a.outcome.counters.loops == 3


@requirement("050-243")
def test_a_peer_s_helper_looks_into_the_query_view_only() -> None:
    member = plex(str(key(2).verifier), group="u", app="member", at=START)
    letter = seal(plex("links/1", app="ding", at=START), 2)
    hidden = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'App',_,'member')."
    world = world_of(
        [], valid(member, letter), rules=(EVIDENCE, ALL), exposures=(EXPOSURES[0], hidden)
    )
    world.run()
    assert not world.sides[0].store, "the member record is not shown, so nobody is a member"


@requirement("050-175", "050-177")
def test_a_list_may_be_a_part_and_what_was_asked_for_may_be_stored() -> None:
    """Two records of one name are asked for at once; either alone would forbid the other."""
    rules = next(each for each in SELECTORS if each.name == "one of a name").rules
    two = valid(plex("same", at=START, data="1"), plex("same", at=START, data="2"))
    world = world_of([], two, rules=(rules, ALL))
    world.run()
    assert set(world.sides[0].store) == {each.hash_text for each in two}


@requirement("050-201", "050-202")
def test_different_schedules_may_end_with_different_sets() -> None:
    rules = next(each for each in SELECTORS if each.name == "one of a name").rules
    two = valid(plex("same", at=START, data="1"), plex("same", at=START, data="2"))
    limits = ExchangeLimits(service_budget_bytes=0)
    world = world_of([], two, rules=(rules, ALL), means=Capabilities(limits=limits))
    world.run()
    a = world.sides[0]
    assert len(a.store) == 1, "the other was deferred, and is not wanted any more"
    assert a.outcome is not None
    assert a.outcome.at_fixed_point
    world.check_fixed_point()


@requirement("050-187", "050-234")
def test_policies_that_flip_end_at_the_loop_limit_and_say_so() -> None:
    flip = next(each for each in SELECTORS if each.name == "what is new to you").rules
    limits = ExchangeLimits(max_loop_iterations=5)
    world = world_of(
        list(pool()[:3]),
        list(pool()[:3]),
        rules=(flip, flip),
        means=Capabilities(limits=limits),
    )
    world.run()
    for side in world.sides:
        assert side.outcome is not None
        assert side.outcome.failure is None
        assert not side.outcome.at_fixed_point
        assert side.outcome.reason == "not at a fixed point: the loop limit was reached"
        assert side.outcome.noted == ((Failure.LOOP_LIMIT, 1),)
        assert side.outcome.counters.loops == 5


@requirement("050-195", "050-194")
def test_an_open_exchange_follows_new_records() -> None:
    world = world_of([], list(pool()[:3]), is_open=True)
    world.run()
    a, b = world.sides
    assert len(a.store) == 3
    rounds = len(a.reports)
    add(world, b, pool()[5])
    world.run()
    assert pool()[5].hash_text in a.store
    assert len(a.reports) == rounds + 1
    # A change that changes nothing for the peer starts no loop.
    loops_before = a.reports[-1].counters.loops
    b.happen(happened.Changed(), world.now(b))
    world.run()
    assert a.machine.state is State.WAITING
    assert a.machine.counters.loops == loops_before


@requirement("050-132", "050-135", "050-140", "050-141", "050-195")
def test_ticks_open_what_depends_on_time() -> None:
    rules = next(each for each in SELECTORS if each.name == "in time").rules
    means = Capabilities(tick_interval=5 * SECOND)
    late = valid(plex("links/1", at=START + 12))
    world = world_of([], late, rules=(rules, rules), means=means, is_open=True)
    world.run()
    a, b = world.sides
    assert not a.store
    world.wait(30)
    assert set(a.store) == {late[0].hash_text}
    assert a.ticks == sorted(a.ticks)
    assert len(set(a.ticks)) > 2
    alone = [block for block in blocks(b) if [fact[0] for fact in block] == ["TickReady"]]
    assert alone
    assert a.machine.state is b.machine.state is State.WAITING


@requirement("050-142")
def test_a_bounded_exchange_stays_at_its_start() -> None:
    world = world_of(list(pool()[:3]), list(pool()[3:6]))
    world.run()
    for side in world.sides:
        assert len(set(side.ticks)) == 1
        assert not any(fact[0] == "TickReady" for block in blocks(side) for fact in block)


# -- the examples ------------------------------------------------------------------------------


@requirement("050-240")
def test_first_contact() -> None:
    theirs = valid(
        *(plex(f"links/{n}", app="ding", at=START + n, data=str(n)) for n in range(5)),
        plex("other/1", app="ding", at=START),
        plex("links/1", app="dong", at=START),
    )
    world = world_of([], theirs, rules=(LINKS, LINKS))
    world.run()
    a = world.sides[0]
    assert set(a.store) == {each.hash_text for each in theirs[:5]}
    assert a.outcome is not None
    assert a.outcome.cursor_updated
    (cursor,) = world.kept[0].cursors.values()
    assert set(cursor.theirs) == set(a.store)


@requirement("050-241")
def test_storing_one_record() -> None:
    (record, other) = valid(plex("links/1", at=START), plex("links/2", at=START))
    only = (
        f"SelectHave(P) :- Have(P), Is(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Is(P).\n"
        f"Is('{record.hash_text}') :- true.\n"
    )
    world = world_of([record, other], [], rules=(only, ALL))
    world.run()
    assert set(world.sides[1].store) == {record.hash_text}


@requirement("050-82")
def test_bytes_of_records_are_no_facts() -> None:
    world = world_of([], list(pool()[:3]))
    world.run()
    texts = b"".join(each for each in world.sides[0].transcript if each.startswith(b"May"))
    assert all(bytes(each.bytes) not in texts for each in pool()[:3])
