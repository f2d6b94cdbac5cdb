"""Signatures of records (009): keys, signing, verifying one and verifying many.

The arithmetic is `schnorr`; here it gets Lace's hash (BLAKE3 in derive-key mode),
its texts, and the refusals that sit above the curve. Randomness is an argument, or
comes with the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from lace.base import b64a
from lace.base.arguments import kind_of
from lace.base.digest import derive, derive_blocks
from lace.errors import RecordError
from lace.record import schnorr
from lace.record.ids import Signature, Verifier

if TYPE_CHECKING:
    from collections.abc import Sequence


class RandomBytes(Protocol):
    """A source of fresh random bytes, as `os.urandom`."""

    def __call__(self, size: int, /) -> bytes:
        """Return that many random bytes."""
        ...


_KEY_CONTEXT: Final = "adhoc-key"
_SECRET_CHARACTERS: Final = 48


def _derive_secret(material: bytes) -> bytes:
    """Return the first block of the key stream that is a scalar of the group."""
    block = 0
    while True:  # the first block is one but for a chance of 2**-128
        candidate = derive_blocks(_KEY_CONTEXT, material, block)
        if 0 < int.from_bytes(candidate) < schnorr.GROUP_ORDER:
            return candidate
        block += 1


class SigningKey:
    """A signing secret and what is derived from it; it never shows the secret.

    Args:
        material: 32 bytes of derivation material.
        random_bytes: where fresh randomness for signatures comes from.
    """

    __slots__ = ("_material", "_random_bytes", "_scalar", "verifier")

    random_source: ClassVar[RandomBytes | None] = None
    """Where `generate` gets its randomness; the front door installs this machine's."""

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key."""
        if cls.random_source is None:
            raise RecordError("a new key needs randomness: none is given", rule="009-secret")
        return cls(cls.random_source(32), cls.random_source)

    def __init__(self, material: bytes, random_bytes: RandomBytes) -> None:
        if not isinstance(material, (bytes, bytearray, memoryview)):
            raise RecordError(
                f"material is 32 secret bytes, not {kind_of(material)}",
                rule="009-secret",
                hint="make a key with SigningKey.generate(), or of its text with parse_secret",
            )
        if len(material) != 32:
            raise RecordError("a signing secret is 32 bytes", rule="009-secret")
        if not callable(random_bytes):
            raise RecordError(
                f"random_bytes is a function, not {kind_of(random_bytes)}",
                rule="009-aux",
                hint="give os.urandom",
            )
        self._material = bytes(material)
        self._random_bytes = random_bytes
        self._scalar, public_key = schnorr.keypair(_derive_secret(self._material))
        self.verifier: Final = Verifier.from_public_key(public_key)

    @classmethod
    def parse_secret(cls, text: str, random_bytes: RandomBytes) -> SigningKey:
        """Return the key of a secret text; errors never repeat the text."""
        if not isinstance(text, str):
            raise RecordError(
                f"a signing secret is read from text, not from {kind_of(text)}", rule="009-secret"
            )
        body = text[2:45]
        if len(text) == _SECRET_CHARACTERS and text[:2] == "&." and text[45:] == ".H3":
            try:
                return cls(b64a.decode(body), random_bytes)
            except b64a.B64AError:
                pass  # its message would show a part of the secret
        raise RecordError(
            "this is not a signing secret",
            rule="009-secret",
            hint="a secret is &, a dot, 43 Base64-Ascend characters and .H3",
        )

    def secret_text(self) -> str:
        """Return the secret's text, for a key file and nothing else."""
        return f"&.{b64a.encode(self._material)}.H3"

    def __repr__(self) -> str:
        return f"SigningKey({self.verifier})"

    def __reduce__(self) -> str:
        raise TypeError("a signing key is not pickled")

    def sign(self, message: bytes, aux: bytes | None = None) -> Signature:
        """Return the signature over a 32-byte message."""
        if aux is None:
            aux = self._random_bytes(32)
        if len(aux) != 32 or not any(aux):
            raise RecordError(
                "the auxiliary randomness is all zero or not 32 bytes", rule="009-aux"
            )
        if not isinstance(message, (bytes, bytearray, memoryview)):
            raise RecordError(
                f"message is a digest of 32 bytes, not {kind_of(message)}", rule="009-signature"
            )
        if len(message) != 32:
            raise RecordError("a signature is over a 32-byte digest", rule="009-signature")
        raw = schnorr.sign(self._scalar, self.verifier.public_key, message, aux, derive)
        return Signature.from_raw(raw)


def verify(verifier: Verifier, message: bytes, signature: Signature) -> bool:
    """Tell whether the signature is the verifier's over that 32-byte message."""
    return schnorr.verify(verifier.public_key, message, signature.raw, derive)


def verify_many(
    items: Sequence[tuple[bytes, bytes, bytes]], random_bytes: RandomBytes
) -> list[bool]:
    """Tell for each (public key, message, raw signature) whether it verifies."""
    if len(items) < 2:
        return [schnorr.verify(*item, derive) for item in items]
    from lace.record.schnorr_batch import verify_many as verify_batch  # loads NumPy

    return verify_batch(items, derive, random_bytes(32))
