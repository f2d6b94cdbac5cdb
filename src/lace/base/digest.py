"""BLAKE3, plain and in derive-key mode: the only hash functions of Lace."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from blake3 import blake3

__all__ = ["DIGEST_BYTES", "CONTEXT_PREFIX", "derive", "derive_blocks", "digest"]

DIGEST_BYTES: Final = 32
CONTEXT_PREFIX: Final = "lace-\N{THREE NETWORKED COMPUTERS}/"


def digest(data: bytes | memoryview) -> bytes:
    """Return the 32-byte BLAKE3 digest of data."""
    return blake3(data).digest()


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
