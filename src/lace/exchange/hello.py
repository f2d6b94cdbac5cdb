"""Setup and hello blocks, and the proofs of identity in them (050, G38, G39).

Here a hello is made, written and read; what two of them give together is decided by
`lace.exchange.negotiation`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.base.tai import Tai
from lace.errors import PolicyError
from lace.exchange.blocks import sorted_lines
from lace.exchange.capabilities import (
    DEFAULT_WIRE_LIMITS,
    LARGEST_LIMIT,
    LIMIT_FLOORS,
    RECONCILE_LIMIT,
    RECONCILE_MODES,
)
from lace.exchange.failures import Failure, InterlaceFailure
from lace.facts.lines import format_fact
from lace.policy.operand import INDEXES, SELECTOR_FACET, RequiredFields, check_facet, check_index
from lace.policy.origin import check_claim, claim_of
from lace.policy.schema import Schema
from lace.record.ids import IdError, Signature, Verifier
from lace.record.seal import verify
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from lace.exchange.blocks import Block
    from lace.exchange.capabilities import Capabilities
    from lace.facts.lines import Fact
    from lace.policy.operand import Operand
    from lace.policy.plan import ExchangePlan
    from lace.record.seal import SigningKey


# -- Who a side is: proofs of hello, and the identifier of a link (050, G39b).
#
# A proof signs what both sides said in setup, with both nonces in it, the plan, and who
# signs under which index; on a TLS stream the server's certificate too. So it holds for
# one exchange and one side of it. What is signed is the digest of a text that begins with
# a label of its own, which no payload of a record does: a proof is never the signature of
# a Seal, nor the reverse.

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
    """Return the 32 bytes that the side with this index signs."""
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
    """Return the verifier that the side with this index has proven to be."""
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


_FIELD: Final = "HelloAdvertisedField"
_NO_FIELDS: Final = RequiredFields()
_LIMIT: Final = re.compile("[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a hello block says; `limits` has all six, `mode` is the offered reconciliation.

    `tick_interval` is in nanoseconds.
    """

    plan_id: str
    tai: Tai
    tick_interval: int
    formats: frozenset[str]
    schema: Schema
    limits: Mapping[str, int]
    mode: int = 0
    signer: Verifier | None = None
    proof: Signature | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of the block."""
        facts: list[Fact] = [("HelloExchangePlan", self.plan_id)]
        if self.signer is not None:
            facts.append(("HelloSigner", self.signer))
        if self.proof is not None:
            facts.append(("HelloProof", self.proof))
        facts.append(("HelloTAI", self.tai))
        facts.append(("HelloTickInterval", str(self.tick_interval)))
        facts += [("HelloRecordFormat", suffix) for suffix in sorted(self.formats)]
        facts += [(_FIELD, name) for name in sorted(self.schema.names)]
        if self.schema.all:
            facts.append(("HelloAllAdvertisedFields",))
        facts += [("HelloLimit", name, str(value)) for name, value in self.limits.items()]
        if self.mode:
            facts.append(("HelloLimit", RECONCILE_LIMIT, str(self.mode)))
        return tuple(facts)


def proof_context(
    ours: Setup, theirs: Setup, plan_id: str, *, channel: str | None = None
) -> ProofContext | None:
    """Return what proofs of this exchange sign, or None when a nonce is missing (G39b)."""
    if ours.nonce is None or theirs.nonce is None:
        return None
    zero, one = sorted((ours, theirs), key=lambda setup: setup.index)
    return ProofContext(setups=(zero.digest, one.digest), plan_id=plan_id, channel=channel)


def make_hello(
    plan: ExchangePlan,
    capabilities: Capabilities,
    *,
    tai: Tai,
    index: int,
    key: SigningKey | None = None,
    context: ProofContext | None = None,
    aux: bytes | None = None,
    max_line_bytes: int | None = None,
    own: RequiredFields = _NO_FIELDS,
) -> Hello:
    """Return the hello of the side with this index: what it offers for the plan, and when.

    With a key and a context (`proof_context`) it names its verifier and proves it; `aux` is
    randomness for the signature. It names none that it cannot prove, and no field that no
    line of `max_line_bytes` can name: nor could one carry it. `own` are the fields that this
    side's selector requires, which it offers together with those of its policy.
    """
    signer = proof = None
    if key is not None and context is not None:
        signer, proof = key.verifier, make_proof(key, context, index=index, aux=aux)
    return Hello(
        plan_id=plan.id,
        tai=tai,
        tick_interval=capabilities.tick_interval,
        formats=capabilities.formats,
        schema=_sayable(capabilities.offered_schema(plan.required, own), max_line_bytes),
        limits=MappingProxyType(capabilities.limits.wire),
        mode=capabilities.mode,
        signer=signer,
        proof=proof,
    )


def _sayable(schema: Schema, max_line_bytes: int | None) -> Schema:
    """Return a schema without the names that no line can carry."""
    if max_line_bytes is None or schema.all:
        return schema
    lines = {name: format_fact((_FIELD, name)) for name in schema.names}
    fitting = {name for name, line in lines.items() if len(line.encode()) <= max_line_bytes}
    return Schema(names=frozenset(fitting))


def read_hello(block: Block) -> Hello:
    """Return what the peer's hello block says; the block was checked for its phase."""
    if not len(block):
        raise InterlaceFailure(Failure.MALFORMED_BLOCK, "an empty hello block", rule="G54b")
    formats = frozenset(fact[1] for fact in block.of("HelloRecordFormat"))
    if not formats:
        raise _missing("HelloRecordFormat", "G39")
    signer, proof = block.one("HelloSigner"), block.one("HelloProof")
    limits, mode = _read_limits(block)
    return Hello(
        plan_id=_need(block, "HelloExchangePlan", "050-101"),
        tai=Tai(_need(block, "HelloTAI", "050-103")),
        tick_interval=int(_need(block, "HelloTickInterval", "050-104")),
        formats=formats,
        schema=Schema(
            names=frozenset(fact[1] for fact in block.of(_FIELD)),
            all=block.one("HelloAllAdvertisedFields") is not None,
        ),
        limits=limits,
        mode=mode,
        signer=None if signer is None else Verifier(signer[1]),
        proof=None if proof is None else Signature(proof[1]),
    )


def _missing(name: str, rule: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_BLOCK, f"a hello without {name}", rule=rule)


def _need(block: Block, name: str, rule: str) -> str:
    found = block.one(name)
    if found is None:
        raise _missing(name, rule)
    return found[1]


def _read_limits(block: Block) -> tuple[Mapping[str, int], int]:
    """Return the six limits, those left out as 050's defaults, and the offered mode (G38)."""
    found: dict[str, int] = {}
    for _, name, text in block.of("HelloLimit"):
        if name in DEFAULT_WIRE_LIMITS or name == RECONCILE_LIMIT:
            value = _read_limit(name, text)
            found[name] = min(value, found.get(name, value))
    mode = min(found.pop(RECONCILE_LIMIT, 0), RECONCILE_MODES[-1])
    return MappingProxyType({**DEFAULT_WIRE_LIMITS, **found}), mode


def _read_limit(name: str, text: str) -> int:
    value = int(text) if _LIMIT.fullmatch(text) else 0
    lowest = LIMIT_FLOORS.get(name, 1)
    if not lowest <= value <= LARGEST_LIMIT:
        raise InterlaceFailure(
            Failure.MALFORMED_LIMIT,
            f"{name}='{show(text)}' is not a number from {lowest:,} to {LARGEST_LIMIT:,}",
        )
    return value


# -- Setup blocks: the operand that a side presents, its claim of an origin, its nonce (050).
#
# A claim is provisional: negotiation proves it or aborts. Getting the bytes of the peer's
# module and compiling the plan is done by the caller.

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
    """Return what the peer's setup block says; the block was checked for its phase."""
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
    """
    who = setup.verifier or transport_peer
    if expected and who not in expected:
        names = ", ".join(sorted(expected))
        raise InterlaceFailure(
            Failure.PEER_MISMATCH,
            f"the peer claims to be {show(who) if who else 'nobody'}",
            hint=f"expected is {names}",
        )
