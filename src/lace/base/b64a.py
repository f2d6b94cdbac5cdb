"""Base64-Ascend (006): six bits a character, in an alphabet whose bytes ascend.

Equal-length texts sort as their bytes do, so a sorted list of hash texts is a
sorted list of digests. There is one text for each byte string: other characters,
impossible lengths and non-zero fill bits are refused.
"""

from __future__ import annotations

import binascii
from typing import Final

from lace.errors import RecordError

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"

# The standard library encodes the same six-bit groups in another alphabet.
_STANDARD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FROM_STANDARD: Final = bytes.maketrans(_STANDARD, ALPHABET.encode())
_TO_STANDARD: Final = bytes.maketrans(ALPHABET.encode(), _STANDARD)
_CHARACTERS: Final = ALPHABET.encode()
_PADDING: Final = {0: b"", 2: b"==", 3: b"="}
_FILL_BITS: Final = {0: 0, 2: 4, 3: 2}


class B64AError(RecordError):
    """A text that is not the Base64-Ascend form of any byte string."""


def encode_ascii(data: bytes) -> bytes:
    """Return the Base64-Ascend text of data as ASCII bytes."""
    return binascii.b2a_base64(data, newline=False).translate(_FROM_STANDARD, b"=")


def encode(data: bytes) -> str:
    """Return the Base64-Ascend text of data.

    >>> encode(bytes.fromhex("ff00"))
    '~l0'
    """
    return encode_ascii(data).decode("ascii")


def decode(text: str) -> bytes:
    """Return the bytes whose Base64-Ascend form is exactly text.

    >>> decode("~l0").hex()
    'ff00'
    """
    return decode_ascii(text.encode("utf-8", "surrogatepass"))


def has_foreign(text: bytes) -> bool:
    """Tell whether some character of an ASCII text is not in the alphabet."""
    return bool(text.translate(None, _CHARACTERS))


def decode_ascii(text: bytes) -> bytes:
    """Return the bytes whose Base64-Ascend form is that ASCII text; refuses as `decode`."""
    if has_foreign(text):
        position = next(i for i, byte in enumerate(text) if byte not in _CHARACTERS)
        shown = text[position:].decode("utf-8", "replace")[0]
        raise B64AError(
            f"character {shown!r} at position {position} is not in the Base64-Ascend alphabet",
            rule="006-alphabet",
        )
    remainder = len(text) % 4
    if remainder == 1:
        raise B64AError(
            f"no byte string has a Base64-Ascend text of {len(text)} characters", rule="006-length"
        )
    fill = _FILL_BITS[remainder]
    if fill and _CHARACTERS.index(text[-1]) % (1 << fill):
        raise B64AError(
            f"the last character {chr(text[-1])!r} has non-zero fill bits", rule="006-fill-bits"
        )
    return decode_canonical(text)


def decode_canonical(text: bytes) -> bytes:
    """Return the bytes of an ASCII text that a pattern has found to be canonical."""
    return binascii.a2b_base64(text.translate(_TO_STANDARD) + _PADDING[len(text) % 4])


def final_characters(length: int) -> str:
    """Return the characters that a canonical text of that many bytes may end with."""
    fill = _FILL_BITS[-(-8 * length // 6) % 4]
    return ALPHABET[:: 1 << fill]
