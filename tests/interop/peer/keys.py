"""Signatures of 009: BIP-340's shape on secp256k1, with BLAKE3 in derive-key mode."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import blake3
from coincurve import PrivateKey, PublicKey

from tests.interop.peer.text import PeerError, decode, encode

__all__ = ["Key", "verifies"]

FIELD = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def _tag(context: str, message: bytes, length: int = 32) -> bytes:
    return blake3.blake3(message, derive_key_context=f"lace-🖧/{context}").digest(length)


def _whole(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _times_base(scalar: int) -> bytes:
    """A multiple of the base point: 02 or 03, then x."""
    return PrivateKey.from_int(scalar).public_key.format()


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key."""

    scalar: int
    x: bytes

    @classmethod
    def from_secret(cls, payload: bytes) -> Key:
        """The key of 32 bytes of derivation material."""
        block = 0
        while True:
            stream = _tag("adhoc-key", payload, 32 * (block + 1))
            scalar = _whole(stream[-32:])
            if 0 < scalar < ORDER:
                break
            block += 1
        point = _times_base(scalar)
        return cls(ORDER - scalar if point[0] == 3 else scalar, point[1:])

    @classmethod
    def generate(cls) -> Key:
        """A new key."""
        return cls.from_secret(secrets.token_bytes(32))

    @property
    def verifier(self) -> str:
        """The text that others know the key by."""
        return f"V.{encode(self.x)}.H3"

    def sign(self, message: bytes, aux: bytes | None = None) -> str:
        """Sign 32 bytes."""
        masked = self.scalar ^ _whole(_tag("aux", aux or secrets.token_bytes(32)))
        nonce = _whole(_tag("nonce", masked.to_bytes(32, "big") + self.x + message)) % ORDER
        point = _times_base(nonce)
        if point[0] == 3:
            nonce = ORDER - nonce
        e = _whole(_tag("challenge", point[1:] + self.x + message)) % ORDER
        return encode(point[1:] + ((nonce + e * self.scalar) % ORDER).to_bytes(32, "big"))


def verifies(verifier: str, message: bytes, signature: str) -> bool:
    """Tell whether a signature over 32 bytes is the verifier's."""
    if not (verifier.startswith("V.") and verifier.endswith(".H3")):
        raise PeerError(f"not a verifier: {verifier!r}")
    x = decode(verifier[2:-3], 32)
    raw = decode(signature, 64)
    r, s = _whole(raw[:32]), _whole(raw[32:])
    if r >= FIELD or s >= ORDER:
        return False
    e = _whole(_tag("challenge", raw[:32] + x + message)) % ORDER
    try:
        point = PublicKey(b"\x02" + x)
        parts = [PublicKey(_times_base(s))] if s else []
        if e:
            parts.append(point.multiply((ORDER - e).to_bytes(32, "big")))
        found = PublicKey.combine_keys(parts).format()
    except ValueError:  # no such point, or the sum is infinity
        return False
    return found == b"\x02" + raw[:32]
