"""Provenance: what is known of each generated rule."""

from __future__ import annotations

import pytest

from lace.policy.compile import Provenance, compile_policy, made_by, made_of, plan_provenance
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.rules.canonical import rule_id
from lace.rules.profiles import QUERY
from lace.rules.program import check_source

MODULE = check_source('\n#:json {"label":"x"}\nA(P) :- Have(P).', profile=QUERY, name="a.lace")
MADE = check_source("o0_A(P) :- Have(P).", profile=QUERY).rules
OWN = rule_id("o0_A(P) :- Have(P).")


def test_a_rule_made_of_another_has_its_place_and_annotations() -> None:
    (made,) = made_of(MODULE, MADE, ("040-operand-scope", "O0"), "operand 0", "Opq_a", "V.1")
    assert (made.written.number, made.written.text) == (1, "A(P) :- Have(P).")
    assert str(made.written.place).startswith("a.lace:3")
    assert dict(made.written.annotations) == {"label": "x"}
    assert list(Provenance((made,)).facts()) == [
        ("RuleSource", OWN, MODULE.id, MODULE.rule_ids[0]),
        ("RuleGeneratedBy", OWN, "040-operand-scope", "O0"),
        ("RuleGeneratedBy", OWN, "040-query-gate", "V.1"),
        ("RuleOrigin", OWN, "Opq_a"),
    ]


def test_a_rule_made_of_none_is_its_own_source() -> None:
    (made,) = made_by(MADE, "040-lowering", "the lowering")
    assert made.written.id == OWN
    assert list(Provenance((made,)).facts()) == [("RuleGeneratedBy", OWN, "040-lowering", "o0_A/1")]


def test_what_an_exposure_made_has_no_origin() -> None:
    (made,) = made_of(MODULE, MADE, ("040-exposure-scope", "M1"), "exposure 1")
    assert [fact[0] for fact in Provenance((made,)).facts()] == ["RuleSource", "RuleGeneratedBy"]


@pytest.mark.requirement("040-110", "040-111")
def test_the_sidecar_of_a_plan_is_that_of_both_sides() -> None:
    text = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    operands = [operand_of(text, index) for index in (0, 1)]
    plan = make_plan(operands[0], operands[1])
    found = list(plan_provenance(plan, operands).facts())
    sides = [
        compile_policy(plan, operands, index=index, exposures=(), viewer=peer.origin)
        for index, peer in ((0, plan.operands[1]), (1, plan.operands[0]))
    ]
    both = [each for side in sides for each in side.provenance.generated]
    assert found == list(Provenance(tuple(both)).facts())
    assert {fact[2] for fact in found if fact[0] == "RuleOrigin"} == {
        each.origin for each in plan.operands
    }
