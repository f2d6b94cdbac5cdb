"""From a relational plan to steps: joins in order, constants as numbers, columns placed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    RankTest,
    Scan,
    SemiJoin,
    Unit,
)
from lace.engines.embedded.relation import EVERYTHING, Pattern
from lace.engines.embedded.steps import (
    Access,
    AntiJoinStep,
    CountStep,
    ExistsStep,
    FilterStep,
    JoinStep,
    Plan,
    ProductStep,
    RankStep,
    SemiJoinStep,
    Step,
)
from lace.rules.syntax import Anonymous, Constant, Variable

if TYPE_CHECKING:
    from lace.engines.embedded.dictionary import Texts

__all__ = ["access_to", "compile_plan", "pattern_of"]


_NOTHING: Final = Unit()
"""The input of a test that a step holds: what it tests comes as a frame."""


def pattern_of(scan: Scan, dictionary: Texts) -> tuple[Pattern, dict[str, int]]:
    """Return which rows fit a scan, and the position of each variable."""
    constants: list[tuple[int, int]] = []
    equal: list[tuple[int, int]] = []
    positions: dict[str, int] = {}
    for at, term in enumerate(scan.terms):
        match term:
            case Constant():
                constants.append((at, dictionary.intern(term.value)))
            case Variable():
                first = positions.setdefault(term.name, at)
                if first != at:
                    equal.append((first, at))
            case Anonymous():
                pass
    if not constants and not equal:
        return EVERYTHING, positions
    return Pattern(tuple(constants), tuple(equal)), positions


def access_to(scan: Scan, bound: tuple[str, ...], dictionary: Texts) -> Access:
    """Return how a scan is read when some columns have values already."""
    pattern, positions = pattern_of(scan, dictionary)
    shared = tuple(name for name in scan.columns if name in bound)
    fresh = tuple(name for name in scan.columns if name not in bound)
    keys = tuple(positions[name] for name in shared)
    return Access(scan, pattern, positions, shared, fresh, keys)


def compile_plan(node: Node, dictionary: Texts) -> Plan:
    """Return the steps of a plan whose joins are in order."""
    steps: list[Step] = []
    while not isinstance(node, Unit):
        step, node = _compile(node, dictionary)
        steps.append(step)
    return Plan(tuple(reversed(steps)))


def _compile(node: Node, dictionary: Texts) -> tuple[Step, Node]:
    match node:
        case Join((left, Scan() as right), columns):
            access = access_to(right, left.columns, dictionary)
            fresh = tuple(name for name in access.fresh if name in columns)
            return JoinStep(replace(access, fresh=fresh), columns), left
        case Join((left, right), columns):
            return ProductStep(compile_plan(right, dictionary), columns), left
        case SemiJoin(left, Scan() as right, columns):
            return SemiJoinStep(access_to(right, left.columns, dictionary), columns), left
        case SemiJoin(left, right, columns):
            return ExistsStep(compile_plan(right, dictionary), columns), left
        case AntiJoin(left, right, columns):
            return AntiJoinStep(access_to(right, left.columns, dictionary), columns), left
        case Filter(below, test, columns):
            return FilterStep(test, columns), below
        case CountTest(input=below, columns=columns):
            return CountStep(replace(node, input=_NOTHING), columns), below
        case RankTest(input=below, columns=columns):
            return RankStep(replace(node, input=_NOTHING), columns), below
        case _:
            raise AssertionError(f"not an ordered plan: {type(node).__name__}")
