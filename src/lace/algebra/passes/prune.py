"""Columns that nothing needs are not read.

A column of a scan is needed by the head, by a condition or by another scan that it is
compared with. What remains of a scan that only says "there is one" needs no columns at
all, so it can become a semi-join. A counted scan keeps the columns that it is counted by.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lace.algebra.body import condition_columns, parts_of, replace_input
from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    Project,
    RelationalProgram,
    Scan,
    Unit,
    columns_of_terms,
)

if TYPE_CHECKING:
    from lace.algebra.body import Condition

__all__ = ["prune_columns"]


def prune_columns(program: RelationalProgram) -> RelationalProgram:
    """Return the program with every scan reduced to the columns that are needed."""
    steps = tuple(
        replace(
            step,
            branches=tuple(replace(branch, plan=_prune(branch.plan)) for branch in step.branches),
        )
        for step in program.steps
    )
    return replace(program, steps=steps)


def _prune(plan: Project) -> Project:
    scans, conditions = parts_of(plan.input)
    bound = {name for scan in scans for name in scan.columns}
    kept = tuple(_prune_condition(condition, bound) for condition in conditions)
    uses = Counter(name for scan in scans for name in scan.columns)
    needed = set(columns_of_terms(plan.terms))
    needed.update(name for condition in kept for name in condition_columns(condition))
    needed.update(name for name, count in uses.items() if count > 1)
    pruned = tuple(
        Scan(
            scan.predicate,
            scan.terms,
            tuple(name for name in scan.columns if name in needed),
            scan.occurrence,
            scan.version,
        )
        for scan in scans
    )
    columns = tuple(dict.fromkeys(name for scan in pruned for name in scan.columns))
    node: Node = _join(pruned, columns)
    for condition in kept:
        node = replace_input(condition, node, columns)
    return Project(node, plan.terms)


def _prune_condition(condition: Condition, bound: set[str]) -> Condition:
    match condition:
        case CountTest():
            keys = tuple(name for name in condition.counted.columns if name in bound)
            return replace(condition, counted=replace(condition.counted, columns=keys))
        case AntiJoin() | Filter():
            return condition
        case _:
            raise AssertionError("ranks are recognised after columns are pruned")


def _join(scans: tuple[Scan, ...], columns: tuple[str, ...]) -> Node:
    if len(scans) > 1:
        return Join(scans, columns)
    return scans[0] if scans else Unit()
