"""Items of a rule's body under one binding of texts: their values, their text, their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lace.rules.builtins import int_compare, lex_compare, text_shape, unequal
from lace.rules.syntax import (
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    TextShape,
    TrueAtom,
    Variable,
    quote,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.rules.syntax import BodyAtom, Term, Test

__all__ = ["Binding", "instance_of", "test_holds", "unify", "value_of", "variables_of"]

Binding: TypeAlias = "Mapping[str, str]"


def value_of(term: Term, binding: Binding) -> str | None:
    """Return the value of a term, None when it is free."""
    match term:
        case Constant():
            return term.value
        case Variable():
            return binding.get(term.name)
        case Anonymous():
            return None


def variables_of(item: BodyAtom) -> tuple[str, ...]:
    """Return the variables of an item of a body, each once, in their order."""
    match item:
        case NegatedAtom() | Cardinality():
            terms: Sequence[Term] = item.atom.terms
        case TrueAtom():
            terms = ()
        case _:
            terms = item.terms
    return tuple(dict.fromkeys(term.name for term in terms if isinstance(term, Variable)))


def unify(atom: Atom, values: Sequence[str]) -> tuple[dict[str, str], int | None]:
    """Return the binding that makes an atom a fact, and the first position that forbids it."""
    binding: dict[str, str] = {}
    for at, (term, value) in enumerate(zip(atom.terms, values, strict=True)):
        if isinstance(term, Variable):
            binding.setdefault(term.name, value)
        if value_of(term, binding) not in (value, None):
            return binding, at
    return binding, None


def instance_of(item: BodyAtom, binding: Binding) -> str:
    """Return an item as text, with values in the place of the variables that have one."""

    def fill(term: Term) -> str:
        value = value_of(term, binding)
        return str(term) if value is None else quote(value)

    def fill_atom(atom: Atom) -> str:
        return f"{atom.name}({','.join(map(fill, atom.terms))})"

    match item:
        case Atom():
            return fill_atom(item)
        case NegatedAtom(atom):
            return f"not {fill_atom(atom)}"
        case Cardinality(atom, operator, bound):
            return f"Cardinality({fill_atom(atom)},'{operator}','{bound}')"
        case Inequality(left, right):
            return f"{fill(left)} != {fill(right)}"
        case IntCompare(left, operator, right):
            return f"IntCompare({fill(left)},'{operator}',{fill(right)})"
        case LexCompare(left, operator, right):
            return f"LexCompare({fill(left)},'{operator}',{fill(right)})"
        case TextShape(text, start, delimiters, end):
            return f"TextShape({fill(text)},{fill(start)},{delimiters},{fill(end)})"
        case TrueAtom():
            return "true"


def test_holds(test: Test, binding: Binding) -> bool:
    """Tell whether a built-in test holds; its variables all have values."""

    def value(term: Term) -> str:
        found = value_of(term, binding)
        if found is None:
            raise AssertionError("the checks refuse a test of something free")
        return found

    match test:
        case Inequality(left, right):
            return unequal(value(left), value(right))
        case IntCompare(left, operator, right):
            return int_compare(value(left), operator, value(right))
        case LexCompare(left, operator, right):
            return lex_compare(value(left), operator, value(right))
        case TextShape(text, start, delimiters, end):
            return text_shape(value(text), value(start), delimiters.value, value(end))
