"""Setup and hello of one side: from its operand to an executable policy and terms (050).

A handshake is run at the start, and again whenever a side has another operand. Modules
travel once in a stream, so what was sent and received is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.errors import PolicyError, RuleError
from lace.interlacing.blocks import check_block
from lace.interlacing.effects import KeepModule, SendBlock
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.hello import Hello, make_hello, proof_context, read_hello
from lace.interlacing.negotiation import negotiate
from lace.interlacing.setup import Setup, check_expected_peer, make_setup, read_setup
from lace.interlacing.vocabulary import Phase
from lace.policy.compile import Compiler
from lace.policy.operand import advertised_fields, receive_operand
from lace.policy.transcript import make_plan
from lace.rules.profiles import SELECT_ADVERTISED, SELECT_HAVE
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.base.tai import Tai
    from lace.facts.lines import Fact
    from lace.interlacing.config import MachineConfig
    from lace.interlacing.identity import ProofContext
    from lace.interlacing.negotiation import Terms
    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.policy.transcript import ExchangePlan
    from lace.record.ids import Verifier

__all__ = ["Handshake"]

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
        """Take the peer's setup block; returns this side's hello.

        Raises:
            InterlaceFailure: the setup, its module or the plan is not as it should be.
        """
        config, setup = self._config, self._setup
        if setup is None:
            raise AssertionError("this side has sent its setup")
        theirs = read_setup(check_block(facts, Phase.SETUP), local_index=setup.index)
        check_expected_peer(theirs, config.expected, transport_peer=config.transport_peer)
        peer = self._operand_of(theirs)
        pair = (self._operand, peer) if setup.index == 0 else (peer, self._operand)
        try:
            self.plan = make_plan(*pair, config.lowering)
        except (PolicyError, RuleError) as error:
            raise _failed(Failure.PLAN_FAILED, error) from None
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

    def _operand_of(self, theirs: Setup) -> Operand:
        raw = self._bytes_of(theirs.module_id)
        if raw is None:
            raise InterlaceFailure(Failure.MISSING_MODULE, f"{theirs.module_id} did not come")
        try:
            return receive_operand(
                raw,
                index=theirs.index,
                module_id=theirs.module_id,
                facet=theirs.facet,
                limits=self._config.peer_limits,
                name="the peer's selector",
            )
        except (PolicyError, RuleError) as error:
            raise _failed(Failure.MALFORMED_MODULE, error) from None

    def take_hello(self, facts: tuple[Fact, ...]) -> tuple[Executable, Terms]:
        """Take the peer's hello block; returns the policy of this side, and what was agreed.

        Raises:
            InterlaceFailure: the sides do not agree.
        """
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
            # The plan stands, both sides have it: what fails is this side's policy made of it.
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
