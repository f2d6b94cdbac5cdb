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
from lace.columns import keys
from lace.columns.dictionary import Dictionary
from lace.columns.keys import Index, Members, PairNumbers, RowSet, places_in, sort_rows
from lace.engine import factbase
from lace.engine import predicate_cache as ranks
from lace.engine import steps as frames
from lace.engine.budget import Cancellation, EvaluationCancelled
from lace.engine.enclave import in_text_order
from lace.engine.factbase import FactBase
from lace.errors import LimitExceeded
from lace.rules.syntax import PredicateKey
from tests.unit.engine.test_budget import edges, evaluated, items

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORT = 64
"""Rows of a stretch in these tests."""


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AT_ONCE", SHORT)
    monkeypatch.setattr(keys, "_SAMPLED", 8)
    monkeypatch.setattr(keys, "_CACHED", 8)
    monkeypatch.setattr(keys, "_MOST_MERGED", 4 * SHORT)
    monkeypatch.setattr(keys, "_MOST_NUMBERED", 4 * SHORT)
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
        index = Index(columns, rows, 2**24 if len(columns) > 1 else rows, looks.check)
        assert looks.count >= 20
        assert (index.find(columns) >= 0).all()
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
    texts = [f"B.{b64a.encode(number.to_bytes(32))}.H3" for number in range(20 * SHORT)]
    mixed = random.Random(1).sample(texts, len(texts))
    dictionary = Dictionary()
    ids = dictionary.intern_all(mixed)
    looks = Looks()
    key = PredicateKey("Have", 1)
    made = in_text_order({key: ([ids], len(ids))}, {}, dictionary, len(dictionary), looks.check)
    assert dictionary.texts(made[key][0][0]) == texts
    assert looks.count >= 3 * 20
