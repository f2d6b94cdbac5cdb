"""Setup blocks: the operand that a side presents, its claim of an origin, its nonce (050).

A claim is provisional: negotiation proves it or aborts. Getting the bytes of the peer's
module and compiling the plan is done by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.base import b64a
from lace.errors import PolicyError
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.identity import setup_digest
from lace.policy.operand import SELECTOR_FACET, check_facet
from lace.policy.origin import check_claim, claim_of
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from lace.facts.lines import Fact
    from lace.interlacing.blocks import Block
    from lace.policy.operand import Operand
    from lace.record.ids import Verifier

__all__ = ["NONCE_BYTES", "Setup", "check_expected_peer", "make_setup", "read_setup"]

NONCE_BYTES = 32
"""Random bytes of a nonce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a setup block says; `verifier` is the one that is claimed, not yet proven."""

    index: int
    module_id: str
    claim: str
    verifier: Verifier | None
    facet: str = SELECTOR_FACET
    nonce: str | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of the block."""
        operand = ("ExchangeOperand", str(self.index), self.module_id, self.claim, self.facet)
        return (operand,) if self.nonce is None else (operand, ("ExchangeNonce", self.nonce))

    @property
    def digest(self) -> str:
        """The digest of the block, as proofs contain it."""
        return setup_digest(self.facts)


def make_setup(
    operand: Operand, *, verifier: Verifier | None = None, nonce: bytes | None = None
) -> Setup:
    """Return the setup of this side: it claims the verifier, or its index without one.

    `nonce` is 32 fresh random bytes. Without one no proof is possible, so that a claimed
    verifier must then be proven by the transport.

    Raises:
        ValueError: the nonce has another length.
    """
    if nonce is not None and len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
    return Setup(
        index=operand.index,
        module_id=operand.module_id,
        claim=claim_of(operand.index, verifier),
        verifier=verifier,
        facet=operand.facet,
        nonce=None if nonce is None else b64a.encode(nonce),
    )


def read_setup(block: Block, *, local_index: int) -> Setup:
    """Return what the peer's setup block says; the block was checked for its phase.

    Raises:
        InterlaceFailure: no operand, our own index, another facet, or a claim that is not
            the peer's to make.
    """
    found = block.one("ExchangeOperand")
    if found is None:
        raise InterlaceFailure(
            Failure.MALFORMED_BLOCK,
            "a setup block has one ExchangeOperand" if len(block) else "an empty setup block",
            rule="050-50" if len(block) else "G54b",
        )
    _, index_text, module_id, claim, facet = found
    index = int(index_text)
    if index == local_index:
        raise InterlaceFailure(
            Failure.EQUAL_INDEXES,
            f"both are operand {index}",
            hint="the side that connects is 0, the side that accepts is 1",
        )
    try:
        check_facet(facet)
    except PolicyError as error:
        raise InterlaceFailure(
            Failure.MALFORMED_MODULE, error.message, rule=error.rule, hint=error.hint
        ) from None
    try:
        verifier = check_claim(claim, index=index)
    except PolicyError as error:
        raise InterlaceFailure(
            Failure.BAD_CLAIM, error.message, rule=error.rule, hint=error.hint
        ) from None
    nonce = block.one("ExchangeNonce")
    return Setup(
        index=index,
        module_id=module_id,
        claim=claim,
        verifier=verifier,
        facet=facet,
        nonce=None if nonce is None else nonce[1],
    )


def check_expected_peer(
    setup: Setup, expected: AbstractSet[str], *, transport_peer: str | None = None
) -> None:
    """Refuse an unexpected peer before hello; without expected verifiers any peer is accepted.

    A peer that claims no verifier is who the transport has proven it to be.

    Raises:
        InterlaceFailure: another verifier, or none.
    """
    who = setup.verifier or transport_peer
    if expected and who not in expected:
        names = ", ".join(sorted(expected))
        raise InterlaceFailure(
            Failure.PEER_MISMATCH,
            f"the peer claims to be {show(who) if who else 'nobody'}",
            hint=f"expected is {names}",
        )
