"""The reference evaluator: naive, slow, straight from the rules; the oracle of the tests.

It works on the rules themselves and shares no lowering, no index and no order of joins
with any other engine, so it shares no fault with them either. It heeds no limits: what
it is given is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lace.rules.builtins import (
    cardinality_holds,
    int_compare,
    lex_compare,
    text_shape,
    unequal,
)
from lace.rules.syntax import (
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    PredicateKey,
    TextShape,
    TrueAtom,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom, Rule, Term

__all__ = ["evaluate_naively"]

Values: TypeAlias = tuple[str, ...]
Binding: TypeAlias = dict[str, str]
Relations: TypeAlias = dict[PredicateKey, set[Values]]


def evaluate_naively(
    program: CheckedProgram, facts: Iterable[Fact]
) -> Mapping[PredicateKey, frozenset[Values]]:
    """Return the facts of every predicate that the rules define.

    Stratum by stratum, every rule is applied to everything known, over and over,
    until nothing new comes of it.
    """
    known: Relations = {}
    for name, *values in facts:
        known.setdefault(PredicateKey(name, len(values)), set()).add(tuple(values))
    for key in program.derived:
        known.setdefault(key, set())
    for stratum in program.strata:
        rules = [rule for rule in program.rules if rule.head.key in stratum]
        while _apply_all(rules, known):
            pass
    return {key: frozenset(known[key]) for key in program.derived}


def _apply_all(rules: Iterable[Rule], known: Relations) -> bool:
    """Apply each rule once; tells whether anything new was found."""
    grew = False
    for rule in rules:
        found = {_instantiate(rule.head, binding) for binding in _solve(rule, known)}
        new = found - known[rule.head.key]
        known[rule.head.key] |= new
        grew = grew or bool(new)
    return grew


def _solve(rule: Rule, known: Relations) -> list[Binding]:
    """Return every binding that makes the whole body true."""
    bindings: list[Binding] = [{}]
    for atom in rule.positive_atoms():
        rows = known.get(atom.key, set())
        bindings = [
            extended
            for binding in bindings
            for row in rows
            for extended in _match(atom, row, binding)
        ]
    return [
        binding for binding in bindings if all(_holds(part, binding, known) for part in rule.body)
    ]


def _match(atom: Atom, row: Values, binding: Binding) -> Iterator[Binding]:
    """Yield the binding extended by this row, if the row fits the atom."""
    extended = dict(binding)
    for term, value in zip(atom.terms, row, strict=True):
        match term:
            case Constant():
                if term.value != value:
                    return
            case Variable():
                if extended.setdefault(term.name, value) != value:
                    return
            case Anonymous():
                pass
    yield extended


def _holds(part: BodyAtom, binding: Binding, known: Relations) -> bool:
    """Tell whether a part of the body holds; every variable of a test is bound by now."""
    match part:
        case TrueAtom() | Atom():  # positive atoms have made the binding
            return True
        case NegatedAtom():
            return not _matching(part.atom, binding, known)
        case Cardinality():
            count = len(_matching(part.atom, binding, known))
            return cardinality_holds(count, part.operator, part.bound)
        case Inequality():
            return unequal(_value(part.left, binding), _value(part.right, binding))
        case IntCompare():
            left, right = _value(part.left, binding), _value(part.right, binding)
            return int_compare(left, part.operator, right)
        case LexCompare():
            left, right = _value(part.left, binding), _value(part.right, binding)
            return lex_compare(left, part.operator, right)
        case TextShape():
            text, start, end = (_value(t, binding) for t in (part.text, part.start, part.end))
            return text_shape(text, start, part.delimiters.value, end)


def _matching(atom: Atom, binding: Binding, known: Relations) -> set[Values]:
    """Return the distinct facts that fit an atom under a binding."""
    return {
        row
        for row in known.get(atom.key, ())
        if any(True for _ in _match(atom, row, binding))  # a binding may well be empty
    }


def _value(term: Term, binding: Binding) -> str:
    if isinstance(term, Constant):
        return term.value
    if isinstance(term, Variable):
        return binding[term.name]
    raise AssertionError("an anonymous term has no value; the checks refuse it here")


def _instantiate(head: Atom, binding: Binding) -> Values:
    return tuple(_value(term, binding) for term in head.terms)
