"""The gate: which facts are let through, and that nothing else is read."""

from __future__ import annotations

import pytest

from lace.policy.gate import Gated, gate_module, is_record_atom
from lace.rules.profiles import SELECTOR
from lace.rules.program import check_source
from lace.rules.syntax import Atom, PredicateKey, Variable

REQUEST = "SelectAdvertised(P,S) :- Advertised(P,S)."


def gated(body: str) -> Gated:
    text = f"SelectHave(P) :- Have(P), {body}.\n{REQUEST}"
    return gate_module(check_source(text, profile=SELECTOR), "o0_", "V.1")


def view_of(body: str) -> list[str]:
    return [str(rule) for rule in gated(body).view_rules]


def test_an_atom_of_a_record_has_its_arity() -> None:
    assert is_record_atom(Atom("Have", (Variable("P"),)))
    assert not is_record_atom(Atom("Have", (Variable("P"), Variable("Q"))))
    assert not is_record_atom(Atom("Advertised", (Variable("P"), Variable("S"))))


def test_all_uses_of_record_atoms_are_replaced() -> None:
    made = gated("not Field(P,'a',_,_), Cardinality(BlobHash(P,_),'>','1'), Have(P,P)")
    assert str(made.rules[0]) == (
        "o0_SelectHave(P) :- o0_Have(P), not o0_Field(P,'a',_,_), "
        "Cardinality(o0_BlobHash(P,_),'>','1'), o0_Have(P,P)."
    )
    assert made.view == tuple(
        PredicateKey(*each) for each in (("o0_BlobHash", 2), ("o0_Field", 4), ("o0_Have", 1))
    )


def test_constants_narrow_what_is_let_through() -> None:
    assert view_of("Field(P,'a',_,V), Field(P,'b','0','x')") == [
        "o0_Field(P,'a',Index,Value) :- Field(P,'a',Index,Value), CanQueryRecord('V.1',P).",
        "o0_Field(P,'b','0','x') :- Field(P,'b','0','x'), CanQueryRecord('V.1',P).",
        "o0_Have(P) :- Have(P), CanQueryRecord('V.1',P).",
    ]
    assert view_of("Have('B.x')")[-1].startswith("o0_Have(P) :- ")


def test_a_wider_pattern_covers_a_narrower_one() -> None:
    wide = "o0_Field(P,Name,Index,Value) :- Field(P,Name,Index,Value), CanQueryRecord('V.1',P)."
    assert view_of("Field(P,N,_,_), Field(P,'b','0','x')")[0] == wide
    assert len(view_of("Field(P,'b',_,_), Field(P,'b','0',_), Field('r','b',_,'x')")) == 2


def test_a_record_that_a_rule_names_is_gated_too() -> None:
    made = check_source(f"SelectHave('r') :- Have('r').\n{REQUEST}", profile=SELECTOR)
    assert [str(rule) for rule in gate_module(made, "o1_", "V'1").view_rules] == [
        "o1_Have('r') :- Have('r'), CanQueryRecord('V\\'1','r')."
    ]


@pytest.mark.parametrize(("count", "rules"), [(64, 64), (65, 1)])
def test_beyond_many_patterns_one_rule_reads_it_all(count: int, rules: int) -> None:
    body = ", ".join(f"Field(P,'n{number}',_,_)" for number in range(count))
    assert len(view_of(body)) == rules + 1
