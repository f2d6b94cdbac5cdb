"""The order of joins, chosen from counts: how a rule is written does not matter to speed.

A plan that says only what is joined becomes one that goes step by step: from the
smallest scan, or from what changed, always on to something that is connected with what
is bound already. Whatever only tests rows comes as soon as its columns are there:
semi-joins and anti-joins before tests of texts, counts last. Parts of a body that share
nothing with the head are asked first, and only whether they have a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from lace.algebra.body import Condition, condition_columns, parts_of, replace_input
from lace.algebra.nodes import (
    AntiJoin,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    SemiJoin,
    Unit,
    Version,
    columns_of_terms,
)
from lace.rules.syntax import Inequality

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Estimates", "order_joins"]

_Step: TypeAlias = "Scan | Condition | _Apart"
_MORE_ROWS: Final = 8
"""How many times as many rows the first scan may have as the smallest one."""


class Estimates(Protocol):
    """What an engine knows of sizes before it runs."""

    def rows(self, scan: Scan) -> int:
        """Return how many rows a scan has, about."""
        ...

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        """Return how many different values a scan has in some of its columns, about."""
        ...


@dataclass(frozen=True, slots=True)
class _Apart:
    """A part of the body that shares no column with the rest; its steps, and what it gives."""

    steps: tuple[_Step, ...]
    columns: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    """Scans that are connected by columns or conditions, and the conditions on them alone."""

    scans: list[Scan] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)


def order_joins(plan: Project, estimates: Estimates) -> Project:
    """Return the plan with its joins in the order to do them in."""
    scans, conditions = parts_of(plan.input)
    head = set(columns_of_terms(plan.terms))
    free, groups = _groups(scans, conditions)
    groups.sort(key=lambda group: min(map(_text, group.scans)))
    made = [(_steps_of(group, estimates), group.columns & head) for group in groups]
    # Groups without a column of the head only have to exist; of the others the first is the
    # one that the steps run along, the rest are made by themselves and multiplied with it.
    steps: list[_Step] = list(free)
    steps += [_alone(steps_of, ()) for steps_of, given in made if not given]
    giving = [(steps_of, given) for steps_of, given in made if given]
    for number, (steps_of, given) in enumerate(giving):
        columns = tuple(sorted(given))
        steps += steps_of if number == 0 else [_alone(steps_of, columns)]
    return Project(_tree(Unit(), steps, head), plan.terms)


def _alone(steps: list[_Step], columns: tuple[str, ...]) -> _Step:
    if len(steps) == 1 and isinstance(steps[0], Scan):
        return steps[0]
    return _Apart(tuple(steps), columns)


def _groups(
    scans: Iterable[Scan], conditions: Iterable[Condition]
) -> tuple[list[Condition], list[_Group]]:
    """Return the conditions on no column at all, and the connected groups of the rest."""
    groups: list[_Group] = []

    def group_for(columns: Iterable[str]) -> _Group:
        """Return the one group of all these columns, joining groups where they meet."""
        wanted = set(columns)
        merged = _Group(columns=wanted)
        for group in [group for group in groups if group.columns & wanted]:
            groups.remove(group)
            merged.scans += group.scans
            merged.conditions += group.conditions
            merged.columns |= group.columns
        groups.append(merged)
        return merged

    for scan in scans:
        group_for(scan.columns).scans.append(scan)
    free: list[Condition] = []
    for condition in conditions:
        columns = condition_columns(condition)
        if columns:
            group_for(columns).conditions.append(condition)
        else:
            free.append(condition)
    return free, groups


def _steps_of(group: _Group, estimates: Estimates) -> list[_Step]:
    """Return the scans and conditions of a group in the order to do them in."""
    steps: list[_Step] = []
    bound: set[str] = set()
    scans, conditions = sorted(group.scans, key=_text), list(group.conditions)
    while scans or conditions:
        ready = _ready(scans, conditions, bound, estimates)
        if ready is None:
            ready = _next_scan(scans, bound, estimates)
        if isinstance(ready, Scan):
            scans.remove(ready)
            bound.update(ready.columns)
        else:
            conditions.remove(ready)
        steps.append(ready)
    return steps


def _text(scan: Scan) -> tuple[str, ...]:
    """Return what orders scans of equal size: what they are, not where they stand."""
    return (str(scan.predicate), *map(str, scan.terms))


def _ready(
    scans: list[Scan], conditions: list[Condition], bound: set[str], estimates: Estimates
) -> Scan | Condition | None:
    """Return the cheapest thing that only tests rows and can be done now."""
    possible = [each for each in conditions if bound.issuperset(condition_columns(each))]
    for condition in possible:
        if isinstance(condition, Filter) and isinstance(condition.test, Inequality):
            return condition
    tests = [scan for scan in scans if bound and bound.issuperset(scan.columns)]
    if tests:
        return min(tests, key=estimates.rows)
    for kind in (AntiJoin, Filter):
        for condition in possible:
            if isinstance(condition, kind):
                return condition
    return possible[0] if possible else None


def _next_scan(scans: list[Scan], bound: set[str], estimates: Estimates) -> Scan:
    """Return the scan to go on with: what changed, else the one that makes fewest rows."""
    for scan in scans:
        if scan.version is not Version.ALL and not bound:
            return scan
    connected = [scan for scan in scans if bound.intersection(scan.columns)]
    if len(scans) == 1 or len(connected) == 1:
        return (connected or scans)[0]

    def growth(scan: Scan) -> tuple[float, int]:
        rows = estimates.rows(scan)
        shared = tuple(name for name in scan.columns if name in bound)
        if not shared or rows == 0:
            return rows, rows
        return rows / max(1, estimates.distinct(scan, shared)), rows

    chosen = min(connected or scans, key=growth)
    if bound or len(scans) != 2:  # of several tests together, few rows may pass
        return chosen
    return _wider_start(chosen, scans, estimates)


def _wider_start(smallest: Scan, scans: list[Scan], estimates: Estimates) -> Scan:
    """Return the scan to begin with: one that is not much longer, if the smallest only tests it.

    To look at some more rows takes less than an index that finds the rows of each.
    """
    columns = set(smallest.columns)
    wider = [scan for scan in scans if columns < set(scan.columns)]
    if not columns or not wider:
        return smallest
    most = estimates.rows(smallest) * _MORE_ROWS
    best = min(wider, key=estimates.rows)
    return best if estimates.rows(best) <= most else smallest


def _tree(node: Node, steps: Sequence[_Step], wanted: set[str]) -> Node:
    """Return the plan of steps on an input; each step keeps only what comes after it needs."""
    needed: list[set[str]] = [set(wanted)]
    for step in reversed(steps):
        needed.append(needed[-1] | set(_columns_of(step)))
    needed.reverse()
    bound = set(node.columns)
    for step, after in zip(steps, needed[1:], strict=True):
        fresh = set(_columns_of(step)) - bound
        if isinstance(step, Scan | _Apart):
            bound |= set(_columns_of(step))
        columns = tuple(sorted(bound & after))
        match step:
            case Scan():
                node = _joined(node, step, fresh & after, columns)
            case _Apart():
                inner = _tree(Unit(), step.steps, set(step.columns))
                node = _joined(node, inner, fresh & after, columns)
            case _:
                node = replace_input(step, node, columns)
    return node


def _columns_of(step: _Step) -> tuple[str, ...]:
    return step.columns if isinstance(step, Scan | _Apart) else condition_columns(step)


def _joined(node: Node, right: Node, fresh: set[str], columns: tuple[str, ...]) -> Node:
    if fresh:
        return Join((node, right), columns)
    return SemiJoin(node, right, columns)
