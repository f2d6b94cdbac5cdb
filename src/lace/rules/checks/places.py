"""Places: the positions of predicates, and how a property of them spreads over rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.rules.syntax import Atom, PredicateKey, Rule, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Place", "named", "spread"]

Place = tuple[PredicateKey, int]
"""A predicate and one of its positions, from 0."""


def named(atom: Atom) -> Iterator[tuple[int, str]]:
    """Yield the variables of an atom, each with its position."""
    for at, term in enumerate(atom.terms):
        if isinstance(term, Variable):
            yield at, term.name


def spread(rules: Sequence[Rule], places: Callable[[Rule, set[Place]], set[Place]]) -> set[Place]:
    """Return all places that rules give, each rule looked at again when a place of it is new."""
    users: dict[PredicateKey, list[int]] = {}
    for position, rule in enumerate(rules):
        for key in {rule.head.key, *(atom.key for _, atom in rule.uses())}:
            users.setdefault(key, []).append(position)
    found: set[Place] = set()
    waiting = dict.fromkeys(range(len(rules)))
    while waiting:
        position = next(iter(waiting))
        del waiting[position]
        new = places(rules[position], found) - found
        found |= new
        for key, _ in new:
            waiting.update(dict.fromkeys(users.get(key, ())))
    return found
