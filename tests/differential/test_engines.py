"""One answer: the naive reference, the embedded engine, and increments in any order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lace.engines.embedded.engine import evaluate
from lace.engines.embedded.session import Session
from lace.engines.reference import evaluate_naively
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from tests.property import evaluations
from tests.property.lacegrams import canonical

if TYPE_CHECKING:
    from lace.engines.embedded.engine import Evaluation
    from lace.rules.program import CheckedProgram
    from tests.property.evaluations import Fact
    from tests.property.lacegrams import Program

PROFILE = QUERY.with_base(evaluations.BASE)
FULL = max(1400, settings().max_examples)
STEPWISE = max(700, settings().max_examples)
PROGRAMS = st.one_of(evaluations.programs(), evaluations.programs(), evaluations.order_programs())


def checked(program: Program) -> CheckedProgram:
    return check_source(canonical(program), profile=PROFILE)


def assert_same(evaluation: Evaluation, program: CheckedProgram, facts: set[Fact]) -> None:
    expected = evaluate_naively(program, facts)
    for key in program.derived:
        if key in evaluation.state.virtual:
            continue  # made when it is asked for, and then no longer only counted
        rows = evaluation.texts(key)
        assert frozenset(rows) == expected[key]
        assert len(rows) == len(expected[key])


@pytest.mark.property
@pytest.mark.slow
@pytest.mark.requirement("030-57", "030-63", "030-64", "030-65")
@settings(max_examples=FULL)
@given(PROGRAMS, evaluations.facts(), st.randoms(use_true_random=False))
def test_reference_and_embedded(program: Program, facts: list[Fact], random: object) -> None:
    rules = checked(program)
    evaluation = evaluate(rules, facts)
    assert_same(evaluation, rules, set(facts))
    expected = evaluate_naively(rules, facts)
    for key in rules.derived:  # and now those that are only counted as well
        assert frozenset(evaluation.texts(key)) == expected[key]
    shuffled = sorted(facts, key=lambda _: random.random())  # type: ignore[attr-defined] # any source
    again = evaluate(rules, [*shuffled, *facts], predicates=rules.derived)
    for key in rules.derived:
        assert frozenset(again.texts(key)) == expected[key]


@pytest.mark.property
@pytest.mark.slow
@pytest.mark.requirement("030-125", "030-126", "030-127")
@settings(max_examples=STEPWISE)
@given(PROGRAMS, evaluations.facts(), st.data())
def test_increments(program: Program, facts: list[Fact], data: st.DataObject) -> None:
    rules = checked(program)
    session = Session()
    session.change(facts)
    now = set(facts)
    assert_same(session.evaluate(rules), rules, now)
    for come, gone in data.draw(evaluations.changes(facts)):
        session.change(come, gone)
        now = (now - set(gone)) | set(come)
        assert_same(session.evaluate(rules), rules, now)
