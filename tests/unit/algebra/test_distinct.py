"""Which predicates get no fact twice."""

from __future__ import annotations

import pytest

from lace.algebra.lower import lower_program
from lace.algebra.passes import prune as distinct
from lace.engine.engine import evaluate
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey
from tests.oracle.naive_engine import evaluate_naively

PROFILE = QUERY.with_base([("E", 2), ("F", 1), ("G", 3)])
FACTS = [
    ("E", "a", "b"),
    ("E", "a", "c"),
    ("E", "b", "b"),
    ("E", "c", "a"),
    ("F", "a"),
    ("F", "b"),
    ("G", "a", "b", "1"),
    ("G", "a", "b", "2"),
]


def noted(text: str) -> set[str]:
    checked = check_source(text, profile=PROFILE)
    return {str(key) for key in lower_program(checked).distinct}


@pytest.mark.parametrize(
    "rules",
    [
        "A(X) :- F(X).",
        "A(X,Y) :- E(X,Y).",
        "A(Y,X,X) :- E(X,Y).",
        "A(X,Y) :- E(X,Y), F(X), E(Y,X).",
        "A(X,Y) :- E(X,Y), not F(X), X != Y.",
        "A(X) :- E(X,X).",
        "A('k',X) :- E('a',X).",
        "A('k') :- true.",
        "A('k',X) :- F(X).\nA('l',X) :- F(X).",
        "A('k',X) :- F(X).\nA('l',X) :- E(X,X).\nA('m','x') :- true.",
    ],
)
def test_a_predicate_whose_rules_make_each_fact_once_is_noted(rules: str) -> None:
    assert {name.split("/")[0] for name in noted(rules)} == {"A"}


@pytest.mark.parametrize(
    "rules",
    [
        "A(X) :- E(X,Y).",
        "A(X) :- E(X,_).",
        "A(X,Y) :- E(X,Y), G(X,Y,_).",
        "A(X,Y) :- E(X,Y), G(X,Y,Z).",
        "A(X,Y) :- E(X,Z), E(Z,Y).",
        "A(X) :- F(X).\nA(X) :- F(X).",
        "A(X,'k') :- F(X).\nA('k',X) :- F(X).",
        "A('k') :- true.\nA('k') :- F(_).",
        "A(X,Y) :- E(X,Y).\nA(X,Z) :- A(X,Y), E(Y,Z).",
    ],
)
def test_a_predicate_that_may_get_a_fact_twice_is_not_noted(rules: str) -> None:
    assert noted(rules) == set()
    checked = check_source(rules, profile=PROFILE)
    key = checked.rules[0].head.key
    found = evaluate(checked, FACTS).texts(key)
    assert len(found) == len(set(found))
    assert set(found) == evaluate_naively(checked, FACTS)[key]


def test_too_many_rules_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_MOST_BRANCHES", 2)
    checked = check_source(
        "\n".join(f"A('{number}',X) :- F(X).\nB('{number}',X) :- F(X)." for number in range(3)),
        profile=PROFILE,
    )
    program = lower_program(check_source("A('1',X) :- F(X).\nA('2',X) :- F(X).", profile=PROFILE))
    assert distinct.find_distinct(program).distinct == {PredicateKey("A", 2)}
    assert not distinct.find_distinct(lower_program(checked)).distinct
