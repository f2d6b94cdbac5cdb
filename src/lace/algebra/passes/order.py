"""The order of joins, chosen from counts: how a rule is written does not matter to speed.

A plan that says only what is joined becomes one that goes step by step: from the
smallest scan, or from what changed, always on to something that is connected with what
is bound already. Whatever only tests rows comes as soon as its columns are there:
semi-joins and anti-joins before tests of texts, counts last. Parts of a body that share
nothing with the head are asked first, and only whether they have a row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from lace.algebra.nodes import (
    AntiJoin,
    Condition,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    SemiJoin,
    Unit,
    Version,
    columns_of_terms,
    condition_columns,
    parts_of,
    replace_input,
)
from lace.rules.syntax import Inequality

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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

    @property
    def columns(self) -> set[str]:
        """All columns of its scans."""
        return {name for scan in self.scans for name in scan.columns}


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
    leaders: dict[str, str] = {}
    alone: list[_Group] = []
    joined: list[tuple[str, Scan]] = []
    for scan in scans:
        if scan.columns:
            joined.append((_connect(leaders, scan.columns), scan))
        else:
            alone.append(_Group([scan]))
    free: list[Condition] = []
    tested: list[tuple[str, Condition]] = []
    for condition in conditions:
        columns = condition_columns(condition)
        if columns:
            tested.append((_connect(leaders, columns), condition))
        else:
            free.append(condition)
    groups: dict[str, _Group] = {}
    for column, scan in joined:
        groups.setdefault(_leader(leaders, column), _Group()).scans.append(scan)
    for column, condition in tested:
        groups.setdefault(_leader(leaders, column), _Group()).conditions.append(condition)
    return free, [*alone, *groups.values()]


def _connect(leaders: dict[str, str], columns: tuple[str, ...]) -> str:
    """Put columns into one group; returns one of them."""
    first = _leader(leaders, columns[0])
    for column in columns[1:]:
        leaders[_leader(leaders, column)] = first
    return first


def _leader(leaders: dict[str, str], column: str) -> str:
    """Return the column that stands for a column's group; the way there is shortened."""
    leader = column
    while (above := leaders.setdefault(leader, leader)) != leader:
        leaders[leader] = leader = leaders[above]
    return leader


def _steps_of(group: _Group, estimates: Estimates) -> list[_Step]:
    """Return the scans and conditions of a group in the order to do them in."""
    return _Ordering(group, estimates).steps()


class _Ordering:
    """The order of a group: what can be done now, and the scans to go on with, in heaps.

    Each scan and condition is looked at when one of its columns is bound, and not at every
    step; so a long body takes little more for each atom than a short one.
    """

    def __init__(self, group: _Group, estimates: Estimates) -> None:
        self._estimates = estimates
        self._scans = sorted(group.scans, key=_text)
        self._conditions = group.conditions
        self._rows: dict[int, int] = {}
        self._bound: set[str] = set()
        self._left: dict[int, None] = dict.fromkeys(range(len(self._scans)))
        # The scans and conditions that wait for a column, and for how many each still waits.
        self._scans_with: dict[str, list[int]] = {}
        self._conditions_with: dict[str, list[int]] = {}
        self._unbound = [len(set(scan.columns)) for scan in self._scans]
        self._missing = [len(set(condition_columns(each))) for each in self._conditions]
        for at, scan in enumerate(self._scans):
            for name in set(scan.columns):
                self._scans_with.setdefault(name, []).append(at)
        for at, condition in enumerate(self._conditions):
            for name in set(condition_columns(condition)):
                self._conditions_with.setdefault(name, []).append(at)
        # What only tests rows and can be done now: kind, rows and place decide.
        self._ready: list[tuple[int, int, int]] = []
        self._connected: dict[int, None] = {}
        self._changed: dict[int, None] = {}
        """Connected scans whose growth is not known for the columns that are bound now."""
        self._growing: list[tuple[float, int, int, int]] = []
        self._smallest: list[tuple[int, int]] | None = None

    def steps(self) -> list[_Step]:
        """Return all scans and conditions in the order to do them in."""
        made: list[_Step] = []
        while True:
            while self._ready:
                kind, _, at = heappop(self._ready)
                if kind != _SEMI_JOIN:
                    made.append(self._conditions[at])
                elif at in self._left:
                    made.append(self._take(at))
            if not self._left:
                return made
            made.append(self._take(self._next_scan()))

    def _take(self, at: int) -> Scan:
        scan = self._scans[at]
        del self._left[at]
        self._connected.pop(at, None)
        self._changed.pop(at, None)
        for name in scan.columns:
            if name not in self._bound:
                self._bound.add(name)
                self._bind(name)
        return scan

    def _bind(self, name: str) -> None:
        for at in self._conditions_with.get(name, ()):
            self._missing[at] -= 1
            if not self._missing[at]:
                heappush(self._ready, (_kind(self._conditions[at]), 0, at))
        for at in self._scans_with[name]:
            if at in self._left:
                self._unbound[at] -= 1
                if self._unbound[at]:
                    self._connected[at] = self._changed[at] = None
                else:
                    self._connected.pop(at, None)
                    self._changed.pop(at, None)
                    heappush(self._ready, (_SEMI_JOIN, self._rows_of(at), at))

    def _rows_of(self, at: int) -> int:
        found = self._rows.get(at)
        if found is None:
            found = self._rows[at] = self._estimates.rows(self._scans[at])
        return found

    def _next_scan(self) -> int:
        """Return the scan to go on with: what changed, else the one that makes fewest rows."""
        if not self._bound:
            return self._first_scan()
        if len(self._left) == 1:
            return next(iter(self._left))
        if not self._connected:
            return self._smallest_scan()
        if len(self._connected) == 1:
            return next(iter(self._connected))
        for at in self._changed:
            heappush(self._growing, (*self._growth(at), at, self._unbound[at]))
        self._changed.clear()
        while True:
            _, _, chosen, unbound = heappop(self._growing)
            if chosen in self._connected and self._unbound[chosen] == unbound:
                return chosen

    def _growth(self, at: int) -> tuple[float, int]:
        scan, rows = self._scans[at], self._rows_of(at)
        if not rows:
            return rows, rows
        shared = tuple(name for name in scan.columns if name in self._bound)
        return rows / max(1, self._estimates.distinct(scan, shared)), rows

    def _first_scan(self) -> int:
        changed = [at for at in self._left if self._scans[at].version is not Version.ALL]
        if changed or len(self._left) == 1:
            return next(iter(changed or self._left))
        chosen = self._smallest_scan()
        if len(self._left) != 2:  # of several tests together, few rows may pass
            return chosen
        start = _wider_start(self._scans[chosen], self._scans, self._estimates)
        return next(at for at in self._left if self._scans[at] is start)

    def _smallest_scan(self) -> int:
        if self._smallest is None:
            self._smallest = [(self._rows_of(at), at) for at in self._left]
            heapify(self._smallest)
        heap: list[tuple[int, int]] = self._smallest
        while heap[0][1] not in self._left:
            heappop(heap)
        at: int = heap[0][1]
        return at


_SEMI_JOIN: Final = 1


def _kind(condition: Condition) -> int:
    """Return in which order tests are done: cheap ones first, those that count last."""
    if isinstance(condition, Filter):
        return 0 if isinstance(condition.test, Inequality) else 3
    return 2 if isinstance(condition, AntiJoin) else 4


def _text(scan: Scan) -> tuple[str, ...]:
    """Return what orders scans of equal size: what they are, not where they stand."""
    return (str(scan.predicate), *map(str, scan.terms))


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
    last = {name: at for at, step in enumerate(steps) for name in _columns_of(step)}
    last.update(dict.fromkeys(wanted, len(steps)))
    bound = set(node.columns)
    kept = sorted(name for name in bound if name in last)
    columns = tuple(kept)
    for at, step in enumerate(steps):
        used = set(_columns_of(step))
        is_join = isinstance(step, Scan | _Apart)
        fresh = {name for name in used - bound if last[name] > at} if is_join else set()
        if is_join:
            bound |= used
        for name in fresh:
            insort(kept, name)
        for name in used:
            place = bisect_left(kept, name)
            if last[name] == at and kept[place : place + 1] == [name]:
                del kept[place]
        if len(columns) != len(kept) or fresh:
            columns = tuple(kept)
        match step:
            case Scan():
                node = _joined(node, step, fresh, columns)
            case _Apart():
                inner = _tree(Unit(), step.steps, set(step.columns))
                node = _joined(node, inner, fresh, columns)
            case _:
                node = replace_input(step, node, columns)
    return node


def _columns_of(step: _Step) -> tuple[str, ...]:
    return step.columns if isinstance(step, Scan | _Apart) else condition_columns(step)


def _joined(node: Node, right: Node, fresh: set[str], columns: tuple[str, ...]) -> Node:
    if fresh:
        return Join((node, right), columns)
    return SemiJoin(node, right, columns)
