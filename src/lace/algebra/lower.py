"""From checked rules to the relational program: each body a join, then its conditions."""

from __future__ import annotations

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
    columns_of_terms,
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
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey, Rule

__all__ = ["lower_program"]

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
