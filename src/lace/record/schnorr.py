"""Schnorr signatures of BIP-340's shape on secp256k1, whatever the hash.

Here lives the arithmetic of section 009: key pairs, signing, and checking one signature. The hash
is an argument (`Tag`), so that the published BIP-340 vectors, made with tagged SHA-256, check the
very code that Lace runs with BLAKE3.

Not here: Lace's own tags, key derivation from a secret text and the refusal of all-zero auxiliary
bytes (they belong to Lace, not to the arithmetic), and checking many signatures together, which
needs NumPy (`lace.record.schnorr_batch`).

Every operation on points is libsecp256k1's, by way of coincurve. Scalars are Python integers,
whose arithmetic is not constant in time: sign where nobody can time the signing closely.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from coincurve import PublicKey

# The compiled module carries no types, so both names are `Any`; none of their values leaves here.
from coincurve._libsecp256k1 import ffi, lib  # type: ignore[import-not-found]

Tag: TypeAlias = Callable[[str, bytes], bytes]
"""`tag(name, message)` gives 32 bytes; the names are `aux`, `nonce` and `challenge`."""

FIELD_PRIME: Final = 2**256 - 2**32 - 977
GROUP_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

_EVEN = b"\x02"


def keypair(secret: bytes) -> tuple[bytes, bytes]:
    """Give the signing scalar and the x-only public key of a 32-byte secret scalar.

    The signing scalar is the secret or its negative, whichever has a public point of even y.
    """
    number = _scalar(secret, "secret")
    point = PublicKey.from_secret(secret).format()
    if point[:1] != _EVEN:
        number = GROUP_ORDER - number
    return number.to_bytes(32), point[1:]


def sign(d: bytes, public_key: bytes, message: bytes, aux: bytes, tag: Tag) -> bytes:
    """Sign a 32-byte message, giving 64 bytes: the nonce point's x, then the scalar.

    `d` and `public_key` are the pair that `keypair` gave.
    """
    number = _scalar(d, "signing scalar")
    if not len(public_key) == len(message) == len(aux) == 32:
        raise ValueError("public key, message and auxiliary bytes must be 32 bytes each")
    mask = int.from_bytes(tag("aux", aux))
    masked = (number ^ mask).to_bytes(32)
    nonce = int.from_bytes(tag("nonce", masked + public_key + message)) % GROUP_ORDER
    if nonce == 0:
        raise ValueError("the nonce is zero; sign again with other auxiliary bytes")
    point = PublicKey.from_secret(nonce.to_bytes(32)).format()
    if point[:1] != _EVEN:
        nonce = GROUP_ORDER - nonce
    challenge = int.from_bytes(tag("challenge", point[1:] + public_key + message))
    return point[1:] + ((nonce + challenge * number) % GROUP_ORDER).to_bytes(32)


def verify(public_key: bytes, message: bytes, signature: bytes, tag: Tag) -> bool:
    """Tell whether a signature over a 32-byte message is the public key's.

    Bytes of any length are answered: whatever is malformed is False.
    """
    if len(public_key) != 32 or len(message) != 32 or len(signature) != 64:
        return False
    x = int.from_bytes(public_key)
    s = int.from_bytes(signature[32:])
    if x >= FIELD_PRIME or s >= GROUP_ORDER:
        return False
    r = signature[:32]
    e = int.from_bytes(tag("challenge", r + public_key + message)) % GROUP_ORDER
    # Recovery divides by x and refuses a zero scalar; no honest signer ever meets either.
    recoverable = e != 0 and x % GROUP_ORDER != 0
    point = _difference_by_recovery(x, s, e) if recoverable else _difference(public_key, s, e)
    # One comparison says it all: not infinity, y even, x equal. It also refuses r >= p, since
    # a point's x is always written reduced.
    return point == _EVEN + r


def _scalar(data: bytes, name: str) -> int:
    number = int.from_bytes(data)
    if len(data) != 32 or not 0 < number < GROUP_ORDER:
        raise ValueError(f"the {name} must be 32 bytes, above zero and below the group order")
    return number


def _difference_by_recovery(x: int, s: int, e: int) -> bytes | None:
    """Give s*G - e*P, compressed, P having this x and even y; None if infinity or no such P.

    libsecp256k1 offers a sum of two multiples in one pass only inside ECDSA. Recovering a public
    key from the signature (t, u) over m gives (u*T - m*G) / t, where T is the point whose x is t.
    With T = P, u = -e*t and m = -s*t that is s*G - e*P, at under three quarters of the cost of
    adding two separate multiples.
    """
    t = x % GROUP_ORDER
    compact = t.to_bytes(32) + (-e * t % GROUP_ORDER).to_bytes(32)
    context = lib.secp256k1_context_static
    recoverable = ffi.new("secp256k1_ecdsa_recoverable_signature *")
    # The recovery number's lowest bit says that y is odd, the next that x is t + n, not t.
    number = 2 if x >= GROUP_ORDER else 0
    if not lib.secp256k1_ecdsa_recoverable_signature_parse_compact(
        context, recoverable, compact, number
    ):  # pragma: no cover  (both halves are reduced, so the library has nothing to refuse)
        return None
    point = ffi.new("secp256k1_pubkey *")
    digest = (-s * t % GROUP_ORDER).to_bytes(32)
    if not lib.secp256k1_ecdsa_recover(context, point, recoverable, digest):
        return None
    output = ffi.new("unsigned char [33]")
    length = ffi.new("size_t *", 33)
    lib.secp256k1_ec_pubkey_serialize(context, output, length, point, lib.SECP256K1_EC_COMPRESSED)
    return bytes(ffi.buffer(output))


def _difference(public_key: bytes, s: int, e: int) -> bytes | None:
    """Give what `_difference_by_recovery` gives, by plain multiples, for any scalars."""
    try:
        point = PublicKey(_EVEN + public_key)
        terms = [PublicKey.from_secret(s.to_bytes(32))] if s else []
        if e:
            terms.append(point.multiply((GROUP_ORDER - e).to_bytes(32)))
        # coincurve reports a sum at infinity, and a point off the curve, as a ValueError.
        return PublicKey.combine_keys(terms).format() if terms else None
    except ValueError:
        return None
