"""One answer for one policy: four programs, one flat program, and a filtered fact source.

What may be sent and requested is worked out from changes, from scratch, by the flat
program on two engines, and by a plain reading of 020 and 040: the peer's own rules over
the facts of the records it may see, the local rules over all facts, and both results
intersected in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from lace.engine.engine import evaluate
from lace.engine.factbase import FactBase
from lace.facts.catalogue import BASE_PREDICATES
from lace.facts.extract import facts_of_records
from lace.facts.source import MemoryFacts, RecordView
from lace.facts.source import facts_of as facts_in
from lace.policy.compile import Compiler, flat_program
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of, scope_name
from lace.policy.operand import operand_of
from lace.policy.plan import LOWERINGS
from lace.rules.profiles import MAY_REQUEST, MAY_SEND, SELECT_ADVERTISED, SELECT_HAVE
from lace.store.sqlite import segments
from lace.store.sqlite.store import SqliteStore
from tests.oracle.naive_engine import evaluate_naively
from tests.oracle.store_policy import StorePolicy
from tests.profiles import examples
from tests.property import policies
from tests.property.policies import (
    SELECT_RECORDS,
    SELECT_X,
    compiled,
    difference,
    facts_of,
    visible_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lace.engine.engine import Evaluation
    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure
    from lace.rules.syntax import PredicateKey
    from tests.property.policies import Fact, Step

    Answer = tuple[frozenset[str], frozenset[str]]
    Rows = Mapping[PredicateKey, frozenset[tuple[str, ...]]]
    Selected = tuple[Rows, Rows]

pytestmark = [
    pytest.mark.property,
    pytest.mark.slow,
    pytest.mark.requirement("040-74", "020-73", "020-66", "040-71", "040-72"),
]

OURS = st.one_of(
    st.sampled_from([SELECT_RECORDS, SELECT_RECORDS, SELECT_X]),
    st.sampled_from(policies.BAITS),
    policies.selectors(),
)
THEIRS = st.one_of(st.sampled_from(policies.BAITS), policies.selectors())
EXPOSED = st.one_of(
    st.just([exposure_of("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", anyone=True)]),
    policies.own_exposures,
    policies.all_exposures,
)


def selected(ours: str, theirs: str, exposed: list[Exposure], facts: list[Fact]) -> Selected:
    """Return what each operand selects: one over all facts, the other over its view."""
    visible = visible_in(exposed, facts)
    view = RecordView(MemoryFacts(facts), visible.__contains__)
    own = evaluate_naively(operand_of(ours, 0).module, facts)
    return own, evaluate_naively(operand_of(theirs, 1).module, facts_in(view, BASE_PREDICATES))


def plainly(
    ours: str, theirs: str, exposed: list[Exposure], lowering: str, facts: list[Fact]
) -> Answer:
    """Return what may be sent and requested, as the texts say it."""
    own, other = selected(ours, theirs, exposed, facts)
    hidden = {fact[1] for fact in facts if fact[0] == "Have"} - visible_in(exposed, facts)
    have = frozenset(row for row in own[SELECT_HAVE] & other[SELECT_HAVE] if row[0] not in hidden)
    advertised = own[SELECT_ADVERTISED] & other[SELECT_ADVERTISED]
    if lowering == "encrypted-v1" and ("TransportEncrypted",) not in facts:
        have = advertised = frozenset()
    if lowering == "proven-peer-v1":
        advertised = frozenset(pair for pair in advertised if ("Peer", pair[1]) in facts)
    return frozenset(record for (record,) in have), frozenset(record for record, _ in advertised)


def firsts(answer: Mapping[PredicateKey, Iterable[tuple[str, ...]]]) -> Answer:
    sent, requested = (frozenset(row[0] for row in answer[key]) for key in (MAY_SEND, MAY_REQUEST))
    return sent, requested


def of_engine(found: Evaluation) -> Answer:
    return firsts({key: found.texts(key) for key in (MAY_SEND, MAY_REQUEST)})


def from_scratch(policy: Executable, facts: list[Fact], public: list[Fact]) -> Answer:
    base = FactBase(max_value_bytes=1024)
    base.change(facts)
    enforcement = Enforcement(policy, base)
    enforcement.set_public(public)
    found = enforcement.evaluate()
    assert found.counts == (len(found.may_send), len(found.may_request))
    return found.may_send, found.may_request


@settings(
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    OURS,
    THEIRS,
    EXPOSED,
    policies.lives(most=3),
    st.sampled_from([0, 1]),
    st.sampled_from(LOWERINGS),
)
def test_every_way_to_evaluate_a_policy_gives_the_same_answer(
    ours: str, theirs: str, exposed: list[Exposure], life: list[Step], index: int, lowering: str
) -> None:
    policy = compiled(ours, theirs, exposed, index=index, lowering=lowering)
    flat = flat_program(policy)
    base = FactBase(max_value_bytes=1024)
    enforcement = Enforcement(policy, base)
    before: list[Fact] = []
    for step in life:
        facts = facts_of(step.store)
        enforcement.update(base.change(*difference(before, facts)))
        enforcement.set_public(step.public)
        before = facts
        if not step.asked:
            continue
        every = [*facts, *step.public]
        expected = plainly(ours, theirs, exposed, lowering, every)
        event(f"sends {bool(expected[0])}, requests {bool(expected[1])}")
        found = enforcement.evaluate()
        assert (found.may_send, found.may_request) == expected
        assert from_scratch(policy, facts, step.public) == expected
        assert of_engine(evaluate(flat, every)) == expected
        naive = evaluate_naively(flat, every)
        assert firsts(naive) == expected
        # What each operand selects by itself is more than what both do.
        own, other = selected(ours, theirs, exposed, every)
        for key in (SELECT_HAVE, SELECT_ADVERTISED):
            assert naive[scope_name(policy.our_scope, key)] == own[key]
            assert naive[scope_name(policy.their_scope, key)] == other[key]
        event(f"the peer selects {bool(other[SELECT_HAVE])}, {bool(other[SELECT_ADVERTISED])}")


@settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(OURS, THEIRS, EXPOSED, st.data())
def test_a_policy_follows_a_store(
    tmp_path_factory: pytest.TempPathFactory,
    ours: str,
    theirs: str,
    exposed: list[Exposure],
    data: st.DataObject,
) -> None:
    """Records come and go through two handles, and the answer is that of the facts of now."""
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):  # with stored facts, as large stores have them
            patch.setattr(segments, "APPEND_RECORDS", 2)
            patch.setattr(segments, "_MOST_TAIL", 4)
        folder = tmp_path_factory.mktemp("policy") / "followed.lace"
        _assert_followed(folder, ours, theirs, exposed, data)


def _assert_followed(
    folder: Path, ours: str, theirs: str, exposed: list[Exposure], data: st.DataObject
) -> None:
    policy = compiled(ours, theirs, exposed)
    pool = policies.real_records()
    many = st.lists(st.sampled_from(range(len(pool))), unique=True, min_size=4, max_size=8)
    few = st.lists(st.sampled_from(range(len(pool))), unique=True, max_size=4)
    store = SqliteStore(folder, create=True)
    other = SqliteStore(folder)
    held: set[int] = set()
    try:
        follower = StorePolicy(policy, store, max_value_bytes=1024)
        assert follower.their_work == 0
        for _ in range(data.draw(st.integers(1, 4))):
            come, gone = data.draw(many), data.draw(few)
            store.admit([pool[number] for number in come[:3]])
            other.admit([pool[number] for number in come[3:]])
            held |= set(come)
            data.draw(st.sampled_from([store, other])).remove(
                [pool[number].id for number in gone if number in held]
            )
            held -= set(gone)
            public = data.draw(policies.publics(tuple(str(record.id) for record in pool)))
            facts = list(facts_of_records([pool[number] for number in sorted(held)]))
            expected = plainly(ours, theirs, exposed, "standard-v1", [*facts, *public])
            event(f"sends {bool(expected[0])}, requests {bool(expected[1])}")
            found = follower.evaluate(public)
            assert (found.may_send, found.may_request) == expected
            again = StorePolicy(policy, other, max_value_bytes=1024).evaluate(public)
            assert (again.may_send, again.may_request) == expected
    finally:
        store.close()
        other.close()


@settings(max_examples=examples(30))
@given(THEIRS, EXPOSED, st.sampled_from([0, 1]))
def test_compiling_twice_gives_the_same(theirs: str, exposed: list[Exposure], index: int) -> None:
    made = compiled(SELECT_RECORDS, theirs, exposed, index=index)
    again = compiled(SELECT_RECORDS, theirs, exposed, index=index)
    assert flat_program(made).canonical == flat_program(again).canonical
    operands = [operand_of(SELECT_RECORDS, index), operand_of(theirs, 1 - index)]
    if index:
        operands.reverse()
    compiler = Compiler()
    kept = [
        compiler.compile(
            made.plan, operands, index=index, exposures=exposed, viewer=policies.VIEWER
        )
        for _ in range(2)
    ]
    assert kept[0] is kept[1]
    assert flat_program(kept[0]).canonical == flat_program(made).canonical
