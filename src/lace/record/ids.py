"""Identifiers as distinct types: record hashes, verifiers, signatures.

Each is its text, so it prints, sorts and compares as text; the constructor accepts
only the canonical form. Bulk code that has just made or checked a text calls the
`trusted_` functions, which do not look again.
"""

from __future__ import annotations

import re
from typing import Final

from lace.base import b64a
from lace.base.arguments import is_text_of, kind_of
from lace.errors import RecordError

RECORD_TYPES: Final = ("B", "P", "S")
HASH_TEXT_BYTES: Final = 48
"""Length of `T.<43>.H3`."""

_SYMBOL: Final = "[0-9A-Z_a-z~]"
_DIGEST: Final = f"{_SYMBOL}{{42}}[{b64a.final_characters(32)}]"
VERIFIER_PATTERN: Final = rf"V\.{_DIGEST}\.H3"
SIGNATURE_PATTERN: Final = f"{_SYMBOL}{{85}}[{b64a.final_characters(64)}]"
_RECORD_ID: Final = re.compile(rf"[BPS]\.{_DIGEST}\.H3")
_VERIFIER: Final = re.compile(VERIFIER_PATTERN)
_SIGNATURE: Final = re.compile(SIGNATURE_PATTERN)
_TARGET: Final = re.compile(rf"([A-Z])\.({_SYMBOL}+)\.([0-9A-Za-z]+)")


class IdError(RecordError):
    """A text that is no identifier of the kind asked for."""


def _refusal(what: str, form: str, given: object, rule: str) -> IdError:
    """Return the error for something that is no identifier: another text, or no text at all."""
    message = f"{what} is text, not {kind_of(given)}"
    if isinstance(given, str):
        message = f"{given!r} is not {what}"
    return IdError(message, rule=rule, hint=f"{what} is {form}")


class RecordId(str):
    """The typed hash text of a record: `B.…`, `P.…` or `S.…`, 43 characters, `.H3`.

    Raises:
        IdError: another type letter, another suffix, or not canonical.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> RecordId:
        """Check a text; what is one already is returned as it is."""
        if isinstance(text, RecordId):
            return text
        if not is_text_of(_RECORD_ID, text):
            raise _refusal(
                "a record hash",
                "B, P or S, a dot, 43 Base64-Ascend characters and .H3",
                text,
                "020-01",
            )
        return super().__new__(cls, text)

    @property
    def type(self) -> str:
        """The record type: B, P or S."""
        return self[0]

    @property
    def digest(self) -> bytes:
        """The 32 digest bytes."""
        return b64a.decode(self[2:45])


class Verifier(str):
    """The text of a public key, `V.<43>.H3`: the x-coordinate of a curve point.

    Whether the point is on the curve is checked where it is used.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Verifier:
        """Check a text; what is one already is returned as it is."""
        if isinstance(text, Verifier):
            return text
        if not is_text_of(_VERIFIER, text):
            raise _refusal(
                "a verifier", "V, a dot, 43 Base64-Ascend characters and .H3", text, "009-verifier"
            )
        return super().__new__(cls, text)

    @classmethod
    def from_public_key(cls, public_key: bytes) -> Verifier:
        """Return the verifier of a 32-byte x-only public key."""
        if not isinstance(public_key, (bytes, bytearray, memoryview)):
            raise IdError(
                f"a public key is 32 bytes, not {kind_of(public_key)}", rule="009-verifier"
            )
        return cls(f"V.{b64a.encode(public_key)}.H3")

    @property
    def public_key(self) -> bytes:
        """The 32-byte x-only public key."""
        return b64a.decode(self[2:45])


class Signature(str):
    """A signature as 86 Base64-Ascend characters."""

    __slots__ = ()

    def __new__(cls, text: str) -> Signature:
        """Check a text; what is one already is returned as it is."""
        if isinstance(text, Signature):
            return text
        if not is_text_of(_SIGNATURE, text):
            raise _refusal("a signature", "86 Base64-Ascend characters", text, "009-signature-text")
        return super().__new__(cls, text)

    @classmethod
    def from_raw(cls, raw: bytes) -> Signature:
        """Return the text of a 64-byte signature."""
        return cls(b64a.encode(raw))

    @property
    def raw(self) -> bytes:
        """The 64 signature bytes."""
        return b64a.decode(self)


def record_id(type_letter: str, digest: bytes) -> RecordId:
    """Return the identifier of a record of that type whose payload has that digest."""
    if type_letter not in RECORD_TYPES or len(digest) != 32:
        raise IdError(
            f"no record has type {type_letter!r} and a {len(digest)}-byte digest", rule="020-01"
        )
    return trusted_record_id(f"{type_letter}.{b64a.encode(digest)}.H3")


def trusted_record_id(text: str) -> RecordId:
    """Return text as a RecordId; the caller has made or checked it."""
    return str.__new__(RecordId, text)


def is_link_target(text: str) -> bool:
    """Tell whether text may be the target of a record link (010).

    Unknown suffixes are tolerated; with suffix `H3` it must be a record identifier.
    """
    found = _TARGET.fullmatch(text)
    if not found:
        return False
    return found[3] != "H3" or _RECORD_ID.fullmatch(text) is not None
