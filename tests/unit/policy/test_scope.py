"""Scopes: names that no other module has."""

from __future__ import annotations

from lace.policy.exposure import map_atoms, scope_name, scope_rules
from lace.rules.profiles import SELECTOR
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey

TEXT = """\
Member(K) :- Field(_,'Friend',_,K).
Field(K) :- Member(K), Have(K), K != 'x', IntCompare(K,'<','3').
SelectHave(P) :- Have(P), not Member(P), Cardinality(Field(_),'>','1'), Gone(P), true.
SelectAdvertised(P,S) :- Advertised(P,S), not Have(P), Cardinality(Have(_),'<','9')."""


def test_everything_but_base_predicates_gets_the_prefix() -> None:
    module = check_source(TEXT, profile=SELECTOR)
    assert (
        "\n".join(map(str, scope_rules(module, "o1_")))
        == """\
o1_Member(K) :- Field(_,'Friend',_,K).
o1_Field(K) :- o1_Member(K), Have(K), K != 'x', IntCompare(K,'<','3').
o1_SelectHave(P) :- Have(P), not o1_Member(P), Cardinality(o1_Field(_),'>','1'), o1_Gone(P), true.
o1_SelectAdvertised(P,S) :- Advertised(P,S), not Have(P), Cardinality(Have(_),'<','9')."""
    )


def test_a_name_in_a_scope_keeps_its_arity() -> None:
    assert scope_name("o0_", PredicateKey("A", 3)) == PredicateKey("o0_A", 3)


def test_mapping_without_a_change_gives_an_equal_rule() -> None:
    for rule in check_source(TEXT, profile=SELECTOR).rules:
        assert map_atoms(rule, lambda atom: atom) == rule
