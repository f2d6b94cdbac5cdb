"""The texts of one append: which are new, what they get as ids, and how they are stored.

Texts of one length (record hashes, signatures, times) are rows of a matrix and never
become Python values; all others go through a dictionary once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.stored_dictionary import (
    COLD,
    HASHES,
    TEXTS,
    pack_locations,
)
from lace.facts.columns import FIRST
from lace.record.hash_rows import encode_hashes
from lace.record.ids import HASH_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engines.embedded.segment_files import Bytes, Ids
    from lace.engines.embedded.stored_dictionary import StoredDictionary
    from lace.engines.embedded.stored_hash import Hashes, TextHash
    from lace.facts.columns import FactColumns

__all__ = ["Texts"]

_HASH_END: Final = ".H3"
_SIGNATURE_BYTES: Final = 86
_TAI_BYTES: Final = 20

Positions = npt.NDArray[np.int64]


class Texts:
    """The texts of a batch of facts, with their ids; new texts get the next ones.

    The order of the parts decides how a text is stored that is in several of them: as a
    record hash rather than as a text.

    Args:
        columns: the facts.
        dictionary: the texts that are stored already.
        text_hash: the hash function of the generation.
    """

    def __init__(
        self, columns: FactColumns, dictionary: StoredDictionary, text_hash: TextHash
    ) -> None:
        targets = [text.encode() for text in columns.link_target if _is_hash(text)]
        tai = "".join(columns.tai).encode()
        others = dict.fromkeys(_other_texts(columns))
        rows = [
            (HASHES, _matrix(b"".join(columns.records), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(columns.blob), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(columns.plex), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(targets), HASH_TEXT_BYTES)),
            (COLD, _matrix(b"".join(columns.signature), _SIGNATURE_BYTES)),
            (TEXTS, _matrix(tai, _TAI_BYTES)),
        ]
        self._rows = rows
        self._others = [text.encode() for text in others]
        sizes = [*(len(matrix) for _heap, matrix in rows), len(self._others)]
        self._bounds: list[int] = [0, *np.cumsum(sizes).tolist()]
        hashes = np.concatenate(
            [
                *(text_hash.of_rows(matrix) for _heap, matrix in rows),
                text_hash.of_texts(self._others),
            ]
        )
        order = np.argsort(hashes)
        first_of = self._first_of(hashes, order)
        is_first = first_of == np.arange(len(hashes))
        order = order[is_first[order]]
        ids = np.full(len(hashes), -1, np.int32)
        sorted_hashes = hashes[order]
        for at, found in dictionary.find_sorted(sorted_hashes, lambda at: self._text(order[at])):
            ids[order[at]] = found
        self._new = np.flatnonzero(is_first & (ids < 0))
        ids[self._new] = len(dictionary) + np.arange(len(self._new))
        new = ids[order] >= len(dictionary)
        self.new_hashes: Hashes = sorted_hashes[new]
        """The hashes of the new texts, sorted."""
        self.new_ids: Ids = ids[order[new]]
        """Their ids."""
        self._ids = ids[first_of]
        self._ids_of_others = dict(zip(others, self._ids[self._bounds[-2] :].tolist(), strict=True))
        self.records, self.blob, self.plex, _targets, self.signature, self.tai = (
            self._ids[start:stop] for start, stop in pairwise(self._bounds[:-1])
        )

    def ids(self, column: Sequence[str]) -> Ids:
        """Return a column of other texts as ids."""
        return np.fromiter(map(self._ids_of_others.__getitem__, column), np.int32, len(column))

    def targets(self, column: Sequence[str]) -> Ids:
        """Return the targets of record links as ids."""
        made = np.empty(len(column), np.int32)
        is_hash = np.fromiter(map(_is_hash, column), np.bool_, len(column))
        made[is_hash] = self._ids[self._bounds[3] : self._bounds[4]]
        made[~is_hash] = self.ids([text for text in column if not _is_hash(text)])
        return made

    def stored(self, ends: Sequence[int]) -> tuple[list[Bytes], npt.NDArray[np.uint64]]:
        """Return what each heap, which ends there now, and `locate` get for the new texts."""
        heaps: list[list[Bytes]] = [[] for _end in ends]
        places = list(ends)
        located: list[npt.NDArray[np.uint64]] = []

        def add(heap: int, data: Bytes, lengths: Positions) -> None:
            heaps[heap].append(data.reshape(-1))
            offsets = places[heap] + np.cumsum(lengths) - lengths
            places[heap] += len(heaps[heap][-1])
            located.append(pack_locations(heap, lengths, offsets))

        cuts = np.searchsorted(self._new, self._bounds).tolist()
        for part, (heap, matrix) in enumerate(self._rows):
            rows = matrix[self._new[cuts[part] : cuts[part + 1]] - self._bounds[part]]
            data = encode_hashes(rows) if heap == HASHES else rows
            add(heap, data, np.full(len(rows), data.shape[1], np.int64))
        at = (self._new[cuts[-2] :] - self._bounds[-2]).tolist()
        texts = [self._others[n] for n in at]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        add(TEXTS, np.frombuffer(b"".join(texts), np.uint8), lengths)
        return [np.concatenate([*parts, _NOTHING]) for parts in heaps], np.concatenate(located)

    def _first_of(self, hashes: Hashes, order: Positions) -> Positions:
        """Return for each text the position of one that is equal: the same for all equal ones."""
        ordered = hashes[order]
        leads = np.ones(len(order), np.bool_)
        leads[1:] = ordered[1:] != ordered[:-1]
        lead_at = np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))
        leader = order[lead_at]
        made = np.empty(len(order), np.int64)
        made[order] = leader
        strangers: dict[bytes, int] = {}  # texts whose hash is also that of another one
        followers = np.flatnonzero(~leads)
        for place, lead in zip(order[followers].tolist(), leader[followers].tolist(), strict=True):
            text = self._text(place)
            if text != self._text(lead):
                made[place] = strangers.setdefault(text, place)
        return made

    def _text(self, position: int) -> bytes:
        part = bisect_right(self._bounds, position) - 1
        at = position - self._bounds[part]
        if part == len(self._rows):
            return self._others[at]
        text: bytes = self._rows[part][1][at].tobytes()
        return text


_NOTHING: Final[Bytes] = np.empty(0, np.uint8)


def _matrix(data: bytes, width: int) -> Bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def _other_texts(columns: FactColumns) -> chain[str]:
    record_fields, plex_fields = columns.record_fields(), columns.plex_fields()
    return chain(
        (FIRST, "Signed-By", "Signature"),
        *((name, *values) for name, values in record_fields),
        *((name, *values) for name, values in plex_fields if name != "TAI"),
        ("TAI",),
        columns.signed_by,
        columns.header_name,
        columns.header_index,
        columns.header_value,
        columns.link_data,
        (text for text in columns.link_target if not _is_hash(text)),
    )


def _is_hash(target: str) -> bool:
    """Tell whether a record link's target is a record hash."""
    return len(target) == HASH_TEXT_BYTES and target.endswith(_HASH_END)
