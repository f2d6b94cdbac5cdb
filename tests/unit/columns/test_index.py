"""Sets of values: whatever form they take, and whatever was taken out of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.columns import index as index_module
from lace.columns.index import Members

SIZE = 40


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


@given(
    st.sets(st.integers(0, SIZE - 1)),
    st.lists(st.sets(st.integers(0, SIZE - 1)), max_size=5),
    st.sampled_from([1, 6, 4096]),
    st.lists(st.integers(0, SIZE - 1), max_size=30),
)
def test_a_set_without_some_is_another(
    values: set[int], goings: list[set[int]], small: int, asked: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_SMALL", small)
        kept = [(Members(array(sorted(values)), SIZE), frozenset(values))]
        for going in goings:
            members, left = kept[-1]
            gone = left & going
            kept.append((members.without(array(sorted(gone))), left - gone))
        for members, wanted in kept:  # taking out of one leaves the others as they were
            assert members.count == len(wanted)
            assert members.mask(array(asked)).tolist() == [value in wanted for value in asked]
