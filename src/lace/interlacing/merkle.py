"""Merkle roots over advertisement record digests (050).

Leaves in the order of the digests, padded with the empty value to a power of two, are
paired from left to right. Roots of partitions do not combine to the root of the whole:
each is a tree of its own.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.base.digest import DIGEST_BYTES, digest, digest_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "EMPTY_ROOT",
    "Digests",
    "KnownRoots",
    "as_digests",
    "known_root_of",
    "leaves_of",
    "node_of",
    "nodes_above",
    "order_of",
    "root_of",
    "root_of_leaves",
    "roots_without_one",
]

Digests = npt.NDArray[np.uint8]
"""Digests, a row each."""

_LEAF: Final = b"lace-advertisement-leaf/v1"
_NODE: Final = b"lace-advertisement-node/v1"
_AT_ONCE: Final = 1 << 12
"""Hashes that are made before they are put together: they stay in the processor's cache."""
_FEW: Final = 64
"""Up to this number of rows, prefixing the label row by row takes less time."""
_MANY: Final = 4_096
"""Digests whose root is worth remembering."""
_MOST_KNOWN: Final = 4_096
"""Roots that are remembered: there may be some for each partition that is listed."""
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
    """Return rows of bytes behind a label, each as what is hashed."""
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


class KnownRoots:
    """Roots of many digests that were computed before, by the digest of these.

    Two sides in one process compute the root of the same set, one after the other; to
    compare what it is of takes a hundredth of that. Links do not share them: how long one
    takes would tell what is known of another.
    """

    __slots__ = ("_roots",)

    def __init__(self) -> None:
        self._roots: dict[bytes, bytes] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have them used for what is computed meanwhile."""
        token = _KNOWN.set(self)
        try:
            yield
        finally:
            _KNOWN.reset(token)

    def root(self, digests: Digests, compute: Callable[[], bytes]) -> bytes:
        """Return the root of digests; it is computed if it is not known."""
        content = digest(np.ascontiguousarray(digests).data)
        made = self._roots.get(content)
        if made is None:
            made = self._roots[content] = compute()
            if len(self._roots) > _MOST_KNOWN:
                del self._roots[next(iter(self._roots))]
        return made


_KNOWN: Final[ContextVar[KnownRoots | None]] = ContextVar("known roots", default=None)


def known_root_of(digests: Digests, compute: Callable[[], bytes]) -> bytes:
    """Return the root of digests, from those that are known if there are many."""
    known = _KNOWN.get() if len(digests) >= _MANY else None
    return compute() if known is None else known.root(digests, compute)


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
    places and those behind it move by one: apart from the nodes above its place, all nodes
    belong to one of two trees.
    """
    raw = leaves.tobytes()
    still, moved = raw[:-DIGEST_BYTES], raw[DIGEST_BYTES:]
    behind = _rows(moved)
    trees: list[tuple[list[bytes], list[bytes]]] = []
    pad = EMPTY_ROOT
    while len(still) > DIGEST_BYTES:
        trees.append((_rows(still), [*_rows(moved), pad]))
        still, moved = (nodes_above(level, pad) for level in (still, moved))
        pad = node_of(pad, pad)
    for gone, leaf in enumerate(behind):
        place, node = gone, leaf
        for kept, shifted in trees:
            pair = (kept[place - 1], node) if place % 2 else (node, shifted[place + 1])
            node = node_of(*pair)
            place //= 2
        yield node
    yield still


def _rows(level: bytes) -> list[bytes]:
    return [level[at : at + DIGEST_BYTES] for at in range(0, len(level), DIGEST_BYTES)]
