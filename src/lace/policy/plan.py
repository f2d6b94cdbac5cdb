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
from lace.base.text import is_nfc, safe_text
from lace.errors import LaceError, Place, PolicyError
from lace.facts.lines import format_fact, parse_fact
from lace.policy.operand import (
    INDEXES,
    SELECTOR_FACET,
    RequiredFields,
    advertised_fields,
    check_facet,
    check_index,
    check_module_id,
)
from lace.policy.origin import Origin, check_label, opaque_digest, opaque_labels
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.facts.lines import Fact
    from lace.policy.operand import Operand
    from lace.record.ids import Verifier


# -- The lines of an exchange plan's transcript: writing them, and reading them with care (040).
#
# Each line is one fact. Reading names the line at fault and what is wrong with it; the
# plan itself, and whether the lines are the ones it would be written with, is for
# `lace.policy.transcript`.

PLAN_PROFILE: Final = "lace-040-exchange-plan-v1"
LOWERINGS: Final = ("standard-v1", "encrypted-v1", "proven-peer-v1")
"""What may be asked beyond selection: nothing; an encrypted transport; a proven source."""
RUNTIME_FACTS: Final = (
    ("ClockSkewSeconds", 1),
    ("Here", 1),
    ("Peer", 1),
    ("StartTAI", 1),
    ("TickTAI", 1),
    ("Transport", 1),
    ("TransportEncrypted", 0),
)
"""The runtime facts that rules of every plan can read: name and arity."""
MAX_TRANSCRIPT_BYTES: Final = 2**20
"""The longest transcript that a plan may have; only the names of fields can make it long."""

_PROFILE: Final = "ExchangePlanProfile"
_LOWERING: Final = "ExchangePlanLowering"
_OPERAND: Final = "ExchangePlanOperand"
_ORIGIN: Final = "ExchangePlanOperandOrigin"
_FIELD: Final = "ExchangePlanRequireAdvertisedField"
_ALL_FIELDS: Final = "ExchangePlanRequireAllAdvertisedFields"
_RUNTIME: Final = "ExchangePlanRuntime"
_ARITY: Final = {
    _PROFILE: 1,
    _LOWERING: 1,
    _OPERAND: 3,
    _ORIGIN: 2,
    _FIELD: 1,
    _ALL_FIELDS: 0,
    _RUNTIME: 2,
}
_RUNTIME_LINES: Final[tuple[Fact, ...]] = tuple(
    (_RUNTIME, name, str(arity)) for name, arity in RUNTIME_FACTS
)
_SOURCE: Final = "transcript"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOperand:
    """One operand as a plan records it: index, facet, `R.` identifier and origin label."""

    index: int
    facet: str = SELECTOR_FACET
    module_id: str
    origin: str

    def __post_init__(self) -> None:
        check_index(self.index)
        check_facet(self.facet)
        check_module_id(self.module_id)
        check_label(self.origin)


def check_lowering(lowering: str) -> None:
    """Refuse a lowering that does not exist."""
    if lowering not in LOWERINGS:
        raise PolicyError(
            f"there is no lowering '{show(str(lowering))}'",
            rule="040-88",
            hint=f"the lowerings are {', '.join(LOWERINGS)}",
        )


def check_size(raw: bytes) -> None:
    """Refuse a transcript that is too long."""
    if len(raw) > MAX_TRANSCRIPT_BYTES:
        raise PolicyError(
            f"the transcript of a plan has {len(raw):,} bytes, "
            f"and at most {MAX_TRANSCRIPT_BYTES:,} are allowed",
            rule="040-92",
            hint="name fewer advertised fields in the rules, or use a variable for the name",
        )


def format_lines(
    lowering: str, operands: Sequence[PlanOperand], required: RequiredFields
) -> list[str]:
    """Return the lines of a transcript in their order, without LF."""
    facts: list[Fact] = [(_LOWERING, lowering), *_RUNTIME_LINES]
    for operand in operands:
        facts.append((_OPERAND, str(operand.index), operand.facet, operand.module_id))
        facts.append((_ORIGIN, str(operand.index), operand.origin))
    facts += [(_FIELD, name) for name in required.names]
    if required.all:
        facts.append((_ALL_FIELDS,))
    lines = sorted((fact[0], format_fact(fact).encode("utf-8")) for fact in facts)
    return [format_fact((_PROFILE, PLAN_PROFILE)), *(line.decode("utf-8") for _, line in lines)]


def _refusal(
    message: str, rule: str | None, hint: str | None = None, *, line: int | None = None
) -> PolicyError:
    return PolicyError(message, rule=rule, place=Place(_SOURCE, line), hint=hint)


def split_lines(raw: bytes) -> list[str]:
    """Return the lines of transcript bytes, each of them text in NFC."""
    check_size(raw)
    if not raw:
        raise _refusal("a transcript has lines, this one is empty", "040-84")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = raw.count(b"\n", 0, error.start) + 1
        what = f"byte {raw[error.start]:#04x} is not UTF-8"
        raise _refusal(what, "040-84", line=at) from None
    lines = text.split("\n")
    if not lines[-1]:
        last = max(1, len(lines) - 1)
        raise _refusal("a transcript has no LF behind its last line", "G24", line=last)
    for number, line in enumerate(lines, 1):
        problem = _text_problem(line)
        if problem:
            raise _refusal(*problem, line=number)
    return lines


def _text_problem(line: str) -> tuple[str, str, str | None] | None:
    """Return what keeps a line from being a fact line at all: message, rule and hint."""
    if not line.strip(" \t\r"):
        return "a transcript has no blank line", "040-84", None
    if line.startswith("\ufeff"):
        return "a transcript has no byte order mark", "040-84", "write UTF-8 without one"
    if "\r" in line:
        return "a carriage return stands in this line", "040-84", "end lines with LF alone"
    if line.lstrip(" \t").startswith("#"):
        return "a transcript has no comments", "040-84", None
    if not is_nfc(line):
        return "this line is not in Unicode normal form NFC", "040-84", None
    return None


def read_lines(
    lines: Sequence[str],
) -> tuple[str, tuple[PlanOperand, PlanOperand], RequiredFields]:
    """Return lowering, operands and required fields that lines give, in whatever order."""
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            reader.read(number, line)
        except LaceError as error:
            text = safe_text(error.message)
            raise _refusal(text, error.rule, error.hint, line=number) from None
    return reader.finish()


class _Reader:
    """Collects the facts of a plan, each at most once."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._singles: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._fields: list[str] = []
        self._runtime: set[Fact] = set()

    def read(self, number: int, line: str) -> None:
        """Take one line; errors have no place yet."""
        fact = parse_fact(line.encode("utf-8"))
        first = self._first.setdefault(line, number)
        if first != number:
            raise PolicyError(f"line {first} stands here again", rule="040-86")
        arity = _ARITY.get(fact[0])
        if arity is None:
            raise PolicyError(
                f"a transcript has no fact {show(fact[0])}",
                rule="040-85",
                hint=f"its facts are {', '.join(_ARITY)}",
            )
        if len(fact) != arity + 1:
            raise PolicyError(f"{fact[0]} takes {arity} values, not {len(fact) - 1}", rule="040-85")
        self._take(fact)

    def _take(self, fact: Fact) -> None:
        match fact:
            case (name, profile) if name == _PROFILE:
                if profile != PLAN_PROFILE:
                    raise PolicyError(
                        f"the profile '{show(profile)}' is unknown",
                        rule="040-87",
                        hint=f"the profile is '{PLAN_PROFILE}'",
                    )
                self._keep((name,), (profile,), "040-87")
            case (name, lowering) if name == _LOWERING:
                check_lowering(lowering)
                self._keep((name,), (lowering,), "040-88")
            case (name, index, facet, module_id) if name == _OPERAND:
                _check_index_text(index)
                check_facet(facet)
                check_module_id(module_id)
                self._keep((name, index), (facet, module_id), "040-90")
            case (name, index, label) if name == _ORIGIN:
                _check_index_text(index)
                check_label(label)
                self._keep((name, index), (label,), "040-91")
            case (name, field) if name == _FIELD:
                self._fields.append(field)
            case (name,):
                self._keep((name,), (), "040-93")
            case _:
                self._take_runtime(fact)

    def _take_runtime(self, fact: Fact) -> None:
        if fact not in _RUNTIME_LINES:
            raise PolicyError(
                f"no plan has the runtime fact '{show(fact[1])}' with arity '{show(fact[2])}'",
                rule="040-89",
                hint=f"they are {', '.join(f'{name}/{arity}' for name, arity in RUNTIME_FACTS)}",
            )
        self._runtime.add(fact)

    def _keep(self, key: tuple[str, ...], values: tuple[str, ...], rule: str) -> None:
        if key in self._singles:
            raise PolicyError(f"this is the second {_name_of(key)}", rule=rule)
        self._singles[key] = values

    def finish(self) -> tuple[str, tuple[PlanOperand, PlanOperand], RequiredFields]:
        """Return what the lines said together."""
        self._need((_PROFILE,), "040-87")
        (lowering,) = self._need((_LOWERING,), "040-88")
        zero, one = (self._operand(index) for index in INDEXES)
        if zero.origin == one.origin:
            line = self._first[format_fact((_ORIGIN, "1", one.origin))]
            raise _refusal(f"both operands have the origin {one.origin}", "040-48", line=line)
        missing = [format_fact(fact) for fact in _RUNTIME_LINES if fact not in self._runtime]
        if missing:
            raise _refusal(f"there is no {', '.join(missing)}", "040-89", "a plan has all of them")
        all_fields = (_ALL_FIELDS,) in self._singles
        if all_fields and self._fields:
            line = self._first[format_fact((_FIELD, self._fields[0]))]
            what = "single fields are left out when all fields are required"
            raise _refusal(what, "G25", line=line)
        return lowering, (zero, one), RequiredFields(names=frozenset(self._fields), all=all_fields)

    def _need(self, key: tuple[str, ...], rule: str) -> tuple[str, ...]:
        if key not in self._singles:
            raise _refusal(f"there is no {_name_of(key)}", rule, "a plan has exactly one")
        return self._singles[key]

    def _operand(self, index: int) -> PlanOperand:
        facet, module_id = self._need((_OPERAND, str(index)), "040-90")
        (label,) = self._need((_ORIGIN, str(index)), "040-91")
        return PlanOperand(index=index, facet=facet, module_id=module_id, origin=label)


def _name_of(key: tuple[str, ...]) -> str:
    return key[0] if len(key) == 1 else f"{key[0]} for index {key[1]}"


def _check_index_text(text: str) -> None:
    if text not in map(str, INDEXES):
        raise PolicyError(f"an operand has index 0 or 1, not '{show(text)}'", rule="040-53")


def check_order(lines: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse lines that are not the ones wanted."""
    for number, (line, right) in enumerate(zip(lines, wanted, strict=True), 1):
        if line != right:
            raise _refusal(
                f"{show(line)} is not in its place",
                "040-86",
                f"here stands {show(right)}",
                line=number,
            )


_ID_LABEL: Final = b"lace-exchange-plan/v1"


def plan_id(transcript: bytes) -> str:
    """Return the `E.` identifier of canonical transcript bytes."""
    return f"E.{b64a.encode(digest(_ID_LABEL + transcript))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """The policy that two laces agree on; equal plans have equal transcripts and identifiers."""

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
    """Refuse to go on with two plans that differ, and say in what."""
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
    """Refuse to go on with a peer that names another plan; a mere other lowering is recognised."""
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
    """Return the plan whose transcript is exactly these bytes."""
    lines = split_lines(raw)
    lowering, operands, required = read_lines(lines)
    plan = ExchangePlan(lowering=lowering, operands=operands, required=required)
    check_order(lines, plan.transcript.split("\n"))
    return plan
