"""Merkle trees near one another: equal roots, and few hashes for a small change."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base.digest import digest
from lace.exchange import merkle
from lace.exchange import merkle as tree
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.merkle import Tree, as_digests, leaves_of, root_of
from tests.unit.exchange.test_partitions import record


def digests(count: int) -> merkle.Digests:
    return as_digests([os.urandom(32) for _ in range(count)])


def test_sets_that_are_equal_have_one_root() -> None:
    source = random.Random(7)
    records = [record(source) for _ in range(64)]
    values = [os.urandom(32) for _ in records]
    whole = AdvertisementSet.of(records, values)
    grown = AdvertisementSet.of(records[:30], values[:30]).changed(records[30:], values[30:], [])
    assert whole.root("") == grown.root("")
    assert AdvertisementSet.of(records, values).root("") == whole.root("")


@pytest.mark.property
@pytest.mark.requirement("050-168")
@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(0, 60), unique=True))
def test_a_tree_near_another_has_the_same_root(before: list[int], after: list[int]) -> None:
    values = [digest(number.to_bytes(2)) for number in range(61)]
    old, new = (as_digests([values[each] for each in chosen]) for chosen in (before, after))
    near = Tree(old, leaves_of(old))
    assert near.root == root_of(old)
    assert Tree(new, leaves_of(new), near).root == Tree(new, leaves_of(new)).root == root_of(new)


def test_a_tree_near_another_takes_few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    above = merkle.nodes_above

    def counted(level: bytes, pad: bytes = b"") -> bytes:
        made.append(len(level) // 64)
        return above(level, pad)

    monkeypatch.setattr(tree, "nodes_above", counted)
    rows = digests(4096)
    rows = rows[merkle.order_of(rows)]
    root = root_of(rows)
    made.clear()
    near = Tree(rows[:-1], leaves_of(rows[:-1]))
    assert sum(made) >= 4000
    made.clear()
    assert Tree(rows, leaves_of(rows), near).root == root
    assert sum(made) <= 13
