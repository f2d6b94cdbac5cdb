"""The control facts of an exchange: which there are, and where each may stand (G36)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.tai import TAI_PATTERN
from lace.interlacing.failures import Failure
from lace.record.ids import SIGNATURE_PATTERN, VERIFIER_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = [
    "CHILDREN_CHARACTERS",
    "CONTROL_PREDICATES",
    "FINGERPRINT_CHARACTERS",
    "PHASE_PREDICATES",
    "RECORD_LETTERS",
    "TICK",
    "ControlPredicate",
    "Phase",
    "Syntax",
    "advertise_phase",
]

FINGERPRINT_CHARACTERS: Final = 8
"""Characters of a child's fingerprint in `AdvertisementChildren`: 48 bits of its root."""
CHILDREN_CHARACTERS: Final = len(b64a.ALPHABET) * FINGERPRINT_CHARACTERS
"""Characters of the text of `AdvertisementChildren`: one fingerprint for each child."""

RECORD_LETTERS: Final = "BPS"
"""The types of records that are advertised and requested, as their hashes begin."""

_SYMBOL: Final = f"[{b64a.ALPHABET}]"
_DIGEST: Final = f"{_SYMBOL}{{42}}[{b64a.final_characters(32)}]"
_DECIMAL: Final = "0|[1-9][0-9]{0,18}"
_SUFFIX: Final = "[0-9A-Za-z]+"
# Identifiers of other formats are advertised and never requested (G49).
_RECORD: Final = rf"[{RECORD_LETTERS}]\.{_DIGEST}\.H3|[A-Z]\.{_SYMBOL}+\.(?!H3\Z){_SUFFIX}"


class Syntax(Enum):
    """The form that a value must have: what it is called, and its pattern."""

    TEXT = ("text", "")
    RECORD = ("a record hash", _RECORD)
    PREFIX = ("a partition prefix", f"{_SYMBOL}{{0,43}}")
    DECIMAL = ("a decimal number", _DECIMAL)
    DIGEST = ("43 Base64-Ascend characters", _DIGEST)
    CHILDREN = ("64 fingerprints of 8 characters", f"{_SYMBOL}{{{CHILDREN_CHARACTERS}}}")
    TAI = ("a TAI instant", TAI_PATTERN)
    VERIFIER = ("a verifier", VERIFIER_PATTERN)
    SIGNATURE = ("a signature", SIGNATURE_PATTERN)
    MODULE = ("a module identifier", rf"R\.{_DIGEST}")
    PLAN = ("a plan identifier", rf"E\.{_DIGEST}")
    OPERAND = ("an operand index", "[01]")
    FORMAT = ("a record format", _SUFFIX)

    def __init__(self, title: str, pattern: str) -> None:
        self.title = title
        self.matches: Callable[[str], object] = re.compile(pattern).fullmatch


@dataclass(frozen=True, slots=True)
class ControlPredicate:
    """A predicate of control facts; `failure` is what a malformed value of it is."""

    name: str
    syntax: tuple[Syntax, ...]
    singleton: bool = False
    failure: Failure = Failure.MALFORMED_BLOCK

    @property
    def arity(self) -> int:
        """How many values its facts have."""
        return len(self.syntax)

    def __str__(self) -> str:
        return f"{self.name}/{self.arity}"


def _summary(name: str, *syntax: Syntax, singleton: bool = False) -> ControlPredicate:
    return ControlPredicate(name, syntax, singleton, Failure.MALFORMED_SUMMARY)


def _one(name: str, *syntax: Syntax) -> ControlPredicate:
    return ControlPredicate(name, syntax, singleton=True)


def _many(name: str, *syntax: Syntax) -> ControlPredicate:
    return ControlPredicate(name, syntax)


_S = Syntax
_SETUP: Final = (
    _one("ExchangeOperand", _S.OPERAND, _S.MODULE, _S.TEXT, _S.TEXT),
    _one("ExchangeNonce", _S.DIGEST),
)
# Negotiation looks at limits itself: an unknown name may have any value.
_HELLO: Final = (
    _one("HelloExchangePlan", _S.PLAN),
    _one("HelloSigner", _S.VERIFIER),
    _one("HelloProof", _S.SIGNATURE),
    _one("HelloTAI", _S.TAI),
    _one("HelloTickInterval", _S.DECIMAL),
    _many("HelloRecordFormat", _S.FORMAT),
    _many("HelloAdvertisedField", _S.TEXT),
    _one("HelloAllAdvertisedFields"),
    _many("HelloLimit", _S.TEXT, _S.TEXT),
)
_LISTED: Final = (
    _many("Advertised", _S.RECORD, _S.TEXT),
    _many("AdvertisedField", _S.RECORD, _S.TEXT, _S.TEXT, _S.DECIMAL, _S.TEXT),
)
_PARTITION: Final = _summary("AdvertisementPartition", _S.PREFIX, _S.DECIMAL, _S.DIGEST)
_CHILDREN: Final = _summary("AdvertisementChildren", _S.PREFIX, _S.CHILDREN)
_CURSOR: Final = _summary("AdvertisementCursor", _S.DECIMAL, _S.DIGEST, singleton=True)
_DELTA: Final = (
    _summary("AdvertisementDelta", _S.DIGEST, singleton=True),
    _many("AdvertisementWithdrawn", _S.RECORD),
)
_QUESTIONS: Final = (
    _many("ListAdvertisementPartition", _S.PREFIX),
    _many("NarrowAdvertisementPartition", _S.PREFIX),
)
_REQUEST: Final = _many("MayRequest", _S.RECORD)
_NOT_AVAILABLE: Final = _many("NotAvailable", _S.RECORD)
TICK: Final = _one("TickReady", _S.TAI)


class Phase(Enum):
    """Where a block stands in an exchange: what it may hold depends on this alone."""

    SETUP = "setup"
    HELLO = "hello"
    LISTING = "the full listing of mode 0"
    SUMMARY_1 = "turn 0 of mode 1"
    TURN_1 = "a later turn of mode 1"
    SUMMARY_2 = "turn 0 of mode 2"
    TURN_2 = "a later turn of mode 2"
    REQUEST = "request"
    TRANSFER = "transfer"
    TICK = "a block of TickReady alone"


_HELD: Final[dict[Phase, tuple[ControlPredicate, ...]]] = {
    Phase.SETUP: _SETUP,
    Phase.HELLO: _HELLO,
    Phase.LISTING: (*_LISTED, TICK),
    Phase.SUMMARY_1: (_PARTITION, TICK),
    Phase.TURN_1: (_PARTITION, *_LISTED, *_QUESTIONS, TICK),
    # Here the partition is the whole send set, so that there is one.
    Phase.SUMMARY_2: (
        _summary("AdvertisementPartition", *_PARTITION.syntax, singleton=True),
        _CURSOR,
        TICK,
    ),
    Phase.TURN_2: (_PARTITION, _CHILDREN, *_DELTA, *_LISTED, *_QUESTIONS, TICK),
    Phase.REQUEST: (_REQUEST, TICK),
    Phase.TRANSFER: (_NOT_AVAILABLE,),
    Phase.TICK: (TICK,),
}
PHASE_PREDICATES: Final[Mapping[Phase, Mapping[str, ControlPredicate]]] = MappingProxyType(
    {
        phase: MappingProxyType({predicate.name: predicate for predicate in held})
        for phase, held in _HELD.items()
    }
)
"""What the blocks of each phase may hold."""
CONTROL_PREDICATES: Final[Mapping[str, ControlPredicate]] = MappingProxyType(
    {predicate.name: predicate for held in reversed(_HELD.values()) for predicate in held}
)
"""Every control predicate by its name."""


def advertise_phase(mode: int, turn: int) -> Phase:
    """Return the phase of a block in that turn of the advertise phase of that mode.

    >>> advertise_phase(2, 0)
    <Phase.SUMMARY_2: 'turn 0 of mode 2'>
    """
    if mode == 0:
        return Phase.LISTING
    if mode == 1:
        return Phase.TURN_1 if turn else Phase.SUMMARY_1
    return Phase.TURN_2 if turn else Phase.SUMMARY_2
