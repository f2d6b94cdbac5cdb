"""The index of a stored dictionary: sorted runs of text hashes, each a file that never changes.

A run holds hashes, then the ids of their texts, then a table: the first hash and the
checksums of each block. A lookup reads the blocks that can hold a hash and no others. An
append writes a run of its own and merges it with the last ones while they are not more
than twice as large, so there are only as many runs as the size has binary digits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.segment_files import CheckedFile, Ids
from lace.engines.embedded.segment_journal import (
    RunEntry,
    SegmentDamagedError,
    checksum,
    run_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lace.engines.embedded.stored_hash import Hashes

__all__ = ["Run", "candidates", "merge_runs", "read_runs", "write_run"]

_BLOCK: Final = 1024
"""Entries in a block."""
_GROUP: Final = 256
"""Blocks that are merged together."""
_HASH: Final = np.dtype("<u8")
_ID: Final = np.dtype("<i4")
_TABLE_ROW: Final = np.dtype([("first", "<u8"), ("hashes", "<u8"), ("ids", "<u8")])
_MERGE_BELOW: Final = 2
"""A run is merged with a new one that is at least this part of its size."""


class Run:
    """One run, for reading; its blocks are checked when they are first read."""

    def __init__(self, folder: Path, entry: RunEntry) -> None:
        self.entry = entry
        path = folder / run_name(entry.number)
        count, blocks = entry.count, -(-entry.count // _BLOCK)
        with path.open("rb") as file:
            file.seek(count * (_HASH.itemsize + _ID.itemsize))
            raw = file.read(blocks * _TABLE_ROW.itemsize)
        if len(raw) != blocks * _TABLE_ROW.itemsize or checksum(raw) != entry.check:
            raise SegmentDamagedError(f"{path} has a table that is not what was written")
        table = np.frombuffer(raw, _TABLE_ROW)
        self.firsts: Hashes = table["first"].copy()
        starts = np.arange(blocks, dtype=np.int64) * _BLOCK
        ids_at = count * _HASH.itemsize
        self._ids_at = ids_at
        self._file = CheckedFile(
            path,
            count * (_HASH.itemsize + _ID.itemsize),
            np.concatenate([starts * _HASH.itemsize, starts * _ID.itemsize + ids_at]),
            np.concatenate([table["hashes"], table["ids"]]),
        )

    def read(self, first: int, behind: int) -> tuple[Hashes, Ids]:
        """Return the hashes and ids of some blocks."""
        start, stop = first * _BLOCK, min(behind * _BLOCK, self.entry.count)
        hashes = self._file.array(_HASH, start, stop)
        low, high = self._ids_at + start * _ID.itemsize, self._ids_at + stop * _ID.itemsize
        self._file.check(low, high)
        return hashes, self._file.data[low:high].view(_ID)

    def places(self, wanted: Hashes) -> npt.NDArray[np.int64]:
        """Return the place of the first entry that is not below each hash, in all of the run.

        The table says which block that is; only such blocks are read.
        """
        if len(wanted) > len(self.firsts):  # then nearly all blocks are wanted
            self._file.check(0, self._ids_at)
            return np.searchsorted(self._hashes(), wanted, "left")
        block = np.maximum(np.searchsorted(self.firsts, wanted, "left") - 1, 0)
        low = block * _BLOCK
        high = np.minimum(low + _BLOCK, self.entry.count)
        self._check_entries(low, _HASH.itemsize, 0)
        hashes = self._hashes()
        for _ in range(_BLOCK.bit_length()):  # a binary search in all blocks at once
            middle = (low + high) // 2
            below = (low < high) & (hashes[np.minimum(middle, self.entry.count - 1)] < wanted)
            low = np.where(below, middle + 1, low)
            high = np.where(below, high, middle)
        return low

    def hashes_at(self, places: npt.NDArray[np.int64]) -> Hashes:
        """Return the hashes at some places."""
        self._check_entries(places, _HASH.itemsize, 0)
        found: Hashes = self._hashes()[places]
        return found

    def ids_at(self, places: npt.NDArray[np.int64]) -> Ids:
        """Return the ids at some places."""
        self._check_entries(places, _ID.itemsize, self._ids_at)
        found: Ids = self._file.data[self._ids_at :].view(_ID)[places]
        return found

    def _hashes(self) -> Hashes:
        return self._file.data[: self._ids_at].view(_HASH)

    def _check_entries(self, places: npt.NDArray[np.int64], size: int, start: int) -> None:
        starts = places * size + start
        self._file.check_scattered(starts, starts + size)

    def between(self, low: np.uint64 | None, high: np.uint64 | None) -> tuple[Hashes, Ids]:
        """Return the entries whose hash is at least low and below high; None: no bound."""
        first, behind = 0, len(self.firsts)
        if low is not None:  # an equal hash may stand at the end of the block before
            first = max(int(np.searchsorted(self.firsts, low, "left")) - 1, 0)
        if high is not None:
            behind = int(np.searchsorted(self.firsts, high, "left"))
        hashes, ids = self.read(first, max(first, behind))
        return _between(hashes, ids, low, high)

    def check(self) -> None:
        """Check every entry."""
        self._file.check(0, self._file.length)

    def forget_pages(self) -> None:
        """Give back the memory of what was read."""
        self._file.forget_pages()


def candidates(runs: Iterable[Run], wanted: Hashes) -> Iterator[tuple[npt.NDArray[np.int64], Ids]]:
    """Yield positions in `wanted`, which is sorted, and ids of texts that have that hash."""
    for run in runs:
        at = np.arange(len(wanted), dtype=np.int64)
        place = run.places(wanted)
        while len(at):  # once for each text with the same hash: nearly always once
            inside = place < run.entry.count
            at, place = at[inside], place[inside]
            same = run.hashes_at(place) == wanted[at]
            at, place = at[same], place[same]
            if len(at):
                yield at, run.ids_at(place)
            place = place + 1


def _between(
    hashes: Hashes, ids: Ids, low: np.uint64 | None, high: np.uint64 | None
) -> tuple[Hashes, Ids]:
    start = 0 if low is None else int(np.searchsorted(hashes, low, "left"))
    stop = len(hashes) if high is None else int(np.searchsorted(hashes, high, "left"))
    return hashes[start:stop], ids[start:stop]


def write_run(
    folder: Path, number: int, count: int, parts: Iterable[tuple[Hashes, Ids]]
) -> RunEntry:
    """Write a run of that many entries, whose parts follow one another in order of hash."""
    rows: list[tuple[int, int, int]] = []
    done = 0
    with (folder / run_name(number)).open("wb") as file:
        for hashes, ids in _in_blocks(parts):
            for start in range(0, len(hashes), _BLOCK):
                some, their = hashes[start : start + _BLOCK], ids[start : start + _BLOCK]
                rows.append((int(some[0]), _check(some), _check(their)))
            file.seek(done * _HASH.itemsize)
            file.write(_octets(hashes))
            file.seek(count * _HASH.itemsize + done * _ID.itemsize)
            file.write(_octets(ids))
            done += len(hashes)
        raw = np.array(rows, _TABLE_ROW).tobytes()
        file.write(raw)
    return RunEntry(number, count, checksum(raw))


def _in_blocks(parts: Iterable[tuple[Hashes, Ids]]) -> Iterator[tuple[Hashes, Ids]]:
    """Yield the same entries in parts that are whole blocks, but for the last."""
    hashes: Hashes = np.empty(0, _HASH)
    ids: Ids = np.empty(0, _ID)
    for more_hashes, more_ids in parts:
        hashes = np.concatenate([hashes, more_hashes])
        ids = np.concatenate([ids, more_ids])
        whole = len(hashes) // _BLOCK * _BLOCK
        if whole:
            yield hashes[:whole], ids[:whole]
            hashes, ids = hashes[whole:], ids[whole:]
    if len(hashes):
        yield hashes, ids


def _octets(array: npt.NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data


def _check(array: npt.NDArray[Any]) -> int:
    return checksum(_octets(array))


def merge_runs(
    folder: Path, runs: Sequence[Run], number: int, hashes: Hashes, ids: Ids
) -> tuple[list[RunEntry], list[RunEntry]]:
    """Add sorted hashes with their ids; returns the runs that are now, and those merged away."""
    kept = list(runs)
    merged: list[Run] = []
    total = len(hashes)
    while kept and kept[-1].entry.count < _MERGE_BELOW * total:
        merged.append(kept.pop())
        total += merged[-1].entry.count
    made = write_run(folder, number, total, _merged(merged, hashes, ids))
    return [*(run.entry for run in kept), made], [run.entry for run in merged]


def _merged(runs: Sequence[Run], hashes: Hashes, ids: Ids) -> Iterator[tuple[Hashes, Ids]]:
    """Yield the entries of runs and of a sorted batch in order, a part at a time."""
    if not runs:
        yield hashes, ids
        return
    largest = max(runs, key=lambda run: run.entry.count)
    bounds: list[np.uint64 | None] = [None, *np.unique(largest.firsts[_GROUP::_GROUP]), None]
    for low, high in pairwise(bounds):
        parts = [_between(hashes, ids, low, high), *(run.between(low, high) for run in runs)]
        all_hashes = np.concatenate([part for part, _ids in parts])
        all_ids = np.concatenate([part for _hashes, part in parts])
        order = np.argsort(all_hashes, kind="stable")  # merges what is sorted already
        yield all_hashes[order], all_ids[order]
        for run in runs:
            run.forget_pages()


def read_runs(folder: Path, entries: Sequence[RunEntry]) -> list[Run]:
    """Open the runs of a state."""
    return [Run(folder, entry) for entry in entries]
