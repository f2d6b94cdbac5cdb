"""Spans of leaves come together to the root that is computed at once."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from lace.base import b64a
from lace.exchange.merkle import EMPTY_ROOT, LeafSpan, Node, as_digests, root_of, root_of_nodes

VECTORS = Path(__file__).parents[2] / "vectors"
SIZES = (*range(20), 31, 32, 33, 63, 64, 65, 200, 1000, 1023, 1024, 1025, 4096, 4097)


def sorted_digests(count: int) -> list[bytes]:
    source = random.Random(count)
    return sorted(source.randbytes(32) for _ in range(count))


@pytest.mark.requirement("050-163", "050-164", "050-165", "050-166", "050-167", "050-168")
def test_root_vectors() -> None:
    for vector in json.loads((VECTORS / "merkle.json").read_text("utf-8")):
        span = LeafSpan()
        span.add(as_digests(sorted(bytes.fromhex(text) for text in vector["digests"])))
        assert b64a.encode(span.root()) == vector["root"]


@pytest.mark.parametrize("count", SIZES)
def test_spans_cut_anywhere_have_the_root_of_the_whole(count: int) -> None:
    digests = sorted_digests(count)
    wanted = root_of(as_digests(digests))
    source = random.Random(count)
    for parts in (1, 2, 3, 7):
        cuts = sorted(source.randrange(count + 1) for _ in range(parts - 1))
        nodes: list[Node] = []
        for first, last in pairwise([0, *cuts, count]):
            span = LeafSpan(first)
            middle = source.randrange(first, last + 1)
            span.add(as_digests(digests[first:middle]))
            span.add(as_digests(digests[middle:last]))
            assert len(span) == last - first
            assert len(span.nodes) <= 2 * max(1, len(span).bit_length())
            nodes += span.nodes
        assert root_of_nodes(nodes) == wanted


def test_one_by_one() -> None:
    digests = sorted_digests(37)
    span = LeafSpan()
    for number, each in enumerate(digests, 1):
        span.add(as_digests([each]))
        assert span.root() == root_of(as_digests(digests[:number]))


def test_what_is_missing_is_told() -> None:
    span = LeafSpan(4)
    span.add(as_digests(sorted_digests(4)))
    with pytest.raises(ValueError, match="begins at leaf 4, not at 0"):
        root_of_nodes(span.nodes)
    first = LeafSpan()
    first.add(as_digests(sorted_digests(8)))
    with pytest.raises(ValueError, match="begins at leaf 4, not at 8"):
        root_of_nodes([*first.nodes, *span.nodes])
    assert root_of_nodes([]) == EMPTY_ROOT
