"""The gate: a peer's rules read records only through what is exposed to that peer (020).

It is applied once, here, to rules; every engine inherits it. Each record atom of the
peer's module, positive, negated or counted, in exported predicates and in helpers,
becomes an atom of the view: `Field` becomes `o1_Field`, which has a fact of `Field` only
when `CanQueryRecord` holds for its record. No other rule makes facts of the view, and the
module reads no record fact but those.

The rules of the view say no more than what the module can match: where its atoms name
constants, so do they.

Apart from `compile`: confinement rests on this module alone, so it can be reviewed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.facts.catalogue import RECORD_PREDICATES
from lace.policy.exposure import map_atoms, scope_name, scope_rules
from lace.rules.profiles import CAN_QUERY_RECORD
from lace.rules.syntax import Atom, Constant, PredicateKey, Rule, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Term


_Pattern: TypeAlias = "tuple[Constant | None, ...]"
_MOST_PATTERNS: Final = 64
"""Patterns of one predicate that get rules of their own; beyond, one rule reads it all."""
_VARIABLES: Final = {
    name: tuple(map(Variable, found.arguments)) for name, found in RECORD_PREDICATES.items()
}


@dataclass(frozen=True, slots=True)
class Gated:
    """A module behind the gate.

    `rules` are those of the module in its scope, one for each and in their order;
    `view_rules` make the facts that they read of records, and `view` are the predicates
    of these.
    """

    rules: tuple[Rule, ...]
    view_rules: tuple[Rule, ...]
    view: tuple[PredicateKey, ...]


def is_record_atom(atom: Atom) -> bool:
    """Tell whether an atom reads facts of records."""
    found = RECORD_PREDICATES.get(atom.name)
    return found is not None and found.arity == len(atom.terms)


def gate_module(module: CheckedProgram, prefix: str, viewer: str) -> Gated:
    """Return a module in a scope in which it sees the records exposed to a viewer only."""
    found: dict[PredicateKey, set[_Pattern]] = {}

    def gated(atom: Atom) -> Atom:
        if not is_record_atom(atom):
            return atom
        found.setdefault(atom.key, set()).add(_pattern(atom.terms))
        return Atom(prefix + atom.name, atom.terms, atom.span)

    rules = tuple(map_atoms(rule, gated) for rule in scope_rules(module, prefix))
    view_rules = tuple(
        _view_rule(key, pattern, prefix, viewer)
        for key in sorted(found)
        for pattern in _fewest(found[key])
    )
    return Gated(rules, view_rules, tuple(scope_name(prefix, key) for key in sorted(found)))


def _pattern(terms: Iterable[Term]) -> _Pattern:
    return tuple(term if isinstance(term, Constant) else None for term in terms)


def _fewest(patterns: set[_Pattern]) -> list[_Pattern]:
    """Return patterns that match the same, without those that another one covers."""
    kept = [each for each in patterns if not any(other in patterns for other in _wider(each))]
    if len(kept) > _MOST_PATTERNS:
        return [(None,) * len(kept[0])]
    return sorted(kept, key=lambda pattern: [str(each or "") for each in pattern])


def _wider(pattern: _Pattern) -> Iterator[_Pattern]:
    """Yield the patterns that match more: with fewer of the constants."""
    choices = [(each,) if each is None else (each, None) for each in pattern]
    return (made for made in product(*choices) if made != pattern)


def _view_rule(key: PredicateKey, pattern: _Pattern, prefix: str, viewer: str) -> Rule:
    """Return the rule that lets the facts of a pattern through.

    >>> pattern = (None, Constant("Group"), None, None)
    >>> print(_view_rule(PredicateKey("Field", 4), pattern, "o1_", "V.1"))
    o1_Field(P,'Group',Index,Value) :- Field(P,'Group',Index,Value), CanQueryRecord('V.1',P).
    """
    terms: tuple[Term, ...] = tuple(
        constant or variable
        for constant, variable in zip(pattern, _VARIABLES[key.name], strict=True)
    )
    allowed = Atom(CAN_QUERY_RECORD.name, (Constant(viewer), terms[0]))
    return Rule(Atom(prefix + key.name, terms), (Atom(key.name, terms), allowed))
