"""The nodes of a Merkle tree, kept for the tree of a set that differs in little (050).

Leaves stand in the order of their digests. Where a record comes or goes, all leaves behind it
move by one, and all nodes above these are others; those before it stay. So a tree after a
change takes half the hashes of a whole one on average, and those of the last records next
to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.base.digest import DIGEST_BYTES
from lace.interlacing.merkle import EMPTY_ROOT, node_of, nodes_above, order_of

if TYPE_CHECKING:
    from lace.interlacing.merkle import Digests

__all__ = ["Tree"]


class Tree:
    """Leaves in their order, and the nodes above them, level by level.

    Args:
        digests: the digests of advertisements, in any order.
        leaves: the leaf of each.
        near: the tree of a similar set, of which nodes are taken where both are the same.
    """

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
