"""Numbers in a file, in blocks whose sums are checked before they are believed.

A lookup touches many blocks in no order, a few entries in each. So blocks are small, and
the sums of many are computed at once: each entry times an odd number that depends on its
place in the block, all added up modulo 2^64. Any change of one entry changes the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.segment_journal import SegmentDamagedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BLOCK", "CheckedColumn", "block_sums"]

BLOCK: Final = 256
"""Entries in a block."""
_AT_ONCE: Final = 4096
"""Blocks whose sums are computed together: some megabytes."""
_FACTORS: Final = np.arange(1, BLOCK + 1, dtype=np.uint64) * np.uint64(
    0x9E3779B97F4A7C15
) | np.uint64(1)

Sums = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def block_sums(values: npt.NDArray[Any]) -> Sums:
    """Return the sum of each block; the last may be short."""
    blocks = -(-len(values) // BLOCK)
    made = np.empty(blocks, np.uint64)
    for first in range(0, blocks, _AT_ONCE):
        some = values[first * BLOCK : (first + _AT_ONCE) * BLOCK].astype(np.uint64)
        some = np.concatenate([some, np.zeros(-len(some) % BLOCK, np.uint64)])
        rows = some.reshape(-1, BLOCK)
        rows *= _FACTORS
        made[first : first + _AT_ONCE] = rows.sum(axis=1, dtype=np.uint64)
    return made


class CheckedColumn:
    """Numbers that are mapped from a file.

    Args:
        path: the file, for messages.
        values: the numbers.
        sums: the sum of each of their blocks.
    """

    def __init__(self, path: Path, values: npt.NDArray[Any], sums: Sums) -> None:
        self._path = path
        self._values = values
        self._sums = sums
        self._is_checked = np.zeros(len(sums), np.bool_)

    def between(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the numbers from start to stop, checked; nothing is copied."""
        self._check(np.arange(start // BLOCK, -(-stop // BLOCK)))
        return self._values[start:stop]

    def at(self, places: Places) -> npt.NDArray[Any]:
        """Return the numbers at some places, checked."""
        self.check_blocks(places // BLOCK)
        return self._values[places]

    def unchecked(self) -> npt.NDArray[Any]:
        """Return all numbers; the caller has checked their blocks."""
        return self._values

    def check_blocks(self, blocks: Places) -> None:
        """Check some blocks, named in any order and more than once.

        Raises:
            SegmentDamagedError: one is not what was written.
        """
        wanted = blocks[~self._is_checked[blocks]]
        if len(wanted):
            flags = np.zeros(len(self._sums), np.bool_)
            flags[wanted] = True
            self._check(np.flatnonzero(flags))

    def _check(self, blocks: Places) -> None:
        blocks = blocks[~self._is_checked[blocks]]
        whole = len(self._values) // BLOCK
        rows = self._values[: whole * BLOCK].reshape(-1, BLOCK)
        for first in range(0, len(blocks), _AT_ONCE):
            some = blocks[first : first + _AT_ONCE]
            full = some[some < whole]
            sums = np.einsum("ij,j->i", rows[full].astype(np.uint64, copy=False), _FACTORS)
            if len(full) < len(some):
                sums = np.append(sums, block_sums(self._values[whole * BLOCK :]))
            if not np.array_equal(sums, self._sums[some]):
                raise SegmentDamagedError(f"{self._path} is damaged")
            self._is_checked[some] = True
