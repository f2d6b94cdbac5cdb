"""Sets of rows and indexes, against plain Python sets, for few and for very many numbers."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.columns.index import Index, Members, RowSet
from lace.columns.keys import distinct_ids, distinct_sorted, radix_fits

Row = tuple[int, ...]
# All rows fit into flags; into one number each; into numbers pair by pair.
SIZES = st.sampled_from([5, 4096, 2**21, 2**31 - 2])


def columns(rows: list[Row], arity: int) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return [np.array([row[at] for row in rows], np.int32) for at in range(arity)]


def rows_of(made: tuple[tuple[object, ...], int]) -> list[Row]:
    each, count = made
    listed = [column.tolist() for column in each]  # type: ignore[attr-defined] # arrays
    return list(zip(*listed, strict=True)) if listed else [()] * count


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int, list[list[Row]]]:
    size, arity = draw(SIZES), draw(st.integers(0, 5))
    values = st.one_of(st.integers(0, min(size, 4) - 1), st.integers(max(0, size - 3), size - 1))
    row = st.tuples(*(values for _ in range(arity)))
    return size, arity, draw(st.lists(st.lists(row, max_size=8), max_size=10))


@pytest.mark.property
@given(batches(), st.data())
def test_row_sets(case: tuple[int, int, list[list[Row]]], data: st.DataObject) -> None:
    size, arity, groups = case
    rows = RowSet(arity, size, may_flag=data.draw(st.booleans()) and size**arity <= 2**24)
    known: set[Row] = set()
    for group in groups:
        fresh = rows_of(rows.add(columns(group, arity), len(group)))
        assert sorted(fresh) == sorted(set(group) - known)
        known |= set(group)
        assert rows.rows == len(known)
        if data.draw(st.booleans()) and known:
            gone = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True))
            rows.discard(columns(gone, arity), len(gone))
            known -= set(gone)
        asked = [*group, *sorted(known)]
        found = rows.contains(columns(asked, arity), len(asked)).tolist()
        assert found == [row in known for row in asked]


@pytest.mark.property
@given(batches(), st.data())
def test_indexes(case: tuple[int, int, list[list[Row]]], data: st.DataObject) -> None:
    size, arity, groups = case
    rows = [row for group in groups for row in group]
    if not rows or not arity:
        return
    index = Index(columns(rows, arity), len(rows), size)
    asked = [*rows, tuple(0 for _ in range(arity))]
    by_row: dict[Row, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        by_row[row].append(number)
    assert index.keys == len(by_row)
    assert index.is_unique == (len(by_row) == len(rows))
    for row, slot in zip(asked, index.find(columns(asked, arity)).tolist(), strict=True):
        if slot < 0:
            assert row not in by_row
            continue
        positions = np.arange(index.starts[slot], index.starts[slot + 1])
        assert sorted(index.rows_at(positions).tolist()) == by_row[row]


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_a_busy_index_becomes_a_table(size: int) -> None:
    values = np.arange(0, 9_000, 3, dtype=np.int32)
    index = Index([values[::-1].copy()], len(values), size)
    probe = np.arange(size, dtype=np.int32)
    first, again = index.find([probe[:10_000]]), index.find([probe[:10_000]])
    everything = index.find([probe])
    assert first.tolist() == again.tolist() == everything[:10_000].tolist()
    assert np.flatnonzero(everything >= 0).tolist() == values.tolist()


@pytest.mark.property
@given(st.lists(st.integers(0, 999)), st.sampled_from([1000, 10**9]))
def test_members(values: list[int], size: int) -> None:
    column = np.array(values, np.int32)
    if not values:
        return
    members = Members(column, size)
    probe = np.arange(1000, dtype=np.int32)
    assert np.flatnonzero(members.mask(probe)).tolist() == sorted(set(values))
    assert members.count == len(set(values))
    if size < 10**6:
        assert distinct_ids(column, size).tolist() == sorted(set(values))
    assert distinct_sorted(column).tolist() == sorted(set(values))


def test_which_rows_are_numbers() -> None:
    assert radix_fits(2**30, 2)
    assert not radix_fits(2**31 - 2, 3)
    assert radix_fits(1, 500) is False  # a size of one still takes a digit


def test_flags_come_with_rows_or_with_additions() -> None:
    few = RowSet(2, 2000, may_flag=True)
    assert few.flag_bytes == 2000**2  # may come to take
    for number in range(7):
        few.add(columns([(number, number)], 2), 1)
        assert few._flags is None
    few.add(columns([(7, 7)], 2), 1)
    assert few._flags is not None
    assert np.count_nonzero(few._flags) == few.rows == 8
    many = RowSet(2, 2000)
    assert many.flag_bytes == 0
    many.add(columns([(number, 0) for number in range(2000)], 2), 2000)
    many.add(columns([(number, 1) for number in range(2000)], 2), 2000)
    assert many.flag_bytes == 2000**2
