"""Scopes: the predicates of a module get names that no other module has (040).

A scope is lexical hygiene and nothing else: it grants nothing and names nobody. Base
predicates keep their names; whatever a module defines, or reads though nobody defines
it, gets the prefix of its scope.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lace.rules.syntax import Atom, Cardinality, NegatedAtom, PredicateKey, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom

__all__ = ["map_atoms", "scope_name", "scope_rules"]


def scope_name(prefix: str, predicate: PredicateKey) -> PredicateKey:
    """Return a predicate's name in a scope.

    >>> str(scope_name("o1_", PredicateKey("Member", 1)))
    'o1_Member/1'
    """
    return PredicateKey(prefix + predicate.name, predicate.arity)


def scope_rules(module: CheckedProgram, prefix: str) -> tuple[Rule, ...]:
    """Return the rules of a module in a scope of their own."""
    base = module.profile.base

    def scoped(atom: Atom) -> Atom:
        return atom if atom.key in base else Atom(prefix + atom.name, atom.terms, atom.span)

    return tuple(
        Rule(
            Atom(prefix + rule.head.name, rule.head.terms, rule.head.span),
            map_atoms(rule, scoped).body,
            rule.span,
        )
        for rule in module.rules
    )


def map_atoms(rule: Rule, change: Callable[[Atom], Atom]) -> Rule:
    """Return a rule with every predicate atom of its body changed, however it is used."""

    def changed(item: BodyAtom) -> BodyAtom:
        match item:
            case Atom():
                return change(item)
            case NegatedAtom():
                return NegatedAtom(change(item.atom), item.span)
            case Cardinality():
                return replace(item, atom=change(item.atom))
            case _:
                return item

    return Rule(rule.head, tuple(map(changed, rule.body)), rule.span)
