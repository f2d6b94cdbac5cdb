"""The one relational program: what rules mean, as joins, tests, unions and fixed points.

The contract that every engine obeys: a relation is a set of tuples of text, without
nulls, duplicates or order; a plan's columns have the names of the rule's variables;
joins compare columns of equal name; exceeding a limit is an error, never a truncation.
Nodes know nothing of engines, of policy or of where facts come from.

A `Join` of many inputs says nothing about their order; `lace.algebra.passes.order`
makes a plan out of it that goes step by step, once counts are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from lace.rules.syntax import Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import (
        Constant,
        IntCompare,
        LexCompare,
        Operator,
        PredicateKey,
        Term,
        Test,
    )


class Version(Enum):
    """Which rows of a predicate a scan reads."""

    ALL = ""
    CHANGED = "Δ"
    """Only what is new, or only what is gone: what an increment starts from."""
    GOAL = "?"
    """The facts that are asked about."""


def columns_of_terms(terms: tuple[Term, ...]) -> tuple[str, ...]:
    """Return the names of the variables among terms, each once, in their order."""
    return tuple(dict.fromkeys(term.name for term in terms if isinstance(term, Variable)))


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a predicate that fit its terms; `columns` are those that others need.

    A constant and a variable that stands twice choose rows; `_` fits anything.
    `occurrence` is the atom's position in the body of its rule.
    """

    predicate: PredicateKey
    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    occurrence: int
    version: Version = Version.ALL


@dataclass(frozen=True, slots=True)
class Unit:
    """One row without columns: the body `true`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """No columns."""
        return ()


@dataclass(frozen=True, slots=True)
class Join:
    """Every combination of rows that agree in the columns they share."""

    inputs: tuple[Node, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """The rows of the left that agree with some row of the right."""

    left: Node
    right: Node
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """The rows of the left that agree with no row of the right."""

    left: Node
    right: Scan
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountTest:
    """The rows for which the number of matching facts of a predicate meets a bound."""

    input: Node
    counted: Scan
    operator: Operator
    bound: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankTest:
    """A count test that an order answers: how many items of a scan come behind this one.

    `items` has one row for each item: its own value in column `item` and that by which
    it is ordered in column `by`. The facts counted for an item are the others whose
    `by` compares so (`ahead`), and those of equal `by` whose own value does (`tied`).
    The plain count test is kept for facts in which an item has two values of `by`.
    """

    input: Node
    key: str
    items: Scan
    item: str
    by: str
    ahead: LexCompare | IntCompare | None
    tied: LexCompare | IntCompare | None
    plain: CountTest
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a built-in test holds."""

    input: Node
    test: Test
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """The facts that rows make: the terms of a head, variables and constants."""

    input: Node
    terms: tuple[Variable | Constant, ...]


Node: TypeAlias = Scan | Unit | Join | SemiJoin | AntiJoin | CountTest | RankTest | Filter


@dataclass(frozen=True, slots=True)
class Branch:
    """What one rule adds to its predicate; `rule` is the rule's position."""

    rule: int
    predicate: PredicateKey
    plan: Project


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """The least relations closed under branches: the union of what the branches make.

    Without `recursive`, one pass over the branches is enough. Every predicate that a
    branch negates or counts is complete before.
    """

    predicates: tuple[PredicateKey, ...]
    branches: tuple[Branch, ...]
    recursive: bool


@dataclass(frozen=True, slots=True)
class RelationalProgram:
    """Fixed points in an order in which each reads only base facts and those before it.

    `counted` are the predicates that nothing reads but counts: an engine need not make
    their facts to answer for the others. `distinct` are those whose rules make no fact
    twice. `lines` are the rules in canonical text.
    """

    steps: tuple[Fixpoint, ...]
    counted: frozenset[PredicateKey]
    lines: tuple[str, ...]
    distinct: frozenset[PredicateKey] = frozenset()

    def __str__(self) -> str:

        return explain(self)


# -- The stable text of a relational program: for people, for tests, for bug reports.


def explain(program: RelationalProgram) -> str:
    """Return the text of a program: its fixed points, their branches, their plans.

    The plan of a branch reads from the top down: what is needed last stands first.
    """
    lines: list[str] = []
    for step in program.steps:
        names = ", ".join(map(str, step.predicates))
        kind = "fixpoint" if step.recursive else "union"
        only = all(key in program.counted for key in step.predicates)
        once = all(key in program.distinct for key in step.predicates)
        remarks = ["only counted"] * only + ["no fact twice"] * once
        shown = f" ({', '.join(remarks)})" if remarks else ""
        lines.append(f"{kind} {names}{shown}")
        for branch in step.branches:
            lines.append(f"  rule {branch.rule + 1}: {branch.predicate}")
            lines += [f"    {line}" for line in explain_plan(branch.plan)]
    return "\n".join(lines)


def explain_plan(plan: Project) -> list[str]:
    """Return the lines of one plan."""
    head = ",".join(map(str, plan.terms))
    return [f"project ({head})", *(f"  {line}" for line in _lines(plan.input))]


def _lines(top: Node) -> Iterator[str]:
    waiting: list[tuple[Node, int]] = [(top, 0)]
    while waiting:
        node, depth = waiting.pop()
        line, below = _line(node)
        yield f"{'  ' * depth}{line}"
        waiting += [(each, depth + 1) for each in reversed(below)]


def _line(node: Node) -> tuple[str, tuple[Node, ...]]:
    """Return the line of a node, and the nodes below it."""
    keep = f" keep {','.join(node.columns)}" if node.columns else ""
    match node:
        case Scan():
            return f"scan {_scan(node)}{keep}", ()
        case Unit():
            return "unit", ()
        case Join():
            return f"join{keep}", node.inputs
        case SemiJoin():
            return f"semi-join{keep}", (node.left, node.right)
        case AntiJoin():
            return f"anti-join {_scan(node.right)}{keep}", (node.left,)
        case CountTest():
            by = ",".join(node.counted.columns) or "all"
            test = f"{node.operator} {node.bound}"
            return f"count {_scan(node.counted)} by {by} {test}{keep}", (node.input,)
        case RankTest():
            plain = node.plain
            text = f"rank {node.key} in {_scan(node.items)} {plain.operator} {plain.bound}{keep}"
            return text, (node.input,)
        case Filter():
            return f"filter {node.test}{keep}", (node.input,)


def _scan(scan: Scan) -> str:
    return f"{scan.version.value}{scan.predicate.name}({','.join(map(str, scan.terms))})"


# -- A plan's body in pieces: the scans that are joined, and the conditions on their rows.
#
# Passes take a plan apart with `parts_of`, and put it together with `replace_input`.

Condition: TypeAlias = Filter | AntiJoin | CountTest | RankTest


_NOTHING: Final = Unit()


def parts_of(node: Node) -> tuple[tuple[Scan, ...], tuple[Condition, ...]]:
    """Return the scans that a plan joins and its conditions, innermost first.

    The conditions have no input: each is a value of its own, however many there are.
    """
    conditions: list[Condition] = []
    while isinstance(node, Filter | AntiJoin | CountTest | RankTest):
        conditions.append(replace_input(node, _NOTHING, node.columns))
        node = node.left if isinstance(node, AntiJoin) else node.input
    conditions.reverse()
    match node:
        case Join():
            scans = tuple(scan for scan in node.inputs if isinstance(scan, Scan))
            if len(scans) != len(node.inputs):
                raise AssertionError("a plan is taken apart before its joins are ordered")
            return scans, tuple(conditions)
        case Scan():
            return (node,), tuple(conditions)
        case Unit():
            return (), tuple(conditions)
        case SemiJoin():
            raise AssertionError("a plan is taken apart before its joins are ordered")


def count_atoms(plan: Project) -> int:
    """Return how many scans and conditions a plan has that is not ordered yet."""
    scans, conditions = parts_of(plan.input)
    return len(scans) + len(conditions)


def replace_input(condition: Condition, node: Node, columns: tuple[str, ...]) -> Condition:
    """Return a condition on another input."""
    if isinstance(condition, AntiJoin):
        return replace(condition, left=node, columns=columns)
    return replace(condition, input=node, columns=columns)


def condition_columns(condition: Condition) -> tuple[str, ...]:
    """Return the columns that a condition needs of its input."""
    match condition:
        case Filter():
            return columns_of_terms(condition.test.terms)
        case AntiJoin():
            return condition.right.columns
        case CountTest():
            return condition.counted.columns
        case RankTest():
            return (condition.key,)


def scans_of(plan: Project) -> Iterator[tuple[Scan, bool]]:
    """Yield every scan of a plan that is not ordered yet, and whether it is only counted."""
    scans, conditions = parts_of(plan.input)
    for scan in scans:
        yield scan, False
    for condition in conditions:
        match condition:
            case AntiJoin():
                yield condition.right, False
            case CountTest():
                yield condition.counted, True
            case RankTest():
                yield condition.items, False
                yield condition.plain.counted, True
            case Filter():
                pass


# -- What an engine is to the rest of Lace: rules and facts in, an answer out.


class Answer(Protocol):
    """The facts that follow from rules, by predicate."""

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules define."""
        ...

    def made(self, key: PredicateKey) -> int | None:
        """Return how many facts a predicate has; None when they have not been made."""
        ...

    def count(self, key: PredicateKey) -> int:
        """Return how many facts a predicate has."""
        ...

    def texts(self, key: PredicateKey) -> list[tuple[str, ...]]:
        """Return the facts of a predicate, each once, in no particular order."""
        ...


class Evaluator(Protocol):
    """An engine."""

    def __call__(
        self,
        checked: CheckedProgram,
        facts: Iterable[Fact],
        *,
        predicates: Iterable[PredicateKey] | None = None,
    ) -> Answer:
        """Evaluate rules over facts; wanted are these predicates, or all."""
        ...
