"""Exchange plans: what two laces agree on, as canonical text and `E.` identifier (040).

A plan holds policy only; formats, schema and limits are negotiated later and are no part of
it. There is one transcript for each plan: `parse_transcript` accepts exactly what
writing the plan gives back, and repairs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import PolicyError
from lace.policy.operand import INDEXES, RequiredFields, advertised_fields, check_index
from lace.policy.origin import Origin, opaque_digest, opaque_labels
from lace.policy.plan_lines import (
    LOWERINGS,
    MAX_TRANSCRIPT_BYTES,
    PLAN_PROFILE,
    RUNTIME_FACTS,
    PlanOperand,
    check_lowering,
    check_order,
    check_size,
    format_lines,
    read_lines,
    split_lines,
)
from lace.rules.findings import show

if TYPE_CHECKING:
    from lace.policy.operand import Operand
    from lace.record.ids import Verifier

__all__ = [
    "LOWERINGS",
    "MAX_TRANSCRIPT_BYTES",
    "PLAN_PROFILE",
    "RUNTIME_FACTS",
    "ExchangePlan",
    "PlanOperand",
    "check_plan_id",
    "check_same_plan",
    "make_plan",
    "parse_transcript",
    "plan_id",
]

_ID_LABEL: Final = b"lace-exchange-plan/v1"


def plan_id(transcript: bytes) -> str:
    """Return the `E.` identifier of canonical transcript bytes."""
    return f"E.{b64a.encode(digest(_ID_LABEL + transcript))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """The policy that two laces agree on; equal plans have equal transcripts and identifiers.

    Raises:
        PolicyError: an unknown lowering, other than operands 0 and 1, equal origins, or
            more required fields than a transcript has room for.
    """

    lowering: str
    operands: tuple[PlanOperand, PlanOperand]
    required: RequiredFields
    transcript: str = field(init=False, compare=False, repr=False)
    id: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_lowering(self.lowering)
        if tuple(operand.index for operand in self.operands) != INDEXES:
            raise PolicyError("a plan has operand 0 and operand 1, in this order", rule="040-53")
        if self.operands[0].origin == self.operands[1].origin:
            raise PolicyError(
                f"both operands have the origin {self.operands[0].origin}", rule="040-48"
            )
        object.__setattr__(
            self, "transcript", "\n".join(format_lines(self.lowering, self.operands, self.required))
        )
        raw = self.transcript_bytes
        check_size(raw)
        object.__setattr__(self, "id", plan_id(raw))

    @property
    def transcript_bytes(self) -> bytes:
        """The transcript as it is hashed: UTF-8, without a final LF."""
        return self.transcript.encode("utf-8")

    def origin(self, index: int, verifier: Verifier | None = None) -> Origin:
        """Return the origin of an operand, bound to the verifier that was proven for it."""
        check_index(index)
        return Origin(self.operands[index].origin, verifier)


def make_plan(
    operand0: Operand,
    operand1: Operand,
    lowering: str = LOWERINGS[0],
    *,
    nonce: str | None = None,
    verifiers: tuple[str | None, str | None] | None = None,
) -> ExchangePlan:
    """Return the plan of two operands: their origins are assigned here, from both of them.

    `nonce` and `verifiers` are for a binding that gives them to both sides beforehand.

    Raises:
        PolicyError: the operands are not 0 and 1, or an argument is not legal.
    """
    pair = (operand0, operand1)
    if tuple(operand.index for operand in pair) != INDEXES:
        raise PolicyError(
            f"a plan takes operand 0 and operand 1, not {operand0.index} and {operand1.index}",
            rule="040-53",
            hint="the side that connects is 0, the side that accepts is 1",
        )
    digest0, digest1 = (
        opaque_digest(operand.index, operand.module_id, nonce=nonce, verifier=verifier)
        for operand, verifier in zip(pair, verifiers or (None, None), strict=True)
    )
    label0, label1 = opaque_labels(digest0, digest1)
    return ExchangePlan(
        lowering=lowering,
        operands=(
            PlanOperand(index=0, module_id=operand0.module_id, origin=label0),
            PlanOperand(index=1, module_id=operand1.module_id, origin=label1),
        ),
        required=advertised_fields(operand0.module) | advertised_fields(operand1.module),
    )


def check_same_plan(ours: ExchangePlan, theirs: ExchangePlan) -> None:
    """Refuse to go on with two plans that differ, and say in what.

    Raises:
        PolicyError: they differ.
    """
    found: list[tuple[str, str, str]] = []
    if ours.lowering != theirs.lowering:
        found.append(("lowering", ours.lowering, theirs.lowering))
    for one, other in zip(ours.operands, theirs.operands, strict=True):
        if one.module_id != other.module_id:
            found.append((f"operand {one.index}", one.module_id, other.module_id))
        if one.origin != other.origin:
            found.append((f"the origin of operand {one.index}", one.origin, other.origin))
    if ours.required != theirs.required:
        found.append(("required fields", _describe(ours.required), _describe(theirs.required)))
    if found:
        raise PolicyError(
            f"plans differ in {', '.join(what for what, _, _ in found)}",
            rule="040-80",
            hint="; ".join(f"{what}: {one} here, {other} there" for what, one, other in found),
        )


def _describe(required: RequiredFields) -> str:
    return "all" if required.all else show(", ".join(sorted(required.names))) or "none"


def check_plan_id(ours: ExchangePlan, theirs: str) -> None:
    """Refuse to go on with a peer that names another plan; a mere other lowering is recognised.

    Raises:
        PolicyError: the identifier is not that of our plan.
    """
    if theirs == ours.id:
        return
    for lowering in LOWERINGS:
        other = replace(ours, lowering=lowering)
        if other.id == theirs:
            check_same_plan(ours, other)
    raise PolicyError(
        f"plans differ: {ours.id} here, '{show(theirs)}' there",
        rule="040-80",
        hint="compare the transcripts of both sides",
    )


def parse_transcript(raw: bytes) -> ExchangePlan:
    """Return the plan whose transcript is exactly these bytes.

    Raises:
        PolicyError: no plan has this transcript; the place is the line at fault.
    """
    lines = split_lines(raw)
    lowering, operands, required = read_lines(lines)
    plan = ExchangePlan(lowering=lowering, operands=operands, required=required)
    check_order(lines, plan.transcript.split("\n"))
    return plan
