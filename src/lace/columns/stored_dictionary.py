"""The dictionary of stored segments: from texts to ids and back.

Ids count from 0 in the order in which texts arrived. `locate` has a number for each id
that says which heap holds the text, where and how long. Record hashes are kept as 33
bytes, signatures apart from all other texts: a reader of every Name reads no hash.

Apart from `segment`: a dictionary is a file format in itself.
"""

from __future__ import annotations

import mmap
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.base.digest import derive_blocks
from lace.columns.dictionary import fingerprints_of
from lace.columns.segment_files import BLOCK, CheckedColumn, column_sums
from lace.columns.segment_journal import RunEntry, SegmentDamagedError, checksum, run_name
from lace.record.hash_rows import HASH_BYTES, decode_hashes, rows_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lace.columns.segment_files import Bytes, CheckedFile, Ids


# -- Keyed hashes of texts, many at a time: where a stored dictionary looks for a text.
#
# Multilinear hashing: a text's 32-bit words, its length and a constant, each times a secret
# 64-bit number, are added up; the upper half of such a sum is universal, and two of them make
# 64 bits. Who does not know the key of a generation cannot choose texts that collide. A hash
# only says where to look: the texts themselves are always compared.

Hashes = npt.NDArray[np.uint64]

MOST_TEXT_BYTES: Final = 4096
"""Longer texts are never stored: no value of a record is longer than a header line."""

_WIDTHS: Final = np.array(
    (8, 16, 24, 32, 48, 64, 88, 128, 256, 512, 1024, 2048, MOST_TEXT_BYTES), np.uint64
)
"""Texts are padded with zeros to one of these, which leaves their hash as it is."""
_WORD_BYTES: Final = 4
_NUMBERS: Final = MOST_TEXT_BYTES // _WORD_BYTES + 2
_DERIVED_NUMBERS: Final = 4
_UPPER: Final = np.uint64(32)
_UPPER_HALF: Final = np.uint64(0xFFFF_FFFF_0000_0000)


class TextHash:
    """The hash function of a secret key."""

    def __init__(self, key: bytes) -> None:
        stream = b"".join(
            derive_blocks("segment-text-hash", key, block)
            for block in range(2 * _NUMBERS // _DERIVED_NUMBERS + 1)
        )
        self._numbers = np.frombuffer(stream, "<u8")[: 2 * _NUMBERS].reshape(2, _NUMBERS)

    def of_texts(self, texts: Sequence[bytes]) -> Hashes:
        """Return the hashes of UTF-8 texts, none longer than `MOST_TEXT_BYTES`."""
        lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
        made = np.empty(len(texts), np.uint64)
        classes = np.searchsorted(_WIDTHS, lengths)
        for width_class in np.flatnonzero(np.bincount(classes)).tolist():
            chosen = np.flatnonzero(classes == width_class)
            same = texts if len(chosen) == len(texts) else [texts[n] for n in chosen.tolist()]
            width = int(_WIDTHS[width_class])
            padded = np.array(same, f"S{width}").view(np.uint8).reshape(len(chosen), width)
            made[chosen] = self._combine(padded, lengths[chosen])
        return made

    def of_rows(self, rows: npt.NDArray[np.uint8]) -> Hashes:
        """Return the hashes of texts of one length, a row each."""
        count, length = rows.shape
        width = -(-length // _WORD_BYTES) * _WORD_BYTES
        padded = rows
        if width != length:
            padded = np.zeros((count, width), np.uint8)
            padded[:, :length] = rows
        return self._combine(padded, np.full(count, length, np.uint64))

    def _combine(self, padded: npt.NDArray[np.uint8], lengths: Hashes) -> Hashes:
        first = lengths * self._numbers[0, 1] + self._numbers[0, 0]
        second = lengths * self._numbers[1, 1] + self._numbers[1, 0]
        words = padded.view("<u4").T
        for column, (one, two) in zip(words, self._numbers.T[2:], strict=False):
            wide = column.astype(np.uint64)
            first += wide * one
            second += wide * two
        made: Hashes = (first & _UPPER_HALF) | (second >> _UPPER)
        return made


# -- The index of a stored dictionary: sorted runs of text hashes, each a file that never changes.
#
# A run holds hashes, then the ids of their texts, then a table: the first hash and the
# checksums of each block. A lookup reads the blocks that can hold a hash and no others. An
# append writes a run of its own and merges it with the last ones while they are not more
# than twice as large, so there are only as many runs as the size has binary digits.

_GROUP: Final = 1024
"""Blocks that are merged together."""
_STEPS: Final = (*(BLOCK >> bit for bit in range(1, BLOCK.bit_length())), 1)
"""How far a search in a block goes on when what lies before is below: 128, 64, …, 1 and 1."""
_HASH: Final = np.dtype("<u8")
_ID: Final = np.dtype("<i4")
_TABLE_ROW: Final = np.dtype([("first", "<u8"), ("hashes", "<u8"), ("ids", "<u8")])
_MERGE_BELOW: Final = 2
"""A run is merged with a new one that is at least this part of its size."""


class SortedRun:
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


def candidates(
    runs: Iterable[SortedRun], wanted: Hashes
) -> Iterator[tuple[npt.NDArray[np.int64], Ids]]:
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
            row["first"], row["hashes"] = hashes[::BLOCK], column_sums(hashes)
            row["ids"] = column_sums(ids)
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
    folder: Path, runs: Sequence[SortedRun], number: int, hashes: Hashes, ids: Ids
) -> tuple[list[RunEntry], list[RunEntry]]:
    """Add sorted hashes with their ids; returns the runs that are now, and those merged away."""
    kept = list(runs)
    merged: list[SortedRun] = []
    total = len(hashes)
    while kept and kept[-1].entry.count < _MERGE_BELOW * total:
        merged.append(kept.pop())
        total += merged[-1].entry.count
    made = write_run(folder, number, total, _merged(merged, hashes, ids))
    return [*(run.entry for run in kept), made], [run.entry for run in merged]


def _merged(runs: Sequence[SortedRun], hashes: Hashes, ids: Ids) -> Iterator[tuple[Hashes, Ids]]:
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


def read_runs(
    folder: Path, entries: Sequence[RunEntry], known: Sequence[SortedRun] = ()
) -> list[SortedRun]:
    """Open the runs of a state, but for those that are known: a run never changes."""
    opened = {run.entry: run for run in known}
    return [opened.get(entry) or SortedRun(folder, entry) for entry in entries]


HASHES: Final = 0
COLD: Final = 1
TEXTS: Final = 2
"""The heaps: record hashes in binary, signatures, and every other text."""
LOCATE_KIND: Final = np.dtype("<u8")

_MANY_TEXTS: Final = 10_000
"""Texts to find at once from which on the memory of the pages read is given back."""
_AT_ONCE: Final = 8192
"""Texts that are read together: what they pass through stays in the processor's cache."""
_NEAR: Final = 4
"""Texts that span at most this many times their own bytes are copied with what is between them."""
_LENGTH_AT: Final = np.uint64(40)
_HEAP_AT: Final = np.uint64(56)
_OFFSET_MASK: Final = np.uint64((1 << 40) - 1)
_LENGTH_MASK: Final = np.uint64(0xFFFF)

Offsets = npt.NDArray[np.int64]


def pack_locations(heap: int, lengths: Offsets, offsets: Offsets) -> npt.NDArray[np.uint64]:
    """Return the numbers of `locate` for texts of one heap."""
    packed = offsets.astype(np.uint64) | (lengths.astype(np.uint64) << _LENGTH_AT)
    return packed | (np.uint64(heap) << _HEAP_AT)


class StoredDictionary:
    """Texts and their ids in one state of the segments; it never changes."""

    def __init__(
        self,
        count: int,
        locate: CheckedFile,
        heaps: Sequence[CheckedFile],
        runs: Sequence[SortedRun],
        text_hash: TextHash,
    ) -> None:
        self._count = count
        self._locate = locate
        self._heaps = heaps
        self._runs = runs
        self._hash = text_hash

    def __len__(self) -> int:
        return self._count

    def check_files(self) -> None:
        """Refuse files that have become shorter."""
        for file in (self._locate, *self._heaps):
            file.check_length()
        for run in self._runs:
            run.check_length()

    def find(self, texts: Sequence[str]) -> Ids:
        """Return the id of each text; -1 where it has none."""
        self.check_files()
        made = np.full(len(texts), -1, np.int32)
        raw = [_encoded(text) for text in texts]
        usable = [n for n, one in enumerate(raw) if len(one) <= MOST_TEXT_BYTES]
        if usable and self._count:
            encoded = [raw[n] for n in usable]
            hashes = self._hash.of_texts(encoded)
            order = np.argsort(hashes)
            places = np.array(usable)[order]
            for at, ids in self.find_sorted(hashes[order], lambda at: encoded[order[at]]):
                made[places[at]] = ids
        return made

    def find_hashes(self, rows: Bytes) -> Ids:
        """Return the ids of record hashes, in rows as `encode_hashes` gives them."""
        self.check_files()
        made = np.full(len(rows), -1, np.int32)
        hashes = self._hash.of_rows(rows_of_text(rows))
        order = np.argsort(hashes)
        for at, ids in candidates(self._runs, hashes[order]):
            heap, _, offsets = self._places(ids)
            asked = order[at]
            same = heap == HASHES
            same[same] = (self._hash_rows(offsets[same]) == rows[asked[same]]).all(axis=1)
            others = np.flatnonzero(heap != HASHES)  # a text first, and a record's hash later
            if len(others):
                pairs = zip(
                    self._texts(ids[others]), decode_hashes(rows[asked[others]]), strict=True
                )
                same[others] = [stored == text for stored, text in pairs]
            made[asked[same]] = ids[same]
        self._forget_index(len(rows))
        return made

    def _forget_index(self, count: int) -> None:
        """Give back the memory of index pages, if many texts were looked for."""
        if count > _MANY_TEXTS:
            for run in self._runs:
                run.forget_pages()

    def find_sorted(
        self, hashes: Hashes, text_at: Callable[[int], bytes]
    ) -> Iterator[tuple[Offsets, Ids]]:
        """Yield positions among sorted hashes, and the ids of the texts that are there."""
        for at, ids in candidates(self._runs, hashes):
            stored = self.texts(ids)
            same = [
                text_at(place) == text.encode()
                for place, text in zip(at.tolist(), stored, strict=True)
            ]
            yield at[same], ids[same]
        self._forget_index(len(hashes))

    def texts(self, ids: Ids) -> list[str]:
        """Return the text of each id."""
        self.check_files()
        if len(ids) <= _AT_ONCE:
            return self._texts(ids)
        made: list[str] = []
        for start in range(0, len(ids), _AT_ONCE):
            made += self._texts(ids[start : start + _AT_ONCE])
        for file in (self._locate, *self._heaps):
            file.forget_pages()
        return made

    def fingerprints(self, ids: Ids) -> Hashes:
        """Return what `fingerprints_of` gives for the text of each id."""
        self.check_files()
        heap, _, offsets = self._places(ids)
        made = np.empty(len(ids), np.uint64)
        hashes = heap == HASHES
        if hashes.any():
            made[hashes] = self._hash_rows(offsets[hashes])[:, 1:9].copy().view(">u8")[:, 0]
        others = np.flatnonzero(~hashes)
        for start in range(0, len(others), _AT_ONCE):
            some = others[start : start + _AT_ONCE]
            made[some] = fingerprints_of(self._texts(ids[some]))
        return made

    def _texts(self, ids: Ids) -> list[str]:
        heap, lengths, offsets = self._places(ids)
        hashes = np.flatnonzero(heap == HASHES)
        if len(hashes) == len(ids):
            return self._hash_texts(offsets)
        made: list[str] = [""] * len(ids)
        for place, text in zip(hashes.tolist(), self._hash_texts(offsets[hashes]), strict=True):
            made[place] = text
        for kind in (COLD, TEXTS):
            chosen = np.flatnonzero(heap == kind)
            if len(chosen) == len(ids):
                return self._plain_texts(kind, lengths, offsets)
            texts = self._plain_texts(kind, lengths[chosen], offsets[chosen])
            for place, text in zip(chosen.tolist(), texts, strict=True):
                made[place] = text
        return made

    def _places(self, ids: Ids) -> tuple[npt.NDArray[np.uint64], Offsets, Offsets]:
        """Return heap, length and offset of each id, all inside what is committed."""
        wide = ids.astype(np.int64)
        if len(wide) and (int(wide.min()) < 0 or int(wide.max()) >= self._count):
            raise SegmentDamagedError("the segments name a text that they do not have")
        starts = wide * LOCATE_KIND.itemsize
        self._locate.check_scattered(starts, starts + LOCATE_KIND.itemsize)
        packed = self._locate.data.view(LOCATE_KIND)[wide]
        heap = packed >> _HEAP_AT
        lengths = ((packed >> _LENGTH_AT) & _LENGTH_MASK).astype(np.int64)
        return heap, lengths, (packed & _OFFSET_MASK).astype(np.int64)

    def _hash_texts(self, offsets: Offsets) -> list[str]:
        return decode_hashes(self._hash_rows(offsets)) if len(offsets) else []

    def _hash_rows(self, offsets: Offsets) -> Bytes:
        heap = self._heaps[HASHES]
        heap.check_scattered(offsets, offsets + HASH_BYTES)
        rows = heap.data[: heap.length // HASH_BYTES * HASH_BYTES].reshape(-1, HASH_BYTES)
        return rows[offsets // HASH_BYTES]

    def _plain_texts(self, kind: int, lengths: Offsets, offsets: Offsets) -> list[str]:
        if not len(lengths):
            return []
        heap = self._heaps[kind]
        some = lengths > 0
        heap.check_scattered(offsets[some], (offsets + lengths)[some])
        starts, stops = offsets, offsets + lengths
        low, high, total = int(starts.min()), int(stops.max()), int(lengths.sum())
        if high - low <= _NEAR * total:  # they lie close together: copy all there is
            raw = heap.data[low:high].tobytes()
            starts, stops = starts - low, stops - low
        else:
            stops = np.cumsum(lengths)
            starts = stops - lengths
            wanted = np.arange(total, dtype=np.int64) + np.repeat(offsets - starts, lengths)
            raw = heap.data[wanted].tobytes()
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        if raw.isascii():
            text = raw.decode("ascii")
            return [text[start:stop] for start, stop in pairs]
        return [raw[start:stop].decode("utf-8") for start, stop in pairs]


def _encoded(text: str) -> bytes:
    """Return a text as UTF-8; a lone surrogate, which nothing stored holds, as other bytes."""
    return text.encode("utf-8", "surrogatepass")
