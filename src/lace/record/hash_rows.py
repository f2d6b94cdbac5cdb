"""Many record hashes at once: texts and bytes, converted together.

A row of text has 48 characters, a row of bytes 33: the letter of the type and the digest.
One by one is `lace.record.ids`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "HASH_BYTES",
    "Octets",
    "are_hashes",
    "decode_hashes",
    "digests_of_rows",
    "encode_hashes",
    "keys_of_hashes",
    "texts_of_digests",
]

Octets = npt.NDArray[np.uint8]
HASH_BYTES: Final = DIGEST_BYTES + 1
_TEXT_BYTES: Final = 48
_PAYLOAD: Final = slice(2, 45)
_PADDED_BYTES: Final = 44
"""The characters of 33 bytes; those of a digest have one less."""
_ZERO: Final = ord(b64a.ALPHABET[0])
_DOT: Final = ord(".")
_SUFFIX: Final = np.frombuffer(b".H3", np.uint8)
_IS_CHARACTER: Final = np.zeros(256, np.bool_)
_IS_CHARACTER[np.frombuffer(b64a.ALPHABET.encode(), np.uint8)] = True
_IS_LETTER: Final = np.zeros(256, np.bool_)
_IS_LETTER[ord("A") : ord("Z") + 1] = True
_IS_LAST: Final = np.zeros(256, np.bool_)
_IS_LAST[np.frombuffer(b64a.final_characters(DIGEST_BYTES).encode(), np.uint8)] = True


def digests_of_rows(rows: Octets) -> Octets:
    """Return the digests of texts of record hashes, a row each."""
    padded = np.full((len(rows), _PADDED_BYTES), _ZERO, np.uint8)
    padded[:, : _PADDED_BYTES - 1] = rows[:, _PAYLOAD]
    made = np.frombuffer(b64a.decode_canonical(padded.tobytes()), np.uint8)
    return made.reshape(-1, HASH_BYTES)[:, :DIGEST_BYTES]


def texts_of_digests(letters: Octets, digests: Octets) -> list[str]:
    """Return the texts of record hashes."""
    padded = np.zeros((len(digests), HASH_BYTES), np.uint8)
    padded[:, :DIGEST_BYTES] = digests
    payloads = np.frombuffer(b64a.encode_ascii(padded.tobytes()), np.uint8)
    made = np.empty((len(digests), _TEXT_BYTES), np.uint8)
    made[:, 0], made[:, 1] = letters, _DOT
    made[:, _PAYLOAD] = payloads.reshape(-1, _PADDED_BYTES)[:, : _PADDED_BYTES - 1]
    made[:, _PAYLOAD.stop :] = _SUFFIX
    text = made.tobytes().decode("latin-1")
    return [text[at : at + _TEXT_BYTES] for at in range(0, len(text), _TEXT_BYTES)]


def are_hashes(rows: Octets) -> npt.NDArray[np.bool_]:
    """Tell which rows of 48 characters are record hashes."""
    is_hash: npt.NDArray[np.bool_] = _IS_LETTER[rows[:, 0]] & (rows[:, 1] == _DOT)
    is_hash &= _IS_CHARACTER[rows[:, _PAYLOAD]].all(axis=1) & _IS_LAST[rows[:, _PAYLOAD.stop - 1]]
    is_hash &= (rows[:, _PAYLOAD.stop :] == _SUFFIX).all(axis=1)
    return is_hash


def encode_hashes(rows: Octets) -> Octets:
    """Return the texts of record hashes, a row each, as rows of 33 bytes: letter and digest."""
    made = np.empty((len(rows), HASH_BYTES), np.uint8)
    made[:, 0] = rows[:, 0]
    made[:, 1:] = digests_of_rows(rows)
    return made


def decode_hashes(rows: Octets) -> list[str]:
    """Return the texts of rows that `encode_hashes` gave."""
    return texts_of_digests(rows[:, 0], rows[:, 1:])


def keys_of_hashes(texts: Sequence[str]) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """Return letter and digest in 33 bytes of those texts that are record hashes.

    Returns:
        The rows, and which texts they belong to.
    """
    is_hash = np.array([len(text) == _TEXT_BYTES and text.isascii() for text in texts], np.bool_)
    chosen = texts if is_hash.all() else [texts[at] for at in np.flatnonzero(is_hash).tolist()]
    rows = np.frombuffer("".join(chosen).encode("ascii"), np.uint8).reshape(-1, _TEXT_BYTES)
    usual = are_hashes(rows)
    is_hash[is_hash] = usual
    return encode_hashes(rows[usual]), is_hash
