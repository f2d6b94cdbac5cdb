"""BLAKE3, plain and with Lace's contexts."""

from __future__ import annotations

from blake3 import blake3

from lace.base.digest import CONTEXT_PREFIX, DIGEST_BYTES, derive, derive_blocks, digest


def test_the_context_is_spelled_exactly() -> None:
    assert CONTEXT_PREFIX.encode().hex().upper() == "6C6163652DF09F96A72F"


def test_digest_is_plain_blake3() -> None:
    # The published digest of no bytes at all.
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest(b"").hex() == empty
    assert digest(b"abc") == blake3(b"abc").digest()
    assert digest(memoryview(b"xabc")[1:]) == digest(b"abc")
    assert len(digest(b"")) == DIGEST_BYTES


def test_derive_is_derive_key_mode() -> None:
    expected = blake3(b"m", derive_key_context="lace-\U0001f5a7/nonce").digest()
    assert derive("nonce", b"m") == expected
    assert derive("nonce", b"m") == expected  # the prepared hasher is not used up
    assert derive("challenge", b"m") != expected
    assert derive_blocks("nonce", b"m", 0) == expected
    stream = blake3(b"m", derive_key_context="lace-\U0001f5a7/nonce").digest(length=96)
    assert derive_blocks("nonce", b"m", 2) == stream[64:]
