"""A plan's body in pieces: the scans that are joined, and the conditions on their rows.

Passes take a plan apart with `parts_of`, and put it together with `replace_input`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    Project,
    RankTest,
    Scan,
    SemiJoin,
    Unit,
    columns_of_terms,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Condition",
    "condition_columns",
    "count_atoms",
    "parts_of",
    "replace_input",
    "scans_of",
]

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
