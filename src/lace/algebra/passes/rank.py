"""Count tests that an order answers: the newest-100 pattern becomes a rank.

The pattern is a predicate that is only counted and that says which items come behind an
item, by one or both of

    Before(P,Q) :- Item(P,TP), Item(Q,TQ), Compare(TQ,'>',TP).
    Before(P,Q) :- Item(P,T), Item(Q,T), Compare(Q,'>',P).

with any strict operator, `LexCompare` or `IntCompare`, in whatever order of atoms and
sides. How many facts it has for an item is then a matter of sorting; the pairs, whose
number grows as the square, are never made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lace.algebra.nodes import (
    Branch,
    CountTest,
    Filter,
    Join,
    Node,
    Project,
    RankTest,
    RelationalProgram,
    Scan,
    Unit,
    parts_of,
    replace_input,
)
from lace.rules.syntax import Anonymous, Constant, IntCompare, LexCompare, Variable

if TYPE_CHECKING:
    from lace.rules.syntax import Operator, PredicateKey, Term


_ITEM, _BY = "Item", "By"
_TURNED: dict[Operator, Operator] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Half:
    """One of the two rules: its items, and the comparison of the other with this one."""

    kind: Literal["ahead", "tied"]
    items: Scan
    compare: LexCompare | IntCompare


def recognise_ranks(program: RelationalProgram) -> RelationalProgram:
    """Return the program with every count test of the pattern turned into a rank test."""
    branches: dict[PredicateKey, list[Branch]] = {}
    for step in program.steps:
        for branch in step.branches:
            if branch.predicate in program.counted:
                branches.setdefault(branch.predicate, []).append(branch)
    halves = {
        key: found
        for key, made in branches.items()
        if (found := _halves(made, program.counted)) is not None
    }
    if not halves:
        return program
    steps = tuple(
        replace(
            step,
            branches=tuple(
                replace(branch, plan=_rewrite(branch.plan, halves)) for branch in step.branches
            ),
        )
        for step in program.steps
    )
    return replace(program, steps=steps)


def _halves(branches: list[Branch], counted: frozenset[PredicateKey]) -> dict[str, _Half] | None:
    found: dict[str, _Half] = {}
    for branch in branches:
        half = _half(branch.plan)
        if half is None or half.kind in found or half.items.predicate in counted:
            return None
        found[half.kind] = half
    if len({half.items for half in found.values()}) != 1:
        return None
    return found


def _half(plan: Project) -> _Half | None:
    """Return what a rule says of an order, or None when it is of another form."""
    scans, conditions = parts_of(plan.input)
    if len(scans) != 2 or len(conditions) != 1 or len(plan.terms) != 2:
        return None
    condition = conditions[0]
    if not isinstance(condition, Filter):
        return None
    test = condition.test
    if not isinstance(test, LexCompare | IntCompare) or test.operator not in ("<", ">"):
        return None
    first, second = plan.terms
    if not (isinstance(first, Variable) and isinstance(second, Variable)) or first == second:
        return None
    own = [scan for scan in scans if first in scan.terms]
    other = [scan for scan in scans if second in scan.terms]
    if len(own) != 1 or len(other) != 1 or own[0] is other[0]:
        return None
    shape, other_shape = _shape(own[0], first), _shape(other[0], second)
    if shape is None or other_shape is None or shape[0] != other_shape[0]:
        return None
    compare = _oriented(test, second, other_shape[1], first, shape[1])
    if compare is None:
        return None
    compared_items = test.left in (first, second)
    if compared_items != (shape[1] == other_shape[1]):
        return None  # equal `by` goes with comparing the items, and only with that
    return _Half("tied" if compared_items else "ahead", shape[0], compare)


def _shape(scan: Scan, item: Variable) -> tuple[Scan, Variable] | None:
    """Return a scan with standard names for the item and what orders it, and the latter."""
    others = [term for term in scan.terms if isinstance(term, Variable) and term != item]
    if scan.terms.count(item) != 1 or len(others) != 1:
        return None
    (by,) = others
    terms: list[Term] = []
    for term in scan.terms:
        match term:
            case Variable():
                terms.append(Variable(_ITEM if term == item else _BY))
            case Constant() | Anonymous():
                terms.append(term)
    return Scan(scan.predicate, tuple(terms), (_ITEM, _BY), -1), by


def _oriented(
    test: LexCompare | IntCompare,
    second: Variable,
    second_by: Variable,
    first: Variable,
    first_by: Variable,
) -> LexCompare | IntCompare | None:
    """Return the comparison with what belongs to the other item on the left."""
    kind = type(test)
    for left, right in ((second, first), (second_by, first_by)):
        if left == right:
            continue
        if (test.left, test.right) == (left, right):
            return kind(left, test.operator, right)
        if (test.left, test.right) == (right, left):
            return kind(left, _TURNED[test.operator], right)
    return None


def _rewrite(plan: Project, halves: dict[PredicateKey, dict[str, _Half]]) -> Project:
    scans, conditions = parts_of(plan.input)
    if not conditions:
        return plan
    node: Node = scans[0] if len(scans) == 1 else Join(scans, conditions[0].columns)
    if not scans:
        node = Unit()
    for condition in conditions:
        ranked: RankTest | None = None
        if isinstance(condition, CountTest) and condition.counted.predicate in halves:
            ranked = _rank(condition, halves[condition.counted.predicate])
        node = replace_input(ranked or condition, node, condition.columns)
    return Project(node, plan.terms)


def _rank(test: CountTest, halves: dict[str, _Half]) -> RankTest | None:
    """Return the rank test for a count of the facts about one item, all others free."""
    own, other = test.counted.terms
    if not isinstance(own, Variable) or test.counted.columns != (own.name,) or own == other:
        return None
    if isinstance(other, Constant):
        return None
    ahead, tied = halves.get("ahead"), halves.get("tied")
    (items, *_) = (half.items for half in halves.values())
    return RankTest(
        input=test.input,
        key=own.name,
        items=items,
        item=_ITEM,
        by=_BY,
        ahead=ahead.compare if ahead else None,
        tied=tied.compare if tied else None,
        plain=test,
        columns=test.columns,
    )
