"""One answer: the naive reference, the embedded engine, and increments in any order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lace.columns import index, keys, relation
from lace.engine import state as bounded
from lace.engine import steps as frames
from lace.engine.budget import Statistics
from lace.engine.engine import EvaluationSession, evaluate
from lace.errors import LimitExceeded
from lace.rules.limits import RuleLimits
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from tests.oracle.naive_engine import evaluate_naively
from tests.profiles import examples
from tests.property import evaluations
from tests.property.derivations import dense_worlds
from tests.property.lacegrams import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.engine.engine import Evaluation
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from tests.property.evaluations import Fact
    from tests.property.lacegrams import Program

    World = tuple[Program, list[Fact]]
    Rows = Mapping[PredicateKey, frozenset[tuple[str, ...]]]

PROFILE = QUERY.with_base(evaluations.BASE)
FULL = examples(1400)
STEPWISE = examples(700)
WORLDS = st.one_of(
    st.tuples(evaluations.programs(), evaluations.facts(max_size=20)),
    st.tuples(evaluations.order_programs(), evaluations.facts(max_size=20)),
    dense_worlds(),
    dense_worlds(),
)
"""Programs with facts: wide ones, those that count an order, and dense ones."""


def checked(program: Program) -> CheckedProgram:
    return check_source(canonical(program), profile=PROFILE)


def assert_same(evaluation: Evaluation, program: CheckedProgram, facts: set[Fact]) -> Rows:
    """Compare an evaluation with that of the reference, which is returned."""
    expected = evaluate_naively(program, facts)
    for key in program.derived:
        if key in evaluation.state.virtual:
            continue  # made when it is asked for, and then no longer only counted
        rows = evaluation.texts(key)
        assert frozenset(rows) == expected[key]
        assert len(rows) == len(expected[key])
    return expected


@pytest.mark.property
@pytest.mark.slow
@pytest.mark.requirement("030-57", "030-63", "030-64", "030-65")
@settings(max_examples=FULL)
@given(WORLDS, st.randoms(use_true_random=False))
def test_reference_and_embedded(world: World, random: object) -> None:
    program, facts = world
    rules = checked(program)
    evaluation = evaluate(rules, facts)
    expected = assert_same(evaluation, rules, set(facts))
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
@given(WORLDS, st.data())
def test_increments(world: World, data: st.DataObject) -> None:
    program, facts = world
    rules = checked(program)
    session = EvaluationSession()
    session.change(facts)
    now = set(facts)
    assert_same(session.evaluate(rules), rules, now)
    for come, gone in data.draw(evaluations.changes(facts)):
        session.change(come, gone)
        now = (now - set(gone)) | set(come)
        assert_same(session.evaluate(rules), rules, now)


@pytest.mark.property
@pytest.mark.slow
@pytest.mark.requirement("030-63")
@settings(max_examples=examples(300))
@given(WORLDS, st.data())
def test_the_ways_of_large_relations(world: World, data: st.DataObject) -> None:
    """Short frames, no tables, few numbers that fit: what else only large relations meet."""
    program, facts = world
    rules = checked(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MAX_FRAME_ROWS", data.draw(st.sampled_from([1, 3, 2**21])))
        patch.setattr(index, "_MAX_FLAGS", data.draw(st.sampled_from([0, 2**26])))
        patch.setattr(keys, "_LARGEST_KEY", data.draw(st.sampled_from([900, 2**62])))
        patch.setattr(index, "_SMALL", data.draw(st.sampled_from([0, 4096])))
        patch.setattr(index, "_TABLE_SHARE", data.draw(st.sampled_from([0, 32])))
        patch.setattr(relation, "_MERGE_ROWS", 2)
        patch.setattr(bounded, "_MANY_ROWS", data.draw(st.sampled_from([0, 64])))
        patch.setattr(bounded, "_SLICE_WORK", 4)
        patch.setattr(bounded, "_LEAST_SLICE", 1)
        session = EvaluationSession()
        session.change(facts[::2])
        session.evaluate(rules)
        session.change(facts[1::2])
        assert_same(session.evaluate(rules), rules, set(facts))
        assert_same(evaluate(rules, facts), rules, set(facts))


@pytest.mark.property
@settings(max_examples=examples(200))
@given(WORLDS, st.integers(0, 60))
def test_a_budget_stops_before_it_is_passed(world: World, work: int) -> None:
    """Whatever the budget: the whole answer or none, and never more work than allowed."""
    program, facts = world
    rules = checked(program)
    limited = check_source(canonical(program), profile=PROFILE, limits=RuleLimits(max_work=work))
    statistics = Statistics()
    stopped: LimitExceeded | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MAX_FRAME_ROWS", 2)
        needed = evaluate(rules, facts).statistics.work
        try:
            assert_same(evaluate(limited, facts, statistics=statistics), rules, set(facts))
        except LimitExceeded as error:
            stopped = error
    assert (stopped is not None) == (needed > work)
    assert stopped is None or (stopped.limit, (stopped.observed or 0) > work) == ("max_work", True)
    assert statistics.work <= work
