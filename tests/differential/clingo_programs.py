"""Lacegrams as programs of an answer-set solver: an oracle that shares no code with ours.

Of `lace.rules` only the tree of a checked program is used; what the built-ins mean is
written here once more, from the words of 030. Predicates get plain names by number,
since those of Lace may begin with a capital or hold `~` and `-`; values are quoted texts.
A stratified program has exactly one answer set, and that is the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import clingo

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
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom, Rule, Term

__all__ = ["evaluate_with_clingo", "translate_facts", "translate_rules"]

Values = tuple[str, ...]
Names = dict[PredicateKey, str]

_MOST = 2**31 - 1
_NUL = "\U0010fffd"
"""Replaces NUL in the texts of the solver."""
"""The largest number of the solver; no predicate has as many facts."""

_HARMLESS = (clingo.MessageCode.AtomUndefined, clingo.MessageCode.GlobalVariable)
"""An empty predicate, and a bound variable in what is counted: neither is a mistake."""


def evaluate_with_clingo(
    program: CheckedProgram, facts: Iterable[Sequence[str]]
) -> dict[PredicateKey, frozenset[Values]]:
    """Return the facts of every predicate that the rules define, as the solver finds them."""
    names: Names = {}
    text = translate_facts(facts, names) + translate_rules(program, names)
    found: dict[PredicateKey, set[Values]] = {key: set() for key in program.derived}
    keys = {(name, key.arity): key for key, name in names.items()}
    models = 0
    messages: list[str] = []  # the solver does not survive an exception in its logger

    def log(code: clingo.MessageCode, message: str) -> None:
        if code not in _HARMLESS:
            messages.append(f"{code}: {message}")

    control = clingo.Control(["0"], logger=log, message_limit=10_000)
    control.add("base", [], text)
    control.ground([("base", [])], context=Tests())
    with control.solve(yield_=True) as handle:
        for model in handle:
            models += 1
            for symbol in model.symbols(atoms=True):
                key = keys[symbol.name, len(symbol.arguments)]
                if key in found:
                    found[key].add(tuple(map(_text, symbol.arguments)))
    assert not messages, messages
    assert models == 1, f"{models} answer sets"
    return {key: frozenset(rows) for key, rows in found.items()}


def translate_facts(facts: Iterable[Sequence[str]], names: Names) -> str:
    """Return facts as a program; predicates not seen before get a name."""
    lines = []
    for predicate, *values in facts:
        name = _name(PredicateKey(predicate, len(values)), names)
        lines.append(f"{name}({','.join(map(quoted, values))}).\n" if values else f"{name}.\n")
    return "".join(lines)


def translate_rules(program: CheckedProgram, names: Names) -> str:
    """Return the rules as a program; predicates not seen before get a name."""
    return "".join(f"{_rule(rule, names)}\n" for rule in program.rules)


def quoted(value: str) -> str:
    """Return a text as a term of the solver, which knows three escapes only."""
    assert _NUL not in value, "this character replaces NUL, where the solver's texts end"
    escaped = (
        value.replace("\x00", _NUL).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    )
    return f'"{escaped}"'


def _text(term: clingo.Symbol) -> str:
    """Return the text of a term."""
    return term.string.replace(_NUL, "\x00")


def _name(key: PredicateKey, names: Names) -> str:
    return names.setdefault(key, f"p{len(names)}")


def _rule(rule: Rule, names: Names) -> str:
    body = [_item(item, names, place) for place, item in enumerate(rule.body)]
    return f"{_atom(rule.head, names)} :- {', '.join(body)}."


def _atom(atom: Atom, names: Names) -> str:
    return _applied(_name(atom.key, names), list(map(_term, atom.terms)))


def _applied(name: str, terms: list[str]) -> str:
    return f"{name}({','.join(terms)})" if terms else name


def _term(term: Term) -> str:
    match term:
        case Constant():
            return quoted(term.value)
        case Anonymous():
            return "_"
        case _:
            return f"V{term.name}"


def _item(item: BodyAtom, names: Names, place: int) -> str:
    match item:
        case Atom():
            return _atom(item, names)
        case NegatedAtom():
            return f"not {_atom(item.atom, names)}"
        case TrueAtom():
            return "#true"
        case Inequality():
            return f"{_term(item.left)} != {_term(item.right)}"
        case IntCompare():
            return f'@int({_term(item.left)},"{item.operator}",{_term(item.right)}) = 1'
        case LexCompare():
            return f'@lex({_term(item.left)},"{item.operator}",{_term(item.right)}) = 1'
        case TextShape():
            terms = (item.text, item.start, item.delimiters, item.end)
            return f"@shape({','.join(map(_term, terms))}) = 1"
        case Cardinality():
            return _count(item, names, place)


def _count(item: Cardinality, names: Names, place: int) -> str:
    """Count the whole tuples; each `_` becomes a variable, for it tells facts apart."""
    terms = [
        f"Any{place}_{position}" if isinstance(term, Anonymous) else _term(term)
        for position, term in enumerate(item.atom.terms)
    ]
    counted = _applied(_name(item.atom.key, names), terms)
    bound = max(-_MOST, min(int(item.bound), _MOST))
    return f"#count {{ {','.join(terms) or '0'} : {counted} }} {item.operator} {bound}"


class Tests:
    """What the solver calls with an `@`; a test that holds gives 1."""

    __test__ = False

    def int(
        self, left: clingo.Symbol, operator: clingo.Symbol, right: clingo.Symbol
    ) -> clingo.Symbol:
        """Compare decimal integers of any length; with any other text it does not hold."""
        if not (_is_decimal(left.string) and _is_decimal(right.string)):
            return clingo.Number(0)
        # Decimal numerals read with another base keep their order, and base 16 has no limit.
        return _compared(int(left.string, 16), operator.string, int(right.string, 16))

    def lex(
        self, left: clingo.Symbol, operator: clingo.Symbol, right: clingo.Symbol
    ) -> clingo.Symbol:
        """Compare the bytes of two texts."""
        return _compared(list(_text(left).encode()), operator.string, list(_text(right).encode()))

    def shape(
        self,
        text: clingo.Symbol,
        start: clingo.Symbol,
        delimiters: clingo.Symbol,
        end: clingo.Symbol,
    ) -> clingo.Symbol:
        """Test how a text begins, is divided and ends."""
        holds = _has_shape(_text(text), _text(start), set(_text(delimiters)), _text(end))
        return clingo.Number(int(holds))


def _has_shape(text: str, start: str, delimiters: set[str], end: str) -> bool:
    if text[: len(start)] != start:
        return False
    if not delimiters:
        middle = len(text) - len(start) - len(end)
        return middle >= 0 and text == start + text[len(start) : len(start) + middle] + end
    at = len(start)
    while at < len(text) and text[at] not in delimiters:
        at += 1
    return len(start) < at < len(text) and text[at + 1 :] == end


def _is_decimal(text: str) -> bool:
    digits = text[1:] if text[:1] == "-" else text
    return digits != "" and set(digits) <= set("0123456789")


def _compared(left: int | list[int], operator: str, right: int | list[int]) -> clingo.Symbol:
    order = (left > right) - (left < right)  # type: ignore[operator]
    orders: Mapping[str, set[int]] = {"<": {-1}, "<=": {-1, 0}, ">": {1}, ">=": {0, 1}}
    return clingo.Number(int(order in orders[operator]))
