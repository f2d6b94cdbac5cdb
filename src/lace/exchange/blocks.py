"""Blocks of control facts: which facts there are, and where each may be (050, G36).

After `check_block`, every fact is known, has its arity, is in a phase that has it, and
its values have their form. What the values say is judged by the modules that use them. A
block is a set (G35): order and repetition mean nothing. Columns are checked as a whole,
because a listing has hundreds of thousands of facts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from itertools import filterfalse
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.limits import MAX_LINE_BYTES
from lace.base.tai import TAI_PATTERN
from lace.base.text import LINE_BREAK, safe_text
from lace.errors import LaceError
from lace.exchange.failures import Failure, InterlaceFailure
from lace.facts.lines import check_value, format_fact, parse_fact
from lace.record.hash_rows import are_all_hashes
from lace.record.ids import SIGNATURE_PATTERN, VERIFIER_PATTERN
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact


# -- The control facts of an exchange: which there are, and where each may be (G36).

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
    """The place of a block in an exchange: what it may hold depends on this alone."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Distinct facts in the order they came; two blocks of the same facts are equal.

    `check_block` makes them.
    """

    facts: tuple[Fact, ...] = ()
    _groups: Mapping[str, Sequence[Fact]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        return self.facts == other.facts or set(self.facts) == set(other.facts)

    def __hash__(self) -> int:
        return hash(frozenset(self.facts))

    def of(self, name: str) -> Sequence[Fact]:
        """Return the facts of a predicate, in the order they came."""
        return self._groups.get(name, ())

    def one(self, name: str) -> Fact | None:
        """Return the fact of a singleton, or None."""
        found = self.of(name)
        return found[0] if found else None

    @property
    def tick(self) -> str | None:
        """The instant of its TickReady, if it has one."""
        found = self.one(TICK.name)
        return found[1] if found else None


def is_only_tick(facts: Sequence[Fact]) -> bool:
    """Tell whether the facts of a block are TickReady alone: then it is never a step (G54d).

    They are not checked: of several, `check_block` says that there may be one.
    """
    return bool(facts) and all(fact[0] == TICK.name for fact in facts)


def check_block(
    facts: Iterable[Fact], phase: Phase, *, max_value_bytes: int = MAX_LINE_BYTES
) -> Block:
    """Return the block of facts that came in a phase."""
    distinct = tuple(dict.fromkeys(facts))
    groups = _group(distinct)
    known = PHASE_PREDICATES[phase]
    for name, group in groups.items():
        predicate = known.get(name)
        if predicate is None:
            raise _misplaced(name, phase)
        _check_group(predicate, group, max_value_bytes)
    return Block(distinct, groups)


def _group(facts: tuple[Fact, ...]) -> Mapping[str, Sequence[Fact]]:
    try:
        names = set(map(itemgetter(0), facts))
    except IndexError:
        raise InterlaceFailure(Failure.MALFORMED_BLOCK, "a fact without a predicate") from None
    if len(names) == 1:
        return {names.pop(): facts}
    groups: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        groups[fact[0]].append(fact)
    return groups


def _misplaced(name: str, phase: Phase) -> InterlaceFailure:
    what = f"{name} does not belong in" if name in CONTROL_PREDICATES else f"no {show(name)} is in"
    held = ", ".join(PHASE_PREDICATES[phase])
    return InterlaceFailure(
        Failure.MALFORMED_BLOCK, f"{what} {phase.value}", rule="G36", hint=f"there may be {held}"
    )


def _check_group(predicate: ControlPredicate, group: Sequence[Fact], max_value_bytes: int) -> None:
    length = predicate.arity + 1
    if set(map(len, group)) != {length}:
        wrong = next(fact for fact in group if len(fact) != length)
        raise InterlaceFailure(
            Failure.MALFORMED_BLOCK, f"{predicate} with {len(wrong) - 1} values", rule="G36"
        )
    if predicate.singleton and len(group) > 1:
        raise InterlaceFailure(
            Failure.MALFORMED_BLOCK, f"{len(group)} facts of {predicate}, not one", rule="G36"
        )
    for position, syntax in enumerate(predicate.syntax, 1):
        values = set(map(itemgetter(position), group))
        if syntax is Syntax.TEXT:
            _check_texts(predicate, values, max_value_bytes)
            continue
        wrong_value = _first_wrong(syntax, values, max_value_bytes)
        if wrong_value is not None:
            raise InterlaceFailure(
                predicate.failure,
                f"'{show(wrong_value)}' in {predicate} is not {syntax.title}",
            )


def _first_wrong(syntax: Syntax, values: set[str], max_value_bytes: int) -> str | None:
    if syntax is Syntax.RECORD and are_all_hashes(values, RECORD_LETTERS):
        return None  # nearly always: to match each of them takes five times as long
    wrong = next(filterfalse(syntax.matches, values), None)
    if wrong is not None:
        return wrong
    return next((value for value in values if len(value) > max_value_bytes), None)


def _check_texts(predicate: ControlPredicate, values: set[str], max_value_bytes: int) -> None:
    together = "".join(values)
    plain = together.isascii() and together.isprintable()
    if plain and max(map(len, values)) <= max_value_bytes:
        return
    for value in values:
        try:
            check_value(value, max_value_bytes)
            problem = "it has a line break" if LINE_BREAK.search(value) else ""
        except LaceError as error:
            problem = safe_text(error.message)
        if problem:
            raise InterlaceFailure(
                Failure.MALFORMED_BLOCK, f"'{show(value)}' in {predicate}: {problem}", rule="050-23"
            )


def parse_block(
    lines: Iterable[bytes], phase: Phase, *, max_value_bytes: int = MAX_LINE_BYTES
) -> Block:
    """Return the block of fact lines, each without its LF."""
    try:
        facts = [parse_fact(line, max_value_bytes=max_value_bytes) for line in lines]
    except LaceError as error:
        raise InterlaceFailure(
            Failure.MALFORMED_BLOCK, safe_text(error.message), rule=error.rule, hint=error.hint
        ) from None
    return check_block(facts, phase, max_value_bytes=max_value_bytes)


def format_block(facts: Iterable[Fact]) -> bytes:
    r"""Return the bytes of a block: its lines, each with its LF, and the LF that ends it.

    >>> format_block([])
    b'\n'
    """
    lines = dict.fromkeys(map(format_fact, facts))
    return "".join([*(f"{line}\n" for line in lines), "\n"]).encode("utf-8")


def sorted_lines(facts: Iterable[Fact]) -> list[bytes]:
    """Return the distinct lines of facts, each with its LF, sorted bytewise."""
    return [line + b"\n" for line in sorted({format_fact(fact).encode("utf-8") for fact in facts})]
