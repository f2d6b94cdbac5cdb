"""Long operations of an evaluation, in stretches: the supervisor is asked between two of them.

A stretch takes about a tenth of a second, so an evaluation that is cancelled ends well within
one. Here stretches are short, and it is counted what goes into each.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from lace.base import b64a
from lace.columns import index, keys
from lace.columns.dictionary import Dictionary
from lace.columns.index import Index, Members, PairNumbers, RowSet
from lace.columns.keys import (
    choose,
    distinct_sorted,
    places_in,
    sort_keys,
    sort_rows,
)
from lace.engine import enclave as canonical_order
from lace.engine import factbase
from lace.engine import predicate_cache as ranks
from lace.engine import steps as frames
from lace.engine.budget import Cancellation, EvaluationCancelled
from lace.engine.enclave import Enclave, in_text_order
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.errors import LimitExceeded
from lace.policy.compile import compile_policy
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey
from tests.unit.engine.test_budget import ALICE, edges, evaluated, items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engine.factbase import Changes
    from lace.rules.program import CheckedProgram

Fact = tuple[str, ...]
SHORT = 64
"""Rows of a stretch in these tests."""


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AT_ONCE", SHORT)
    monkeypatch.setattr(keys, "_SAMPLED", 8)
    monkeypatch.setattr(keys, "_CACHED", 8)
    monkeypatch.setattr(index, "_MOST_MERGED", 4 * SHORT)
    monkeypatch.setattr(index, "_MOST_NUMBERED", 4 * SHORT)
    monkeypatch.setattr(frames, "MAX_FRAME_ROWS", SHORT)


class Looks(Cancellation):
    """Counts the looks, and the rows of the longest operation between two of them."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.count = self.rows = self.longest = 0
        self._most = most

    def check(self) -> None:
        self.count += 1
        self.longest = max(self.longest, self.rows)
        self.rows = 0
        if self._most is not None and self.count > self._most:
            self.cancel()
        super().check()

    def again(self, most: int | None = None) -> None:
        """Count from now on, and cancel after this number of looks."""
        self._is_cancelled = False
        self.count = self.rows = self.longest = 0
        self._most = most

    def note(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note how many rows are sorted, numbered and looked for."""
        for name, at in (("argsort", 0), ("sort", 0), ("searchsorted", 1), ("unique", 0)):
            monkeypatch.setattr(np, name, self._noting(getattr(np, name), at))

    def _noting(self, done: Any, at: int) -> Any:
        def noted(*args: Any, **named: Any) -> Any:
            self.rows = max(self.rows, np.size(args[at]))
            return done(*args, **named)

        return noted


@given(some.lists(some.integers(-(2**60), 2**60) | some.integers(0, 5), max_size=700))
def test_rows_are_sorted_in_runs(values: list[int]) -> None:
    column = np.array(values, np.int64)
    looks = Looks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "AT_ONCE", SHORT)
        order, ordered = sort_rows(column, looks.check)
    assert ordered.tolist() == sorted(values) == column[order].tolist()
    assert sorted(order.tolist()) == list(range(len(values)))
    assert looks.count >= (2 * (len(values) // SHORT) if len(values) > SHORT else 0)


@given(some.lists(some.integers(-(2**60), 2**60) | some.integers(0, 5), max_size=700))
def test_keys_are_sorted_and_chosen_in_runs(values: list[int]) -> None:
    column = np.array(values, np.int64)
    for sort, expected in ((sort_keys, sorted(values)), (distinct_sorted, sorted(set(values)))):
        looks = Looks()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "AT_ONCE", SHORT)
            assert sort(column, looks.check).tolist() == expected
        assert looks.count >= (len(values) // SHORT if len(values) > SHORT else 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "AT_ONCE", SHORT)
        chosen = choose([column, -column], column % 3 == 1)
    kept = [value for value in values if value % 3 == 1]
    assert [each.tolist() for each in chosen] == [kept, [-value for value in kept]]


@given(
    some.lists(some.integers(0, 90), max_size=100).map(sorted),
    some.lists(some.integers(-5, 100), max_size=100),
)
def test_places_among_sorted_keys(ordered: list[int], probe: list[int]) -> None:
    among, looked = np.array(ordered, np.int64), np.array(probe, np.int64)
    assert places_in(among, looked).tolist() == np.searchsorted(among, looked).tolist()
    found = places_in(among, looked, "right").tolist()
    assert found == np.searchsorted(among, looked, "right").tolist()


@given(some.lists(some.tuples(*[some.integers(0, 6)] * 5), max_size=400), some.integers(1, 90))
def test_a_set_of_rows_whose_runs_are_not_merged_for_ever(
    rows: list[tuple[int, ...]], step: int
) -> None:
    found = RowSet(5, 2**20)  # a row is no single number
    numbers = PairNumbers(2**20)
    known: set[tuple[int, ...]] = set()
    pairs: dict[tuple[int, int], int] = {}
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        columns = [np.array(column, np.int32) for column in zip(*part, strict=True)]
        assert found.add(columns, len(part))[1] == len(set(part) - known)
        known |= set(part)
        left = columns[0].astype(np.int64)
        given_numbers = numbers.number(left, columns[1], add=True).tolist()
        for pair, number in zip(((row[0], row[1]) for row in part), given_numbers, strict=True):
            assert pairs.setdefault(pair, number) == number
    assert found.rows == len(known)
    assert sorted(pairs.values()) == list(range(len(pairs)))


def test_an_index_and_a_set_of_values_are_made_in_stretches() -> None:
    rows = 20 * SHORT
    column = (np.arange(rows, dtype=np.int32) * 7919) % rows
    for columns in ([column], [column // 3], [column // 3, column], [column // 3, column, column]):
        looks = Looks()
        made = Index(columns, rows, 2**24 if len(columns) > 1 else rows, looks.check)
        assert looks.count >= 20
        assert (made.find(columns) >= 0).all()
    looks = Looks()
    assert Members(column, rows, looks.check).count == rows
    assert looks.count >= 20


KINDS: dict[str, tuple[str, Sequence[tuple[str, ...]]]] = {
    "indexes": ("A(X,Z) :- Edge(X,Y), Edge(Y,Z).", edges(700, 2000)),
    "negations": ("A(X) :- Edge(X,Y), not Edge(Y,X).", edges(700, 2000)),
    "sets": ("A(X,Y) :- Item(X), Item(Y).\nB(X) :- A(X,Y), X != Y.", items(90)),
    "long keys": (
        "A(X) :- E(X,Y,Z,U,V), F(Y,X,Z,U,V).\nB(V,U,Z,Y,X) :- E(X,Y,Z,U,V).\n"
        "B(X,Y,Z,U,V) :- F(X,Y,Z,U,V).",
        [
            (name, *(f"{at * k % 311}" for k in (7, 11, 13, 17)), f"{at}")
            for at in range(1500)
            for name in "EF"
        ]
        + [("Item", f"i{at}") for at in range(9000)],
    ),
    "comparisons": ("A(X) :- Edge(X,Y), LexCompare(X,'<',Y).", edges(700, 2000)),
    "counts": ("A(X) :- Edge(X,_), Cardinality(Edge(X,_),'>','2').", edges(700, 2000)),
    "passes": ("P(X,Y) :- Edge(X,Y).\nP(X,Z) :- P(X,Y), Edge(Y,Z).", edges(60, 70)),
}


@pytest.mark.requirement("030-119")
@pytest.mark.parametrize("kind", KINDS)
def test_no_operation_goes_on_for_long_without_a_look(kind: str) -> None:
    rules, facts = KINDS[kind]
    expected, _ = evaluated(rules, facts)
    looks = Looks()
    with pytest.MonkeyPatch.context() as patch:
        found, _ = evaluated(rules, facts, supervisor=looks, began=lambda: looks.note(patch))
    for key in expected.derived:
        assert sorted(found.texts(key)) == sorted(expected.texts(key))
    assert looks.longest <= 5 * SHORT
    # Wherever it is cancelled, it ends.
    for most in range(0, looks.count, max(1, looks.count // 50)):
        with pytest.raises(EvaluationCancelled):
            evaluated(rules, facts, supervisor=Looks(most))


def test_stretches_do_not_change_the_work() -> None:
    for rules, facts in KINDS.values():
        short = evaluated(rules, facts)[1].work
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "AT_ONCE", 2**19)
            assert evaluated(rules, facts)[1].work == short


def test_claims_are_numbered_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """If that is cancelled, none of them is there, and they can come again."""
    monkeypatch.setattr(factbase, "_AT_ONCE", 100)
    facts = edges(700, 2000)
    whole = FactBase(max_value_bytes=1024)
    looks = Looks()
    assert whole.change(facts, look=looks.check)
    assert looks.count >= 2 * 2000 // 100
    key = PredicateKey("Edge", 2)
    base = FactBase(max_value_bytes=1024)
    for most in (0, 3, looks.count - 1):
        with pytest.raises(EvaluationCancelled):
            base.change(facts, look=Looks(most).check)
        assert key not in base.relations
    assert base.change(facts)
    rows = [
        sorted(each.dictionary.rows(each.relations[key].columns(), each.relations[key].rows))
        for each in (base, whole)
    ]
    assert rows[0] == rows[1] == sorted({fact[1:] for fact in facts})
    with pytest.raises(LimitExceeded):  # a value that is too long, in a later stretch
        base.change([*facts[:200], ("Edge", "x" * 2000, "y")])
    assert base.relations[key].rows == len(rows[0])


@pytest.mark.requirement("030-119")
def test_hashes_that_begin_alike_are_ordered_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can invent them; so their texts are put in order with looks, too."""
    monkeypatch.setattr(ranks, "_RUN", SHORT)
    monkeypatch.setattr(ranks, "_SAMPLED", 8)
    monkeypatch.setattr(canonical_order, "_PRINTED_AT_ONCE", SHORT)
    texts = [f"B.{b64a.encode(number.to_bytes(32))}.H3" for number in range(20 * SHORT)]
    mixed = random.Random(1).sample(texts, len(texts))
    dictionary = Dictionary()
    ids = dictionary.intern_all(mixed)
    looks = Looks()
    key = PredicateKey("Have", 1)
    made = in_text_order({key: ([ids], len(ids))}, {}, dictionary, len(dictionary), looks.check)
    assert dictionary.texts(made[key][0][0]) == texts
    assert looks.count >= 4 * 20


def claims(arity: int, first: int, last: int) -> list[Fact]:
    """Return some facts of one predicate, all different, in no order."""
    made = [
        ("F", *(f"{at * step % 997}" for step in (7, 11, 13, 17)[: arity - 1]), f"{at}")
        for at in range(first, last)
    ]
    return random.Random(1).sample(made, len(made))


# What comes, and what goes, of a base that has the first 1300.
CHANGES = {
    "come": ((800, 2000), (0, 0)),
    "go": ((0, 0), (300, 1500)),
    "come and go": ((600, 2000), (200, 900)),
}


class Changing:
    """A base that changes, and what it holds after that."""

    def __init__(self, arity: int, kind: str) -> None:
        self.key = PredicateKey("F", arity)
        self.base = FactBase(max_value_bytes=1024)
        self.before = set(claims(arity, 0, 1300))
        # Others make numbers large: a row of three is no single number then.
        self.base.change([*items(2000), *self.before])
        self.come, self.gone = (claims(arity, *each) for each in CHANGES[kind])
        self.after = (self.before - set(self.gone)) | set(self.come)

    @property
    def facts(self) -> set[Fact]:
        found = self.base.relations[self.key]
        rows = self.base.dictionary.rows(found.columns(), found.rows)
        assert len(set(rows)) == len(rows) == found.rows
        return {("F", *row) for row in rows}

    def difference(self, changes: Changes) -> tuple[set[Fact], set[Fact]]:
        """Return what came and what went."""
        come, gone = (
            {
                ("F", *row)
                for key, found in each.items()
                for row in self.base.dictionary.rows(found.columns(), found.rows)
            }
            for each in (changes.added, changes.removed)
        )
        return come, gone


@pytest.fixture(params=["flags", "runs"])
def _sets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_LARGEST_KEY", 2**30)
    if request.param == "runs":
        monkeypatch.setattr(index, "_MAX_FLAGS", 0)
    else:
        monkeypatch.setattr(index, "_LEAST_SHARE", 2**20)


@pytest.mark.requirement("030-119")
@pytest.mark.usefixtures("_sets")
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("arity", [1, 2, 3, 5])
def test_a_base_changes_its_sets_in_stretches(arity: int, kind: str) -> None:
    for has_sets in (True, False):
        changing = Changing(arity, kind)
        base, looks = changing.base, Looks()
        come, gone = base.intern(changing.come), base.intern(changing.gone)
        if not has_sets:
            base._sets.clear()
        with pytest.MonkeyPatch.context() as patch:
            looks.note(patch)
            made = base.change_columns(come, gone, looks.check)
            looks.check()
        assert changing.facts == changing.after
        assert changing.difference(made) == (
            changing.after - changing.before,
            changing.before - changing.after,
        )
        assert looks.count >= 1000 // SHORT
        assert looks.longest <= 5 * SHORT


@pytest.mark.requirement("030-119")
@pytest.mark.usefixtures("_sets")
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("arity", [1, 2, 3, 5])
def test_a_change_that_is_cancelled_has_changed_nothing(arity: int, kind: str) -> None:
    changing, looks = Changing(arity, kind), Looks()
    Changing(arity, kind).base.change(changing.come, changing.gone, looks.check)
    base = changing.base
    held = dict(base.relations)
    for most in range(0, looks.count, max(1, looks.count // 20)):
        with pytest.raises(EvaluationCancelled):
            base.change(changing.come, changing.gone, Looks(most).check)
        assert base.relations == held
        assert changing.facts == changing.before
        # The set that is made again knows what is there, and nothing else.
        assert not base.change(sorted(changing.before)[:70], claims(arity, 5000, 5070))
    made = base.change(changing.come, changing.gone)
    assert changing.facts == changing.after
    assert changing.difference(made)[0] == changing.after - changing.before
    assert changing.difference(base.change(sorted(changing.before), sorted(changing.after))) == (
        changing.before - changing.after,
        changing.after - changing.before,
    )


PAIRS = "A(X) :- F(X,Y), not F(Y,X).\nB(X,Z) :- F(X,Y), F(Y,Z)."


def pairs_program() -> CheckedProgram:
    return check_source(PAIRS, profile=QUERY.with_base([("F", 2)]))


def answers(base: FactBase, program: CheckedProgram) -> list[list[tuple[str, ...]]]:
    made = EvaluationSession(base).evaluate(program, program.derived)
    return [sorted(made.texts(key)) for key in program.derived]


@pytest.mark.requirement("030-119")
@pytest.mark.parametrize("kind", CHANGES)
def test_an_enclave_changes_in_stretches(kind: str) -> None:
    """Wherever it is cancelled, the change can come again, and the answers are the same."""
    changing, looks, program = Changing(2, kind), Looks(), pairs_program()
    base, key = changing.base, changing.key
    relations = {key: base.relations[key]}

    def ask(enclave: Enclave) -> list[list[tuple[str, ...]]]:
        made = enclave.evaluate(program.derived)
        return [sorted(made.texts(each)) for each in program.derived]

    enclave = Enclave(program, relations, {}, base, supervisor=looks)
    before = ask(enclave)
    come, gone = base.intern(changing.come), base.intern(changing.gone)
    looks.again()
    with pytest.MonkeyPatch.context() as patch:
        looks.note(patch)
        enclave.change_columns(come, gone)
        looks.check()
    count = looks.count
    assert looks.longest <= 5 * SHORT
    after = ask(enclave)
    assert after != before
    for most in range(0, count, max(1, count // 15)):
        looks.again()
        enclave = Enclave(program, relations, {}, base, supervisor=looks)
        assert ask(enclave) == before
        looks.again(most)
        with pytest.raises(EvaluationCancelled):
            enclave.change_columns(come, gone)
        looks.again()
        enclave.change_columns(come, gone)
        assert ask(enclave) == after
    base.change(changing.come, changing.gone)
    assert answers(base, program) == after


ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."


def enforced(looks: Looks, records: int) -> Enforcement:
    pair = operand_of(ALL, 0), operand_of(ALL, 1)
    opened = exposure_of("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", anyone=True)
    executable = compile_policy(make_plan(*pair), pair, index=0, exposures=[opened], viewer=ALICE)
    base = FactBase(max_value_bytes=1024)
    base.change([("Have", f"r{at}") for at in range(records)])
    return Enforcement(executable, base, supervisor=looks)


@pytest.mark.requirement("030-119")
def test_a_policy_takes_in_changes_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is cancelled, what is asked next is answered as if it had not been."""
    monkeypatch.setattr(index, "_SMALL", SHORT)
    looks = Looks()
    advertised = [("Advertised", f"a{at}", ALICE) for at in range(12 * SHORT)]
    come = [("Have", f"r{at}") for at in range(600, 900)]
    gone = [("Have", f"r{at}") for at in range(350)]

    def change(enforcement: Enforcement) -> tuple[frozenset[str], frozenset[str]]:
        enforcement.change_public(advertised[400:], advertised[:300])
        enforcement.update(enforcement.base.change(come, gone, looks.check))
        made = enforcement.evaluate()
        return made.may_send, made.may_request

    def begun() -> Enforcement:
        looks.again()
        made = enforced(looks, 600)
        made.set_public(advertised[:400])
        assert len(made.evaluate().may_request) == 400
        return made

    enforcement = begun()
    looks.again()
    with pytest.MonkeyPatch.context() as patch:
        looks.note(patch)
        expected = change(enforcement)
    count = looks.count
    assert looks.longest <= 5 * SHORT
    assert len(expected[0]) == 550
    assert len(expected[1]) == len(advertised) - 300
    for most in range(0, count, max(1, count // 15)):
        enforcement = begun()
        looks.again(most)
        with pytest.raises(EvaluationCancelled):
            change(enforcement)
        looks.again()
        assert change(enforcement) == expected


@pytest.mark.requirement("030-119")
def test_a_policy_goes_on_with_another_base_in_stretches() -> None:
    """If that is cancelled, it stays with the one it has, and loses nothing of what is public."""
    looks = Looks()
    enforcement = enforced(looks, 10)
    enforcement.set_public([("Advertised", f"a{at}", ALICE) for at in range(12 * SHORT)])
    other = enforced(Looks(), 20).base
    looks.again(5)
    with pytest.raises(EvaluationCancelled):
        enforcement.take_base(other)
    looks.again()
    assert len(enforcement.evaluate().may_send) == 10
    enforcement.take_base(other)
    made = enforcement.evaluate()
    assert (len(made.may_send), len(made.may_request)) == (20, 12 * SHORT)
