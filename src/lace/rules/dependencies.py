"""Which predicate depends on which: edges, components and reach (030).

A derived predicate depends on every predicate in the bodies of its rules. A component
is a set of predicates that depend on one another; components come out in an order in
which each follows those it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.rules.syntax import PredicateKey, Use

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Atom, Rule


@dataclass(frozen=True, slots=True)
class Edge:
    """That the head of a rule uses a predicate; `rule` is the rule's position."""

    head: PredicateKey
    target: PredicateKey
    use: Use
    rule: int
    atom: Atom


class Dependencies:
    """The dependency graph of rules; predicates keep the order of their first rule."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._edges: dict[PredicateKey, list[Edge]] = {}
        self._rules: dict[PredicateKey, list[int]] = {}
        for position, rule in enumerate(rules):
            head = rule.head.key
            edges = self._edges.setdefault(head, [])
            self._rules.setdefault(head, []).append(position)
            edges.extend(Edge(head, atom.key, use, position, atom) for use, atom in rule.uses())

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that rules define."""
        return tuple(self._edges)

    def is_derived(self, predicate: PredicateKey) -> bool:
        """Tell whether some rule defines a predicate."""
        return predicate in self._edges

    def rules_for(self, predicate: PredicateKey) -> tuple[int, ...]:
        """Return the positions of the rules that define a predicate."""
        return tuple(self._rules.get(predicate, ()))

    def edges_from(self, predicate: PredicateKey) -> tuple[Edge, ...]:
        """Return the edges from a predicate to those that its rules use."""
        return tuple(self._edges.get(predicate, ()))

    def edges(self) -> Iterator[Edge]:
        """Yield all edges."""
        for edges in self._edges.values():
            yield from edges

    def reach(self, *predicates: PredicateKey) -> frozenset[PredicateKey]:
        """Return everything that predicates depend on, through helpers; not they themselves.

        A predicate that depends on itself is in its own reach.
        """
        found: set[PredicateKey] = set()
        waiting = list(predicates)
        while waiting:
            for edge in self._edges.get(waiting.pop(), ()):
                if edge.target not in found:
                    found.add(edge.target)
                    waiting.append(edge.target)
        return frozenset(found)

    def components(self) -> tuple[tuple[PredicateKey, ...], ...]:
        """Return the derived predicates by component, each after those that it depends on."""
        return tuple(_Tarjan(self._edges).components())


class _Tarjan:
    """Strongly connected components, without recursion: chains of rules may be long."""

    def __init__(self, edges: dict[PredicateKey, list[Edge]]) -> None:
        self._edges = edges
        self._number: dict[PredicateKey, int] = {}
        self._low: dict[PredicateKey, int] = {}
        self._stack: list[PredicateKey] = []
        self._open: set[PredicateKey] = set()

    def components(self) -> Iterator[tuple[PredicateKey, ...]]:
        for root in self._edges:
            if root not in self._number:
                yield from self._from(root)

    def _from(self, root: PredicateKey) -> Iterator[tuple[PredicateKey, ...]]:
        path = [(root, self._enter(root))]
        while path:
            node, targets = path[-1]
            for target in targets:
                if target not in self._number:
                    path.append((target, self._enter(target)))
                    break
                if target in self._open:
                    self._low[node] = min(self._low[node], self._number[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    self._low[above] = min(self._low[above], self._low[node])
                if self._low[node] == self._number[node]:
                    yield self._close(node)

    def _enter(self, node: PredicateKey) -> Iterator[PredicateKey]:
        self._number[node] = self._low[node] = len(self._number)
        self._stack.append(node)
        self._open.add(node)
        return iter([edge.target for edge in self._edges[node] if edge.target in self._edges])

    def _close(self, node: PredicateKey) -> tuple[PredicateKey, ...]:
        at = len(self._stack) - 1
        while self._stack[at] != node:
            at -= 1
        members = self._stack[at:]
        del self._stack[at:]
        self._open.difference_update(members)
        return tuple(sorted(members, key=self._number.__getitem__))


# -- Strata and dependencies of a program as text, and as DOT for drawing tools.

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
