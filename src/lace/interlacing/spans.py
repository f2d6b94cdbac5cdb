"""Merkle trees over more leaves than one place holds: spans of leaves, and what they come to.

A tree pairs leaves by their index among all. A span knows the index of its first leaf, and so
which of its nodes are whole subtrees; the few of them that it cannot pair alone are what it gives
to others. Spans that follow one another come together to the root that `merkle` computes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.base.digest import DIGEST_BYTES
from lace.interlacing.merkle import EMPTY_ROOT, Digests, leaves_of, node_of, nodes_above

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Node", "Span", "root_of_nodes"]


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


class Span:
    """Leaves that follow one another in the order of their digests, taken piece by piece.

    Args:
        start: how many leaves stand before it in the tree.
    """

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
        """Take the next digests, which are in order and behind all before."""
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
    """Put a node behind others, and pair what can be paired."""
    while nodes and nodes[-1].precedes(node):
        node = nodes.pop().joined(node.value)
    nodes.append(node)


def root_of_nodes(nodes: Iterable[Node]) -> bytes:
    """Return the root of a tree from subtrees that cover all its leaves, from left to right.

    Raises:
        ValueError: they leave out some leaf, or overlap.
    """
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
