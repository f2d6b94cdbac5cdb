"""Explanations as values: why a fact holds, or why it does not.

A derivation is a list of steps, the explained fact first: each fact once, in the order
in which a tree of it is read. A fact that does not hold has an absence instead: what
each rule of its predicate lacks. How either looks is in `lace.why.explanation`; how
they are found is the engine's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from lace.base.text import safe_text, shorten
from lace.rules.syntax import PredicateKey, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram


# -- How explanations look: a tree of lines, as text for a terminal or as HTML for a notebook.
#
# Whatever comes from records or rules is made safe to show here, and nowhere else.

SHOWN_FACTS: Final = 100
"""Facts of a derivation that are shown unless more are asked for; the rest are counted."""
_CELL_CHARACTERS: Final = 200
"""Characters of a cell that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an outline: how deep it stands, what it says, a remark, and notes below it."""

    depth: int
    text: str
    remark: str = ""
    notes: tuple[str, ...] = ()


def text_of(lines: Sequence[Line]) -> str:
    """Return lines as a tree drawn with box characters."""
    last = _last_of_its_parent(lines)
    open_above: list[bool] = []  # for each depth above: whether more is to come there
    made: list[str] = []
    for number, line in enumerate(lines):
        del open_above[max(line.depth - 1, 0) :]
        lead = "".join("│  " if more else "   " for more in open_above)
        has_more = not last[number]
        remark = f"   {line.remark}" if line.remark else ""
        branch = "" if line.depth == 0 else "├─ " if has_more else "└─ "
        made.append(safe_text(f"{lead}{branch}{line.text}{remark}"))
        if line.depth:
            open_above.append(has_more)
            lead += "│  " if has_more else "   "
        made += [safe_text(f"{lead}{note}") for note in line.notes]
    return "\n".join(made)


def _last_of_its_parent(lines: Sequence[Line]) -> list[bool]:
    """Tell for each line whether none with the same parent follows."""
    last = [True] * len(lines)
    follows: list[bool] = []  # by depth: whether a later line stands there, same parent
    for number in range(len(lines) - 1, -1, -1):
        depth = lines[number].depth
        follows += [False] * (depth + 1 - len(follows))
        del follows[depth + 1 :]
        last[number] = not follows[depth]
        follows[depth] = True
    return last


def html_of(lines: Sequence[Line]) -> str:
    """Return lines as nested lists that can be folded."""
    made: list[str] = ['<div class="lace-explanation">']
    open_lists = 0
    for number, line in enumerate(lines):
        while open_lists > line.depth:
            made.append("</details>")
            open_lists -= 1
        shown = f"<code>{_html(line.text)}</code>"
        if line.remark:
            shown += f" <em>{_html(line.remark)}</em>"
        shown += "".join(f"<br><small>{_html(note)}</small>" for note in line.notes)
        if number + 1 < len(lines) and lines[number + 1].depth > line.depth:
            made.append(f'<details open style="margin-left:1.5em"><summary>{shown}</summary>')
            open_lists += 1
        else:
            made.append(f'<div style="margin-left:1.5em">{shown}</div>')
    made += ["</details>"] * open_lists
    made.append("</div>")
    return "\n".join(made)


def result_html(shown: Mapping[str, tuple[int | None, Sequence[tuple[str, ...]]]]) -> str:
    """Return the first facts of predicates as tables that fold.

    Args:
        shown: for each predicate how many facts it has (None: they are not made) and some.
    """
    made: list[str] = []
    for name, (count, rows) in shown.items():
        told = "only counted, not made" if count is None else _counted(count, exact=True)
        lines = "".join(
            f"<tr>{''.join(f'<td><code>{_html(value)}</code></td>' for value in row)}</tr>"
            for row in rows
        )
        more = f"<p>and {count - len(rows):,} more</p>" if count and count > len(rows) else ""
        table = f"<table>{lines}</table>{more}" if lines else more
        made.append(f"<details><summary>{_html(name)}: {told}</summary>{table}</details>")
    return "".join(made)


def table_html(
    names: Sequence[str], rows: Iterable[Sequence[object]], count: int, noun: str
) -> str:
    """Return the first rows of a table, and how many there are in all."""
    shown = list(rows)
    head = "".join(f"<th>{_html(name)}</th>" for name in names)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_html(_cell(value))}</td>' for value in row)}</tr>" for row in shown
    )
    more = f"<p>and {count - len(shown):,} more</p>" if count > len(shown) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<p>{count_text(count, _html(noun))}</p>{table}{more}"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, which is given in the plural.

    >>> count_text(1, "records")
    '1 record'
    """
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun}"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"


def _html(text: str) -> str:
    return escape(safe_text(text), quote=True)


def _fact(fact: Fact) -> str:
    return f"{fact[0]}({','.join(map(quote, fact[1:]))})"


def _notes(annotations: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in annotations.items()
    )


def _rule(depth: int, rule: RuleReference, lead: str = "") -> Line:
    return Line(depth, f"{lead}{rule}", notes=_notes(rule.annotations))


def derivation_lines(explanation: Explanation, limit: int | None) -> Iterator[Line]:
    """Yield the lines of a derivation, as many facts as the limit allows."""
    shown: set[Fact] = set()
    root = explanation.steps[0]
    waiting: list[tuple[int, Fact | Condition]] = [(0, root.fact)]
    while waiting:
        depth, entry = waiting.pop()
        if not isinstance(entry, tuple):
            yield _condition(depth, entry)
            continue
        step = explanation.step(entry)
        if step.is_base:
            shown.add(entry)
            yield Line(depth, _fact(entry), "base fact")
            continue
        if entry in shown:
            yield Line(depth, _fact(entry), "see above")
            continue
        if limit is not None and len(shown) >= limit:
            yield Line(depth, _fact(entry), "not shown further")
            continue
        shown.add(entry)
        yield Line(depth, _fact(entry))
        if step.rule is not None:
            yield _rule(depth + 1, step.rule, "by ")
        waiting += [
            (depth + 1, condition if condition.fact is None else condition.fact)
            for condition in reversed(step.conditions)
            if condition.kind != "true"
        ]
    left = len(explanation.steps) - len(shown)
    if left:
        yield Line(0, f"… and {left:,} more fact{'s' if left > 1 else ''} of this derivation")


def _condition(depth: int, condition: Condition) -> Line:
    match condition.kind:
        case "not":
            return Line(depth, condition.instance, "no such fact")
        case "count":
            return Line(depth, condition.instance, _counted(condition.count, condition.exact))
        case _:
            return Line(depth, condition.instance, "holds")


def _counted(count: int | None, exact: bool) -> str:
    shown = count_text(count or 0, "facts")
    return shown if exact else f"at least {shown}"


def absence_lines(absence: Absence, depth: int = 0) -> Iterator[Line]:
    """Yield the lines of an absence."""
    yield Line(depth, _fact(absence.fact), "does not hold")
    key = f"{absence.fact[0]}/{len(absence.fact) - 1}"
    match absence.kind:
        case "unknown":
            hint = f"; did you mean {absence.suggestion}?" if absence.suggestion else ""
            yield Line(depth + 1, f"no rule and no fact has the predicate {key}{hint}")
        case "base":
            yield Line(depth + 1, "no such base fact")
            yield from _nearest(depth + 1, absence.nearest)
        case "rules":
            for miss in absence.misses:
                yield _rule(depth + 1, miss.rule)
                yield from _miss(depth + 2, miss)


def _nearest(depth: int, fact: Fact | None) -> Iterable[Line]:
    if fact is not None:
        yield Line(depth, f"nearest: {_fact(fact)}")


def _miss(depth: int, miss: Miss) -> Iterator[Line]:
    if miss.kind == "head":
        expected = "" if miss.expected is None else quote(miss.expected)
        yield Line(depth, f"argument {miss.argument} of {miss.item} would be {expected}")
        return
    named = ", ".join(f"{name} = {quote(value)}" for name, value in miss.binding)
    yield Line(depth, f"failed: {miss.item}", notes=(f"with {named}",) if named else ())
    match miss.kind:
        case "not":
            found = "" if miss.nearest is None else _fact(miss.nearest)
            yield Line(depth, f"there is: {found}")
        case "count":
            yield Line(depth, f"found: {_counted(miss.count, miss.exact)}")
        case "test":
            yield Line(depth, f"{miss.instance}", "does not hold")
        case _:
            if miss.nearest is None:
                yield Line(depth, f"nothing like {miss.instance}")
            yield from _nearest(depth, miss.nearest)
            if miss.inner is not None:
                yield from absence_lines(miss.inner, depth)


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
