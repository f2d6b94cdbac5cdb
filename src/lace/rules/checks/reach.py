"""Where steps lead to: from predicate to predicate, or from place to place."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.rules.dependencies import Dependencies
    from lace.rules.syntax import PredicateKey

__all__ = ["closure", "dependents", "steps_of"]

_Node = TypeVar("_Node")


def dependents(graph: Dependencies, targets: Iterable[PredicateKey]) -> set[PredicateKey]:
    """Return the derived predicates that depend on any of the targets."""
    users = steps_of((edge.target, edge.head) for edge in graph.edges())
    return {key for key in closure(targets, users) if graph.is_derived(key)}


def steps_of(pairs: Iterable[tuple[_Node, _Node]]) -> dict[_Node, set[_Node]]:
    """Return where one step leads to, from each place."""
    steps: dict[_Node, set[_Node]] = {}
    for source, target in pairs:
        steps.setdefault(source, set()).add(target)
    return steps


def closure(start: Iterable[_Node], steps: Mapping[_Node, Iterable[_Node]]) -> set[_Node]:
    """Return where steps lead to, the start with it."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(steps.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
