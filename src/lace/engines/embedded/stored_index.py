"""The index of a stored dictionary: sorted runs of text hashes, each a file that never changes.

A run holds hashes, then the ids of their texts, then a table: the first hash and the
checksums of each block. A lookup reads the blocks that can hold a hash and no others. An
append writes a run of its own and merges it with the last ones while they are not more
than twice as large, so there are only as many runs as the size has binary digits.
"""

from __future__ import annotations

import mmap
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.segment_journal import (
    RunEntry,
    SegmentDamagedError,
    checksum,
    run_name,
)
from lace.engines.embedded.stored_column import BLOCK, CheckedColumn, block_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lace.engines.embedded.segment_files import Ids
    from lace.engines.embedded.stored_hash import Hashes

__all__ = ["Run", "candidates", "merge_runs", "read_runs", "write_run"]

_GROUP: Final = 1024
"""Blocks that are merged together."""
_STEPS: Final = (*(BLOCK >> bit for bit in range(1, BLOCK.bit_length())), 1)
"""How far a search in a block goes on when what lies before is below: 128, 64, …, 1 and 1."""
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
        count, blocks = entry.count, -(-entry.count // BLOCK)
        with path.open("rb") as file:
            file.seek(count * (_HASH.itemsize + _ID.itemsize))
            raw = file.read(blocks * _TABLE_ROW.itemsize)
        if len(raw) != blocks * _TABLE_ROW.itemsize or checksum(raw) != entry.check:
            raise SegmentDamagedError(f"{path} has a table that is not what was written")
        table = np.frombuffer(raw, _TABLE_ROW)
        self.firsts: Hashes = table["first"].copy()
        ids_at = count * _HASH.itemsize
        self._path, self._length = path, ids_at + count * _ID.itemsize
        self._map = _mapped(path, self._length)
        data = np.frombuffer(self._map or b"", np.uint8)
        self._hashes = CheckedColumn(path, data[:ids_at].view(_HASH), table["hashes"].copy())
        self._ids = CheckedColumn(path, data[ids_at:].view(_ID), table["ids"].copy())

    def places(self, wanted: Hashes) -> npt.NDArray[np.int64]:
        """Return the place of the first entry that is not below each hash, in all of the run.

        The table says which block that is; only such blocks are read.
        """
        if len(wanted) > len(self.firsts):  # then nearly all blocks are wanted
            every = self._hashes.between(0, self.entry.count)
            return np.searchsorted(every, wanted, "left")
        block = np.maximum(np.searchsorted(self.firsts, wanted, "left") - 1, 0)
        self._hashes.check_blocks(block)
        hashes, last = self._hashes.unchecked(), self.entry.count - 1
        place: npt.NDArray[np.int64] = block * BLOCK
        for step in _STEPS:  # a binary search in all blocks at once, and behind none of them
            below = hashes[np.minimum(place + (step - 1), last)] < wanted
            place += below * step
        np.minimum(place, self.entry.count, out=place)
        return place

    def hashes_at(self, places: npt.NDArray[np.int64]) -> Hashes:
        """Return the hashes at some places."""
        return self._hashes.at(places)

    def ids_at(self, places: npt.NDArray[np.int64]) -> Ids:
        """Return the ids at some places."""
        return self._ids.at(places)

    def between(self, low: np.uint64 | None, high: np.uint64 | None) -> tuple[Hashes, Ids]:
        """Return the entries whose hash is at least low and below high; None: no bound."""
        first, behind = 0, len(self.firsts)
        if low is not None:  # an equal hash may stand at the end of the block before
            first = max(int(np.searchsorted(self.firsts, low, "left")) - 1, 0)
        if high is not None:
            behind = int(np.searchsorted(self.firsts, high, "left"))
        start, stop = first * BLOCK, min(max(first, behind) * BLOCK, self.entry.count)
        hashes, ids = self._hashes.between(start, stop), self._ids.between(start, stop)
        return _between(hashes, ids, low, high)

    def check(self) -> None:
        """Check every entry."""
        self._hashes.between(0, self.entry.count)
        self._ids.between(0, self.entry.count)

    def check_length(self) -> None:
        """Refuse the file if it has become shorter."""
        if self._map is not None and self._map.size() < self._length:
            raise SegmentDamagedError(f"{self._path} has been cut")

    def forget_pages(self) -> None:
        """Give back the memory of what was read."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _mapped(path: Path, length: int) -> mmap.mmap | None:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < length:
            raise SegmentDamagedError(f"{path} has been cut")
        return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) if length else None


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
    rows: list[bytes] = []
    done = 0
    with (folder / run_name(number)).open("wb") as file:
        for hashes, ids in _in_blocks(parts):
            row = np.empty(-(-len(hashes) // BLOCK), _TABLE_ROW)
            row["first"], row["hashes"] = hashes[::BLOCK], block_sums(hashes)
            row["ids"] = block_sums(ids)
            rows.append(row.tobytes())
            file.seek(done * _HASH.itemsize)
            file.write(_octets(hashes))
            file.seek(count * _HASH.itemsize + done * _ID.itemsize)
            file.write(_octets(ids))
            done += len(hashes)
        raw = b"".join(rows)
        file.write(raw)
    return RunEntry(number, count, checksum(raw))


def _in_blocks(parts: Iterable[tuple[Hashes, Ids]]) -> Iterator[tuple[Hashes, Ids]]:
    """Yield the same entries in parts that are whole blocks, but for the last."""
    hashes: Hashes = np.empty(0, _HASH)
    ids: Ids = np.empty(0, _ID)
    for more_hashes, more_ids in parts:
        hashes = np.concatenate([hashes, more_hashes])
        ids = np.concatenate([ids, more_ids])
        whole = len(hashes) // BLOCK * BLOCK
        if whole:
            yield hashes[:whole], ids[:whole]
            hashes, ids = hashes[whole:], ids[whole:]
    if len(hashes):
        yield hashes, ids


def _octets(array: npt.NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data


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


def read_runs(folder: Path, entries: Sequence[RunEntry], known: Sequence[Run] = ()) -> list[Run]:
    """Open the runs of a state, but for those that are known: a run never changes."""
    opened = {run.entry: run for run in known}
    return [opened.get(entry) or Run(folder, entry) for entry in entries]
