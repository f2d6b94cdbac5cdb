"""Record hashes that came together, held in binary: a sixth of what texts take.

A peer that advertises a million records names a million hashes that have no number yet.
They get numbers one after the other; finding one is a search among their first 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lace.record.hash_rows import HASH_BYTES, decode_hashes

if TYPE_CHECKING:
    from lace.record.hash_rows import Octets

__all__ = ["HashBlock", "distinct_hashes", "prints_of"]

Ids = npt.NDArray[np.int32]
Prints = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]


def prints_of(rows: Octets) -> Prints:
    """Return the first 64 bits of each digest."""
    return rows[:, 1:9].copy().view(">u8")[:, 0].astype(np.uint64)


def _keys_of(rows: Octets) -> npt.NDArray[np.bytes_]:
    """Return each row as one value."""
    return np.ascontiguousarray(rows).reshape(-1).view(f"S{HASH_BYTES}")


def _is_rising(prints: Prints) -> bool:
    return bool((prints[1:] > prints[:-1]).all())


def distinct_hashes(rows: Octets) -> tuple[Places, Places]:
    """Return where each hash stands first, in the order of first places, and whose each is.

    The second says for every row which of the first ones it is equal to.
    """
    prints = prints_of(rows)
    order = np.argsort(prints, stable=True)
    ordered = prints[order]
    if _is_rising(ordered):
        every = np.arange(len(rows))
        return every, every
    _, first, whose = np.unique(_keys_of(rows), return_index=True, return_inverse=True)
    by_place = np.argsort(first)
    rank = np.empty(len(first), np.intp)
    rank[by_place] = np.arange(len(first))
    return first[by_place], rank[whose]


class HashBlock:
    """Different record hashes with numbers from `first` on.

    Args:
        first: the number of the first one.
        rows: the hashes as `encode_hashes` gives them.
    """

    __slots__ = ("_is_clear", "_order", "_prints", "_rows", "first")

    def __init__(self, first: int, rows: Octets) -> None:
        self.first = first
        self._rows = rows
        prints = prints_of(rows)
        order = np.argsort(prints)
        self._prints = prints[order]
        self._is_clear = _is_rising(self._prints)
        if not self._is_clear:  # hashes that were made to begin alike: whole ones are compared
            order = np.argsort(_keys_of(rows))
        self._order = order.astype(np.int32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def stop(self) -> int:
        """The number behind the last one."""
        return self.first + len(self._rows)

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of some of its numbers."""
        return decode_hashes(self._rows[ids - self.first])

    def fingerprints(self, ids: Ids) -> Prints:
        """Return what `fingerprints_of` gives for the texts of some of its numbers."""
        return prints_of(self._rows[ids - self.first])

    def find(self, rows: Octets) -> Ids:
        """Return the numbers of hashes, -1 for one that is not here."""
        if self._is_clear:
            places = np.searchsorted(self._prints, prints_of(rows))
        else:
            keys = _keys_of(self._rows)
            places = np.searchsorted(keys, _keys_of(rows), sorter=self._order)
        found = self._order[np.minimum(places, len(self._order) - 1)]
        is_same = (self._rows[found] == rows).all(axis=1)
        return np.where(is_same, found + np.int32(self.first), np.int32(-1))
