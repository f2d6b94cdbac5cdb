"""The structure of a framed record: hashes, headers, paths and times; everything but signatures.

A Plex head is accepted by one pattern. Only a head that the pattern does not match is
read line by line, which says exactly what is wrong and where; that reading alone
decides what is legal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

from lace.base import b64a
from lace.base.digest import digest
from lace.base.limits import MAX_LINE_BYTES
from lace.base.tai import TAI_PATTERN
from lace.base.text import is_nfc
from lace.record.faults import fault, relocate
from lace.record.headers import (
    HEADER_LINES,
    Header,
    check_extra_headers,
    header_bytes,
    parse_headers,
    split_lines,
)
from lace.record.ids import (
    HASH_TEXT_BYTES,
    SIGNATURE_PATTERN,
    VERIFIER_PATTERN,
    IdError,
    Signature,
    Verifier,
)
from lace.record.paths import PATH, PATH_LINE, PathError, check_path
from lace.record.writer import MARKER, MARKLINE_BYTES

if TYPE_CHECKING:
    from lace.errors import RecordError
    from lace.record.reader import RawRecord

__all__ = ["SIGNATURE", "SIGNED_BY", "Parts", "check_structure"]

Octets: TypeAlias = bytes  # the class below has a field of the name `bytes`

_TAI: Final = re.compile(TAI_PATTERN)
_REQUIRED: Final = ("Group", "App", "Name", "TAI")
_PLEX_HEAD: Final = re.compile(
    f"Group: ({PATH_LINE})\nApp: ({PATH_LINE})\nName: ({PATH_LINE})\n"
    f"TAI: ({TAI_PATTERN})\n({HEADER_LINES})"
)
_SEAL_HEAD: Final = re.compile(
    f"Signed-By: {VERIFIER_PATTERN}\nSignature: {SIGNATURE_PATTERN}\n".encode()
)
_HASH_AT: Final = len(MARKER)
_HASH_END: Final = MARKLINE_BYTES - 1
_SIGNED_BY_AT: Final = MARKLINE_BYTES + len("Signed-By: ")
_SIGNATURE_AT: Final = _SIGNED_BY_AT + HASH_TEXT_BYTES + len("\nSignature: ")
SIGNED_BY: Final = slice(_SIGNED_BY_AT, _SIGNED_BY_AT + HASH_TEXT_BYTES)
SIGNATURE: Final = slice(_SIGNATURE_AT, _SIGNATURE_AT + 86)
"""Where a Seal has its verifier and its signature: always in the same place."""


class Parts(NamedTuple):
    """The parts of a record whose structure is right; a Blob has only the first five.

    `plex_at` and `blob_at` are where the embedded marklines start, as in `RawRecord`.
    """

    bytes: Octets
    digest: Octets
    plex_at: int
    blob_at: int
    data_at: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None

    @property
    def hash_text(self) -> str:
        """The text of the record's identifier."""
        return self.bytes[_HASH_AT:_HASH_END].decode("ascii")

    @property
    def headers(self) -> tuple[Header, ...]:
        """The extra headers of a Plex or Seal, read from its bytes: they may be many."""
        if self.blob_at == 0:
            return ()
        head = self.bytes[self.plex_at + MARKLINE_BYTES : self.blob_at].decode("utf-8")
        return tuple(split_lines(head)[len(_REQUIRED) :])

    @property
    def blob_hash(self) -> str | None:
        """The identifier of the embedded Blob; None for a Blob."""
        at = self.blob_at
        return self.bytes[at + _HASH_AT : at + _HASH_END].decode("ascii") if at else None

    @property
    def plex_hash(self) -> str | None:
        """The identifier of the embedded Plex; None for a Blob or Plex."""
        at = self.plex_at
        return self.bytes[at + _HASH_AT : at + _HASH_END].decode("ascii") if at > 0 else None

    @property
    def signed_by(self) -> str | None:
        """The verifier of a Seal."""
        return self.bytes[SIGNED_BY].decode("ascii") if self.plex_at > 0 else None

    @property
    def signature(self) -> str | None:
        """The signature of a Seal."""
        return self.bytes[SIGNATURE].decode("ascii") if self.plex_at > 0 else None


class HeadParts(NamedTuple):
    """The bytes of a record before its data, with what a table says of the rest.

    It is not a record and proves nothing: who makes one has it from a table of records that
    were validated. `size` is that of the whole record, the others are as in `Parts`.
    """

    bytes: Octets
    size: int
    plex_at: int
    blob_at: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None


def check_structure(raw: RawRecord) -> tuple[Parts, bytes]:
    """Return the parts of a record, and for a Seal the digest of its Plex.

    Raises:
        RecordError: the first rule that is broken; offsets count from the record's start.
    """
    _offset, data, plex_at, blob_at, data_at = raw
    view = memoryview(data)
    outer = _check_digest(data, view, 0)
    if blob_at == 0:
        return Parts(data, outer, plex_at, blob_at, data_at), b""
    plex_digest = b""
    if plex_at > 0:
        if _SEAL_HEAD.fullmatch(data, MARKLINE_BYTES, plex_at) is None:
            _raise_seal_fault(data, plex_at)
        plex_digest = _check_digest(data, view, plex_at)
    start = plex_at + MARKLINE_BYTES
    head = _parse_plex_head(data[start:blob_at], start)
    _check_digest(data, view, blob_at)
    # As `Parts(…)`, in a third of its time.
    parts = tuple.__new__(Parts, (data, outer, plex_at, blob_at, data_at, *head))
    return parts, plex_digest


def _check_digest(data: bytes, view: memoryview, at: int) -> bytes:
    """Return the digest of the record whose markline starts there."""
    actual = digest(view[at + MARKLINE_BYTES :])
    if data.startswith(b64a.encode_ascii(actual), at + _HASH_AT + 2):
        return actual
    text = data[at + _HASH_AT : at + _HASH_END].decode("ascii")
    try:
        b64a.decode(text[2:45])
    except b64a.B64AError as error:
        raise relocate(error, None, at + _HASH_AT + 2) from None
    raise fault(
        "010-digest",
        f"{text} does not match its payload, whose hash is {b64a.encode(actual)}",
        at + _HASH_AT,
    )


_Head = tuple[str, str, str, str]


def _parse_plex_head(block: bytes, start: int) -> _Head:
    """Return Group, App, Name and TAI of a Plex whose extra headers are right too."""
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        return _read_plex_head(block, start)
    found = _PLEX_HEAD.fullmatch(text)
    if found is None or len(block) > MAX_LINE_BYTES or not is_nfc(text):
        return _read_plex_head(block, start)
    group, app, name, tai, lines = found.groups()
    if lines:
        check_extra_headers(split_lines(lines), start + len(block))
    return group, app, name, tai


def _read_plex_head(block: bytes, start: int) -> _Head:
    headers = parse_headers(block, start)
    if len(headers) < len(_REQUIRED):
        raise _order_fault(headers, start)
    (first, group), (second, app), (third, name), (fourth, tai) = headers[:4]
    if (first, second, third, fourth) != _REQUIRED:
        raise _order_fault(headers, start)
    if not (PATH.fullmatch(group) and PATH.fullmatch(app) and PATH.fullmatch(name)):
        _raise_path_fault(headers, start)
    if not _TAI.fullmatch(tai):
        at = start + header_bytes(headers[:3]) + len("TAI: ")
        raise fault("010-tai", f"{tai!r} is not a TAI instant", at)
    check_extra_headers(headers[4:], start + len(block))
    return group, app, name, tai


def _order_fault(headers: list[Header], start: int) -> RecordError:
    names = [name for name, _value in headers[:4]]
    at = next((i for i, name in enumerate(names) if name != _REQUIRED[i]), len(names))
    found = f"found {names[at]!r}" if at < len(names) else "the headers end"
    place = start + header_bytes(headers[:at])
    return fault("010-header-order", f"{found} where {_REQUIRED[at]!r} should be", place)


def _raise_path_fault(headers: list[Header], start: int) -> NoReturn:
    for position, (name, value) in enumerate(headers[:3]):
        try:
            check_path(name, value)
        except PathError as error:
            at = start + header_bytes(headers[:position]) + len(name) + 2
            raise relocate(error, None, at) from None
    raise AssertionError("a path that fails the pattern has a fault")


def _raise_seal_fault(data: bytes, end: int) -> NoReturn:
    headers = parse_headers(data[MARKLINE_BYTES:end], MARKLINE_BYTES)
    names = [name for name, _value in headers]
    if names != ["Signed-By", "Signature"]:
        raise fault(
            "010-header-order",
            f"a Seal has the headers {names}, not Signed-By and Signature",
            MARKLINE_BYTES,
        )
    (_, signed_by), (_, signature) = headers
    at = _SIGNED_BY_AT
    try:
        Verifier(signed_by)
        at = MARKLINE_BYTES + header_bytes(headers[:1]) + len("Signature: ")
        Signature(signature)
    except IdError as error:
        raise relocate(error, None, at) from None
    raise AssertionError("a Seal's head that fails the pattern has a fault")
