"""Blocks of control facts: the one way from facts that a peer sent to facts that are used.

After `check_block`, every fact is known, has its arity, stands in a phase that has it, and
its values have their form. What the values say is judged by the modules that use them. A
block is a set (G35): order and repetition mean nothing. Columns are checked as a whole,
because a listing has hundreds of thousands of facts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import filterfalse
from operator import itemgetter
from typing import TYPE_CHECKING

from lace.base.limits import MAX_LINE_BYTES
from lace.base.text import LINE_BREAK, safe_text
from lace.errors import LaceError
from lace.facts.lines import check_value, format_fact, parse_fact
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.vocabulary import (
    CONTROL_PREDICATES,
    PHASE_PREDICATES,
    RECORD_LETTERS,
    TICK,
    Syntax,
)
from lace.record.hash_rows import are_all_hashes
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.interlacing.vocabulary import ControlPredicate, Phase

__all__ = [
    "Block",
    "check_block",
    "format_block",
    "is_only_tick",
    "parse_block",
    "sorted_lines",
]


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
    """Return the block of facts that came in a phase.

    Raises:
        InterlaceFailure: a fact that this phase does not have, another arity, a repeated
            singleton, or a value of another form, not in NFC or too long.
    """
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
                Failure.MALFORMED_BLOCK, f"'{show(value)}' in {predicate}: {problem}", rule="G35"
            )


def parse_block(
    lines: Iterable[bytes], phase: Phase, *, max_value_bytes: int = MAX_LINE_BYTES
) -> Block:
    """Return the block of fact lines, each without its LF.

    Raises:
        InterlaceFailure: a line is no fact line, or as `check_block`.
    """
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
