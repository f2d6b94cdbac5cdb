"""Negotiation: from both hellos to the terms that both sides then hold to (050, G38-G42, X2).

Both sides compute the same terms, but for who is who. Nothing is evaluated before this,
and whatever does not fit ends the exchange. The blocks themselves are made and read by
`lace.interlacing.setup` and `lace.interlacing.hello`, whose names are here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.errors import PolicyError
from lace.interlacing.capabilities import (
    MIN_TICK_NANOSECONDS,
    SECOND,
    Capabilities,
    ExchangeLimits,
    Schema,
    capabilities_of,
    exchange_limits_of,
)
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.hello import Hello, make_hello, proof_context, read_hello
from lace.interlacing.identity import check_proof, link_id
from lace.interlacing.setup import Setup, check_expected_peer, make_setup, read_setup
from lace.interlacing.sources import rule_source, wire_source, wire_verifier
from lace.policy.origin import Origin, prove_claim
from lace.policy.transcript import check_plan_id, check_same_plan, parse_transcript
from lace.rules.findings import show

if TYPE_CHECKING:
    from lace.base.tai import Tai
    from lace.facts.lines import Fact
    from lace.interlacing.identity import ProofContext
    from lace.policy.transcript import ExchangePlan
    from lace.record.ids import Verifier

__all__ = [
    "Capabilities",
    "ExchangeLimits",
    "Hello",
    "Schema",
    "Setup",
    "Terms",
    "capabilities_of",
    "check_expected_peer",
    "exchange_limits_of",
    "make_hello",
    "make_setup",
    "negotiate",
    "proof_context",
    "prove_peer",
    "read_hello",
    "read_setup",
    "runtime_facts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What two sides have agreed on for one epoch.

    `here` is the verifier that this side's hello named or, without a signer, that its setup
    claimed; `signer` is the one that the peer's hello named and proved; `peer` is the peer's
    origin, bound to the verifier that hello or the transport has proven. `source` and
    `peer_source` are the S of this side's and of the peer's advertisements on the wire,
    `rule_source` is the S of the peer's advertisements for rules. `link_id` exists when both
    sides are known to each other by a verifier. `tick_interval` is in nanoseconds.
    """

    plan_id: str
    formats: frozenset[str]
    schema: Schema
    limits: ExchangeLimits
    mode: int
    start_tai: Tai
    clock_skew_seconds: int
    tick_interval: int
    here: Verifier | None
    signer: Verifier | None
    peer: Origin
    source: str
    peer_source: str
    link_id: str | None

    @property
    def rule_source(self) -> str:
        """The S of the peer's advertisements that rules read (G42)."""
        return rule_source(self.peer)


def prove_peer(
    setup: Setup,
    hello: Hello,
    *,
    context: ProofContext | None,
    transport_peer: str | None = None,
) -> Verifier | None:
    """Return the verifier that the peer has proven to be, by hello or by its transport.

    Where a nonce is missing no proof can be made; then a signer counts only if the
    transport has proven it.

    Raises:
        InterlaceFailure: a signer without valid proof, a proof without signer, two
            verifiers that differ, or a claim in setup that is not proven.
    """
    proven = transport_peer
    if hello.proof is not None and (hello.signer is None or context is None):
        what = "a proof without a signer" if hello.signer is None else "a proof without nonces"
        raise InterlaceFailure(Failure.UNPROVEN_SIGNER, what, rule="G39b")
    if hello.signer is not None:
        if hello.proof is not None and context is not None:
            check_proof(context, index=setup.index, signer=hello.signer, proof=hello.proof)
        elif context is not None or transport_peer is None:
            raise InterlaceFailure(
                Failure.UNPROVEN_SIGNER, f"the hello of {hello.signer} has no proof"
            )
        if transport_peer is not None and transport_peer != hello.signer:
            raise InterlaceFailure(
                Failure.PEER_MISMATCH,
                f"hello is signed by {hello.signer}, the transport proves {show(transport_peer)}",
            )
        proven = hello.signer
    try:
        return prove_claim(setup.verifier, proven)
    except PolicyError as error:
        failure = Failure.BAD_CLAIM if proven is None else Failure.PEER_MISMATCH
        raise InterlaceFailure(failure, error.message, rule="050-100", hint=error.hint) from None


def negotiate(
    plan: ExchangePlan,
    ours: Hello,
    theirs: Hello,
    *,
    setup: Setup,
    peer_setup: Setup,
    capabilities: Capabilities,
    context: ProofContext | None,
    transport_peer: str | None = None,
    transcript: bytes | None = None,
) -> Terms:
    """Return what both hellos agree on.

    `setup` and `peer_setup` are what this side and the peer said before. `context` is what
    proofs sign (`proof_context`), `transport_peer` the verifier that the transport has proven
    for the peer; `transcript` that of the plan which the peer's hello names, if it was sent.

    Raises:
        InterlaceFailure: the sides do not agree, or the peer is not who it says it is.
    """
    _check_plan(plan, theirs, transcript)
    verifier = prove_peer(peer_setup, theirs, context=context, transport_peer=transport_peer)
    formats = _common_formats(ours, theirs)
    _check_tick_interval(theirs, capabilities.limits)
    skew = _clock_skew(ours, theirs, capabilities.limits)
    schema = _common_schema(plan, ours, theirs)
    here = wire_verifier(ours.signer, setup.verifier)
    there = wire_verifier(theirs.signer, peer_setup.verifier)
    peer = plan.origin(peer_setup.index, verifier)
    own = plan.origin(setup.index)
    return Terms(
        plan_id=plan.id,
        formats=formats,
        schema=schema,
        limits=capabilities.limits.narrowed(theirs.limits),
        mode=min(ours.mode, theirs.mode),
        start_tai=max(ours.tai, theirs.tai),
        clock_skew_seconds=skew // SECOND,
        tick_interval=max(ours.tick_interval, theirs.tick_interval),
        here=here,
        signer=theirs.signer,
        peer=peer,
        source=wire_source(here, own),
        peer_source=wire_source(there, peer),
        link_id=None if here is None or there is None else link_id(here, there, plan.id),
    )


def _check_plan(plan: ExchangePlan, theirs: Hello, transcript: bytes | None) -> None:
    """Refuse another plan; a transcript of it says in what it differs (G58b)."""
    try:
        if transcript is not None:
            check_same_plan(plan, parse_transcript(transcript))
        check_plan_id(plan, theirs.plan_id)
    except PolicyError as error:
        raise InterlaceFailure(
            Failure.PLAN_MISMATCH, error.message, rule="050-102", hint=error.hint
        ) from None


def _common_formats(ours: Hello, theirs: Hello) -> frozenset[str]:
    common = ours.formats & theirs.formats
    if not common:
        raise InterlaceFailure(
            Failure.NO_COMMON_FORMAT,
            f"{_names(ours.formats)} here, {_names(theirs.formats)} there",
            rule="050-120",
        )
    return common


def _check_tick_interval(theirs: Hello, limits: ExchangeLimits) -> None:
    interval = theirs.tick_interval
    if interval < MIN_TICK_NANOSECONDS:
        raise InterlaceFailure(
            Failure.TICK_INTERVAL,
            f"a tick interval must be at least {MIN_TICK_NANOSECONDS} ns, got {interval}",
            rule="050-108",
        )
    if interval > limits.max_tick_interval_seconds * SECOND:
        raise InterlaceFailure(
            Failure.TICK_INTERVAL,
            f"the peer wants ticks every {interval // SECOND:,} s",
            hint=f"the limit is max_tick_interval_seconds={limits.max_tick_interval_seconds}",
        )


def _clock_skew(ours: Hello, theirs: Hello, limits: ExchangeLimits) -> int:
    skew = abs(ours.tai.nanoseconds - theirs.tai.nanoseconds)
    if skew > limits.max_clock_skew_seconds * SECOND:
        raise InterlaceFailure(
            Failure.CLOCK_SKEW,
            f"{ours.tai} here, {theirs.tai} there",
            hint="set the clocks; the limit is "
            f"max_clock_skew_seconds={limits.max_clock_skew_seconds}",
        )
    return skew


def _common_schema(plan: ExchangePlan, ours: Hello, theirs: Hello) -> Schema:
    common = ours.schema & theirs.schema
    if common.meets(plan.required):
        return common
    if plan.required.all:
        sides = [
            side
            for side, hello in (("this side", ours), ("the peer", theirs))
            if not hello.schema.all
        ]
        raise InterlaceFailure(
            Failure.SCHEMA_UNMET,
            f"the plan needs all fields, {' and '.join(sides)} offers only some",
            rule="050-131",
            hint="--all-fields offers all of them" if not ours.schema.all else None,
        )
    here, there = (
        frozenset() if each.schema.all else plan.required.names - each.schema.names
        for each in (ours, theirs)
    )
    lacking = [
        f"{_names(names)}, which {side} does not offer"
        for names, side in ((here, "this side"), (there, "the peer"))
        if names
    ]
    raise InterlaceFailure(
        Failure.SCHEMA_UNMET,
        f"the plan needs {' and '.join(lacking)}",
        rule="050-130",
        hint=f"offer it with {' '.join(f'--field {show(name)}' for name in sorted(here))}, unless "
        "the peer's selector has misspelt it"
        if here
        else "look for a misspelt name in the selectors, or ask the peer to offer it",
    )


def _names(names: frozenset[str]) -> str:
    return show(", ".join(sorted(names)))


def runtime_facts(
    terms: Terms, *, transport: str, encrypted: bool, tick: Tai | None = None
) -> tuple[Fact, ...]:
    """Return the runtime facts of an evaluation under these terms, at this tick.

    `transport` is the address string of the connection; `encrypted` says that its
    confidentiality is proven. What is not proven has no fact.
    """
    facts: list[Fact] = []
    if terms.here is not None:
        facts.append(("Here", terms.here))
    if terms.peer.verifier is not None:
        facts.append(("Peer", terms.peer.verifier))
    facts.append(("Transport", transport))
    if encrypted:
        facts.append(("TransportEncrypted",))
    facts.append(("StartTAI", terms.start_tai))
    facts.append(("TickTAI", terms.start_tai if tick is None else tick))
    facts.append(("ClockSkewSeconds", str(terms.clock_skew_seconds)))
    return tuple(facts)
