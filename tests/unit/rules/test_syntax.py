"""Nodes: what they refuse, how they print, what tells them apart."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from lace.errors import RuleError
from lace.rules.syntax import (
    NOWHERE,
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    PredicateKey,
    Rule,
    Span,
    TextShape,
    TrueAtom,
    Use,
    Variable,
    is_operator,
    quote,
)

if TYPE_CHECKING:
    from collections.abc import Callable

X, Y = Variable("X"), Variable("Y")
P = Atom("P", (X, Y))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (X, "X"),
        (Anonymous(), "_"),
        (Constant("it's \\ fine"), r"'it\'s \\ fine'"),
        (Atom("Zero", ()), "Zero()"),
        (Atom("a-b~c_1", (X, Anonymous(), Constant(""))), "a-b~c_1(X,_,'')"),
        (NegatedAtom(P), "not P(X,Y)"),
        (Inequality(X, Constant("q")), "X != 'q'"),
        (IntCompare(X, "<=", Constant("-007")), "IntCompare(X,'<=','-007')"),
        (LexCompare(X, ">", Y), "LexCompare(X,'>',Y)"),
        (TextShape(X, Constant("a"), Constant("./"), Y), "TextShape(X,'a','./',Y)"),
        (Cardinality(P, "<", "0100"), "Cardinality(P(X,Y),'<','0100')"),
        (TrueAtom(), "true"),
        (Rule(P, (P, TrueAtom())), "P(X,Y) :- P(X,Y), true."),
        (PredicateKey("P", 2), "P/2"),
    ],
)
def test_nodes_print_themselves(node: object, text: str) -> None:
    assert str(node) == text
    assert pickle.loads(pickle.dumps(node)) == node  # noqa: S301  # our own bytes
    assert copy.copy(node) == node


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Variable("x"), "030-20"),
        (lambda: Variable("X-1"), "030-20"),
        (lambda: Variable("X\n"), "030-20"),
        (lambda: Constant("a\nb"), "030-25"),
        (lambda: Constant("a\rb"), "030-25"),
        (lambda: Constant("\ud800"), "030-23"),
        (lambda: Constant("e\u0301"), "030-23"),
        (lambda: Atom("1a", ()), "030-17"),
        (lambda: Atom("A\n", ()), "030-17"),
        (lambda: Atom("__A", ()), "030-17"),
        (lambda: IntCompare(X, "=", Y), "030-68"),  # type: ignore[arg-type]  # on purpose
        (lambda: IntCompare(X, "<", Constant("ten")), "030-67"),
        (lambda: IntCompare(Constant("１"), "<", X), "030-67"),  # noqa: RUF001  # full-width
        (lambda: LexCompare(X, "==", Y), "030-68"),  # type: ignore[arg-type]  # on purpose
        (lambda: Cardinality(P, "<", "--1"), "030-89"),
        (lambda: Cardinality(P, "<", "-"), "030-89"),
        (lambda: Cardinality(P, "<", "+1"), "030-89"),
        (lambda: Cardinality(P, "", "1"), "030-68"),  # type: ignore[arg-type]  # on purpose
        (lambda: Rule(P, ()), "030-16"),
    ],
)
def test_nodes_refuse_what_no_rule_holds(make: Callable[[], Any], rule: str) -> None:
    with pytest.raises(RuleError) as caught:
        make()
    assert caught.value.rule == rule


def test_spans_do_not_tell_nodes_apart() -> None:
    here = Span(3, 5, 6)
    assert Variable("X", here) == X
    assert hash(Variable("X", here)) == hash(X)
    assert Variable("X", here).span == here
    assert X.span == NOWHERE
    assert Atom("Name", (), Span(2, 3, 10)).name_span == Span(2, 3, 7)


def test_equal_text_of_different_kinds_differs() -> None:
    nodes = {Constant("X"), Variable("X"), IntCompare(X, "<", Y), LexCompare(X, "<", Y), P}
    assert len(nodes | {Atom("P", (X,))}) == 6


def test_terms_that_tests_test() -> None:
    assert TextShape(X, Y, Constant("a"), X).terms == (X, Y, X)
    assert Inequality(X, Y).terms == IntCompare(X, "<", Y).terms == LexCompare(X, "<", Y).terms


def test_uses_of_a_rule() -> None:
    other = Atom("Q", ())
    rule = Rule(P, (P, NegatedAtom(other), Cardinality(P, ">", "1"), TrueAtom(), X_IS_NOT_Y))
    assert list(rule.uses()) == [
        (Use.POSITIVE, P),
        (Use.NEGATIVE, other),
        (Use.CARDINALITY, P),
    ]
    assert list(rule.positive_atoms()) == [P]


X_IS_NOT_Y = Inequality(X, Y)


def test_operators_and_quotes() -> None:
    assert [is_operator(text) for text in ("<", "<=", ">", ">=", "=", "")] == [True] * 4 + [
        False
    ] * 2
    assert quote("plain") == "'plain'"
    assert quote("'") == r"'\''"


def test_where_an_atom_stands_is_no_part_of_it() -> None:
    placed = Atom("A", (Variable("X"),), Span(3, 2, 4))
    assert placed == Atom("A", (Variable("X"),))
    assert hash(placed) == hash(Atom("A", (Variable("X"),)))
    assert "span" not in repr(placed)
    assert "key" not in repr(placed)
