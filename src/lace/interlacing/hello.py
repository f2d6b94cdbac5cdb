"""Hello blocks: what each side announces once both know the plan (050, G38, G39).

Here a hello is made, written and read; what two of them give together is decided by
`lace.interlacing.negotiation`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base.tai import Tai
from lace.facts.lines import format_fact
from lace.interlacing.capabilities import (
    DEFAULT_WIRE_LIMITS,
    LARGEST_LIMIT,
    LIMIT_FLOORS,
    RECONCILE_LIMIT,
    RECONCILE_MODES,
    Schema,
)
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.identity import ProofContext, make_proof
from lace.policy.operand import RequiredFields
from lace.record.ids import Signature, Verifier
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.facts.lines import Fact
    from lace.interlacing.blocks import Block
    from lace.interlacing.capabilities import Capabilities
    from lace.interlacing.setup import Setup
    from lace.policy.transcript import ExchangePlan
    from lace.record.seal import SigningKey

__all__ = ["Hello", "make_hello", "proof_context", "read_hello"]

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
    """Return what the peer's hello block says; the block was checked for its phase.

    Raises:
        InterlaceFailure: a fact that every hello has is missing, or a limit is malformed.
    """
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
