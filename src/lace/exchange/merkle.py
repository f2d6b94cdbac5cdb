"""Merkle trees and roots over advertisement record digests (050).

Leaves in the order of the digests, padded with the empty value to a power of two, are
paired from left to right. Roots of partitions do not combine to the root of the whole:
each is a tree of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.base.digest import DIGEST_BYTES, digest, digest_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


Digests = npt.NDArray[np.uint8]
"""Digests, a row each."""

_LEAF: Final = b"lace-advertisement-leaf/v1"
_NODE: Final = b"lace-advertisement-node/v1"
_AT_ONCE: Final = 1 << 12
"""Hashes that are made before they are put together: they stay in the processor's cache."""
_FEW: Final = 64
"""Up to this number of rows, prefixing the label row by row takes less time."""
EMPTY_ROOT: Final = digest(b"lace-advertisement-empty/v1")
"""The root of no records, and what leaves are padded with."""


def as_digests(values: Iterable[bytes]) -> Digests:
    """Return digests as rows."""
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, DIGEST_BYTES)


def leaves_of(digests: Digests) -> Digests:
    """Return the leaf of each digest."""
    made = np.empty((len(digests), DIGEST_BYTES), np.uint8)
    for start in range(0, len(digests), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        made[some] = as_digests(digest_each(_labelled(_LEAF, digests[some])))
    return made


def _labelled(label: bytes, rows: Digests) -> list[bytes]:
    """Return rows of bytes, each after a label, as they are hashed."""
    width = rows.shape[1]
    if len(rows) < _FEW:
        raw = rows.tobytes()
        return [label + raw[at : at + width] for at in range(0, len(raw), width)]
    start, size = len(label), len(label) + width
    made = np.empty((len(rows), size), np.uint8)
    made[:, :start] = np.frombuffer(label, np.uint8)
    made[:, start:] = rows
    found: list[bytes] = made.view(f"V{size}").ravel().tolist()
    return found


def order_of(digests: Digests) -> npt.NDArray[np.intp]:
    """Return the bytewise order of digests."""
    words = np.ascontiguousarray(digests).view(">u8")
    leading = words[:, 0].astype(np.uint64)
    order = np.argsort(leading)
    first = leading[order]
    if len(first) > 1 and bool((first[1:] == first[:-1]).any()):
        return np.lexsort(tuple(words[:, at] for at in range(3, -1, -1)))
    return order


def root_of(digests: Digests) -> bytes:
    """Return the root of digests in any order."""
    return root_of_leaves(digests, leaves_of(digests))


def root_of_leaves(digests: Digests, leaves: Digests) -> bytes:
    """Return the root of digests in any order, whose leaves are known."""
    count = len(digests)
    if count == 0:
        return EMPTY_ROOT
    if count == 1:
        return leaves.tobytes()
    order, pad = order_of(digests), EMPTY_ROOT
    level = b"".join(
        nodes_above(leaves[order[start : start + 2 * _AT_ONCE]].tobytes(), pad)
        for start in range(0, count, 2 * _AT_ONCE)
    )
    while len(level) > DIGEST_BYTES:
        pad = node_of(pad, pad)  # what a whole subtree of padding comes to
        level = nodes_above(level, pad)
    return level


def node_of(left: bytes, right: bytes) -> bytes:
    """Return the node above two others."""
    return digest(_NODE + left + right)


def nodes_above(level: bytes, pad: bytes = b"") -> bytes:
    """Return the nodes above those of a level, which is padded to pairs."""
    width = 2 * DIGEST_BYTES
    if len(level) % width:
        level += pad
    pairs = np.frombuffer(level, np.uint8).reshape(-1, width)
    return b"".join(
        b"".join(digest_each(_labelled(_NODE, pairs[start : start + _AT_ONCE])))
        for start in range(0, len(pairs), _AT_ONCE)
    )


def roots_without_one(leaves: Digests) -> Iterator[bytes]:
    """Yield the root that there would be without the first leaf, without the second, and so on.

    The leaves are in the order of their digests. Without one, those before it keep their
    places and those after it move by one: apart from the nodes above its place, all nodes
    belong to one of two trees.
    """
    raw = leaves.tobytes()
    still, moved = raw[:-DIGEST_BYTES], raw[DIGEST_BYTES:]
    following = _rows(moved)
    trees: list[tuple[list[bytes], list[bytes]]] = []
    pad = EMPTY_ROOT
    while len(still) > DIGEST_BYTES:
        trees.append((_rows(still), [*_rows(moved), pad]))
        still, moved = (nodes_above(level, pad) for level in (still, moved))
        pad = node_of(pad, pad)
    for gone, leaf in enumerate(following):
        place, node = gone, leaf
        for kept, shifted in trees:
            pair = (kept[place - 1], node) if place % 2 else (node, shifted[place + 1])
            node = node_of(*pair)
            place //= 2
        yield node
    yield still


def _rows(level: bytes) -> list[bytes]:
    return [level[at : at + DIGEST_BYTES] for at in range(0, len(level), DIGEST_BYTES)]


# -- The nodes of a Merkle tree, kept for the tree of a set that differs in little (050).
#
# Leaves are in the order of their digests. Where a record comes or goes, all leaves after it
# move by one, and all nodes above these are others; those before it stay. So a tree after a
# change takes half the hashes of a whole one on average, and those of the last records next
# to none.


class Tree:
    """Leaves in their order, and the nodes above them, level by level."""

    __slots__ = ("_levels",)

    def __init__(self, digests: Digests, leaves: Digests, near: Tree | None = None) -> None:
        level = leaves[order_of(digests)].tobytes() or EMPTY_ROOT
        self._levels: list[bytes] = [level]
        known: list[bytes] = [] if near is None else near._levels
        same = 0 if near is None else near._same_leaves(level)
        pad = EMPTY_ROOT
        while len(level) > DIGEST_BYTES:
            same //= 2
            height = len(self._levels)
            kept = known[height][: same * DIGEST_BYTES] if height < len(known) else b""
            level = kept + nodes_above(level[2 * len(kept) :], pad)
            self._levels.append(level)
            pad = node_of(pad, pad)  # what a whole subtree of padding comes to

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return self._levels[-1]

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that its nodes take."""
        return sum(map(len, self._levels))

    def _same_leaves(self, leaves: bytes) -> int:
        """Return how many leaves from the first on are these, too."""
        size = min(len(self._levels[0]), len(leaves))
        mine, others = (
            np.frombuffer(each, np.uint8, size).reshape(-1, DIGEST_BYTES)
            for each in (self._levels[0], leaves)
        )
        differs = (mine != others).any(axis=1)
        return int(differs.argmax()) if differs.any() else len(differs)


# -- Merkle trees over more leaves than one place holds: spans of leaves, and what they come to.
#
# A tree pairs leaves by their index among all. A span knows the index of its first leaf, and so
# which of its nodes are whole subtrees; the few of them that it cannot pair alone are what it gives
# to others. Spans that follow one another come together to the root that `merkle` computes at once.


@dataclass(frozen=True, slots=True)
class Node:
    """The root of a whole subtree: 2^level leaves, the first of which is index · 2^level."""

    level: int
    index: int
    value: bytes

    def precedes(self, other: Node) -> bool:
        """Tell whether both are the children of one node, this one the left."""
        return self.level == other.level and self.index % 2 == 0 and other.index == self.index + 1

    def joined(self, right: bytes) -> Node:
        """Return the node above this one and one to its right."""
        return Node(self.level + 1, self.index // 2, node_of(self.value, right))


class LeafSpan:
    """Leaves that follow one another in the order of their digests, taken piece by piece."""

    __slots__ = ("_nodes", "_start", "_stop")

    def __init__(self, start: int = 0) -> None:
        self._start = self._stop = start
        self._nodes: list[Node] = []

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The largest whole subtrees, from left to right: two at most of each level."""
        return tuple(self._nodes)

    def add(self, digests: Digests) -> None:
        """Take the next digests, which are in order and after all before."""
        for node in _whole_subtrees(leaves_of(digests).tobytes(), self._stop):
            _push(self._nodes, node)
        self._stop += len(digests)

    def root(self) -> bytes:
        """Return the root, where this is the span of all leaves."""
        return root_of_nodes(self._nodes)


def _whole_subtrees(level: bytes, index: int) -> list[Node]:
    """Return the largest whole subtrees over leaves, of which the first has that index."""
    left: list[Node] = []
    right: list[Node] = []
    height = 0
    while level:
        if index % 2:
            left.append(Node(height, index, level[:DIGEST_BYTES]))
            level, index = level[DIGEST_BYTES:], index + 1
        if len(level) // DIGEST_BYTES % 2:
            last = index + len(level) // DIGEST_BYTES - 1
            right.append(Node(height, last, level[-DIGEST_BYTES:]))
            level = level[:-DIGEST_BYTES]
        level, index, height = nodes_above(level), index // 2, height + 1
    return left + right[::-1]


def _push(nodes: list[Node], node: Node) -> None:
    """Append a node, and pair what can be paired."""
    while nodes and nodes[-1].precedes(node):
        node = nodes.pop().joined(node.value)
    nodes.append(node)


def root_of_nodes(nodes: Iterable[Node]) -> bytes:
    """Return the root of a tree from subtrees that cover all its leaves, from left to right."""
    made: list[Node] = []
    end = 0
    for node in nodes:
        if node.index << node.level != end:
            raise ValueError(f"a subtree begins at leaf {node.index << node.level}, not at {end}")
        end += 1 << node.level
        _push(made, node)
    if not made:
        return EMPTY_ROOT
    pad, height = EMPTY_ROOT, 0
    last = made.pop()
    while made or last.index:
        while height < last.level:
            pad, height = node_of(pad, pad), height + 1
        if made and made[-1].precedes(last):
            last = made.pop().joined(last.value)
        else:
            last = last.joined(pad)  # what a whole subtree of padding comes to
    return last.value
