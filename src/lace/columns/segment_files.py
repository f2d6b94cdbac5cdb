"""Memory-mapped files whose bytes are checked, a block at a time, before they are used.

Blocks are what one append wrote to a file, cut into pieces of at most `BLOCK_BYTES`. A
page that nobody asks for is neither read nor checked.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.columns.segment_journal import SegmentDamagedError, checksum

if TYPE_CHECKING:
    from pathlib import Path


Ids = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

BLOCK_BYTES: Final = 64 * 1024
"""Small enough that a look at one text reads little, large enough to be checked at full speed."""

SUM: Final = np.dtype([("file", "<u4"), ("length", "<u4"), ("offset", "<u8"), ("check", "<u8")])
"""A row of `sums`: a block of a file, and the checksum of its bytes."""


def block_sums(file: int, offset: int, data: memoryview) -> npt.NDArray[Any]:
    """Return the rows of `sums` for bytes that are appended to a file at that offset."""
    starts = range(0, len(data), BLOCK_BYTES)
    made = np.empty(len(starts), SUM)
    made["file"] = file
    made["offset"] = np.arange(len(starts), dtype=np.uint64) * BLOCK_BYTES + offset
    made["length"] = [len(data[start : start + BLOCK_BYTES]) for start in starts]
    made["check"] = [checksum(data[start : start + BLOCK_BYTES]) for start in starts]
    return made


def read_table(path: Path, length: int, check: int, row: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a table that is read and checked as a whole."""
    with path.open("rb") as file:
        raw = file.read(length)
    if len(raw) != length or length % row.itemsize or checksum(raw) != check:
        raise SegmentDamagedError(f"{path} is not what was written")
    return np.frombuffer(raw, row)


class CheckedFile:
    """The committed bytes of one file."""

    def __init__(
        self,
        path: Path,
        length: int,
        offsets: npt.NDArray[np.int64],
        checks: npt.NDArray[np.uint64],
    ) -> None:
        self.path = path
        self.length = length
        self._map: mmap.mmap | None = None
        self._offsets = offsets
        self._ends = np.append(offsets[1:], length)
        self._checks = checks
        self._is_checked = np.zeros(len(offsets), np.bool_)
        self._all_checked = len(offsets) == 0
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < length:
                raise SegmentDamagedError(f"{path} has been cut")
            if length:
                self._map = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
        if bool(length) != bool(len(offsets)) or (len(offsets) and offsets[0] != 0):
            raise SegmentDamagedError(f"{path} has blocks that are not all of it")
        self.data: Bytes = np.frombuffer(self._map or b"", np.uint8)

    def keep_checks_of(self, older: CheckedFile) -> None:
        """Take over what an older state of the same file has checked already."""
        count = min(len(older._is_checked), len(self._is_checked))
        self._is_checked[:count] = older._is_checked[:count]

    def array(self, kind: np.dtype[Any], start: int, stop: int) -> npt.NDArray[Any]:
        """Return the values from start to stop, checked; nothing is copied."""
        size = kind.itemsize
        if stop * size > self.length:
            raise SegmentDamagedError(f"{self.path} ends before row {stop}")
        self.check(start * size, stop * size)
        return self.data[start * size : stop * size].view(kind)

    def check(self, start: int, stop: int) -> None:
        """Check the bytes from start to stop."""
        if self._all_checked or stop <= start:
            return
        first = int(np.searchsorted(self._offsets, start, "right")) - 1
        behind = int(np.searchsorted(self._offsets, stop, "left"))
        self._check_blocks(range(first, behind))

    def check_scattered(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> None:
        """Check many short ranges, none of them empty or behind the end."""
        if self._all_checked or not len(starts):
            return
        wanted = np.zeros(len(self._offsets), np.bool_)
        wanted[np.searchsorted(self._offsets, starts, "right") - 1] = True
        wanted[np.searchsorted(self._offsets, stops, "left") - 1] = True
        self._check_blocks(np.flatnonzero(wanted & ~self._is_checked).tolist())

    def _check_blocks(self, blocks: range | list[int]) -> None:
        for block in blocks:
            if not self._is_checked[block]:
                piece = self.data[int(self._offsets[block]) : int(self._ends[block])]
                if checksum(piece.data) != int(self._checks[block]):
                    raise SegmentDamagedError(f"{self.path} is damaged")
                self._is_checked[block] = True
        self._all_checked = bool(self._is_checked.all())

    def check_length(self) -> None:
        """Refuse the file if it has become shorter: reading behind its end would be fatal."""
        if self._map is not None and self._map.size() < self.length:  # of the file, deleted or not
            raise SegmentDamagedError(f"{self.path} has been cut")

    def forget_pages(self) -> None:
        """Let the system take back the memory of pages that were read."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


# -- Numbers in a file, in blocks whose sums are checked before they are believed.
#
# A lookup touches many blocks in no order, a few entries in each. So blocks are small, and
# the sums of many are computed at once: each entry times an odd number that depends on its
# place in the block, all added up modulo 2^64. Any change of one entry changes the sum.

BLOCK: Final = 256
"""Entries in a block."""
_AT_ONCE: Final = 4096
"""Blocks whose sums are computed together: some megabytes."""
_FACTORS: Final = np.arange(1, BLOCK + 1, dtype=np.uint64) * np.uint64(
    0x9E3779B97F4A7C15
) | np.uint64(1)

Sums = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def column_sums(values: npt.NDArray[Any]) -> Sums:
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
    """Numbers that are mapped from a file."""

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
        """Check some blocks, named in any order and more than once."""
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
                sums = np.append(sums, column_sums(self._values[whole * BLOCK :]))
            if not np.array_equal(sums, self._sums[some]):
                raise SegmentDamagedError(f"{self._path} is damaged")
            self._is_checked[some] = True
