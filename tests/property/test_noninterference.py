"""A peer's rules tell nothing of records outside its view (020-81, 040-107).

Two stores have the same records inside the view of a viewer and others outside of it. The
peer neither advertises nor names what differs, and sees no record that names it; local
rules look at one record at a time. Whatever rules the peer then sends, both answer alike:
the same records to send and to request, the same work, the same errors, now and after
every change. These tests are never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from lace.columns import index, relation
from lace.engine import factbase
from lace.engine import state as bounded
from lace.engine import steps as frames
from lace.engine.budget import Statistics
from lace.engine.engine import evaluate
from lace.engine.factbase import FactBase
from lace.errors import LimitExceeded
from lace.facts.extract import facts_of_records
from lace.policy.compile import flat_program
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.profiles import SELECT_ADVERTISED
from lace.rules.syntax import PredicateKey
from lace.store.sqlite import segments
from lace.store.sqlite.store import SqliteStore
from tests.oracle.store_policy import StorePolicy
from tests.profiles import examples
from tests.property import policies
from tests.property.policies import (
    RECORDS,
    SECRETS,
    SELECT_RECORDS,
    SELECT_X,
    VIEWER,
    compiled,
    difference,
    facts_of,
    seen,
    visible_in,
)

if TYPE_CHECKING:
    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure
    from tests.property.policies import Fact, Step, Store

pytestmark = [pytest.mark.property, pytest.mark.requirement("020-81", "040-107", "020-59")]

FEW = st.integers(0, 12)
LIMITS = st.one_of(
    st.just(OWN_LIMITS),
    st.just(OWN_LIMITS),
    st.builds(lambda most: RuleLimits(max_work=most), st.integers(0, 120)),
    st.builds(lambda most: RuleLimits(max_derived_facts=most), FEW),
    st.builds(lambda most: RuleLimits(max_iterations=most), st.integers(0, 3)),
    st.builds(lambda most: RuleLimits(max_base_facts=most), FEW),
    st.builds(lambda most: RuleLimits(max_runtime_facts=most), FEW),
)
Outcome = tuple[object, ...]


class Side:
    """One store with a policy over it, which is told of every change."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.facts: list[Fact] = []
        self.base = FactBase(max_value_bytes=1024)
        self.enforcement = Enforcement(executable, self.base)

    def move(self, store: Store, public: list[Fact], *, public_first: bool = False) -> None:
        come, gone = difference(self.facts, facts_of(store))
        order = {fact: at for at, fact in enumerate(facts_of(store))}
        self.facts = facts_of(store)
        if public_first:
            self.enforcement.set_public(public)
        # New facts come in the order of the store, which is not that of the other side.
        self.enforcement.update(self.base.change(sorted(come, key=order.__getitem__), gone))
        if not public_first:
            self.enforcement.set_public(public)

    def restart(self) -> None:
        """Read all facts anew, in another order, as after a restart of the store's files."""
        self.base = FactBase(max_value_bytes=1024)
        self.base.change(sorted(self.facts, reverse=True))
        self.enforcement.take_base(self.base)

    def outcome(self) -> Outcome:
        """Return all that a peer's rules bring about: the answer, or the error; and the work."""
        try:
            found = self.enforcement.evaluate()
        except LimitExceeded as error:
            return (
                type(error), str(error), error.limit, error.allowed, error.observed, error.rule,
                self.enforcement.their_work,
            )  # fmt: skip
        return found.may_send, found.may_request, self.enforcement.their_work


@dataclass
class Pair:
    """The life of a store, and that of another with the same view."""

    one: list[Step]
    other: list[Step]


def _hidden(data: st.DataObject, exposed: list[Exposure], public: list[Fact]) -> Store:
    """Return secret records that are not seen, if each is looked at by itself."""
    chosen = data.draw(st.lists(st.sampled_from(SECRETS), unique=True))
    made = {record: data.draw(policies.records(record)) for record in chosen}
    visible = visible_in(exposed, [*facts_of(made), *public])
    return {record: facts for record, facts in made.items() if record not in visible}


def _changed(data: st.DataObject, exposed: list[Exposure], step: Step) -> Store:
    """Return a store with other records in place of those that are not seen."""
    facts = [*facts_of(step.store), *step.public]
    visible = visible_in(exposed, facts)
    made: Store = {}
    for record in data.draw(st.permutations(RECORDS)):
        before = step.store.get(record)
        if record in visible or not data.draw(st.booleans()):
            after = before
        else:  # also one whose hash the peer knows, from its rules, its claims or a link
            after = data.draw(st.one_of(st.none(), policies.records(record)))
        if after is not None:
            made[record] = after
    now_seen = visible_in(exposed, [*facts_of(made), *step.public]) - visible
    for record in now_seen & made.keys():  # back to what it was
        del made[record]
        if record in step.store:
            made[record] = step.store[record]
    return made


def _pair(data: st.DataObject, exposed: list[Exposure]) -> Pair:
    """Return two lives that differ outside the view only."""
    made = Pair([], [])
    for step in data.draw(policies.lives(most=3)):
        changed = _changed(data, exposed, step)
        for life, store in ((made.one, dict(step.store)), (made.other, changed)):
            store |= _hidden(data, exposed, step.public)
            life.append(policies.Step(store, step.public, step.asked))
    return made


def _assert_same_views(pair: Pair, exposed: list[Exposure], *, is_given: bool) -> None:
    for one, other in zip(pair.one, pair.other, strict=True):
        views = []
        for step in (one, other):
            facts = facts_of(step.store)
            visible = visible_in(exposed, [*facts, *step.public])
            views.append((visible, seen(facts, visible)))
        if is_given:
            assert views[0] == views[1]
        else:
            assume(views[0] == views[1])


def _as_if_large(patch: pytest.MonkeyPatch) -> None:
    """Let few rows be evaluated as many are: piece by piece, so that their order could matter."""
    patch.setattr(frames, "MAX_FRAME_ROWS", 2)
    patch.setattr(index, "_MAX_FLAGS", 0)
    patch.setattr(index, "_SMALL", 0)
    patch.setattr(index, "_TABLE_SHARE", 0)
    patch.setattr(relation, "_MERGE_ROWS", 2)
    patch.setattr(bounded, "_MANY_ROWS", 0)
    patch.setattr(bounded, "_SLICE_WORK", 4)
    patch.setattr(bounded, "_LEAST_SLICE", 1)


def _assert_alike(
    data: st.DataObject, exposed: list[Exposure], theirs: str, *, is_given: bool
) -> None:
    ours = data.draw(st.sampled_from([SELECT_RECORDS, SELECT_X]))
    pair = _pair(data, exposed)
    _assert_same_views(pair, exposed, is_given=is_given)
    at = data.draw(st.sampled_from([0, 1]))
    policy = compiled(ours, theirs, exposed, index=at, limits=data.draw(LIMITS))
    room = data.draw(st.sampled_from([1, 16, 4096]))
    is_large = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factbase, "_LEAST_ROOM", room)
        if is_large:
            _as_if_large(patch)
        one, other = Side(policy), Side(policy)
        for left, right in zip(pair.one, pair.other, strict=True):
            one.move(left.store, left.public)
            other.move(right.store, right.public, public_first=data.draw(st.booleans()))
            if data.draw(st.integers(0, 5)) == 0:
                other.restart()
            if not left.asked:
                continue
            found = one.outcome()
            event("an error" if isinstance(found[0], type) else "an answer")
            if not isinstance(found[0], type):
                event(f"sends {bool(found[0])}, requests {bool(found[1])}")
            assert found == other.outcome()


SETTINGS = settings(
    max_examples=examples(350),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(st.data(), policies.own_exposures, policies.modules)
def test_what_is_not_exposed_changes_nothing_for_the_peer(
    data: st.DataObject, exposed: list[Exposure], theirs: str
) -> None:
    """With exposures that look at each record by itself, the views are equal by their making."""
    _assert_alike(data, exposed, theirs, is_given=True)


@settings(
    max_examples=examples(120),
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much,
    ],
)  # fmt: skip
@given(st.data(), policies.all_exposures, policies.modules)
def test_any_exposures_hide_what_they_do_not_expose(
    data: st.DataObject, exposed: list[Exposure], theirs: str
) -> None:
    """With exposures of any kind, also with none."""
    _assert_alike(data, exposed, theirs, is_given=False)


def _follow(store: SqliteStore, before: set[int], after: set[int]) -> None:
    pool = (*policies.real_records(), *policies.real_secrets())
    store.remove([pool[number].id for number in sorted(before - after)])
    store.admit([pool[number] for number in sorted(after - before)])


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), policies.own_exposures, st.sampled_from(policies.BAITS), LIMITS)
def test_stores_with_other_hidden_records_answer_alike(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    exposed: list[Exposure],
    theirs: str,
    limits: RuleLimits,
) -> None:
    """Over real stores; one of them has its facts in segments, the other reads its records."""
    shared, secrets = policies.real_records(), policies.real_secrets()
    policy = compiled(SELECT_RECORDS, theirs, exposed, limits=limits)
    folder = tmp_path_factory.mktemp("alike")
    stores = [SqliteStore(folder / name, create=True) for name in ("one.lace", "other.lace")]
    sides = [StorePolicy(policy, store, max_value_bytes=1024) for store in stores]
    held: list[set[int]] = [set(), set()]
    advertised = tuple(str(record.id) for record in shared)
    try:
        for _ in range(data.draw(st.integers(1, 3))):
            public = data.draw(policies.publics(advertised))
            both = data.draw(st.sets(st.sampled_from(range(len(shared))), min_size=4))
            found: list[Outcome] = []
            for at, side in enumerate(sides):
                hidden = data.draw(st.sets(st.sampled_from(range(len(secrets)))))
                facts = facts_of_records([secrets[number] for number in sorted(hidden)])
                visible = visible_in(exposed, [*facts, *public])
                hidden = {each for each in hidden if str(secrets[each].id) not in visible}
                now = both | {len(shared) + number for number in hidden}
                with pytest.MonkeyPatch.context() as patch:
                    if at:
                        patch.setattr(segments, "APPEND_RECORDS", 1)
                        patch.setattr(segments, "_MOST_TAIL", 2)
                    _follow(stores[at], held[at], now)
                    found.append(_answer(side, public))
                held[at] = now
            event("an error" if isinstance(found[0][0], type) else "an answer")
            assert found[0] == found[1]
        assert not any((folder / "one.lace").rglob("*segment*"))
        assert any((folder / "other.lace").rglob("*segment*"))
    finally:
        for store in stores:
            store.close()


def _answer(side: StorePolicy, public: list[Fact]) -> Outcome:
    try:
        found = side.evaluate(public)
    except LimitExceeded as error:
        return type(error), str(error), error.limit, error.observed, side.their_work
    return found.may_send, found.may_request, side.their_work


BAIT = (
    "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Field(Q,'Group',_,'Y')."
)
ONLY_X = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'X')."
PUBLIC: list[Fact] = [("Advertised", RECORDS[7], VIEWER)]


def _in_group(record: str, group: str) -> frozenset[Fact]:
    return frozenset({("Have", record), ("Field", record, "Group", "0", group)})


SHOWN: Store = {record: _in_group(record, "X") for record in RECORDS[:3]}
WITH_SECRETS: Store = {**SHOWN, **{record: _in_group(record, "Y") for record in SECRETS}}


def _outcome(store: Store, theirs: str, limits: RuleLimits = OWN_LIMITS) -> Outcome:
    side = Side(compiled(SELECT_RECORDS, theirs, [exposure_of(ONLY_X, VIEWER)], limits=limits))
    side.move(store, PUBLIC)
    return side.outcome()


def test_the_property_fails_without_the_gate() -> None:
    """The same bait over raw facts tells the two stores apart: so the tests above can fail."""
    assert _outcome(SHOWN, BAIT) == _outcome(WITH_SECRETS, BAIT)
    theirs = operand_of(BAIT, 1).module
    raw = [
        frozenset(evaluate(theirs, [*facts_of(store), *PUBLIC]).texts(SELECT_ADVERTISED))
        for store in (SHOWN, WITH_SECRETS)
    ]
    assert raw == [frozenset(), frozenset({(RECORDS[7], VIEWER)})]


def test_the_property_fails_without_the_enclave() -> None:
    """One program over one base answers alike, but its work tells the stores apart."""
    policy = compiled(SELECT_RECORDS, BAIT, [exposure_of(ONLY_X, VIEWER)])
    work: list[int] = []
    answers: list[frozenset[tuple[str, ...]]] = []
    for store in (SHOWN, WITH_SECRETS):
        statistics = Statistics()
        found = evaluate(flat_program(policy), [*facts_of(store), *PUBLIC], statistics=statistics)
        work.append(statistics.work)
        answers.append(frozenset(found.texts(PredicateKey("o1_SelectHave", 1))))
    assert answers[0] == answers[1]
    assert work[0] < work[1]


@pytest.mark.requirement("020-75", "020-76", "020-74")
@pytest.mark.parametrize("bait", policies.BAITS)
def test_many_hidden_records_change_neither_work_nor_limit(bait: str) -> None:
    """So many texts are hidden that everything is numbered anew, before and after a change."""
    hidden = [policies.record_hash(number) for number in range(1000, 3500)]
    crowded: Store = {**{record: _in_group(record, f"Y {record}") for record in hidden}, **SHOWN}
    later: Store = {**SHOWN, RECORDS[4]: _in_group(RECORDS[4], "X")}
    much: Store = {**crowded, **later}
    for record in hidden[:900]:
        del much[record]
    much |= {
        record: _in_group(record, f"Z {record}")
        for record in map(policies.record_hash, range(4000, 7000))
    }
    needed = _outcome(SHOWN, bait)[-1]
    assert isinstance(needed, int)
    for most in (needed // 2, needed, OWN_LIMITS.max_work):
        policy = compiled(
            SELECT_RECORDS,
            bait,
            [exposure_of(ONLY_X, VIEWER)],
            limits=RuleLimits(max_work=most),
        )
        one, other = Side(policy), Side(policy)
        for few, many in ((SHOWN, crowded), (later, much), (SHOWN, crowded)):
            one.move(few, PUBLIC)
            other.move(many, PUBLIC)
            assert one.outcome() == other.outcome()


def test_in_how_many_steps_a_view_changed_does_not_show() -> None:
    """Hidden records make one side number all texts anew, so it looks at its view only later."""
    policy = compiled(SELECT_RECORDS, policies.BAITS[3], [exposure_of(ONLY_X, VIEWER)])
    one, other = Side(policy), Side(policy)
    outcomes: list[list[Outcome]] = [[], []]
    grown: Store = {}
    hidden: Store = {
        record: _in_group(record, f"Y {record}")
        for record in map(policies.record_hash, range(1000, 4000))
    }
    for side, more, found in ((one, {}, outcomes[0]), (other, hidden, outcomes[1])):
        side.move({}, PUBLIC)
        found.append(side.outcome())
        grown = dict(more)
        for record in RECORDS[:5]:
            target = RECORDS[(RECORDS.index(record) + 1) % 5]
            link = ("RecordLink", record, "Link", "0", "a", target)
            grown = {**grown, record: _in_group(record, "X") | {link}}
            side.move(grown, [*PUBLIC, ("Advertised", record, VIEWER)])
        found.append(side.outcome())
    assert outcomes[0] == outcomes[1]


def test_where_a_limit_stops_does_not_tell_in_which_order_records_came() -> None:
    """Some rows are joined with many and some with few, two at a time, at every limit."""
    theirs = (
        "Pair(P,Q) :- Field(P,'Tag',_,V), Field(Q,'Name',_,V).\n"
        "SelectHave(P) :- Pair(P,Q), Field(Q,'App',_,_).\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), Pair(P,_)."
    )
    shown: Store = {}
    for number in range(12):
        record = policies.record_hash(number)
        tags = [("Field", record, "Tag", str(at), f"v{number % (at + 2)}") for at in range(3)]
        name = ("Field", record, "Name", "0", "v0" if number % 3 else f"v{number % 5}")
        app = ("Field", record, "App", "0", "a")
        shown[record] = _in_group(record, "X") | {*tags, name, app}
    turned: Store = {record: shown[record] for record in reversed(shown)}
    hidden = {record: _in_group(record, f"Y {record}") for record in SECRETS}
    some = list(shown)[:7]
    lives: list[list[Store]] = [
        [{record: shown[record] for record in some}, shown],
        [{**hidden, **{record: turned[record] for record in reversed(some)}}, turned],
    ]
    with pytest.MonkeyPatch.context() as patch:
        _as_if_large(patch)
        for most in range(0, 200, 3):
            policy = compiled(
                SELECT_RECORDS,
                theirs,
                [exposure_of(ONLY_X, VIEWER)],
                limits=RuleLimits(max_work=most),
            )
            sides = [Side(policy), Side(policy)]
            for step in range(2):
                for side, life in zip(sides, lives, strict=True):
                    side.move(life[step], PUBLIC)
                assert sides[0].outcome() == sides[1].outcome()
