"""Many record hashes at once: texts and bytes, converted together.

A row of text has 48 characters, a row of bytes 33: the letter of the type and the digest.
One by one is `lace.record.ids`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.record.ids import HASH_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection


Octets = npt.NDArray[np.uint8]
HASH_BYTES: Final = DIGEST_BYTES + 1
_TEXT_BYTES: Final = 48
_PAYLOAD: Final = slice(2, 45)
_PADDED_BYTES: Final = 44
"""The characters of 33 bytes; those of a digest have one less."""
_AT_ONCE: Final = 4096
"""Rows that are converted together: what they pass through stays in the processor's cache."""
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
    made = np.empty((len(rows), DIGEST_BYTES), np.uint8)
    for some in _parts(len(rows)):
        chosen = rows[some]
        padded = np.full((len(chosen), _PADDED_BYTES), _ZERO, np.uint8)
        padded[:, : _PADDED_BYTES - 1] = chosen[:, _PAYLOAD]
        digests = np.frombuffer(b64a.decode_canonical(padded.tobytes()), np.uint8)
        made[some] = digests.reshape(-1, HASH_BYTES)[:, :DIGEST_BYTES]
    return made


def texts_of_digests(letters: Octets, digests: Octets) -> list[str]:
    """Return the texts of record hashes."""
    made: list[str] = []
    for some in _parts(len(digests)):
        text = _rows_of_text(letters[some], digests[some]).tobytes().decode("ascii")
        made += [text[at : at + _TEXT_BYTES] for at in range(0, len(text), _TEXT_BYTES)]
    return made


def rows_of_text(rows: Octets) -> Octets:
    """Return the texts, in rows of 48 characters, of rows that `encode_hashes` gave."""
    made = np.empty((len(rows), _TEXT_BYTES), np.uint8)
    for some in _parts(len(rows)):
        made[some] = _rows_of_text(rows[some, 0], rows[some, 1:])
    return made


def _rows_of_text(letters: Octets, digests: Octets) -> Octets:
    padded = np.zeros((len(digests), HASH_BYTES), np.uint8)
    padded[:, :DIGEST_BYTES] = digests
    payloads = np.frombuffer(b64a.encode_ascii(padded.tobytes()), np.uint8)
    made = np.empty((len(digests), _TEXT_BYTES), np.uint8)
    made[:, 0], made[:, 1] = letters, _DOT
    made[:, _PAYLOAD] = payloads.reshape(-1, _PADDED_BYTES)[:, : _PADDED_BYTES - 1]
    made[:, _PAYLOAD.stop :] = _SUFFIX
    return made


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, _AT_ONCE):
        yield slice(start, start + _AT_ONCE)


def are_hashes(rows: Octets) -> npt.NDArray[np.bool_]:
    """Tell which rows of 48 characters are record hashes."""
    is_hash: npt.NDArray[np.bool_] = _IS_LETTER[rows[:, 0]] & (rows[:, 1] == _DOT)
    is_hash &= _IS_LAST[rows[:, _PAYLOAD.stop - 1]]
    is_hash &= (rows[:, _PAYLOAD.stop :] == _SUFFIX).all(axis=1)
    for some in _parts(len(rows)):
        payloads = rows[some, _PAYLOAD]
        if b64a.has_foreign(payloads.tobytes()):  # rarely: then it is asked one by one
            is_hash[some] &= _IS_CHARACTER[payloads].all(axis=1)
    return is_hash


def are_all_hashes(texts: Collection[str], letters: str) -> bool:
    """Tell whether all texts are record hashes, of types with these letters."""
    joined = "".join(texts)
    if not joined.isascii() or not {_TEXT_BYTES}.issuperset(map(len, texts)):
        return False
    if not {*joined[::_TEXT_BYTES]} <= {*letters}:
        return False
    rows = np.frombuffer(joined.encode("ascii"), np.uint8).reshape(-1, _TEXT_BYTES)
    return bool(are_hashes(rows).all())


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
    joined = "".join(texts)
    if joined.isascii() and {_TEXT_BYTES}.issuperset(map(len, texts)):  # as nearly always
        rows = np.frombuffer(joined.encode("ascii"), np.uint8).reshape(-1, _TEXT_BYTES)
        is_hash = are_hashes(rows)
        return encode_hashes(rows if is_hash.all() else rows[is_hash]), is_hash
    is_long = np.array([len(text) == _TEXT_BYTES and text.isascii() for text in texts], np.bool_)
    is_hash = np.zeros(len(texts), np.bool_)
    if not is_long.any():
        return np.empty((0, HASH_BYTES), np.uint8), is_hash
    found, is_hash[is_long] = keys_of_hashes([texts[at] for at in np.flatnonzero(is_long).tolist()])
    return found, is_hash


# -- A long list of record hashes that takes half the memory of separate texts.


class HashList(Sequence[str]):
    """Record hashes in the order in which they were added.

    >>> made = HashList()
    >>> made.append("B.0000000000000000000000000000000000000000000.H3")
    >>> len(made), made[0][:5]
    (1, 'B.000')
    """

    __slots__ = ("_count", "_text")

    def __init__(self, records: Sequence[str] = ()) -> None:
        self._text = bytearray()
        self._count: int | None = None
        for record in records:
            self.append(record)

    def append(self, record: str) -> None:
        """Add one."""
        if len(record) != HASH_TEXT_BYTES or self._count is not None:
            raise ValueError(f"{record!r} is no record hash, or nothing can be added")
        self._text += record.encode("ascii")

    def as_of_now(self) -> HashList:
        """Return the list as it is at this moment; it takes no memory of its own."""
        made = HashList()
        made._text, made._count = self._text, len(self)
        return made

    def __len__(self) -> int:
        return len(self._text) // HASH_TEXT_BYTES if self._count is None else self._count

    def _at(self, place: int) -> str:
        start = place * HASH_TEXT_BYTES
        return self._text[start : start + HASH_TEXT_BYTES].decode("ascii")

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        """Return the hash at a place, or those of some places."""
        if isinstance(place, slice):
            return [self._at(each) for each in range(len(self))[place]]
        return self._at(range(len(self))[place])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (HashList, tuple, list)):
            return len(self) == len(other) and all(map(str.__eq__, self, other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # it grows

    def __repr__(self) -> str:
        return f"<{len(self):,} record hashes>"
