"""Strata: no predicate depends on itself through negation or counting (030).

A lacegram that breaks this has a cycle; the finding names every step of it with its
line, and its excerpt shows the rules.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from lace.rules.syntax import PredicateKey, Use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.rules.dependencies import Dependencies, Edge
    from lace.rules.findings import Reporter
    from lace.rules.syntax import Rule

__all__ = ["Strata", "check_strata", "number_strata"]

Strata = tuple[tuple[PredicateKey, ...], ...]
"""The derived predicates by stratum, lowest first."""

_MAX_STEPS: Final = 12
_WORDS: Final = {Use.POSITIVE: "", Use.NEGATIVE: "not ", Use.CARDINALITY: "the number of "}


def number_strata(dependencies: Dependencies) -> Strata:
    """Return the strata of a stratified program: as low as they can be.

    Base predicates lie below all; a predicate that only reads them, negated or
    counted or not, is in the first stratum.
    """
    level: dict[PredicateKey, int] = {}
    for component in dependencies.components():
        lowest = 0
        for predicate in component:
            for edge in dependencies.edges_from(predicate):
                if edge.target in level:
                    above = level[edge.target] + (edge.use is not Use.POSITIVE)
                    lowest = max(lowest, above)
        level.update(dict.fromkeys(component, lowest))
    strata: list[list[PredicateKey]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for predicate in dependencies.derived:
        strata[level[predicate]].append(predicate)
    return tuple(map(tuple, strata))


def check_strata(rules: Sequence[Rule], dependencies: Dependencies, reporter: Reporter) -> None:
    """Report a cycle through negation or counting for each component that has one."""
    for component in dependencies.components():
        members = frozenset(component)
        crossing = [
            edge
            for predicate in component
            for edge in dependencies.edges_from(predicate)
            if edge.target in members and edge.use is not Use.POSITIVE
        ]
        if crossing:
            first = min(crossing, key=lambda edge: edge.rule)
            _report_cycle(_cycle(first, members, dependencies), rules, reporter)


def _cycle(first: Edge, members: frozenset[PredicateKey], graph: Dependencies) -> list[Edge]:
    """Return a shortest way round from an edge back to where it starts."""
    came: dict[PredicateKey, Edge] = {}
    waiting = deque([first.target])
    while first.head != first.target and first.head not in came:
        for edge in graph.edges_from(waiting.popleft()):
            if edge.target in members and edge.target not in came and edge.target != first.target:
                came[edge.target] = edge
                waiting.append(edge.target)
    steps: list[Edge] = []
    at = first.head
    while at != first.target:
        steps.append(came[at])
        at = came[at].head
    return [first, *reversed(steps)]


def _report_cycle(cycle: list[Edge], rules: Sequence[Rule], reporter: Reporter) -> None:
    first = cycle[0]
    by = "negation" if first.use is Use.NEGATIVE else "counting"
    shown = cycle[:_MAX_STEPS]
    steps = [
        f"{edge.head} needs {_WORDS[edge.use]}{edge.target} (line {rules[edge.rule].span.line})"
        for edge in shown
    ]
    if len(cycle) > len(shown):
        steps.append(f"and {len(cycle) - len(shown):,} more steps back to {first.head}")
    reporter.error(
        "030-55" if first.use is Use.NEGATIVE else "030-56",
        first.atom.span,
        f"{first.head} depends on itself through {by}: {', '.join(steps)}",
        "break the cycle: what is negated or counted must be known before",
        also=[edge.atom.span for edge in shown[1:]],
    )
