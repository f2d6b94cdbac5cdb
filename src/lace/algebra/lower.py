"""From checked rules to the relational program: each body a join, then its conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from lace.algebra.nodes import (
    AntiJoin,
    Branch,
    CountTest,
    Filter,
    Fixpoint,
    Join,
    Node,
    Project,
    RelationalProgram,
    Scan,
    Unit,
    Version,
    columns_of_terms,
    parts_of,
    replace_input,
    scans_of,
)
from lace.algebra.passes import PASSES
from lace.rules.syntax import (
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    TextShape,
    TrueAtom,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey, Rule


_Head: TypeAlias = "tuple[Variable | Constant, ...]"


def lower_program(program: CheckedProgram) -> RelationalProgram:
    """Return the relational program of checked rules, after all passes in their order."""
    steps = tuple(_lower_component(program, members) for members in program.components)
    lowered = RelationalProgram(steps, frozenset(), program.lines)
    for rewrite in PASSES:
        lowered = rewrite(lowered)
    return lowered


def _lower_component(program: CheckedProgram, members: tuple[PredicateKey, ...]) -> Fixpoint:
    inside = frozenset(members)
    positions = sorted(
        position for member in members for position in program.dependencies.rules_for(member)
    )
    branches = tuple(
        Branch(position, program.rules[position].head.key, lower_rule(program.rules[position]))
        for position in positions
    )
    recursive = any(
        atom.key in inside
        for position in positions
        for atom in program.rules[position].positive_atoms()
    )
    return Fixpoint(members, branches, recursive)


def lower_rule(rule: Rule) -> Project:
    """Return the plan of one rule: all its positive atoms joined, then what they must meet."""
    scans: list[Node] = [
        _scan(atom, at) for at, atom in enumerate(rule.body) if isinstance(atom, Atom)
    ]
    columns = tuple(dict.fromkeys(name for scan in scans for name in scan.columns))
    node: Node
    node = Join(tuple(scans), columns) if len(scans) > 1 else scans[0] if scans else Unit()
    for at, part in enumerate(rule.body):
        match part:
            case Inequality() | IntCompare() | LexCompare() | TextShape():
                node = Filter(node, part, columns)
            case NegatedAtom():
                node = AntiJoin(node, _scan(part.atom, at), columns)
            case Cardinality():
                counted = _scan(part.atom, at)
                node = CountTest(node, counted, part.operator, part.bound, columns)
            case Atom() | TrueAtom():
                pass
    return Project(node, cast("_Head", rule.head.terms))  # the checks refuse `_` in heads


def _scan(atom: Atom, at: int) -> Scan:
    return Scan(atom.key, atom.terms, columns_of_terms(atom.terms), at)


# -- Which fixed points an answer needs: those of what is wanted, and of all that these read.


def step_numbers(program: RelationalProgram) -> dict[PredicateKey, int]:
    """Return the number of the fixed point that each derived predicate is of."""
    return {key: number for number, step in enumerate(program.steps) for key in step.predicates}


def needed_steps(
    program: RelationalProgram, wanted: Iterable[PredicateKey], virtual: set[PredicateKey]
) -> list[int]:
    """Return the fixed points to make for some predicates, in order.

    `virtual` are predicates that are counted without being made.
    """
    steps, step_of = program.steps, step_numbers(program)
    needed: set[int] = set()
    waiting = [step_of[key] for key in wanted]
    while waiting:
        number = waiting.pop()
        if number in needed:
            continue
        needed.add(number)
        for branch in steps[number].branches:
            for scan, _ in scans_of(branch.plan):
                found = step_of.get(scan.predicate)
                if found is not None and found != number:
                    waiting.append(found)
    # What is only counted is not made, but what it is made of is needed.
    return sorted(number for number in needed if not virtual.issuperset(steps[number].predicates))


# -- Plans that start from a change, or from the facts that are asked about.
#
# A fact that comes or goes changes what a rule makes only through rows that it takes part
# in. For each place in a body there is a plan that starts there: a positive atom reads the
# change instead of all its rows; before a negated or counted atom the change only chooses
# rows, and the condition itself stays.


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
