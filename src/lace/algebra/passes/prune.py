"""Columns that nothing needs are not read.

A column of a scan is needed by the head, by a condition or by another scan that it is
compared with. What remains of a scan that only says "there is one" needs no columns at
all, so it can become a semi-join. A counted scan keeps the columns that it is counted by.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

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
    condition_columns,
    parts_of,
    replace_input,
    scans_of,
)
from lace.rules.syntax import Anonymous, Constant

if TYPE_CHECKING:
    from lace.algebra.nodes import Branch, Condition, Fixpoint
    from lace.rules.syntax import PredicateKey


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


# -- Which predicates get no fact twice: an engine need not look for what it made already.
#
# A rule makes each fact once when one of its scans gives all its columns to the head and
# every other scan only tests these, by all of its own columns. Several rules of a predicate
# make no common fact when their heads differ in a constant.

_Head: TypeAlias = "tuple[str | None, ...]"
_MOST_BRANCHES: Final = 256
"""Rules of one predicate that are compared with one another."""


def find_distinct(program: RelationalProgram) -> RelationalProgram:
    """Return the program with the predicates noted whose rules make no fact twice."""
    found = frozenset(
        key
        for step in program.steps
        if not step.recursive and _is_distinct(step)
        for key in step.predicates
    )
    return replace(program, distinct=found)


def _is_distinct(step: Fixpoint) -> bool:
    if len(step.branches) > _MOST_BRANCHES:
        return False
    if not all(_makes_each_once(branch.plan) for branch in step.branches):
        return False
    heads = [_constants(branch) for branch in step.branches]
    if len({tuple(each is None for each in head) for head in heads}) == 1:
        return len(set(heads)) == len(heads)  # constants at the same places, and no two alike
    return all(_differ(one, other) for one, other in combinations(heads, 2))


def _makes_each_once(plan: Project) -> bool:
    scans, _ = parts_of(plan.input)
    if not scans:
        return True
    if any(isinstance(term, Anonymous) for scan in scans for term in scan.terms):
        return False  # two rows of such a scan may be the same in its variables
    columns = [set(columns_of_terms(scan.terms)) for scan in scans]
    every = set().union(*columns)
    return every.issubset(columns_of_terms(plan.terms)) and every in columns


def _constants(branch: Branch) -> _Head:
    return tuple(term.value if isinstance(term, Constant) else None for term in branch.plan.terms)


def _differ(one: _Head, other: _Head) -> bool:
    """Tell whether two heads have different constants at one place."""
    return any(
        left is not None and right is not None and left != right
        for left, right in zip(one, other, strict=False)
    )


# -- Which predicates are only counted: their facts need not be made to answer for the rest.


def find_counted(program: RelationalProgram) -> RelationalProgram:
    """Return the program with the predicates noted that only count tests read.

    A recursive predicate is not among them: to count its facts is to make them.
    """
    counted: set[PredicateKey] = set()
    read: set[PredicateKey] = set()
    for step in program.steps:
        for branch in step.branches:
            for scan, is_counted in scans_of(branch.plan):
                (counted if is_counted else read).add(scan.predicate)
    derived = {key for step in program.steps if not step.recursive for key in step.predicates}
    return replace(program, counted=frozenset((counted - read) & derived))
