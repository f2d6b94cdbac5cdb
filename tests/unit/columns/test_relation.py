"""Relations: rows that come and go, whoever reads them in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lace.columns.index import RowSet
from lace.columns.relation import ColumnPart, Pattern, Relation

SIZE = 6
Row = tuple[int, ...]


def columns(rows: list[Row], arity: int) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return [np.array([row[at] for row in rows], np.int32) for at in range(arity)]


def rows_of(relation: Relation) -> list[Row]:
    made = [column.tolist() for column in relation.columns()]
    return sorted(zip(*made, strict=True))


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, list[tuple[bool, list[Row], bool]]]:
    """Steps: whether rows come or go, which, and whether somebody reads then."""
    arity = draw(st.integers(1, 3))
    row = st.tuples(*[st.integers(0, SIZE - 1)] * arity)
    step = st.tuples(st.booleans(), st.lists(row, max_size=12, unique=True), st.booleans())
    return arity, draw(st.lists(step, max_size=8))


@given(changes())
def test_rows_come_and_go(case: tuple[int, list[tuple[bool, list[Row], bool]]]) -> None:
    arity, steps = case
    relation, expected = Relation(arity), set[Row]()
    kept: list[tuple[Relation, list[Row]]] = []
    for comes, rows, is_read in steps:
        if comes:
            fresh = [row for row in rows if row not in expected]
            expected |= set(fresh)
            # Parts of their own: small ones would be merged.
            parts = (*relation.parts, ColumnPart(columns(fresh, arity), len(fresh)))
            relation = Relation(arity, parts)
        else:
            expected -= set(rows)
            gone = columns(rows, arity)
            relation = relation.without(RowSet.of(gone, len(rows), SIZE), gone)
        assert relation.rows == len(expected)
        kept.append((relation, sorted(expected)))
        if is_read:
            assert rows_of(relation) == sorted(expected)
            chosen, count = relation.matching(Pattern(((0, 1),)))
            assert count == len(chosen[0]) == sum(row[0] == 1 for row in expected)
    for earlier, wanted in kept:  # what was there at a moment stays
        assert rows_of(earlier.renumbered()) == rows_of(earlier) == wanted


def test_parts_that_lose_nothing_stay() -> None:
    first, second = columns([(3,), (1,)], 1), columns([(2,), (5,)], 1)
    relation = Relation(1, (ColumnPart(first, 2), ColumnPart(second, 2)))
    gone = columns([(5,), (4,)], 1)
    made = relation.without(RowSet.of(gone, 2, SIZE), gone)
    assert made.parts[0] is relation.parts[0]
    assert rows_of(made) == [(1,), (2,), (3,)]
    assert made.without(RowSet.of(gone, 2, SIZE), gone).parts == made.parts
    assert made.with_rows(gone, 2).rows == 5
