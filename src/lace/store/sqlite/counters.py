"""The counters of the store: what it holds, and a mark that tells sets of records apart.

`key_xor` is the XOR of the first 64 digest bits of every stored record. Together with the
number of records it tells whether facts that are kept beside the database are those of the
records in it, without a look at any of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from lace.base.digest import DIGEST_BYTES
from lace.store.interface import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Counters", "key_number", "read_counters", "xor_of_digests", "xor_of_keys"]


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of one state; a store of version 1 has only the first three."""

    records: int
    record_bytes: int
    high_water: int
    removal_sequence: int | None = None
    key_xor: int | None = None


def read_counters(rows: Iterable[Sequence[object]], place: object) -> Counters:
    """Return the counters of the rows of their table.

    Raises:
        StoreDamagedError: one is missing that every store has.
    """
    values = {str(name): int(str(value)) for name, value in rows}
    try:
        return Counters(
            values["records"],
            values["record_bytes"],
            values["high_water"],
            values.get("removal_sequence"),
            values.get("key_xor"),
        )
    except KeyError as error:
        raise StoreDamagedError(
            f"{place} has lost its counter {error}", hint="run `lace verify`"
        ) from None


def key_number(key: bytes) -> int:
    """Return the number of a record's key: the first 64 bits of its digest, signed."""
    return int.from_bytes(key[1:9], "big", signed=True)


def xor_of_keys(keys: Iterable[bytes]) -> int:
    """Return the XOR of the numbers of keys."""
    return reduce(xor, map(key_number, keys), 0)


def xor_of_digests(digests: Sequence[bytes]) -> int:
    """Return the same from digests of 32 bytes each."""
    words = memoryview(b"".join(digests)).cast("Q")  # as this machine reads them: XOR is bitwise
    found = reduce(xor, words[:: DIGEST_BYTES // words.itemsize].tolist(), 0)
    return int.from_bytes(found.to_bytes(words.itemsize, sys.byteorder), "big", signed=True)
