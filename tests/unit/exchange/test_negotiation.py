"""Setup and hello: from blocks to terms, and every way in which negotiation fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lace.base import b64a
from lace.base.limits import DEFAULT_SETTINGS
from lace.base.tai import Tai
from lace.errors import SettingError
from lace.exchange.blocks import Phase, check_block
from lace.exchange.capabilities import (
    DEFAULT_WIRE_LIMITS,
    LARGEST_LIMIT,
    SECOND,
    WIRE_LIMITS,
    Capabilities,
    ExchangeLimits,
    capabilities_of,
    exchange_limits_of,
)
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import (
    channel_digest,
    check_expected_peer,
    link_id,
    make_hello,
    make_proof,
    make_setup,
    proof_context,
    read_hello,
    read_setup,
)
from lace.exchange.negotiation import negotiate, runtime_facts
from lace.policy.operand import RequiredFields, operand_of
from lace.policy.schema import ALL_FIELDS, Schema
from lace.record.ids import Verifier
from tests.unit.exchange.sides import ALICE, ALL, BOB, EVE, FIELDS, PLAIN, START, pair_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.exchange.hello import Hello, Setup
    from lace.facts.lines import Fact

NONCE = b"\x0a" * 32
R = operand_of(PLAIN, 0).module_id
HOSTILE = "\x1b[2J\u202e" + "x" * 500


def refused(do: Callable[[], object], failure: Failure, rule: str | None = None) -> str:
    with pytest.raises(InterlaceFailure) as caught:
        do()
    assert caught.value.failure is failure
    assert rule is None or caught.value.rule == rule
    text = str(caught.value)
    assert len(text) < 600
    assert not any(sign in text for sign in "\x1b\u202e\n")
    return text


# Capabilities


def test_limits_have_050s_defaults_and_their_settings() -> None:
    limits = ExchangeLimits()
    assert limits.wire == {
        "max_fact_block_size": 64 * 2**20,
        "max_advertisement_records_listed": 100_000,
        "max_partition_summaries": 16_384,
        "max_narrowing_depth": 12,
        "max_total_transferred_bytes": 2**30,
        "max_loop_iterations": 16,
    }
    assert limits.phase_timeout_seconds == 30
    assert exchange_limits_of(DEFAULT_SETTINGS) == limits
    changed = replace(DEFAULT_SETTINGS, max_loop_iterations=7, max_clock_skew_seconds=0)
    assert exchange_limits_of(changed).max_loop_iterations == 7
    assert exchange_limits_of(changed).max_clock_skew_seconds == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"max_fact_block_size": 2**20 - 1},
        {"max_partition_summaries": 16_383},
        {"max_narrowing_depth": 3},
        {"max_loop_iterations": 0},
        {"max_loop_iterations": 2**63},
        {"max_loop_iterations": True},
        {"max_loop_iterations": "1"},
        {"phase_timeout_seconds": -1},
    ],
)
def test_limits_that_are_none(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(changes))):
        ExchangeLimits(**changes)


def test_capabilities() -> None:
    assert capabilities_of() == Capabilities()
    changed = replace(DEFAULT_SETTINGS, reconcile_mode=0, tick_interval_seconds=3)
    found = capabilities_of(changed)
    assert (found.mode, found.tick_interval) == (0, 3 * SECOND)
    refused_changes: list[dict[str, Any]] = [
        {"formats": frozenset()},
        {"mode": 3},
        {"mode": -1},
        {"tick_interval": 0},
        {"tick_interval": 2**63},
    ]
    for changes in refused_changes:
        with pytest.raises(SettingError):
            Capabilities(**changes)


def test_schemas() -> None:
    some, other = Schema(names=frozenset({"A", "B"})), Schema(names=frozenset({"B", "C"}))
    assert some & other == other & some == Schema(names=frozenset({"B"}))
    assert some & ALL_FIELDS == ALL_FIELDS & some == some
    assert ALL_FIELDS & ALL_FIELDS == ALL_FIELDS
    assert Schema(names=frozenset({"A"}), all=True) == ALL_FIELDS
    assert ("A" in some, "C" in some, "C" in ALL_FIELDS) == (True, False, True)
    assert some.meets(RequiredFields(names=frozenset({"A"})))
    assert not some.meets(RequiredFields(names=frozenset({"C"})))
    assert not some.meets(RequiredFields(all=True))
    assert ALL_FIELDS.meets(RequiredFields(all=True))


def test_only_required_fields_are_offered() -> None:
    required = RequiredFields(names=frozenset({"App", "Group"}))
    assert Capabilities().offered_schema(required) == Schema(names=required.names)
    assert Capabilities(offer_all=True).offered_schema(required) == ALL_FIELDS
    everything = RequiredFields(all=True)
    assert not Capabilities().offered_schema(everything).all, "a peer alone cannot ask for that"
    assert Capabilities().offered_schema(everything, everything) == ALL_FIELDS
    assert Capabilities().offered_schema(RequiredFields()) == Schema()
    few = Capabilities(schema=Schema(names=frozenset({"App", "Type"})))
    assert few.offered_schema(required) == few.schema
    assert few.offered_schema(RequiredFields(all=True)) == few.schema
    assert replace(few, offer_all=True).offered_schema(required) == few.schema
    more = RequiredFields(names=frozenset({"App", "Topic"}))
    assert Capabilities().offered_schema(more) == Schema(names=frozenset({"App"}))
    assert Capabilities().offered_schema(more, more) == Schema(names=more.names)


# Setup


def test_setup_goes_there_and_back() -> None:
    operand = operand_of(PLAIN, 1)
    for key, nonce in ((None, None), (BOB, None), (BOB, NONCE), (None, NONCE)):
        made = make_setup(operand, verifier=key.verifier if key else None, nonce=nonce)
        read = read_setup(check_block(made.facts, Phase.SETUP), local_index=0)
        assert read == made
        assert read.digest == made.digest
        assert made.claim == (BOB.verifier if key else "Opq_1")
    assert make_setup(operand, nonce=NONCE).facts == (
        ("ExchangeOperand", "1", R, "Opq_1", "selector"),
        ("ExchangeNonce", b64a.encode(NONCE)),
    )
    with pytest.raises(ValueError, match="32 bytes"):
        make_setup(operand, nonce=b"short")


def setup_of(*facts: Fact, local_index: int = 1) -> Setup:
    return read_setup(check_block(facts, Phase.SETUP), local_index=local_index)


def test_setups_that_abort() -> None:
    good = ("ExchangeOperand", "0", R, "Opq_0", "selector")
    assert setup_of(good, good).index == 0
    malformed = Failure.MALFORMED_BLOCK
    refused(lambda: setup_of(), malformed, "G54b")
    refused(lambda: setup_of(("ExchangeNonce", b64a.encode(NONCE))), malformed, "050-50")
    refused(lambda: setup_of(good, (*good[:3], ALICE.verifier, "selector")), malformed, "G36")
    refused(lambda: setup_of(good, ("ExchangeNonce", "0" * 42)), malformed)
    two = [("ExchangeNonce", b64a.encode(bytes([number]) * 32)) for number in (1, 2)]
    refused(lambda: setup_of(good, *two), malformed, "G36")
    refused(lambda: setup_of(good, local_index=0), Failure.EQUAL_INDEXES, "050-51")
    refused(lambda: setup_of((*good[:4], "query")), Failure.MALFORMED_MODULE, "040-55")
    for claim, rule in (
        ("Opq_1", "040-41"),
        ("V.", "040-42"),
        (f"{ALICE.verifier}x", "040-42"),
        ("V." + HOSTILE[5:], "040-42"),
    ):
        text = claim.replace("\u202e", "")
        wrong = ("ExchangeOperand", "0", R, text, "selector")
        refused(lambda wrong=wrong: setup_of(wrong), Failure.BAD_CLAIM, rule)  # type: ignore[misc]


@pytest.mark.parametrize(
    "claim", ["Opq_z", "Opq_", "Opq_00", "peer-17", "", "v.x", "V", HOSTILE[6:], "R.x", "é"]
)
def test_claims_of_another_form_are_relabelled(claim: str) -> None:
    """They are no claim: the label is the one that both sides compute, and nobody is proven."""
    text = claim.replace("\u202e", "")
    found = setup_of(("ExchangeOperand", "0", R, text, "selector"))
    assert (found.claim, found.verifier) == (text, None)
    pair = pair_of(keys=(None, None))
    terms = pair.terms(1, peer_setup=found, context=None)
    assert (terms.peer_source, terms.peer.verifier) == (pair.plan.operands[0].origin, None)
    assert terms.peer.viewer == terms.peer_source


def test_an_expected_peer() -> None:
    named = make_setup(operand_of(PLAIN, 0), verifier=ALICE.verifier)
    nobody = make_setup(operand_of(PLAIN, 0))
    check_expected_peer(named, frozenset())
    check_expected_peer(nobody, frozenset())
    check_expected_peer(named, {ALICE.verifier, BOB.verifier})
    check_expected_peer(nobody, {ALICE.verifier}, transport_peer=ALICE.verifier)
    mismatch = Failure.PEER_MISMATCH
    refused(lambda: check_expected_peer(named, {BOB.verifier}), mismatch, "050-211")
    assert "nobody" in refused(lambda: check_expected_peer(nobody, {BOB.verifier}), mismatch)
    refused(
        lambda: check_expected_peer(named, {BOB.verifier}, transport_peer=BOB.verifier), mismatch
    )


# Hello


def test_the_facts_of_a_hello() -> None:
    pair = pair_of(keys=(None, None))
    assert set(pair.sides[0].hello.facts) == {
        ("HelloExchangePlan", pair.plan.id),
        ("HelloTAI", START),
        ("HelloTickInterval", "10000000000"),
        ("HelloRecordFormat", "H3"),
        ("HelloAdvertisedField", "App"),
        ("HelloAdvertisedField", "Group"),
        ("HelloLimit", "max_fact_block_size", "67108864"),
        ("HelloLimit", "max_advertisement_records_listed", "100000"),
        ("HelloLimit", "max_partition_summaries", "16384"),
        ("HelloLimit", "max_narrowing_depth", "12"),
        ("HelloLimit", "max_total_transferred_bytes", "1073741824"),
        ("HelloLimit", "max_loop_iterations", "16"),
        ("HelloLimit", "reconcile", "2"),
    }
    listing = pair_of(capabilities=(Capabilities(mode=0), Capabilities(mode=1)), keys=(None, None))
    names = {fact[1] for fact in listing.sides[0].hello.facts if fact[0] == "HelloLimit"}
    assert names == set(WIRE_LIMITS)
    everything = pair_of(rules=(ALL, PLAIN)).sides[0].hello.facts
    assert ("HelloAllAdvertisedFields",) in everything
    assert not any(fact[0] == "HelloAdvertisedField" for fact in everything)


@pytest.mark.parametrize("rules", [(FIELDS, PLAIN), (PLAIN, PLAIN), (ALL, FIELDS)])
def test_hello_goes_there_and_back(rules: tuple[str, str]) -> None:
    for keys in ((ALICE, BOB), (None, BOB), (None, None)):
        for side in pair_of(rules=rules, keys=keys).sides:
            assert read_hello(check_block(side.hello.facts, Phase.HELLO)) == side.hello


def test_a_signer_is_named_only_with_a_proof() -> None:
    signed, unsigned = pair_of(keys=(ALICE, None)).sides
    assert signed.hello.signer == ALICE.verifier
    assert signed.hello.proof is not None
    assert (unsigned.hello.signer, unsigned.hello.proof) == (None, None)
    for nonces in ((NONCE, None), (None, NONCE), (None, None)):
        for side in pair_of(nonces=nonces).sides:
            assert (side.hello.signer, side.hello.proof) == (None, None)


def hello_with(*extra: Fact, without: str = "") -> Hello:
    facts = pair_of(keys=(None, None)).sides[0].hello.facts
    kept = [fact for fact in facts if not without or fact[0] != without]
    return read_hello(check_block([*kept, *extra], Phase.HELLO))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("HelloExchangePlan", "050-101"),
        ("HelloTAI", "050-103"),
        ("HelloTickInterval", "050-104"),
        ("HelloRecordFormat", "G39"),
    ],
)
def test_what_every_hello_has(name: str, rule: str) -> None:
    text = refused(lambda: hello_with(without=name), Failure.MALFORMED_BLOCK, rule)
    assert f"without {name}" in text


def test_an_empty_hello() -> None:
    empty = check_block([], Phase.HELLO)
    refused(lambda: read_hello(empty), Failure.MALFORMED_BLOCK, "G54b")


def test_limits_of_a_hello() -> None:
    assert hello_with(without="HelloLimit").limits == DEFAULT_WIRE_LIMITS
    assert hello_with(without="HelloLimit").mode == 0
    found = hello_with(
        ("HelloLimit", "max_loop_iterations", "3"),
        ("HelloLimit", "max_loop_iterations", "99"),
        ("HelloLimit", "max_narrowing_depth", str(LARGEST_LIMIT)),
        ("HelloLimit", "unheard_of", "-1"),
        ("HelloLimit", "", HOSTILE[10:]),
        without="HelloLimit",
    )
    assert found.limits["max_loop_iterations"] == 3
    assert found.limits["max_narrowing_depth"] == LARGEST_LIMIT
    assert set(found.limits) == set(WIRE_LIMITS)
    for text, mode in (("1", 1), ("2", 2), ("3", 2), (str(LARGEST_LIMIT), 2)):
        assert hello_with(("HelloLimit", "reconcile", text), without="HelloLimit").mode == mode
    assert hello_with(("HelloLimit", "reconcile", "1")).mode == 1


@pytest.mark.parametrize("name", [*WIRE_LIMITS, "reconcile"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "01",
        "-1",
        "+1",
        "1.0",
        "1_0",
        " 1",
        "1e3",
        "\uff11",
        str(2**63),
        "9" * 40,
        "x" * 99,
    ],
)
def test_malformed_limits(name: str, text: str) -> None:
    fact = ("HelloLimit", name, text)
    refused(lambda: hello_with(fact), Failure.MALFORMED_LIMIT, "050-114")


@pytest.mark.parametrize(
    ("name", "lowest"),
    [
        ("max_fact_block_size", 2**20),
        ("max_partition_summaries", 16_384),
        ("max_narrowing_depth", 4),
        ("max_loop_iterations", 1),
    ],
)
def test_limits_below_which_nothing_works(name: str, lowest: int) -> None:
    assert hello_with(("HelloLimit", name, str(lowest))).limits[name] == lowest
    below = ("HelloLimit", name, str(lowest - 1))
    refused(lambda: hello_with(below), Failure.MALFORMED_LIMIT)


# Terms


def test_both_sides_get_the_same_terms() -> None:
    limits = ExchangeLimits(max_loop_iterations=5, max_rejected_records=1)
    pair = pair_of(
        capabilities=(
            Capabilities(limits=limits, mode=1, formats=frozenset({"H3", "H9"})),
            Capabilities(tick_interval=20 * SECOND, offer_all=True),
        ),
        tais=(START, START.shift(2 * SECOND - 1)),
    )
    zero, one = pair.terms(0), pair.terms(1)
    for terms in (zero, one):
        assert terms.plan_id == pair.plan.id
        assert terms.formats == {"H3"}
        assert terms.schema == Schema(names=frozenset({"App", "Group"}))
        assert terms.start_tai == START.shift(2 * SECOND - 1)
        assert terms.clock_skew_seconds == 1
        assert terms.tick_interval == 20 * SECOND
        assert terms.mode == 1
        assert terms.limits.max_loop_iterations == 5
        assert terms.link_id == link_id(ALICE.verifier, BOB.verifier, pair.plan.id)
    assert zero.limits.max_rejected_records == 1
    assert one.limits.max_rejected_records == 1000
    assert (zero.here, zero.signer, zero.peer.verifier) == (
        ALICE.verifier,
        BOB.verifier,
        BOB.verifier,
    )
    assert (one.here, one.signer) == (BOB.verifier, ALICE.verifier)
    assert (zero.source, zero.peer_source) == (one.peer_source, one.source)
    assert zero.source == ALICE.verifier
    assert zero.peer.label == pair.plan.operands[1].origin


def test_without_keys() -> None:
    pair = pair_of(keys=(None, None), nonces=(None, NONCE))
    zero, one = pair.terms(0), pair.terms(1)
    labels = [operand.origin for operand in pair.plan.operands]
    assert [zero.source, zero.peer_source] == labels
    assert [one.source, one.peer_source] == labels[::-1]
    assert zero.here is zero.signer is zero.peer.verifier is zero.link_id is None
    assert zero.peer.viewer == labels[1]


def test_one_key_is_no_link() -> None:
    pair = pair_of(keys=(ALICE, None))
    assert pair.terms(0).link_id is pair.terms(1).link_id is None
    assert pair.terms(1).peer.viewer == ALICE.verifier


def test_plans_differ() -> None:
    pair = pair_of()
    other = pair_of(rules=(PLAIN, PLAIN)).plan
    mismatch = Failure.PLAN_MISMATCH
    refused(lambda: pair.change(1, plan_id=other.id).terms(0), mismatch, "050-102")
    encrypted = pair_of(lowering="encrypted-v1").plan
    text = refused(lambda: pair.change(1, plan_id=encrypted.id).terms(0), mismatch)
    assert "plans differ in lowering" in text


def test_no_common_format() -> None:
    pair = pair_of().change(1, formats=frozenset({"H4", "H5"}))
    text = refused(lambda: pair.terms(0), Failure.NO_COMMON_FORMAT, "050-120")
    assert "H3 here, H4, H5 there" in text


def test_schemas_that_do_not_do() -> None:
    unmet = Failure.SCHEMA_UNMET
    pair = pair_of().change(1, schema=Schema(names=frozenset({"App"})))
    assert "the plan needs Group" in refused(lambda: pair.terms(0), unmet, "050-130")
    refused(lambda: pair_of().change(1, schema=Schema()).terms(0), unmet, "050-130")
    assert pair_of().change(1, schema=ALL_FIELDS).terms(0).schema.names == {"App", "Group"}
    alone = pair_of(rules=(ALL, PLAIN))
    assert "the peer offers only some" in refused(lambda: alone.terms(0), unmet, "050-131")
    everything = pair_of(
        rules=(ALL, PLAIN), capabilities=(Capabilities(), Capabilities(offer_all=True))
    )
    assert everything.terms(0).schema == ALL_FIELDS
    some = Schema(names=frozenset({"App"}))
    text = refused(lambda: everything.change(1, schema=some).terms(0), unmet, "050-131")
    assert "the peer offers only some" in text
    both = everything.change(1, schema=some).change(0, schema=some)
    assert "this side and the peer" in refused(lambda: both.terms(0), unmet, "050-131")


@pytest.mark.parametrize(
    ("nanoseconds", "rule"),
    [(0, "050-108"), (86_400 * SECOND + 1, "050-109")],
)
def test_tick_intervals_that_are_refused(nanoseconds: int, rule: str) -> None:
    pair = pair_of().change(1, tick_interval=nanoseconds)
    refused(lambda: pair.terms(0), Failure.TICK_INTERVAL, rule)


def test_tick_intervals_at_the_edge() -> None:
    for nanoseconds in (1, SECOND - 1, SECOND):
        terms = pair_of().change(1, tick_interval=nanoseconds).terms(0)
        assert terms.tick_interval == 10 * SECOND
    short = Capabilities(tick_interval=1)
    pair = pair_of(capabilities=(short, replace(short, tick_interval=7)))
    assert pair.terms(0).tick_interval == pair.terms(1).tick_interval == 7
    longest = 86_400 * SECOND
    assert pair_of().change(1, tick_interval=longest).terms(0).tick_interval == longest


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(0, 0), (1, 0), (SECOND // 2, 0), (2 * SECOND - 1, 1)]
)
def test_clock_skew(nanoseconds: int, seconds: int) -> None:
    later = START.shift(nanoseconds)
    for tais in ((START, later), (later, START)):
        for index in (0, 1):
            terms = pair_of(tais=tais).terms(index)
            assert (terms.start_tai, terms.clock_skew_seconds) == (later, seconds)


def test_clocks_too_far_apart() -> None:
    allowed = 300 * SECOND
    assert pair_of(tais=(START, START.shift(allowed))).terms(0).clock_skew_seconds == 300
    for tais in ((START, START.shift(allowed + 1)), (START.shift(allowed + 1), START)):
        for index in (0, 1):
            pair = pair_of(tais=tais)
            text = refused(lambda: pair.terms(index), Failure.CLOCK_SKEW, "X2")  # noqa: B023
            assert "max_clock_skew_seconds=300" in text
    strict = Capabilities(limits=ExchangeLimits(max_clock_skew_seconds=0))
    pair = pair_of(tais=(START, START.shift(1)), capabilities=(strict, Capabilities()))
    refused(lambda: pair.terms(0), Failure.CLOCK_SKEW)


# Who the peer is


def test_claims_must_be_proven() -> None:
    pair = pair_of(nonces=(None, None))
    refused(lambda: pair.terms(0), Failure.BAD_CLAIM, "050-100")
    proven = pair.terms(0, transport_peer=BOB.verifier)
    assert (proven.peer.verifier, proven.signer) == (BOB.verifier, None)
    refused(lambda: pair.terms(1), Failure.BAD_CLAIM, "050-100")
    one = pair.terms(1, transport_peer=ALICE.verifier)
    assert proven.link_id == one.link_id == link_id(ALICE.verifier, BOB.verifier, pair.plan.id)
    assert (proven.here, one.here) == (ALICE.verifier, BOB.verifier)
    assert (proven.source, proven.peer_source) == (ALICE.verifier, BOB.verifier)
    assert (one.source, one.peer_source) == (BOB.verifier, ALICE.verifier)
    assert proven.rule_source == BOB.verifier
    refused(lambda: pair.terms(0, transport_peer=EVE.verifier), Failure.PEER_MISMATCH, "050-100")


def test_a_transport_binds_whoever_claims_nothing() -> None:
    pair = pair_of(keys=(None, None))
    terms = pair.terms(0, transport_peer=BOB.verifier)
    assert (terms.peer.verifier, terms.peer.viewer) == (BOB.verifier, BOB.verifier)
    assert terms.peer_source == pair.plan.operands[1].origin
    assert terms.rule_source == BOB.verifier
    assert terms.link_id is None
    assert pair.terms(1).source == terms.peer_source


def test_one_claim_is_signed_and_the_other_proven_by_the_transport() -> None:
    pair = pair_of(keys=(ALICE, None))
    claimed = make_setup(operand_of(PLAIN, 1), verifier=BOB.verifier, nonce=b"\x0b" * 32)
    context = proof_context(pair.sides[0].setup, claimed, pair.plan.id)
    assert context is not None
    signed = pair.sides[0].hello
    one = negotiate(
        pair.plan,
        pair.sides[1].hello,
        replace(signed, proof=make_proof(ALICE, context, index=0)),
        setup=claimed,
        peer_setup=pair.sides[0].setup,
        capabilities=Capabilities(),
        context=context,
    )
    zero = pair.terms(0, peer_setup=claimed, context=context, transport_peer=BOB.verifier)
    assert zero.link_id == one.link_id is not None
    assert (zero.source, one.source) == (ALICE.verifier, BOB.verifier)
    assert one.here == BOB.verifier


def test_signers_without_valid_proof() -> None:
    unproven = Failure.UNPROVEN_SIGNER
    pair = pair_of()
    refused(lambda: pair.change(1, proof=None).terms(0), unproven, "050-98")
    refused(lambda: pair.change(1, proof=None).terms(0, transport_peer=BOB.verifier), unproven)
    refused(lambda: pair.change(1, signer=None).terms(0), unproven, "G39b")
    refused(lambda: pair.change(1, proof=pair.sides[0].hello.proof).terms(0), unproven)
    refused(lambda: pair.change(1, signer=EVE.verifier).terms(0), unproven)
    refused(lambda: pair.terms(0, context=None), unproven, "G39b")
    refused(lambda: pair.terms(0, transport_peer=EVE.verifier), Failure.PEER_MISMATCH)


def test_a_signer_that_only_the_transport_proves() -> None:
    """A peer that knows nothing of nonces may still name its signer."""
    plain = pair_of(nonces=(None, None)).change(1, signer=BOB.verifier)
    refused(lambda: plain.terms(0), Failure.UNPROVEN_SIGNER, "050-98")
    terms = plain.terms(0, transport_peer=BOB.verifier)
    assert (terms.signer, terms.peer_source) == (BOB.verifier, BOB.verifier)


def test_a_signer_must_be_the_one_that_was_claimed() -> None:
    pair = pair_of(keys=(ALICE, BOB))
    stranger = make_setup(operand_of(PLAIN, 1), verifier=EVE.verifier, nonce=b"\x0b" * 32)
    context = proof_context(pair.sides[0].setup, stranger, pair.plan.id)
    hello = make_hello(
        pair.plan, Capabilities(), tai=START, index=1, key=BOB, context=context, aux=b"\x01" * 32
    )
    changed = pair.change(1, proof=hello.proof)
    refused(
        lambda: changed.terms(0, peer_setup=stranger, context=context),
        Failure.PEER_MISMATCH,
        "050-100",
    )


def test_a_proof_is_bound_to_the_channel() -> None:
    one, other = (channel_digest(name) for name in (b"one", b"other"))
    pair = pair_of(channel=one)
    assert pair.terms(0).signer == BOB.verifier
    relayed = pair_of(channel=other).context
    refused(lambda: pair.terms(0, context=relayed), Failure.UNPROVEN_SIGNER)


def test_both_sides_may_hold_the_same_key() -> None:
    terms = pair_of(keys=(ALICE, ALICE)).terms(0)
    assert terms.here == terms.signer == ALICE.verifier


# Runtime facts


def test_runtime_facts() -> None:
    terms = pair_of(tais=(START, START.shift(SECOND))).terms(0)
    start = START.shift(SECOND)
    assert runtime_facts(terms, transport="tcp:host:4790", encrypted=False) == (
        ("Here", ALICE.verifier),
        ("Peer", BOB.verifier),
        ("Transport", "tcp:host:4790"),
        ("StartTAI", start),
        ("TickTAI", start),
        ("ClockSkewSeconds", "1"),
    )
    later = Tai(start).shift(SECOND)
    facts = runtime_facts(terms, transport="x", encrypted=True, tick=later)
    assert ("TransportEncrypted",) in facts
    assert ("TickTAI", later) in facts


def test_what_is_not_proven_has_no_fact() -> None:
    terms = pair_of(keys=(None, None)).terms(0)
    facts = runtime_facts(terms, transport="x", encrypted=False)
    assert [fact[0] for fact in facts] == ["Transport", "StartTAI", "TickTAI", "ClockSkewSeconds"]
    claimed = pair_of(nonces=(None, None)).terms(0, transport_peer=BOB.verifier)
    facts = runtime_facts(claimed, transport="x", encrypted=False)
    assert ("Here", ALICE.verifier) in facts  # it is claimed, and the transport proves it (G39)
    assert ("Peer", BOB.verifier) in facts
    assert isinstance(claimed.peer.verifier, Verifier)
