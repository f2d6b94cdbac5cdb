"""Keyed hashes of texts, many at a time: where a stored dictionary looks for a text.

Multilinear hashing: a text's 32-bit words, its length and a constant, each times a secret
64-bit number, are added up; the upper half of such a sum is universal, and two of them make
64 bits. Who does not know the key of a generation cannot choose texts that collide. A hash
only says where to look: the texts themselves are always compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.base.digest import derive_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_TEXT_BYTES", "Hashes", "TextHash"]

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
