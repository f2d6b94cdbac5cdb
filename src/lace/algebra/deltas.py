"""Plans that start from a change, or from the facts that are asked about.

A fact that comes or goes changes what a rule makes only through rows that it takes part
in. For each place in a body there is a plan that starts there: a positive atom reads the
change instead of all its rows; before a negated or counted atom the change only chooses
rows, and the condition itself stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lace.algebra.body import parts_of, replace_input, scans_of
from lace.algebra.nodes import (
    Branch,
    Join,
    Node,
    Project,
    Scan,
    Version,
    columns_of_terms,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["from_change", "from_goal", "places"]


def places(plan: Project) -> Iterator[tuple[Scan, bool]]:
    """Yield the scan of each place in a body, and whether it is a positive atom."""
    scans, _conditions = parts_of(plan.input)
    positive = {scan.occurrence for scan in scans}
    for scan, _counted in scans_of(plan):
        if scan.occurrence >= 0:  # what a rank sorts stands at no place of the body
            yield scan, scan.occurrence in positive


def from_change(plan: Project, occurrence: int) -> Project:
    """Return the plan that starts from what changed at one place of the body."""
    (scan, positive), *_ = [each for each in places(plan) if each[0].occurrence == occurrence]
    changed = replace(scan, version=Version.CHANGED)
    return _starting(plan, changed, instead=scan if positive else None)


def from_goal(branch: Branch, positions: tuple[int, ...] | None = None) -> Project:
    """Return the plan that makes only those facts of a head that are asked about.

    What is asked about has a column for each of the positions, or for every position.
    """
    terms = branch.plan.terms
    if positions is not None:
        terms = tuple(terms[position] for position in positions)
    goal = Scan(branch.predicate, terms, columns_of_terms(terms), -1, Version.GOAL)
    return _starting(branch.plan, goal, instead=None)


def _starting(plan: Project, start: Scan, *, instead: Scan | None) -> Project:
    scans, conditions = parts_of(plan.input)
    inputs = [start, *(scan for scan in scans if scan is not instead)]
    columns = tuple(dict.fromkeys(name for scan in inputs for name in scan.columns))
    node: Node = Join(tuple(inputs), columns) if len(inputs) > 1 else start
    for condition in conditions:
        node = replace_input(condition, node, columns)
    return Project(node, plan.terms)
