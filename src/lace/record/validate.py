"""Validation: the only way to a `ValidRecord`.

Cheap checks come first (hash, structure), signatures last, many at a time. A
`ValidRecord` is what the store admits and what facts are made from; its parts are
texts that need no further checks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self, TypeAlias

from lace.base import b64a
from lace.base.arguments import check_argument, kind_of
from lace.base.digest import digest
from lace.base.limits import DEFAULT_SETTINGS, MAX_LINE_BYTES
from lace.base.tai import TAI_PATTERN
from lace.base.text import is_nfc
from lace.errors import RecordError
from lace.record.headers import (
    HEADER_LINES,
    Header,
    check_extra_headers,
    detach,
    fault,
    header_bytes,
    parse_headers,
    relocate,
    split_lines,
)
from lace.record.ids import (
    HASH_TEXT_BYTES,
    SIGNATURE_PATTERN,
    VERIFIER_PATTERN,
    IdError,
    RecordId,
    Signature,
    Verifier,
    trusted_record_id,
)
from lace.record.model import MARKER, MARKLINE_BYTES, Blob, Plex, Record, Seal
from lace.record.paths import PATH, PATH_LINE, PathError, check_path
from lace.record.reader import Fault, RawRecord, RecordReader
from lace.record.seal import RandomBytes, verify_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# -- The structure of a framed record: hashes, headers, paths and times; everything but signatures.
#
# A Plex head is accepted by one pattern. Only a head that the pattern does not match is
# read line by line, which says exactly what is wrong and where; that reading alone
# decides what is legal.

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


class ValidRecord(Parts):
    """A record whose hashes, structure and signature have been checked.

    Only this module makes one; the type is the proof. `blob_hash` and `plex_hash` are
    the identifiers of embedded records, so a Blob has neither.
    """

    __slots__ = ()

    def __new__(cls, *_parts: object) -> Self:
        """Refuse: only validation makes one."""
        raise TypeError("a ValidRecord is made by validation only")

    @classmethod
    def _make(cls, iterable: Iterable[object]) -> Self:  # type: ignore[override]  # is generic
        """Refuse the other way to one that named tuples have, which `_replace` takes too."""
        return cls(*iterable)

    @property
    def id(self) -> RecordId:
        """The record's identifier."""
        return trusted_record_id(self.hash_text)

    @property
    def type(self) -> str:
        """The record's own type letter."""
        return chr(self.bytes[len(MARKER)])

    @property
    def data_length(self) -> int:
        """How many bytes of data the Blob, or the embedded one, has."""
        return len(self.bytes) - self.data_at

    @property
    def data(self) -> Octets:
        """The data of the Blob, or of the embedded one."""
        return self.bytes[self.data_at :]

    def verdict(self) -> tuple[object, ...]:
        """Return all parts but the bytes: plain values, for `restore_valid`."""
        return self[1:]

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles keep the type; they come from one that was proven."""
        return restore_valid, (self.bytes, self.verdict())


def restore_valid(raw: bytes, verdict: tuple[object, ...]) -> ValidRecord:
    """Return the record of bytes that a validation process of ours has found valid.

    The verdict is what `ValidRecord.verdict` gave there for the same bytes.
    """
    return tuple.__new__(ValidRecord, (raw, *verdict))


def frame_record(raw: bytes, max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes) -> RawRecord:
    """Return the frame of bytes that hold exactly one record.

    Raises:
        RecordError: no record, a cut one, or something behind it.
    """
    reader = RecordReader(max_data_bytes=max_data_bytes, size=len(raw))
    outcome = next(reader.feed(raw), None) or next(reader.finish(), None)
    if outcome is None:
        raise fault("010-cut", "there are no bytes where a record should be", 0)
    if isinstance(outcome, Fault):
        raise outcome.error
    if len(outcome.data) < len(raw):
        extra = len(raw) - len(outcome.data)
        raise fault("010-trailing", f"{extra} bytes follow the record", len(outcome.data))
    return outcome


def _as_bytes(raw: object) -> bytes:
    if isinstance(raw, (bytes, bytearray, memoryview)):
        return bytes(raw)
    raise RecordError(
        f"raw is the bytes of one record, not {kind_of(raw)}",
        rule="010-data",
        hint="read the file as bytes, or take the `bytes` of a record",
    )


def parse_record(raw: bytes, *, max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes) -> Record:
    """Return the value of bytes that hold exactly one record, fully validated.

    Raises:
        RecordError: the first rule that the bytes break, and where.
    """
    check_argument(max_data_bytes, int, "max_data_bytes is a number of bytes")
    raw = _as_bytes(raw)
    parts, _plex_digest = check_structure(frame_record(raw, max_data_bytes))
    blob_data = raw[parts.data_at :]
    if parts.group is None or parts.app is None or parts.name is None:
        return Blob(blob_data)
    plex = Plex(
        group=parts.group,
        app=parts.app,
        name=parts.name,
        tai=parts.tai,
        headers=parts.headers,
        data=blob_data,
    )
    if parts.signed_by is None or parts.signature is None:
        return plex
    try:
        return Seal(plex=plex, signed_by=parts.signed_by, signature=parts.signature)
    except RecordError:
        raise _signature_fault(parts) from None


def validate_many(
    records: Sequence[RawRecord], random_bytes: RandomBytes, source: str | None = None
) -> list[ValidRecord | RecordError]:
    """Return, in their order, each record as a `ValidRecord` or the reason why not.

    Signatures are checked together, after everything else.
    """
    outcomes: list[ValidRecord | RecordError] = []
    signed: list[int] = []
    checks: list[tuple[bytes, bytes, bytes]] = []
    for raw in records:
        try:
            parts, plex_digest = check_structure(raw)
        except RecordError as error:
            outcomes.append(detach(relocate(error, source, raw.offset)))
            continue
        if plex_digest:
            signed.append(len(outcomes))
            checks.append(_signature_check(parts, plex_digest))
        outcomes.append(tuple.__new__(ValidRecord, parts))
    for index, holds in zip(signed, verify_many(checks, random_bytes), strict=True):
        if not holds:
            parts, _plex_digest = check_structure(records[index])
            outcomes[index] = relocate(_signature_fault(parts), source, records[index].offset)
    return outcomes


def trust_stored(raw: bytes, identifier: RecordId) -> ValidRecord:
    """Return the record of stored bytes that were admitted under that identifier.

    All hashes and the structure are checked again. The signature is not: bytes with
    this digest are the bytes whose signature was verified when they were admitted.

    Raises:
        RecordError: these are not the bytes that were stored.
    """
    parts, _plex_digest = check_structure(frame_record(raw, len(raw)))
    if parts.hash_text != identifier:
        raise fault(
            "010-digest", f"the bytes stored as {identifier} are {parts.hash_text}", len(MARKER)
        )
    return tuple.__new__(ValidRecord, parts)


def embedded_records(record: ValidRecord) -> list[ValidRecord]:
    """Return the records that this one embeds, outermost first, valid as it is."""
    made: list[ValidRecord] = []
    for text, start in ((record.plex_hash, record.plex_at), (record.blob_hash, record.blob_at)):
        if text is not None:
            made.append(trust_stored(record.bytes[start:], trusted_record_id(text)))
    return made


@lru_cache(maxsize=4096)
def _public_key(verifier: bytes) -> bytes:
    return b64a.decode_canonical(verifier[2:45])


def _signature_check(parts: Parts, plex_digest: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the public key, message and signature of a Seal."""
    raw = parts.bytes
    return _public_key(raw[SIGNED_BY]), plex_digest, b64a.decode_canonical(raw[SIGNATURE])


def _signature_fault(parts: Parts) -> RecordError:
    return fault(
        "009-signature",
        f"the signature is not one by {parts.signed_by} over {parts.plex_hash}",
        MARKLINE_BYTES,
    )
