"""Setup and hello of a captured exchange, judged again: plan, proofs, terms (050, G38-G42).

Both sides' blocks and modules are in a capture, so that everything they agreed on can be computed
once more, for both. What a transport proves is not in it: neither a user nor, unless it is named,
the certificate that a proof over TLS contains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lace.errors import LaceError
from lace.interlacing.blocks import check_block
from lace.interlacing.capabilities import capabilities_of
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.hello import proof_context, read_hello
from lace.interlacing.negotiation import negotiate
from lace.interlacing.setup import read_setup
from lace.interlacing.vocabulary import Phase
from lace.policy.operand import receive_operand
from lace.policy.transcript import LOWERINGS, make_plan
from lace.rules.findings import show
from lace.rules.limits import peer_limits_of
from lace.tracing.course import other_way

if TYPE_CHECKING:
    from lace.base.limits import Settings
    from lace.interlacing.hello import Hello
    from lace.interlacing.identity import ProofContext
    from lace.interlacing.negotiation import Terms
    from lace.interlacing.setup import Setup
    from lace.policy.operand import Operand
    from lace.policy.transcript import ExchangePlan
    from lace.tracing.course import Turn
    from lace.transport.captured import Direction

__all__ = ["Agreed", "Agreement"]

_CLAIMS = ("Advertised", "AdvertisedField")
_NOBODY = -1
"""No operand's index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What both sides agreed on.

    Attributes:
        plan_id: the plan's identifier.
        link_id: the link's, if both named a signer.
        mode: how advertisements are compared.
        proven: the verifier that each direction proved by its hello.
        claimed: the verifier that a direction claims without a signature: only its transport
            can have proven it, which no capture shows.
        sources: the S of each direction's advertisements (G42).
        unjudged: the directions whose proof does not hold by the capture alone.
    """

    plan_id: str
    link_id: str | None
    mode: int
    proven: dict[Direction, str]
    claimed: dict[Direction, str]
    sources: dict[Direction, str]
    unjudged: tuple[Direction, ...]


class Agreement:
    """Judges setup and hello of one connection, epoch by epoch.

    Args:
        settings: the limits of this side.
        channel: the digest of the server's certificate, if it is known.
    """

    def __init__(self, settings: Settings, channel: str | None) -> None:
        self._settings, self._channel = settings, channel
        self._modules: dict[str, bytes] = {}
        self._setups: dict[Direction, Setup] = {}
        self._operands: dict[Direction, Operand] = {}
        self.at: Direction = "<"
        """The direction that is, or was last, looked at."""

    def take_setups(self, turns: dict[Direction, Turn]) -> None:
        """Take both setup blocks.

        Raises:
            InterlaceFailure: they, or the modules, are not as they should be.
        """
        for turn in turns.values():
            self._modules.update(turn.modules)
        index = _NOBODY
        for direction, turn in sorted(turns.items(), reverse=True):
            self.at = direction
            block = check_block(turn.facts, Phase.SETUP)
            setup = self._setups[direction] = read_setup(block, local_index=index)
            index = setup.index
        for direction, setup in self._setups.items():
            self.at = direction
            self._operands[direction] = self._operand(setup)

    def _operand(self, setup: Setup) -> Operand:
        raw = self._modules.get(setup.module_id)
        if raw is None:
            raise InterlaceFailure(Failure.MISSING_MODULE, f"{setup.module_id} did not come")
        try:
            return receive_operand(
                raw,
                index=setup.index,
                module_id=setup.module_id,
                facet=setup.facet,
                limits=peer_limits_of(self._settings),
            )
        except InterlaceFailure:
            raise
        except LaceError as error:
            raise InterlaceFailure(
                Failure.MALFORMED_MODULE, error.message, rule=error.rule
            ) from None

    def take_hellos(self, turns: dict[Direction, Turn]) -> Agreed:
        """Take both hello blocks.

        Raises:
            InterlaceFailure: the sides do not agree.
        """
        hellos: dict[Direction, Hello] = {}
        for direction, turn in turns.items():
            self.at = direction
            hellos[direction] = read_hello(check_block(turn.facts, Phase.HELLO))
        plan = self._plan(hellos[">"].plan_id)
        context = proof_context(
            self._setups[">"], self._setups["<"], plan.id, channel=self._channel
        )
        unjudged: list[Direction] = []
        terms: Terms | None = None
        sources: dict[Direction, str] = {}
        for direction in hellos:
            self.at = direction
            try:
                terms = self._negotiate(direction, plan, hellos, context)
            except InterlaceFailure as failure:
                if failure.failure is not Failure.UNPROVEN_SIGNER or self._channel is not None:
                    raise
                unjudged.append(direction)
                terms = self._negotiate(direction, plan, hellos, None)
            sources[direction] = terms.peer_source
        if terms is None:
            raise AssertionError("there are two hellos")
        return Agreed(
            plan_id=plan.id,
            link_id=terms.link_id,
            mode=terms.mode,
            proven={
                direction: hello.signer
                for direction, hello in hellos.items()
                if hello.signer is not None and hello.proof is not None
                if direction not in unjudged
            },
            claimed={
                direction: setup.verifier
                for direction, setup in self._setups.items()
                if setup.verifier is not None and hellos[direction].signer is None
            },
            sources=sources,
            unjudged=tuple(unjudged),
        )

    def check_sources(self, turns: dict[Direction, Turn], agreed: Agreed) -> None:
        """Check that advertisements name the source of their sender (G42).

        Raises:
            InterlaceFailure: one names another.
        """
        for direction, turn in turns.items():
            self.at = direction
            for fact in turn.facts:
                if fact[0] in _CLAIMS and fact[2:3] != (agreed.sources[direction],):
                    raise InterlaceFailure(
                        Failure.MALFORMED_BLOCK,
                        f"a claim names the source {show(fact[2])!r}, not the sender's "
                        f"{agreed.sources[direction]!r}",
                        rule="G42",
                    )

    def _plan(self, wanted: str) -> ExchangePlan:
        """Return the plan of both operands, in the lowering that gives the wanted identifier."""
        zero, one = sorted(self._operands.values(), key=lambda operand: operand.index)
        plans = []
        for lowering in LOWERINGS:
            try:
                plans.append(make_plan(zero, one, lowering))
            except LaceError as error:
                raise InterlaceFailure(
                    Failure.PLAN_FAILED, error.message, rule=error.rule
                ) from None
        return next((plan for plan in plans if plan.id == wanted), plans[0])

    def _negotiate(
        self,
        direction: Direction,
        plan: ExchangePlan,
        hellos: dict[Direction, Hello],
        context: ProofContext | None,
    ) -> Terms:
        """Judge the hello of a direction as its receiver does."""
        hello, setup = hellos[direction], self._setups[direction]
        if context is None and hello.proof is not None:
            hello = replace(hello, proof=None)
        # What only the transport can have proven is believed.
        believed = hello.signer if context is None else None
        if hello.signer is None:
            believed = setup.verifier
        return negotiate(
            plan,
            hellos[other_way(direction)],
            hello,
            setup=self._setups[other_way(direction)],
            peer_setup=setup,
            capabilities=capabilities_of(self._settings),
            context=context,
            transport_peer=believed,
        )
