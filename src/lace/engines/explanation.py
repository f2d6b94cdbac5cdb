"""Explanations as values: why a fact holds, or why it does not.

A derivation is a list of steps, the explained fact first: each fact once, in the order
in which a tree of it is read. A fact that does not hold has an absence instead: what
each rule of its predicate lacks. How either looks is in `lace.engines.outline`; how
they are found is the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from lace.base.text import shorten
from lace.engines.outline import SHOWN_FACTS, Line, html_of, text_of
from lace.rules.syntax import PredicateKey, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram

__all__ = [
    "Absence",
    "Condition",
    "Explanation",
    "Miss",
    "MissKind",
    "RuleReference",
    "Step",
    "show_fact",
]

ConditionKind: TypeAlias = Literal["fact", "not", "count", "test", "true"]
MissKind: TypeAlias = Literal["head", "fact", "not", "count", "test"]
AbsenceKind: TypeAlias = Literal["rules", "base", "unknown"]
_NONE: Final[Mapping[str, object]] = MappingProxyType({})


def show_fact(fact: Fact) -> str:
    """Return a fact as text, as rules write it.

    >>> show_fact(("Have", "B.1"))
    "Have('B.1')"
    """
    return f"{fact[0]}({','.join(map(quote, fact[1:]))})"


@dataclass(frozen=True, slots=True)
class RuleReference:
    """A rule of the program: its number from 1, its identifier, its canonical line, its place.

    `part` says whose rule it is when a program is made of several modules.
    """

    number: int
    id: str
    text: str
    source: str | None = None
    line: int | None = None
    annotations: Mapping[str, object] = field(default_factory=lambda: _NONE)
    part: str | None = None

    @classmethod
    def of(cls, checked: CheckedProgram, position: int) -> Self:
        """Return the reference to the rule at a position of a program, as it was written."""
        if checked.written is not None:
            each = checked.written[position]
            place = each.place
            return cls(
                each.number,
                each.id,
                each.text,
                place.source,
                place.line,
                each.annotations,
                each.part,
            )
        identifier = checked.rule_ids[position]
        return cls(
            position + 1,
            identifier,
            checked.lines[position],
            checked.source,
            checked.rules[position].span.line or None,
            checked.annotations.get(identifier, _NONE),
        )

    def __str__(self) -> str:
        of_part = f" of {self.part}" if self.part else ""
        where = ", ".join((self.id, *self._place()))
        return f"rule {self.number}{of_part} ({where}): {self.text}"

    def _place(self) -> tuple[str, ...]:
        if self.line is None:
            return () if self.source is None else (self.source,)
        return (f"line {self.line}" if self.source is None else f"{self.source}:{self.line}",)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "number": self.number,
            "id": self.id,
            "text": self.text,
            "source": self.source,
            "line": self.line,
            "part": self.part,
            "annotations": dict(self.annotations),
        }


@dataclass(frozen=True, slots=True)
class Condition:
    """One item of a rule's body and how it was met.

    `text` is the item as the rule has it, `instance` the same with its values. `fact` is
    what met a positive atom. `count` is what a count came to: that many facts, or at
    least that many when it is not `exact`.
    """

    kind: ConditionKind
    text: str
    instance: str
    fact: Fact | None = None
    count: int | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """A fact of a derivation; a base fact has no rule, no conditions and height 0."""

    fact: Fact
    height: int = 0
    rule: RuleReference | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def is_base(self) -> bool:
        """Whether the fact was given."""
        return self.rule is None


@dataclass(frozen=True, slots=True)
class Miss:
    """Why one rule does not give a fact.

    A `head` fails at an argument, counted from 1, that is `expected` to be another value.
    An item of the body fails for every binding that meets the items before it; `binding`
    is such a binding. `predicate` and `values` are what the item reads of facts, with None
    for a value that is free; a test reads none. `nearest` is, for a positive atom, the fact
    most like what was looked for, and for `not` the fact that stands in the way. `inner`
    says why the fact that was looked for does not hold either.
    """

    rule: RuleReference
    kind: MissKind
    item: str
    instance: str
    position: int | None = None
    binding: tuple[tuple[str, str], ...] = ()
    nearest: Fact | None = None
    count: int | None = None
    exact: bool = True
    argument: int | None = None
    expected: str | None = None
    inner: Absence | None = None
    predicate: PredicateKey | None = None
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a fact does not hold.

    `rules`: each rule of the predicate misses something. `base`: no rule gives facts of
    the predicate, and this one is not given. `unknown`: nothing is known of the predicate;
    `suggestion` is one of a like name.
    """

    fact: Fact
    kind: AbsenceKind
    misses: tuple[Miss, ...] = ()
    nearest: Fact | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a fact holds, or why it does not; true when it holds.

    `steps` has every fact of a shortest derivation once, the explained one first, and
    each at its first place in the tree; `absence` is there when the fact does not hold.
    """

    fact: Fact
    steps: tuple[Step, ...] = ()
    absence: Absence | None = None
    _numbers: Mapping[Fact, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if bool(self.steps) is (self.absence is not None):
            raise AssertionError("a fact is derived or absent")
        numbers = {step.fact: number for number, step in enumerate(self.steps)}
        object.__setattr__(self, "_numbers", MappingProxyType(numbers))

    @property
    def holds(self) -> bool:
        """Whether the fact holds."""
        return self.absence is None

    @property
    def height(self) -> int | None:
        """How many rules follow one another from base facts to this one, at least."""
        return self.steps[0].height if self.steps else None

    def __bool__(self) -> bool:
        return self.holds

    def step(self, fact: Fact) -> Step:
        """Return the step of a fact of the derivation."""
        return self.steps[self._numbers[fact]]

    def tree(self, limit: int | None = SHOWN_FACTS) -> str:
        """Return the text tree; facts or misses behind the limit are counted only."""
        return text_of(self._lines(limit))

    def __str__(self) -> str:
        return self.tree()

    def __repr__(self) -> str:
        height = f", height {self.height}" if self.holds else ""
        verdict = "holds" if self.holds else "does not hold"
        return f"<Explanation: {shorten(show_fact(self.fact), 120)} {verdict}{height}>"

    def _repr_html_(self) -> str:
        return html_of(self._lines(SHOWN_FACTS))

    def _lines(self, limit: int | None) -> list[Line]:
        from lace.engines.outline import absence_lines, derivation_lines

        if self.absence is not None:
            return list(absence_lines(self.absence))
        return list(derivation_lines(self, limit))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without nesting that grows with the derivation.

        A condition met by a fact names its step by `step`, a position in `steps`.
        """
        return {
            "fact": _fact_json(self.fact),
            "holds": self.holds,
            "height": self.height,
            "steps": [self._step_json(step) for step in self.steps],
            "absence": None if self.absence is None else _absence_json(self.absence),
        }

    def _step_json(self, step: Step) -> dict[str, Any]:
        return {
            "fact": _fact_json(step.fact),
            "height": step.height,
            "rule": None if step.rule is None else step.rule.to_json(),
            "body": [
                {
                    "kind": each.kind,
                    "text": each.text,
                    "instance": each.instance,
                    "step": None if each.fact is None else self._numbers[each.fact],
                    "count": each.count,
                    "exact": each.exact,
                }
                for each in step.conditions
            ],
        }

    def base_facts(self) -> Iterator[Fact]:
        """Yield the base facts that the derivation rests on, each once."""
        return (step.fact for step in self.steps if step.is_base)


def _fact_json(fact: Fact) -> dict[str, Any]:
    key = PredicateKey(fact[0], len(fact) - 1)
    return {"predicate": str(key), "values": list(fact[1:]), "text": show_fact(fact)}


def _absence_json(absence: Absence) -> dict[str, Any]:
    return {
        "fact": _fact_json(absence.fact),
        "kind": absence.kind,
        "nearest": None if absence.nearest is None else _fact_json(absence.nearest),
        "suggestion": absence.suggestion,
        "rules": [_miss_json(miss) for miss in absence.misses],
    }


def _miss_json(miss: Miss) -> dict[str, Any]:
    return {
        "rule": miss.rule.to_json(),
        "kind": miss.kind,
        "item": miss.item,
        "instance": miss.instance,
        "position": miss.position,
        "binding": dict(miss.binding),
        "nearest": None if miss.nearest is None else _fact_json(miss.nearest),
        "count": miss.count,
        "exact": miss.exact,
        "argument": miss.argument,
        "expected": miss.expected,
        "inner": None if miss.inner is None else _absence_json(miss.inner),
    }
