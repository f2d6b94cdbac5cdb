"""Strata and dependencies of a program as text, and as DOT for drawing tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.syntax import PredicateKey, Use

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.rules.program import CheckedProgram

__all__ = ["format_dot", "format_graph"]

_WORDS: Final = {Use.POSITIVE: "from", Use.NEGATIVE: "not", Use.CARDINALITY: "counts"}
_STYLES: Final = {
    Use.POSITIVE: "",
    Use.NEGATIVE: ' [style=dashed, label="not"]',
    Use.CARDINALITY: ' [style=dotted, label="counts"]',
}


def format_graph(program: CheckedProgram) -> str:
    """Return the strata, lowest first, each predicate with its rules' lines and what it uses.

    Each line ends with LF; a program without rules gives one line that says so.
    """
    if not program.rules:
        return "no rules\n"
    lines: list[str] = []
    for number, stratum in enumerate(program.strata):
        lines.append(f"stratum {number}")
        for predicate in stratum:
            lines += _describe(program, predicate)
    if program.required_base:
        lines.append(f"base facts: {_names(program.required_base)}")
    empty = _undefined(program)
    if empty:
        lines.append(f"nobody defines: {_names(empty)}")
    return "".join(f"{line}\n" for line in lines)


def _describe(program: CheckedProgram, predicate: PredicateKey) -> list[str]:
    graph = program.dependencies
    at = [str(program.rules[position].span.line) for position in graph.rules_for(predicate)]
    lines = [f"  {predicate}  line{'s' if len(at) > 1 else ''} {', '.join(at)}"]
    for use, word in _WORDS.items():
        targets = {edge.target for edge in graph.edges_from(predicate) if edge.use is use}
        if targets:
            lines.append(f"    {word} {_names(sorted(targets))}")
    return lines


def _names(predicates: Iterable[PredicateKey]) -> str:
    return ", ".join(map(str, predicates))


def _undefined(program: CheckedProgram) -> list[PredicateKey]:
    graph = program.dependencies
    used = {edge.target for edge in graph.edges()}
    return sorted(used - set(graph.derived) - program.profile.base)


def format_dot(program: CheckedProgram) -> str:
    """Return the graph in the DOT language: a box a stratum, arrows from use to user.

    Dashed arrows are negation, dotted ones counting.
    """
    lines = ["digraph lacegram {", "  rankdir=BT;", "  node [shape=box];"]
    lines += [
        f'  "{predicate}" [shape=ellipse];'
        for predicate in (*program.required_base, *_undefined(program))
    ]
    for number, stratum in enumerate(program.strata):
        lines += [f"  subgraph cluster_{number} {{", f'    label="stratum {number}";']
        lines += [f'    "{predicate}";' for predicate in stratum]
        lines.append("  }")
    edges = {(edge.target, edge.head, edge.use) for edge in program.dependencies.edges()}
    lines += [
        f'  "{target}" -> "{head}"{_STYLES[use]};'
        for target, head, use in sorted(edges, key=lambda edge: (edge[0], edge[1], edge[2].value))
    ]
    lines.append("}")
    return "".join(f"{line}\n" for line in lines)
