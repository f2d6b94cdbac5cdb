"""Roots that two sides in one process compute of the same set: once, and never another one."""

from __future__ import annotations

import os
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base.digest import digest
from lace.exchange import merkle
from lace.exchange import merkle as tree
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.merkle import KnownRoots, Tree, as_digests, known_root_of, leaves_of, root_of
from tests.unit.exchange.test_partitions import record


def digests(count: int) -> merkle.Digests:
    return as_digests([os.urandom(32) for _ in range(count)])


def unneeded() -> bytes:
    raise AssertionError("the root was known")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "_MANY", 10)


@pytest.mark.requirement("050-168")
def test_a_root_is_computed_once() -> None:
    rows, known = digests(20), KnownRoots()
    with known.used():
        assert known_root_of(rows, lambda: root_of(rows)) == root_of(rows)
        assert known_root_of(rows.copy(), unneeded) == root_of(rows)


@pytest.mark.parametrize("change", ["another", "one less", "one twice"])
def test_another_set_has_another_root(change: str) -> None:
    rows, known = digests(20), KnownRoots()
    other = {
        "another": np.concatenate([rows[:-1], digests(1)]),
        "one less": rows[:-1],
        "one twice": np.concatenate([rows, rows[-1:]]),
    }[change]
    with known.used():
        before = known_root_of(rows, lambda: root_of(rows))
        after = known_root_of(other, lambda: root_of(other))
    assert after == root_of(other) != before


def test_what_one_link_knows_another_does_not() -> None:
    rows = digests(20)
    with KnownRoots().used():
        known_root_of(rows, lambda: root_of(rows))
    with pytest.raises(AssertionError):
        known_root_of(rows, unneeded)
    with KnownRoots().used(), pytest.raises(AssertionError):
        known_root_of(rows, unneeded)


def test_few_digests_and_many_roots_are_not_remembered() -> None:
    known = KnownRoots()
    with known.used():
        small = digests(9)
        known_root_of(small, lambda: root_of(small))
        assert not known._roots
        for _ in range(merkle._MOST_KNOWN + 5):
            rows = digests(10)
            known_root_of(rows, partial(root_of, rows))
    assert len(known._roots) == merkle._MOST_KNOWN


def test_sets_that_are_equal_have_one_root() -> None:
    source = random.Random(7)
    records = [record(source) for _ in range(64)]
    values = [os.urandom(32) for _ in records]
    whole = AdvertisementSet.of(records, values)
    grown = AdvertisementSet.of(records[:30], values[:30]).changed(records[30:], values[30:], [])
    known = KnownRoots()
    with known.used():
        assert whole.root("") == grown.root("")
    assert len(known._roots) == 1
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
