"""Built-in tests over columns: the same answers as their meaning, however many rows there are."""

from __future__ import annotations

import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.columns.dictionary import Dictionary
from lace.engine import predicate_cache as ranks_module
from lace.engine.budget import Budget, Cancellation, EvaluationCancelled, Statistics
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.engine.predicate_cache import Ranks, Values, Verdicts, in_order, shape_mask, text_bytes
from lace.rules.builtins import int_compare, lex_compare, text_shape
from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import Constant, IntCompare, LexCompare, PredicateKey, TextShape, Variable

TEXTS = st.text(alphabet="ab./\U0010ffff\ud7ff", max_size=5)
NUMBERS = st.one_of(
    st.integers(-30, 30).map(str),
    st.sampled_from(["-0", "007", "+1", "x", "", "-", "9" * 40, "-" + "9" * 40]),
)
CHECKED = check_source("A(X) :- Have(X).", limits=PEER_LIMITS)


def budget() -> Budget:
    return Budget(CHECKED, Statistics())


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1), st.sampled_from(["", ".", "./", "b"]))
def test_shapes_of_columns(rows: list[tuple[str, str, str]], delimiters: str) -> None:
    columns = []
    for column in zip(*rows, strict=True):
        texts = sorted(set(column))
        columns.append(Values(texts, np.array([texts.index(each) for each in column])))
    text, start, end = columns
    found = shape_mask(text, start, delimiters, end, budget())
    assert found.tolist() == [text_shape(one, two, delimiters, three) for one, two, three in rows]


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=12))
def test_ranks_of_texts_that_come_up_later(batches: list[list[str]]) -> None:
    check_ranks(batches, LexCompare)


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=12))
def test_ranks_of_numbers_that_come_up_later(batches: list[list[str]]) -> None:
    check_ranks(batches, IntCompare)


def check_ranks(batches: list[list[str]], kind: type[LexCompare | IntCompare]) -> None:
    compare = lex_compare if kind is LexCompare else int_compare
    dictionary = Dictionary()
    ranks = Ranks(dictionary, kind)
    many = [f"{number}" for number in range(100, 260)]
    known: list[str] = []
    for batch in [many, *batches]:
        known += batch
        ids = dictionary.intern_all(batch)
        ranks.of(ids, budget=budget())
    texts = sorted(set(known))[:40] + [each for batch in batches for each in batch]
    (found,) = ranks.of(dictionary.intern_all(texts), budget=budget())
    for left, one in zip(texts, found.tolist(), strict=True):
        for right, other in zip(texts, found.tolist(), strict=True):
            assert (one >= 0 and other >= 0 and one < other) == compare(left, "<", right)
            assert (one >= 0 and other >= 0 and one <= other) == compare(left, "<=", right)


def test_ranks_hold_when_all_new_texts_go_to_one_place() -> None:
    dictionary = Dictionary()
    ranks = Ranks(dictionary, LexCompare)
    texts = [f"{number:04}" for number in range(200)]
    ranks.of(dictionary.intern_all(texts), budget=budget())
    for number in range(300):
        texts.append("0100" + "0" * (number + 1))
        ranks.of(dictionary.intern_all(texts[-1:]), budget=budget())
    (found,) = ranks.of(dictionary.intern_all(texts), budget=budget())
    assert [text for _, text in sorted(zip(found.tolist(), texts, strict=True))] == sorted(texts)
    assert len(set(found.tolist())) == len(texts)


@pytest.mark.requirement("030-67")
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 400), st.sampled_from(["", "0", "00"]), st.booleans()),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=10,
    )
)
def test_equal_numbers_keep_equal_ranks_when_there_is_no_room_left(
    batches: list[list[tuple[int, str, bool]]],
) -> None:
    far = 10**30
    with mock.patch.object(ranks_module, "_SCALE", 2**9):
        dictionary = Dictionary()
        ranks = Ranks(dictionary, IntCompare)
        texts = [str(number * far) for number in range(200)]
        ranks.of(dictionary.intern_all(texts), budget=budget())
        lowest = far
        for batch in batches:
            new = []
            for number, zeros, is_bisected in batch:
                lowest //= 2 if is_bisected else 1
                new.append(zeros + str(lowest if is_bisected else number * far))
            texts += new
            ranks.of(dictionary.intern_all(new), budget=budget())
        (found,) = ranks.of(dictionary.intern_all(texts), budget=budget())
        numbers = sorted(set(map(int, texts)))
        marks = dict(zip(map(int, texts), found.tolist(), strict=True))
        assert [marks[int(text)] for text in texts] == found.tolist()
        assert [number for _, number in sorted((marks[each], each) for each in numbers)] == numbers
        assert len(set(marks.values())) == len(numbers)


@pytest.mark.requirement("030-67")
def test_a_session_compares_numbers_as_a_whole_evaluation_does() -> None:
    rules = "A(X,Y) :- N(X), M(Y), IntCompare(X,'<=',Y), IntCompare(Y,'<=',X)."
    program = check_source(rules, profile=QUERY.with_base({("N", 1), ("M", 1)}))
    key = PredicateKey("A", 2)
    base = FactBase(max_value_bytes=1024)
    far = 10**30
    base.change([("N", str(number * far)) for number in range(600)])
    session = EvaluationSession(base)
    session.evaluate(program, program.derived)
    for at in range(40):
        session.change([("N", str(far >> (at + 1))), ("M", f"00{(at + 5) * far}")])
        found = session.evaluate(program, program.derived).texts(key)
        whole = EvaluationSession(base).evaluate(program, program.derived).texts(key)
        assert sorted(found) == sorted(whole)
        assert len(list(whole)) == at + 1


class Stops(Cancellation):
    """Lets a number of checks pass."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    def check(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.cancel()
        super().check()


@pytest.mark.parametrize("few", [False, True])
def test_ranks_that_were_not_finished_are_given_once(few: bool) -> None:
    dictionary = Dictionary()
    ranks = Ranks(dictionary, IntCompare)
    known = dictionary.intern_all([str(number) for number in range(0, 2000, 2)])
    ranks.of(known, budget=budget())
    count = 20 if few else 900
    new = dictionary.intern_all([f"0{number}" for number in range(count)])
    stopped = 0
    for checks in range(1000):
        try:
            ranks.of(new, budget=Budget(CHECKED, Statistics(), supervisor=Stops(checks)))
        except EvaluationCancelled:
            stopped += 1
            assert not ranks.has(new[:1])
        else:
            break
    assert stopped > 3
    size = len(known) + len(new)
    assert ranks.size == 4 * (len(dictionary) + size + 2 * (1000 + count // 2))


@given(st.lists(st.integers(0, 40), max_size=80))
def test_texts_are_sorted_in_runs(numbers: list[int]) -> None:
    texts = [str(number) for number in numbers]
    with (
        mock.patch.object(ranks_module, "_RUN", 8),
        mock.patch.object(ranks_module, "_SAMPLED", 2),
    ):
        found = in_order(texts, list(range(len(texts))), budget())
    assert sorted(found) == list(range(len(texts)))
    assert [texts[at] for at in found] == sorted(texts)


def test_sorting_looks_at_the_budget_after_each_run() -> None:
    count = 300
    texts = [f"{number * 7919 % count:04}" for number in range(count)]
    with (
        mock.patch.object(ranks_module, "_RUN", 16),
        mock.patch.object(ranks_module, "_SAMPLED", 2),
        mock.patch.object(Budget, "check") as looked,
    ):
        in_order(texts, list(range(count)), budget())
    assert looked.call_count > 3 * count // 32


@pytest.mark.parametrize("character", ["a", "\u0101", "\u20ac", "\U0001f600"])
def test_texts_count_for_the_width_of_their_characters(character: str) -> None:
    texts = [character * 1000 + str(number) for number in range(10)]
    real = sum(map(sys.getsizeof, texts))
    assert real <= text_bytes(texts) <= real * 1.1


@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8),
    st.sampled_from(["", "./", "]^\\-"]),
    st.booleans(),
)
def test_a_test_is_the_same_for_few_rows_and_for_many(
    pairs: list[tuple[str, str]], delimiters: str, is_one: bool
) -> None:
    dictionary = Dictionary()
    columns = {
        name: dictionary.intern_all([pair[at] for pair in pairs] * 100)
        for at, name in enumerate("XY")
    }
    end = Constant("") if is_one else Variable("Y")
    start = Constant("a") if is_one else Constant("")
    test = TextShape(Variable("X"), start, Constant(delimiters), end)
    verdicts = Verdicts(dictionary, len(dictionary))
    expected = [
        text_shape(one, "a" if is_one else "", delimiters, "" if is_one else two)
        for one, two in pairs
    ]
    few = {name: column[: len(pairs)] for name, column in columns.items()}
    assert verdicts.mask(test, few, len(pairs), budget()).tolist() == expected
    many = verdicts.mask(test, columns, 100 * len(pairs), budget())
    assert many.tolist() == expected * 100
