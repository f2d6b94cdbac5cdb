"""From setup and both hellos to the terms that both sides hold to (050, G38-G42, X2).

Both sides compute the same terms, but for who is who. Nothing is evaluated before this,
and whatever does not fit ends the exchange. The blocks themselves are made and read by
`lace.exchange.hello`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.errors import PolicyError, RuleError
from lace.exchange.blocks import Phase, check_block
from lace.exchange.capabilities import (
    MIN_TICK_NANOSECONDS,
    SECOND,
    Capabilities,
    ExchangeLimits,
)
from lace.exchange.effects import KeepModule, SendBlock
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import (
    Hello,
    Setup,
    check_expected_peer,
    check_proof,
    link_id,
    make_hello,
    make_setup,
    proof_context,
    read_hello,
    read_setup,
)
from lace.policy.compile import Compiler
from lace.policy.operand import advertised_fields, receive_operand
from lace.policy.origin import Origin, prove_claim
from lace.policy.plan import check_plan_id, check_same_plan, make_plan, parse_transcript
from lace.rules.findings import show
from lace.rules.profiles import SELECT_ADVERTISED, SELECT_HAVE
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.base.tai import Tai
    from lace.exchange.capabilities import MachineConfig
    from lace.exchange.hello import ProofContext
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.policy.plan import ExchangePlan
    from lace.policy.schema import Schema
    from lace.record.ids import Verifier
    from lace.rules.limits import RuleLimits


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
        return self.peer.viewer


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
    """
    _check_plan(plan, theirs, transcript)
    verifier = prove_peer(peer_setup, theirs, context=context, transport_peer=transport_peer)
    formats = _common_formats(ours, theirs)
    _check_tick_interval(theirs, capabilities.limits)
    skew = _clock_skew(ours, theirs, capabilities.limits)
    schema = _common_schema(plan, ours, theirs)
    here = ours.signer or setup.verifier
    there = theirs.signer or peer_setup.verifier
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
        source=here or own.label,
        peer_source=there or peer.label,
        link_id=None if here is None or there is None else link_id(here, there, plan.id),
    )


def read_operand(setup: Setup, body: bytes | None, limits: RuleLimits) -> Operand:
    """Return the operand that a setup presents, from the bytes of its module."""
    if body is None:
        raise InterlaceFailure(Failure.MISSING_MODULE, f"{setup.module_id} did not come")
    try:
        return receive_operand(
            body,
            index=setup.index,
            module_id=setup.module_id,
            facet=setup.facet,
            limits=limits,
            name="the peer's selector",
        )
    except (PolicyError, RuleError) as error:
        raise _failed(Failure.MALFORMED_MODULE, error) from None


def compile_plan(zero: Operand, one: Operand, lowering: str) -> ExchangePlan:
    """Return the plan of two operands, or fail as an exchange does."""
    try:
        return make_plan(zero, one, lowering)
    except (PolicyError, RuleError) as error:
        raise _failed(Failure.PLAN_FAILED, error) from None


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


# -- Setup and hello of one side: from its operand to an executable policy and terms (050).
#
# A handshake is run at the start, and again whenever a side has another operand. Modules
# travel once in a stream, so what was sent and received is kept.

_CLAIMS: Final = (PredicateKey("Advertised", 2), PredicateKey("AdvertisedField", 5))
_TICK: Final = PredicateKey("TickTAI", 1)
_NONCE_BYTES: Final = 32


class Handshake:
    """Setup and hello of one side, perhaps several times in one stream."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        self._operand = config.operand
        self._exposures = config.exposures
        self._compiler = Compiler()
        self._modules: dict[str, bytes] = {}
        """What came on this stream: modules, and transcripts of plans."""
        self._told: dict[str, bytes] = {}
        """What was sent on this stream."""
        self._setup: Setup | None = None
        self._peer_setup: Setup | None = None
        self._operands: tuple[Operand, Operand] | None = None
        self._hello: Hello | None = None
        self._context: ProofContext | None = None
        self.plan: ExchangePlan | None = None
        """What both agreed on last."""

    def renew(self, operand: Operand, exposures: tuple[Exposure, ...]) -> None:
        """Present another operand from the next setup on."""
        self._operand, self._exposures = operand, exposures

    def send_setup(self) -> SendBlock:
        """Return this side's setup block."""
        config = self._config
        nonce = None if config.is_plain else config.random_bytes(_NONCE_BYTES)
        self._setup = make_setup(self._operand, verifier=config.verifier, nonce=nonce)
        module = self._operand.module_id
        modules = () if module in self._told else ((module, self._operand.canonical_bytes),)
        self._told[module] = self._operand.canonical_bytes
        return SendBlock(tuple(self._setup.facts), modules)

    def take_modules(self, modules: Mapping[str, bytes]) -> None:
        """Keep resources that the peer sent."""
        self._modules.update(modules)

    def take_setup(self, facts: tuple[Fact, ...], now: Tai) -> SendBlock:
        """Take the peer's setup block; returns this side's hello."""
        config, setup = self._config, self._setup
        if setup is None:
            raise AssertionError("this side has sent its setup")
        theirs = read_setup(check_block(facts, Phase.SETUP), local_index=setup.index)
        check_expected_peer(theirs, config.expected, transport_peer=config.transport_peer)
        body = self._bytes_of(theirs.module_id)
        peer = read_operand(theirs, body, config.peer_limits)
        pair = (self._operand, peer) if setup.index == 0 else (peer, self._operand)
        self.plan = compile_plan(*pair, config.lowering)
        self._peer_setup, self._operands = theirs, pair
        self._context = proof_context(setup, theirs, self.plan.id, channel=config.channel)
        self._hello = make_hello(
            self.plan,
            config.capabilities,
            tai=now,
            index=setup.index,
            key=config.key,
            context=self._context,
            aux=config.random_bytes(_NONCE_BYTES),
            max_line_bytes=config.max_line_bytes,
            own=advertised_fields(self._operand.module),
        )
        return SendBlock(tuple(self._hello.facts))

    def _bytes_of(self, module_id: str) -> bytes | None:
        """Return the bytes of a module that the peer announces; None if it has to send them.

        A peer may leave out what went over this stream, either way. What came on an earlier
        connection counts only for a peer that its transport proves: a signature of hello comes
        after the plan, so before it anybody could claim to be that peer, and ask what is here.
        """
        config = self._config
        found = self._modules.get(module_id, self._told.get(module_id))
        if found is None and config.modules is not None and config.transport_peer is not None:
            found = config.modules.get(config.transport_peer, module_id)
        return found

    @property
    def kept_module(self) -> KeepModule | None:
        """The module of a peer that its transport proves, once the sides agree."""
        config, setup, operands = self._config, self._peer_setup, self._operands
        if config.modules is None or config.transport_peer is None:
            return None
        if setup is None or operands is None:
            raise AssertionError("a module is kept after hello")
        body = operands[setup.index].canonical_bytes
        return KeepModule(config.transport_peer, setup.module_id, body)

    def take_hello(self, facts: tuple[Fact, ...]) -> tuple[Executable, Terms]:
        """Take the peer's hello block; returns the policy of this side, and what was agreed."""
        plan, hello, theirs, operands = self.plan, self._hello, self._peer_setup, self._operands
        setup = self._setup
        if plan is None or hello is None or theirs is None or operands is None or setup is None:
            raise AssertionError("hello comes after setup")
        named = read_hello(check_block(facts, Phase.HELLO))
        terms = negotiate(
            plan,
            hello,
            named,
            transcript=self._modules.get(named.plan_id),
            setup=setup,
            peer_setup=theirs,
            capabilities=self._config.capabilities,
            context=self._context,
            transport_peer=self._config.transport_peer,
        )
        try:
            executable = self._compiler.compile(
                plan,
                operands,
                index=setup.index,
                exposures=self._exposures,
                viewer=terms.peer.viewer,
            )
        except (PolicyError, RuleError) as error:
            # Both sides have the plan: what fails is this side's policy made of it.
            raise _failed(Failure.MALFORMED_POLICY, error) from None
        return executable, terms

    @property
    def unsigned_claim(self) -> Verifier | None:
        """The verifier that this side claims and does not sign: its transport has to prove it."""
        is_signed = self._hello is not None and self._hello.signer is not None
        return None if self._setup is None or is_signed else self._setup.verifier

    @property
    def depends(self) -> bool:
        """Whether what an operand selects of a store depends on advertisements or a tick."""
        return self._any_depends((SELECT_HAVE,), (*_CLAIMS, _TICK))

    @property
    def depends_on_tick(self) -> bool:
        """Whether anything that an operand selects depends on a tick."""
        return self._any_depends((SELECT_HAVE, SELECT_ADVERTISED), (_TICK,))

    def _any_depends(
        self, goals: tuple[PredicateKey, ...], bases: tuple[PredicateKey, ...]
    ) -> bool:
        modules = [each.module for each in self._operands or ()]
        return any(module.depends_on(goal, *bases) for module in modules for goal in goals)


def _failed(failure: Failure, error: PolicyError | RuleError) -> InterlaceFailure:
    return InterlaceFailure(failure, error.message, rule=error.rule, hint=error.hint)
