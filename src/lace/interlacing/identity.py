"""Who a side is: proofs of hello, and the identifier of a link (050, G39b).

A proof signs what both sides said in setup, with both nonces in it, the plan, and who
signs under which index; on a TLS stream the server's certificate too. So it holds for
one exchange and one side of it. What is signed is the digest of a text that begins with
a label of its own, which no payload of a record does: a proof is never the signature of
a Seal, nor the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.facts.lines import format_fact
from lace.interlacing.blocks import sorted_lines
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.policy.operand import INDEXES, check_index
from lace.record.ids import IdError, Signature, Verifier
from lace.record.seal import verify
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.record.seal import SigningKey

__all__ = [
    "PROOF_LABEL",
    "ProofContext",
    "channel_digest",
    "check_proof",
    "link_id",
    "make_proof",
    "proof_message",
    "setup_digest",
]

PROOF_LABEL: Final = b"lace-hello-proof/v1"
"""What the hashed bytes of a proof begin with."""


def setup_digest(facts: Iterable[Fact]) -> str:
    """Return the digest of a setup block: its distinct fact lines, sorted, each with LF."""
    return b64a.encode(digest(b"".join(sorted_lines(facts))))


def channel_digest(certificate: bytes) -> str:
    """Return the digest of a TLS channel, from the server certificate's DER bytes."""
    return b64a.encode(digest(certificate))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofContext:
    """What both proofs of an exchange have in common.

    `setups` are the digests of the setup blocks of operand 0 and 1, `channel` that of the
    server's certificate on a TLS stream.
    """

    setups: tuple[str, str]
    plan_id: str
    channel: str | None = None


def proof_message(context: ProofContext, *, index: int, signer: Verifier) -> bytes:
    """Return the 32 bytes that the side with this index signs.

    Raises:
        PolicyError: the index is neither 0 nor 1.
    """
    check_index(index)
    facts: list[Fact] = [("ProofSetup", str(each), context.setups[each]) for each in INDEXES]
    facts.append(("ProofPlan", context.plan_id))
    facts.append(("ProofSigner", str(index), signer))
    if context.channel is not None:
        facts.append(("ProofChannel", context.channel))
    text = "".join(f"{format_fact(fact)}\n" for fact in facts)
    return digest(PROOF_LABEL + text.encode("utf-8"))


def make_proof(
    key: SigningKey, context: ProofContext, *, index: int, aux: bytes | None = None
) -> Signature:
    """Return the proof that the holder of the key is the side with this index.

    `aux` is fresh randomness; without it the key's own source gives some.
    """
    return key.sign(proof_message(context, index=index, signer=key.verifier), aux)


def check_proof(context: ProofContext, *, index: int, signer: str, proof: str) -> Verifier:
    """Return the verifier that the side with this index has proven to be.

    Raises:
        InterlaceFailure: the proof is not that of the signer for this exchange and index.
    """
    try:
        verifier, signature = Verifier(signer), Signature(proof)
    except IdError as error:
        raise InterlaceFailure(Failure.UNPROVEN_SIGNER, show(error.message)) from None
    if not verify(verifier, proof_message(context, index=index, signer=verifier), signature):
        raise InterlaceFailure(
            Failure.UNPROVEN_SIGNER,
            f"the proof of {verifier} is not for this exchange",
            hint="both sides must see the same setup blocks, plan and server certificate",
        )
    return verifier


def link_id(verifier_a: str, verifier_b: str, plan_id: str) -> str:
    """Return the identifier of the link between two proven verifiers under a plan (G41).

    The order of the two does not matter.
    """
    # Verifiers are ASCII, so that text order is byte order.
    first, second = sorted((Verifier(verifier_a), Verifier(verifier_b)))
    return b64a.encode(digest(f"{first}{second}{plan_id}".encode("ascii")))
