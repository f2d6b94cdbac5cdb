"""Compiling a policy: its programs, and those that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.policy import compile as compile_module
from lace.policy.compile import Compiler, compile_policy, flat_program
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.rules.limits import RuleLimits
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    import pytest

    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure

ALICE = str(Verifier.from_public_key(b"\x01" * 32))
BOB = str(Verifier.from_public_key(b"\x02" * 32))
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
OPEN = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
OPERANDS = operand_of(ALL, 0), operand_of(ALL, 1)
PLAN = make_plan(*OPERANDS)


def compiled(*exposures: Exposure, index: int = 0) -> Executable:
    return compile_policy(PLAN, OPERANDS, index=index, exposures=exposures, viewer=ALICE)


def test_the_scopes_and_selections_are_those_of_the_sides() -> None:
    made = compiled(index=1)
    assert (made.our_scope, made.their_scope) == ("o1_", "o0_")
    assert [str(key) for key in made.selections] == [
        "o1_SelectHave/1",
        "o1_SelectAdvertised/2",
        "o0_SelectHave/1",
        "o0_SelectAdvertised/2",
    ]


def test_each_program_has_the_limits_of_its_author() -> None:
    small = RuleLimits(max_work=7)
    pair = operand_of(ALL, 0), operand_of(ALL, 1, limits=small)
    made = compile_policy(PLAN, pair, index=0, exposures=(), viewer=ALICE)
    assert made.theirs.limits == small
    assert made.ours.limits == made.view.limits == made.lowering.limits == pair[0].module.limits
    assert flat_program(made).limits == made.ours.limits


def test_with_nothing_exposed_the_gate_is_a_predicate_without_facts() -> None:
    made = compiled()
    gate = PredicateKey("CanQueryRecord", 2)
    assert gate in made.view.required_base
    assert gate not in made.view.derived
    assert gate in compiled(exposure_of(OPEN, anyone=True)).view.derived


def test_a_rule_says_where_it_was_written() -> None:
    made = compiled(
        exposure_of(OPEN, anyone=True, name="open.lace"), exposure_of(OPEN, anyone=True)
    )
    assert made.view.written is not None
    parts = {written.part for written in made.view.written}
    assert parts == {"exposure 1, open.lace", "exposure 2", "the query gate", "the query view"}


def test_a_compiler_knows_what_it_compiled() -> None:
    compiler = Compiler()

    def made(*exposures: Exposure, viewer: str = ALICE, index: int = 0) -> Executable:
        return compiler.compile(PLAN, OPERANDS, index=index, exposures=exposures, viewer=viewer)

    first = made(exposure_of(OPEN, anyone=True))
    assert made(exposure_of(OPEN, anyone=True)) is first
    assert made(exposure_of(OPEN, anyone=True), exposure_of(OPEN, BOB)) is first
    others = [
        made(),
        made(exposure_of(OPEN, anyone=True), viewer=BOB),
        made(exposure_of(OPEN, anyone=True), index=1),
        made(exposure_of(OPEN, anyone=True, name="elsewhere")),
        made(exposure_of(OPEN, anyone=True, limits=RuleLimits(max_work=1))),
        made(exposure_of(f"\n{OPEN}", anyone=True)),
        made(exposure_of(f'#:json {{"a":1}}\n{OPEN}', anyone=True)),
    ]
    assert all(each is not first for each in others)
    assert len({id(each) for each in others}) == len(others)


def test_a_compiler_forgets_what_was_asked_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "_MOST_KEPT", 2)
    compiler = Compiler()
    made = [
        compiler.compile(PLAN, OPERANDS, index=0, exposures=(), viewer=viewer)
        for viewer in (ALICE, BOB, ALICE, PLAN.operands[1].origin, ALICE, BOB)
    ]
    assert made[0] is made[2] is made[4]
    assert made[1] is not made[5]
