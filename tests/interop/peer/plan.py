"""What both sides agree on: selectors, the exchange plan, the proof of a key (040, G39b)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop.peer.text import Fact, PeerError, digest, encode, format_fact, lines_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tests.interop.peer.records import Record

__all__ = [
    "EVERYTHING",
    "Plan",
    "Selector",
    "Written",
    "group",
    "make_plan",
    "proof_message",
    "recognise",
]

RUNTIME = (
    ("Here", "1"),
    ("Peer", "1"),
    ("Transport", "1"),
    ("TransportEncrypted", "0"),
    ("StartTAI", "1"),
    ("TickTAI", "1"),
    ("ClockSkewSeconds", "1"),
)


@dataclass(frozen=True, slots=True)
class Selector:
    """A lacegram that this peer can follow by hand: all records, or those of one group."""

    group: str | None

    @property
    def text(self) -> str:
        """The canonical text."""
        if self.group is None:
            return "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
        field, claim = f"'Group',_,'{self.group}'", f"'Group',_,'{self.group}'"
        return (
            f"SelectHave(P) :- Have(P), Field(P,{field}).\n"
            f"SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,{claim})."
        )

    @property
    def module_digest(self) -> bytes:
        """The digest of the canonical text."""
        return digest(self.text.encode())

    @property
    def id(self) -> str:
        """The identifier `R.…`."""
        return f"R.{encode(self.module_digest)}"

    @property
    def required(self) -> set[str]:
        """The advertised fields that its rules read."""
        return set() if self.group is None else {"Group"}

    @property
    def moves(self) -> bool:
        """Tell whether SelectHave depends on advertisements or a tick, by its helpers too (G47)."""
        bodies: dict[str, set[str]] = {}
        for rule in self.text.split("\n"):
            head, *body = re.findall(r"([A-Za-z]\w*)\(", re.sub(r"'[^']*'", "''", rule))
            bodies.setdefault(head, set()).update(body)
        reached, new = set[str](), {"SelectHave"}
        while new:
            reached |= new
            new = {name for each in new for name in bodies.get(each, set())} - reached
        return not reached.isdisjoint({"Advertised", "AdvertisedField", "TickTAI"})

    def selects(self, record: Record) -> bool:
        """SelectHave of a stored record."""
        return self.group is None or record.has("Group", self.group)

    def selects_claims(self, claims: Collection[Fact]) -> bool:
        """SelectAdvertised of an advertisement's facts."""
        wanted = self.group
        return wanted is None or any(
            fact[0] == "AdvertisedField" and (fact[3], fact[5]) == ("Group", wanted)
            for fact in claims
        )


@dataclass(frozen=True, slots=True)
class Written(Selector):
    """Any other canonical text. To this peer it selects everything: it knows no better."""

    group: str | None = None
    rules: str = ""

    @property
    def text(self) -> str:
        return self.rules

    @property
    def required(self) -> set[str]:
        return set(re.findall(r"AdvertisedField\(\w+,\w+,'([^']*)',", self.rules))


EVERYTHING = Selector(None)


def group(name: str) -> Selector:
    """Select the records of one group."""
    return Selector(name)


def recognise(text: str) -> Selector:
    """Find the selector of a canonical text; another is more than this peer can follow."""
    found = re.search(r"'Group',_,'([^']*)'", text)
    selector = Selector(found[1] if found else None)
    if selector.text != text:
        raise PeerError(f"a selector that this peer cannot follow: {text!r}")
    return selector


@dataclass(frozen=True, slots=True)
class Plan:
    """The exchange plan of two operands."""

    id: str
    transcript: str
    origins: tuple[str, str]
    required: frozenset[str]


def _opaque(index: int, operand: Selector) -> str:
    lines: list[Fact] = [
        ("OpaqueOriginRole", str(index)),
        ("OpaqueOriginOperand", "selector", operand.id, encode(operand.module_digest)),
    ]
    return encode(digest(b"lace-opaque-origin/v1", lines_of(lines)))


def make_plan(operands: tuple[Selector, Selector]) -> Plan:
    """Compute origins, transcript and identifier of two operands."""
    opaque = [_opaque(index, operand) for index, operand in enumerate(operands)]
    at = next(at for at in range(43) if opaque[0][at] != opaque[1][at])
    origins = (f"Opq_{opaque[0][at]}", f"Opq_{opaque[1][at]}")
    required = operands[0].required | operands[1].required
    facts: list[Fact] = [("ExchangePlanLowering", "standard-v1")]
    facts += [("ExchangePlanRuntime", *entry) for entry in RUNTIME]
    for index, operand in enumerate(operands):
        facts.append(("ExchangePlanOperand", str(index), "selector", operand.id))
        facts.append(("ExchangePlanOperandOrigin", str(index), origins[index]))
    facts += [("ExchangePlanRequireAdvertisedField", name) for name in required]
    lines = sorted((fact[0], format_fact(fact).encode()) for fact in facts)
    first = format_fact(("ExchangePlanProfile", "lace-040-exchange-plan-v1")).encode()
    transcript = b"\n".join([first, *(line for _, line in lines)])
    identifier = f"E.{encode(digest(b'lace-exchange-plan/v1', transcript))}"
    return Plan(identifier, transcript.decode(), origins, frozenset(required))


def _setup_digest(block: Iterable[Fact]) -> str:
    lines = {format_fact(fact).encode() + b"\n" for fact in block}
    return encode(digest(*sorted(lines)))


def proof_message(
    setups: tuple[Iterable[Fact], Iterable[Fact]],
    plan: Plan,
    index: int,
    verifier: str,
    channel: bytes | None = None,
) -> bytes:
    """The 32 bytes that one side signs to prove its verifier."""
    facts: list[Fact] = [
        ("ProofSetup", "0", _setup_digest(setups[0])),
        ("ProofSetup", "1", _setup_digest(setups[1])),
        ("ProofPlan", plan.id),
        ("ProofSigner", str(index), verifier),
    ]
    if channel is not None:
        facts.append(("ProofChannel", encode(digest(channel))))
    return digest(b"lace-hello-proof/v1", lines_of(facts))
