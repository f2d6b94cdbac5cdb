"""The stable text of a relational program: for people, for tests, for bug reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    Project,
    RankTest,
    RelationalProgram,
    Scan,
    SemiJoin,
    Unit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["explain", "explain_plan"]


def explain(program: RelationalProgram) -> str:
    """Return the text of a program: its fixed points, their branches, their plans.

    The plan of a branch reads from the top down: what is needed last stands first.
    """
    lines: list[str] = []
    for step in program.steps:
        names = ", ".join(map(str, step.predicates))
        kind = "fixpoint" if step.recursive else "union"
        only = all(key in program.counted for key in step.predicates)
        once = all(key in program.distinct for key in step.predicates)
        remarks = ["only counted"] * only + ["no fact twice"] * once
        shown = f" ({', '.join(remarks)})" if remarks else ""
        lines.append(f"{kind} {names}{shown}")
        for branch in step.branches:
            lines.append(f"  rule {branch.rule + 1}: {branch.predicate}")
            lines += [f"    {line}" for line in explain_plan(branch.plan)]
    return "\n".join(lines)


def explain_plan(plan: Project) -> list[str]:
    """Return the lines of one plan."""
    head = ",".join(map(str, plan.terms))
    return [f"project ({head})", *(f"  {line}" for line in _lines(plan.input))]


def _lines(node: Node) -> Iterator[str]:
    keep = f" keep {','.join(node.columns)}" if node.columns else ""
    below: tuple[Node, ...] = ()
    match node:
        case Scan():
            yield f"scan {_scan(node)}{keep}"
        case Unit():
            yield "unit"
        case Join():
            yield f"join{keep}"
            below = node.inputs
        case SemiJoin():
            yield f"semi-join{keep}"
            below = (node.left, node.right)
        case AntiJoin():
            yield f"anti-join {_scan(node.right)}{keep}"
            below = (node.left,)
        case CountTest():
            by = ",".join(node.counted.columns) or "all"
            yield f"count {_scan(node.counted)} by {by} {node.operator} {node.bound}{keep}"
            below = (node.input,)
        case RankTest():
            test = node.plain
            yield f"rank {node.key} in {_scan(node.items)} {test.operator} {test.bound}{keep}"
            below = (node.input,)
        case Filter():
            yield f"filter {node.test}{keep}"
            below = (node.input,)
    for each in below:
        yield from (f"  {line}" for line in _lines(each))


def _scan(scan: Scan) -> str:
    return f"{scan.version.value}{scan.predicate.name}({','.join(map(str, scan.terms))})"
