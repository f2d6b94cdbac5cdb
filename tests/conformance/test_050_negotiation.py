"""Text 050, up to the end of hello: blocks, setup, negotiation, ticks, failures and limits."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.base.limits import DEFAULT_SETTINGS, Settings, describe_settings
from lace.base.tai import Tai
from lace.exchange.blocks import (
    CONTROL_PREDICATES,
    PHASE_PREDICATES,
    Phase,
    check_block,
    parse_block,
)
from lace.exchange.capabilities import (
    SECOND,
    WIRE_LIMITS,
    Capabilities,
    ExchangeLimits,
    exchange_limits_of,
)
from lace.exchange.failures import Action, Failure, InterlaceFailure
from lace.exchange.hello import link_id, make_setup, read_hello, read_setup
from lace.exchange.negotiation import runtime_facts
from lace.exchange.ticks import start_ticks
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.policy.operand import operand_of
from lace.policy.schema import ALL_FIELDS, Schema
from tests.unit.exchange.sides import ALICE, ALL, BOB, EVE, PLAIN, START, pair_of

if TYPE_CHECKING:
    from collections.abc import Callable

requirement = pytest.mark.requirement

LINKS = json.loads((Path(__file__).parents[1] / "vectors" / "links.json").read_text("utf-8"))
R = operand_of(PLAIN, 0).module_id
DIGEST = b64a.encode(b"\x11" * 32)
P = f"P.{DIGEST}.H3"
GIVEN = "tcp:host:4790"


def refused(do: Callable[[], object], failure: Failure) -> None:
    with pytest.raises(InterlaceFailure) as caught:
        do()
    assert caught.value.failure is failure


def hello_lines(*changes: tuple[str, str]) -> list[bytes]:
    """The example of 050 with real identifiers, and lines changed."""
    text = (
        f"HelloExchangePlan('E.{DIGEST}')\n"
        "HelloTAI('1640995200:000000000')\nHelloTickInterval('10000000000')\n"
        "HelloRecordFormat('H3')\nHelloAdvertisedField('Type')\nHelloAdvertisedField('Group')\n"
        "HelloAdvertisedField('App')\nHelloAdvertisedField('Signed-By')\n"
        "HelloLimit('max_total_transferred_bytes','1073741824')"
    )
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text.encode().split(b"\n")


# Fact blocks


@requirement("050-21", "050-22", "050-23", "050-215")
def test_a_block_is_fact_lines() -> None:
    block = parse_block(
        hello_lines(("HelloTAI", "HelloAllAdvertisedFields()\nHelloTAI")), Phase.HELLO
    )
    assert block.one("HelloAllAdvertisedFields") == ("HelloAllAdvertisedFields",)
    for line in (
        b"HelloRecordFormat(F)",
        b"HelloRecordFormat(_)",
        b"HelloRecordFormat('H3').",
        b"HelloRecordFormat('H3')\r",
        b"HelloRecordFormat( 'H3')",
        b'HelloRecordFormat("H3")',
        b"HelloAdvertisedField('\\n')",
        b"HelloAdvertisedField('\xff')",
        "HelloAdvertisedField('e\u0301')".encode(),
        b"HelloAllAdvertisedFields",
        b"",
    ):
        lines = [*hello_lines(), line]
        refused(lambda lines=lines: parse_block(lines, Phase.HELLO), Failure.MALFORMED_BLOCK)  # type: ignore[misc]


@requirement("050-24")
def test_text_and_tuples_are_the_same() -> None:
    lines = [f"MayRequest('{P}')".encode()]
    assert parse_block(lines, Phase.REQUEST) == check_block([("MayRequest", P)], Phase.REQUEST)


# Runtime facts


@requirement("050-25", "050-26", "050-27", "050-28", "050-29", "050-30", "050-31", "050-32")
def test_the_runtime_facts_are_these() -> None:
    terms = pair_of().terms(0)
    facts = runtime_facts(terms, transport=GIVEN, encrypted=True)
    known = {p.name: p.arity for p in BASE_PREDICATES.values() if p.fact_class is FactClass.RUNTIME}
    assert {fact[0]: len(fact) - 1 for fact in facts} == known
    values = {fact[0]: fact[1:] for fact in facts}
    assert values == {
        "Here": (ALICE.verifier,),
        "Peer": (BOB.verifier,),
        "Transport": (GIVEN,),
        "TransportEncrypted": (),
        "StartTAI": (START,),
        "TickTAI": (START,),
        "ClockSkewSeconds": ("0",),
    }


@requirement("050-33", "050-34", "050-35", "050-97")
def test_what_is_not_proven_is_absent() -> None:
    terms = pair_of(keys=(None, None)).terms(0)
    names = {fact[0] for fact in runtime_facts(terms, transport=GIVEN, encrypted=False)}
    assert not names & {"Peer", "Here", "TransportEncrypted"}


@requirement("050-36")
def test_each_side_has_its_own_here() -> None:
    pair = pair_of()
    zero, one = pair.terms(0), pair.terms(1)
    assert zero.plan_id == one.plan_id
    assert (zero.here, one.here) == (ALICE.verifier, BOB.verifier)
    assert ALICE.verifier not in pair.plan.transcript


@requirement("050-37", "050-105", "050-106", "050-110")
@pytest.mark.parametrize(
    ("nanoseconds", "seconds"),
    [(0, "0"), (SECOND // 2, "0"), (1_999_999_999, "1"), (2 * SECOND, "2")],
)
def test_start_and_skew(nanoseconds: int, seconds: str) -> None:
    later = START.shift(nanoseconds)
    pair = pair_of(tais=(START, later))
    for index in (0, 1):
        facts = runtime_facts(pair.terms(index), transport=GIVEN, encrypted=False)
        assert ("StartTAI", later) in facts
        assert ("TickTAI", later) in facts
        assert ("ClockSkewSeconds", seconds) in facts


@requirement("050-41", "050-42", "050-43")
def test_the_source_of_advertisements() -> None:
    pair = pair_of(keys=(ALICE, None))
    zero, one = pair.terms(0), pair.terms(1)
    assert (one.peer_source, zero.source) == (ALICE.verifier, ALICE.verifier)
    label = pair.plan.operands[1].origin
    assert (zero.peer_source, one.source) == (label, label)
    assert zero.peer.verifier is None


# Setup


@requirement("050-49", "050-54", "050-85")
def test_the_setup_fact() -> None:
    setup = make_setup(operand_of(PLAIN, 0), verifier=ALICE.verifier)
    assert setup.facts == (("ExchangeOperand", "0", R, ALICE.verifier, "selector"),)
    assert read_setup(check_block(setup.facts, Phase.SETUP), local_index=1) == setup


@requirement("050-50", "050-86")
def test_exactly_one_operand() -> None:
    facts = make_setup(operand_of(PLAIN, 0)).facts
    none = check_block([], Phase.SETUP)
    refused(lambda: read_setup(none, local_index=1), Failure.MALFORMED_BLOCK)
    other = make_setup(operand_of(PLAIN, 1)).facts
    refused(lambda: check_block([*facts, *other], Phase.SETUP), Failure.MALFORMED_BLOCK)


@requirement("050-51")
def test_equal_indexes() -> None:
    facts = make_setup(operand_of(PLAIN, 0)).facts
    block = check_block(facts, Phase.SETUP)
    refused(lambda: read_setup(block, local_index=0), Failure.EQUAL_INDEXES)
    wrong = [("ExchangeOperand", "2", *facts[0][2:])]
    refused(lambda: check_block(wrong, Phase.SETUP), Failure.MALFORMED_BLOCK)


@requirement("050-55", "050-81")
def test_control_facts_are_no_facts_for_rules() -> None:
    shared = set(CONTROL_PREDICATES) & set(BASE_PREDICATES)
    assert shared == {"Advertised", "AdvertisedField"}


def test_setup_and_hello_do_not_mix() -> None:
    assert not set(PHASE_PREDICATES[Phase.SETUP]) & set(PHASE_PREDICATES[Phase.HELLO])


# Hello


@requirement(
    "050-56", "050-57", "050-58", "050-59", "050-60", "050-61", "050-62", "050-63", "050-64"
)
def test_the_example_hello() -> None:
    signer = f"HelloSigner('{BOB.verifier}')\nHelloTAI"
    hello = read_hello(parse_block(hello_lines(("HelloTAI", signer)), Phase.HELLO))
    assert hello.plan_id == f"E.{DIGEST}"
    assert hello.signer == BOB.verifier
    assert hello.tai == "1640995200:000000000"
    assert hello.tick_interval == 10 * SECOND
    assert hello.formats == {"H3"}
    assert hello.schema == Schema(names=frozenset({"Type", "Group", "App", "Signed-By"}))
    assert hello.limits["max_total_transferred_bytes"] == 2**30
    everything = hello_lines(("HelloTAI", "HelloAllAdvertisedFields()\nHelloTAI"))
    assert read_hello(parse_block(everything, Phase.HELLO)).schema == ALL_FIELDS


@requirement("050-48")
@pytest.mark.parametrize("symbolic", ["E.EXAMPLE", "R.GROUP_X", "E.", DIGEST])
def test_symbolic_identifiers_are_none(symbolic: str) -> None:
    lines = hello_lines((f"E.{DIGEST}", symbolic))
    refused(lambda: parse_block(lines, Phase.HELLO), Failure.MALFORMED_BLOCK)


@requirement("050-103", "050-104", "050-108")
def test_both_times_are_needed() -> None:
    for gone in ("HelloTAI('1640995200:000000000')\n", "HelloTickInterval('10000000000')\n"):
        block = parse_block(hello_lines((gone, "")), Phase.HELLO)
        refused(lambda block=block: read_hello(block), Failure.MALFORMED_BLOCK)  # type: ignore[misc]
    for text in ("", "1e9", "010", "-1"):
        lines = hello_lines(("'10000000000'", f"'{text}'"))
        refused(lambda lines=lines: parse_block(lines, Phase.HELLO), Failure.MALFORMED_BLOCK)  # type: ignore[misc]
    refused(lambda: pair_of().change(1, tick_interval=0).terms(0), Failure.TICK_INTERVAL)


@requirement("050-107", "050-109")
def test_the_longer_interval_counts() -> None:
    terms = pair_of().change(1, tick_interval=90 * SECOND).terms(0)
    assert terms.tick_interval == 90 * SECOND
    for short in (1, SECOND - 1):
        assert pair_of().change(1, tick_interval=short).terms(0).tick_interval == 10 * SECOND
    refused(lambda: pair_of().change(1, tick_interval=10**18).terms(0), Failure.TICK_INTERVAL)


# Who is who


@requirement("050-95", "050-98")
def test_a_signer_needs_a_proof() -> None:
    pair = pair_of()
    refused(lambda: pair.change(1, proof=None).terms(0), Failure.UNPROVEN_SIGNER)
    forged = pair.change(1, proof=pair.sides[0].hello.proof)
    refused(lambda: forged.terms(0), Failure.UNPROVEN_SIGNER)
    for side in pair_of(nonces=(None, None)).sides:
        assert side.hello.signer is None


@requirement("050-96")
def test_a_proven_signer_is_the_peer() -> None:
    facts = runtime_facts(pair_of().terms(1), transport=GIVEN, encrypted=False)
    assert ("Peer", ALICE.verifier) in facts


@requirement("050-99", "050-100", "050-211")
def test_claims_of_origins() -> None:
    pair = pair_of(nonces=(None, None))
    refused(lambda: pair.terms(0), Failure.BAD_CLAIM)
    refused(lambda: pair.terms(0, transport_peer=EVE.verifier), Failure.PEER_MISMATCH)
    own = [("ExchangeOperand", "1", R, "Opq_0", "selector")]
    block = check_block(own, Phase.SETUP)
    refused(lambda: read_setup(block, local_index=0), Failure.BAD_CLAIM)


@requirement("050-101", "050-102", "050-212")
def test_the_same_plan() -> None:
    pair = pair_of()
    assert pair.terms(0).plan_id == pair.terms(1).plan_id == pair.plan.id
    other = pair_of(rules=(PLAIN, PLAIN)).plan.id
    refused(lambda: pair.change(1, plan_id=other).terms(0), Failure.PLAN_MISMATCH)


@requirement("050-115", "050-118")
def test_links() -> None:
    for vector in LINKS:
        assert link_id(vector["b"], vector["a"], vector["plan"]) == vector["link-id"]
    pair = pair_of()
    low, high = sorted((ALICE.verifier, BOB.verifier))
    expected = b64a.encode(digest(f"{low}{high}{pair.plan.id}".encode()))
    assert pair.terms(0).link_id == pair.terms(1).link_id == expected
    assert pair_of(keys=(ALICE, None)).terms(0).link_id is None


# Formats, schema, limits


@requirement("050-119", "050-120", "050-213")
def test_formats() -> None:
    pair = pair_of().change(1, formats=frozenset({"H3", "H4"}))
    assert pair.terms(0).formats == {"H3"}
    none = pair_of().change(1, formats=frozenset({"H4"}))
    refused(lambda: none.terms(0), Failure.NO_COMMON_FORMAT)


@requirement("050-123", "050-124", "050-125", "050-126", "050-127", "050-129")
def test_schemas_intersect() -> None:
    listed = {
        "Type",
        "Group",
        "App",
        "Name",
        "TAI",
        "Signed-By",
        "Signature",
        "Data-Length",
        "X+Link",
    }
    lines = [*hello_lines(), *(f"HelloAdvertisedField('{name}')".encode() for name in listed)]
    some = read_hello(parse_block(lines, Phase.HELLO)).schema
    assert some == Schema(names=frozenset(listed))
    assert some & ALL_FIELDS == ALL_FIELDS & some == some
    assert ALL_FIELDS & ALL_FIELDS == ALL_FIELDS
    assert some & Schema(names=frozenset({"App", "app"})) == Schema(names=frozenset({"App"}))


@requirement("050-46", "050-47", "050-130", "050-131", "050-214")
def test_the_schema_serves_the_plan() -> None:
    few = Schema(names=frozenset({"App"}))
    refused(lambda: pair_of().change(1, schema=few).terms(0), Failure.SCHEMA_UNMET)
    everything = pair_of(rules=(ALL, PLAIN), capabilities=(Capabilities(offer_all=True),) * 2)
    assert everything.terms(0).schema == ALL_FIELDS
    for index in (0, 1):
        changed = everything.change(index, schema=few)
        refused(lambda changed=changed: changed.terms(0), Failure.SCHEMA_UNMET)  # type: ignore[misc]


@requirement("050-128")
def test_without_any_field_there_are_still_advertisements() -> None:
    assert pair_of(rules=(PLAIN, PLAIN)).terms(0).schema == Schema()
    assert "Advertised" in PHASE_PREDICATES[Phase.LISTING]


@requirement("050-111", "050-112", "050-113", "050-114")
def test_limits_are_negotiated() -> None:
    without = hello_lines(("\nHelloLimit('max_total_transferred_bytes','1073741824')", ""))
    theirs = read_hello(parse_block(without, Phase.HELLO))
    assert theirs.limits == ExchangeLimits().wire
    low = {**theirs.limits, "max_loop_iterations": 3}
    assert pair_of().change(1, limits=low).terms(0).limits.max_loop_iterations == 3
    own = Capabilities(limits=ExchangeLimits(max_loop_iterations=2))
    pair = pair_of(capabilities=(own, Capabilities())).change(1, limits=low)
    assert pair.terms(0).limits.max_loop_iterations == 2
    unknown = [*hello_lines(), b"HelloLimit('max_moons','many')"]
    assert set(read_hello(parse_block(unknown, Phase.HELLO)).limits) == set(WIRE_LIMITS)
    for value in ("0", "x", "007", str(2**63)):
        block = parse_block(hello_lines(("'1073741824'", f"'{value}'")), Phase.HELLO)
        refused(lambda block=block: read_hello(block), Failure.MALFORMED_LIMIT)  # type: ignore[misc]


@requirement("050-229", "050-230", "050-231", "050-232", "050-233", "050-234", "050-235")
def test_limits_have_defaults_and_settings() -> None:
    found = exchange_limits_of(DEFAULT_SETTINGS)
    assert (found.max_fact_block_size, found.max_total_transferred_bytes) == (64 << 20, 1 << 30)
    assert (found.max_advertisement_records_listed, found.max_partition_summaries) == (
        100_000,
        16_384,
    )
    assert (found.max_narrowing_depth, found.max_loop_iterations) == (12, 16)
    assert found.phase_timeout_seconds == 30
    assert found == ExchangeLimits(), "the two places that have defaults agree"
    settings = {name for name, *_ in describe_settings()}
    for entry in fields(ExchangeLimits):
        assert entry.name in settings
        value = getattr(DEFAULT_SETTINGS, entry.name) + 1
        changed: Settings = replace(DEFAULT_SETTINGS, **{entry.name: value})
        assert getattr(exchange_limits_of(changed), entry.name) == value


# Control facts of the later phases


@requirement("050-39", "050-40", "050-73", "050-74", "050-75", "050-78", "050-79", "050-80")
def test_names_and_arities() -> None:
    assert {
        name: predicate.arity
        for name, predicate in CONTROL_PREDICATES.items()
        if not name.startswith(("Hello", "Exchange"))
    } == {
        "Advertised": 2,
        "AdvertisedField": 5,
        "AdvertisementPartition": 3,
        "AdvertisementChildren": 2,
        "AdvertisementCursor": 2,
        "AdvertisementDelta": 1,
        "AdvertisementWithdrawn": 1,
        "ListAdvertisementPartition": 1,
        "NarrowAdvertisementPartition": 1,
        "MayRequest": 1,
        "NotAvailable": 1,
        "TickReady": 1,
    }


@requirement("050-76", "050-219")
def test_count_and_root() -> None:
    good = ("AdvertisementPartition", "ab", "10", DIGEST)
    assert len(check_block([good], Phase.SUMMARY_1)) == 1
    for wrong in (
        ("AdvertisementPartition", "ab", "010", DIGEST),
        ("AdvertisementPartition", "ab", "ten", DIGEST),
        ("AdvertisementPartition", "ab", "10", DIGEST[:-1]),
        ("AdvertisementPartition", "a-", "10", DIGEST),
    ):
        facts = [wrong]
        refused(lambda facts=facts: check_block(facts, Phase.SUMMARY_1), Failure.MALFORMED_SUMMARY)  # type: ignore[misc]


@requirement("050-82")
def test_no_fact_carries_record_bytes() -> None:
    assert list(PHASE_PREDICATES[Phase.TRANSFER]) == ["NotAvailable"]


# Ticks


@requirement("050-132", "050-133", "050-139", "050-140", "050-142")
def test_the_shared_tick() -> None:
    state = start_ticks(START, 10 * SECOND)
    assert state.local_ready == state.peer_ready == state.tick == START
    ten, twenty = START.shift(10 * SECOND), START.shift(20 * SECOND)
    state = state.announce(twenty).ask().hear(ten).hear_request()
    assert state.begin_loop().tick == ten
    assert state.begin_loop().hear(START).hear_request().begin_loop().tick == ten
    bounded = start_ticks(START, 10 * SECOND).hear(twenty).hear_request().ask()
    assert bounded.begin_loop().tick == START


@requirement("050-134", "050-136", "050-137", "050-138")
def test_valid_ticks() -> None:
    state = start_ticks(START, 10 * SECOND)
    assert state.due(START.shift(10 * SECOND - 1)) is None
    assert state.due(START.shift(10 * SECOND)) == START.shift(10 * SECOND)
    heard = state.hear(START.shift(20 * SECOND))
    assert heard.peer_ready == START.shift(20 * SECOND)
    for ignored in (-10 * SECOND, 10 * SECOND, 25 * SECOND, 30 * SECOND + 1):
        assert heard.hear(START.shift(ignored)) == heard
    refused(lambda: state.hear("soon"), Failure.MALFORMED_BLOCK)
    assert isinstance(heard.peer_ready, Tai)


# Failures


@requirement("050-210")
def test_the_table_of_failures() -> None:
    """The rows whose failure happens in other modules: their actions are these."""
    rows = {row.rule: row for row in list(Failure)[:16]}
    assert list(rows) == [f"050-{number}" for number in range(211, 227)]
    actions = [row.action for row in rows.values()]
    assert actions[:12] == [Action.ABORT] * 12
    assert actions[12:] == [Action.ABORT_PARTIAL, Action.ABORT, Action.REJECT, Action.CONTINUE]
