"""Which predicate depends on which: edges, components and reach (030).

A derived predicate depends on every predicate in the bodies of its rules. A component
is a set of predicates that depend on one another; components come out in an order in
which each follows those it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.rules.syntax import Atom, PredicateKey, Rule, Use

__all__ = ["Dependencies", "Edge"]


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
