"""Built-in tests over columns: the same answers as their meaning, however many rows there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lace.engines.budget import Budget, Statistics
from lace.engines.embedded.dictionary import Dictionary
from lace.engines.embedded.ranks import Ranks
from lace.engines.embedded.shapes import Values, shape_mask
from lace.engines.embedded.verdicts import Verdicts
from lace.rules.builtins import int_compare, lex_compare, text_shape
from lace.rules.limits import PEER_LIMITS
from lace.rules.program import check_source
from lace.rules.syntax import Constant, IntCompare, LexCompare, TextShape, Variable

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
