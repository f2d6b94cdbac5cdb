"""Which predicates get no fact twice: an engine need not look for what it made already.

A rule makes each fact once when one of its scans gives all its columns to the head and
every other scan only tests these, by all of its own columns. Several rules of a predicate
make no common fact when their heads differ in a constant.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.algebra.body import parts_of
from lace.algebra.nodes import columns_of_terms
from lace.rules.syntax import Anonymous, Constant

if TYPE_CHECKING:
    from lace.algebra.nodes import Branch, Fixpoint, Project, RelationalProgram

__all__ = ["find_distinct"]

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
