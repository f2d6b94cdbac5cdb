"""Which predicates are only counted: their facts need not be made to answer for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lace.algebra.body import scans_of

if TYPE_CHECKING:
    from lace.algebra.nodes import RelationalProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["find_counted"]


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
