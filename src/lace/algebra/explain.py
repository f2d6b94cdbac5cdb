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


def _lines(top: Node) -> Iterator[str]:
    waiting: list[tuple[Node, int]] = [(top, 0)]
    while waiting:
        node, depth = waiting.pop()
        line, below = _line(node)
        yield f"{'  ' * depth}{line}"
        waiting += [(each, depth + 1) for each in reversed(below)]


def _line(node: Node) -> tuple[str, tuple[Node, ...]]:
    """Return the line of a node, and the nodes below it."""
    keep = f" keep {','.join(node.columns)}" if node.columns else ""
    match node:
        case Scan():
            return f"scan {_scan(node)}{keep}", ()
        case Unit():
            return "unit", ()
        case Join():
            return f"join{keep}", node.inputs
        case SemiJoin():
            return f"semi-join{keep}", (node.left, node.right)
        case AntiJoin():
            return f"anti-join {_scan(node.right)}{keep}", (node.left,)
        case CountTest():
            by = ",".join(node.counted.columns) or "all"
            test = f"{node.operator} {node.bound}"
            return f"count {_scan(node.counted)} by {by} {test}{keep}", (node.input,)
        case RankTest():
            plain = node.plain
            text = f"rank {node.key} in {_scan(node.items)} {plain.operator} {plain.bound}{keep}"
            return text, (node.input,)
        case Filter():
            return f"filter {node.test}{keep}", (node.input,)


def _scan(scan: Scan) -> str:
    return f"{scan.version.value}{scan.predicate.name}({','.join(map(str, scan.terms))})"
