"""The dictionary of stored segments: from texts to ids and back.

Ids count from 0 in the order in which texts arrived. `locate` has a number for each id
that says which heap holds the text, where and how long. Record hashes are kept as 33
bytes, signatures apart from all other texts: a reader of every Name reads no hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.dictionary import fingerprints_of
from lace.engines.embedded.segment_journal import SegmentDamagedError
from lace.engines.embedded.stored_hash import MOST_TEXT_BYTES
from lace.engines.embedded.stored_index import candidates
from lace.record.hash_rows import HASH_BYTES, decode_hashes, rows_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.engines.embedded.segment_files import Bytes, CheckedFile, Ids
    from lace.engines.embedded.stored_hash import Hashes, TextHash
    from lace.engines.embedded.stored_index import Run

__all__ = [
    "COLD",
    "HASHES",
    "LOCATE_KIND",
    "TEXTS",
    "StoredDictionary",
    "pack_locations",
]

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
    """Texts and their ids in one state of the segments; it never changes.

    Args:
        count: how many texts there are.
        locate: the file of their places.
        heaps: the files that hold them.
        runs: the index by hash.
        text_hash: the hash function of this generation.
    """

    def __init__(
        self,
        count: int,
        locate: CheckedFile,
        heaps: Sequence[CheckedFile],
        runs: Sequence[Run],
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
        """Return the id of each text; -1 where it has none.

        Raises:
            SegmentDamagedError: what was looked at is not what was written.
        """
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
        """Return the ids of record hashes, in rows as `encode_hashes` gives them.

        Raises:
            SegmentDamagedError: what was looked at is not what was written.
        """
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
        """Yield positions among sorted hashes, and the ids of the texts that are there.

        Args:
            hashes: the hashes of some texts, sorted.
            text_at: the UTF-8 text at a position.
        """
        for at, ids in candidates(self._runs, hashes):
            stored = self.texts(ids)
            same = [
                text_at(place) == text.encode()
                for place, text in zip(at.tolist(), stored, strict=True)
            ]
            yield at[same], ids[same]
        self._forget_index(len(hashes))

    def texts(self, ids: Ids) -> list[str]:
        """Return the text of each id.

        Raises:
            SegmentDamagedError: what was looked at is not what was written.
        """
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
