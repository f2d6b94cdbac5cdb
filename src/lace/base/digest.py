"""BLAKE3, plain and in derive-key mode: the only hash functions of Lace."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CONTEXT_PREFIX",
    "DIGEST_BYTES",
    "Hasher",
    "derive",
    "derive_blocks",
    "digest",
    "digest_each",
]

DIGEST_BYTES: Final = 32
CONTEXT_PREFIX: Final = "lace-\N{THREE NETWORKED COMPUTERS}/"


def digest(data: bytes | memoryview) -> bytes:
    """Return the 32-byte BLAKE3 digest of data."""
    return blake3(data).digest()


def digest_each(items: Iterable[bytes]) -> list[bytes]:
    """Return the digests of many short texts: one hasher for all takes half the time."""
    hasher = blake3()
    update, finish, reset = hasher.update, hasher.digest, hasher.reset
    made: list[bytes] = []
    for item in items:
        update(item)
        made.append(finish())
        reset()
    return made


class Hasher:
    """The digest of bytes that come in pieces."""

    __slots__ = ("_hasher",)

    def __init__(self) -> None:
        self._hasher = blake3()

    def update(self, piece: bytes | memoryview) -> None:
        """Take the next piece."""
        self._hasher.update(piece)

    def digest(self) -> bytes:
        """Return the digest of all pieces so far."""
        return self._hasher.digest()


@lru_cache(maxsize=32)
def _hasher(context: str) -> blake3:
    return blake3(derive_key_context=CONTEXT_PREFIX + context)


def derive(context: str, data: bytes) -> bytes:
    """Return 32 bytes of BLAKE3 derive-key output for Lace's context of that name."""
    # Copying a prepared hasher saves hashing the context string again.
    hasher = _hasher(context).copy()
    hasher.update(data)
    return hasher.digest()


def derive_blocks(context: str, data: bytes, block: int) -> bytes:
    """Return the 32-byte block of that index from the derive-key output stream."""
    hasher = _hasher(context).copy()
    hasher.update(data)
    return hasher.digest(length=DIGEST_BYTES, seek=block * DIGEST_BYTES)
