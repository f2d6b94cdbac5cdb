"""The one relational program: what rules mean, as joins, tests, unions and fixed points.

The contract that every engine obeys: a relation is a set of tuples of text, without
nulls, duplicates or order; a plan's columns have the names of the rule's variables;
joins compare columns of equal name; exceeding a limit is an error, never a truncation.
Nodes know nothing of engines, of policy or of where facts come from.

A `Join` of many inputs says nothing about their order; `lace.algebra.passes.order`
makes a plan out of it that goes step by step, once counts are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from lace.rules.syntax import Variable

if TYPE_CHECKING:
    from lace.rules.syntax import (
        Constant,
        IntCompare,
        LexCompare,
        Operator,
        PredicateKey,
        Term,
        Test,
    )

__all__ = [
    "AntiJoin",
    "Branch",
    "CountTest",
    "Filter",
    "Fixpoint",
    "Join",
    "Node",
    "Project",
    "RankTest",
    "RelationalProgram",
    "Scan",
    "SemiJoin",
    "Unit",
    "Version",
    "columns_of_terms",
]


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
        from lace.algebra.explain import explain

        return explain(self)
