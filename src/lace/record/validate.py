"""Validation: the only way to a `ValidRecord`.

Cheap checks come first (hash, structure), signatures last, many at a time. A
`ValidRecord` is what the store admits and what facts are made from; its parts are
texts that need no further checks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

from lace.base import b64a
from lace.base.digest import digest
from lace.base.limits import DEFAULT_SETTINGS
from lace.base.tai import TAI_PATTERN
from lace.errors import RecordError
from lace.record.faults import fault, relocate
from lace.record.headers import Header, check_extra_headers, parse_headers
from lace.record.ids import RecordId, trusted_record_id
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.paths import PATH, PathError, check_path
from lace.record.reader import Fault, RawRecord, RecordReader
from lace.record.seal import RandomBytes, verify_many
from lace.record.writer import MARKER, MARKLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ValidRecord",
    "embedded_records",
    "frame_record",
    "parse_record",
    "restore_valid",
    "trust_stored",
    "validate_many",
]

Octets: TypeAlias = bytes  # the class below has a field of the name `bytes`

_TAI: Final = re.compile(TAI_PATTERN)
_REQUIRED: Final = ("Group", "App", "Name", "TAI")
_SEAL_HEAD: Final = re.compile(
    rb"Signed-By: (V\.[0-9A-Z_a-z~]{43}\.H3)\nSignature: ([0-9A-Z_a-z~]{86})\n"
)
_HASH_AT: Final = len(MARKER)


class _Parts(NamedTuple):
    """The parts of a record, as plain texts; those that its type does not have are None."""

    bytes: Octets
    hash_text: str
    data_at: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None
    headers: tuple[Header, ...] = ()
    blob_hash: str | None = None
    plex_hash: str | None = None
    signed_by: str | None = None
    signature: str | None = None


class ValidRecord(_Parts):
    """A record whose hashes, structure and signature have been checked.

    Only this module makes one; the type is the proof. `blob_hash` and `plex_hash` are
    the identifiers of embedded records, so a Blob has neither.
    """

    __slots__ = ()

    def __new__(cls, *_parts: object) -> ValidRecord:
        """Refuse: only validation makes one."""
        raise TypeError("a ValidRecord is made by validation only")

    @property
    def id(self) -> RecordId:
        """The record's identifier."""
        return trusted_record_id(self.hash_text)

    @property
    def type(self) -> str:
        """The record's own type letter."""
        return self.hash_text[0]

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


def parse_record(raw: bytes, *, max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes) -> Record:
    """Return the value of bytes that hold exactly one record, fully validated.

    Raises:
        RecordError: the first rule that the bytes break, and where.
    """
    parts = _check_structure(frame_record(raw, max_data_bytes))
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
    except RecordError as error:
        raise relocate(error, None, MARKLINE_BYTES) from None


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
            parts = _check_structure(raw)
        except RecordError as error:
            outcomes.append(relocate(error, source, raw.offset))
            continue
        if parts.signed_by is not None:
            signed.append(len(outcomes))
            checks.append(_signature_check(parts))
        outcomes.append(tuple.__new__(ValidRecord, parts))
    for index, holds in zip(signed, verify_many(checks, random_bytes), strict=True):
        if not holds:
            found = _signature_fault(outcomes[index])
            outcomes[index] = relocate(found, source, records[index].offset)
    return outcomes


def trust_stored(raw: bytes, identifier: RecordId) -> ValidRecord:
    """Return the record of stored bytes that were admitted under that identifier.

    All hashes and the structure are checked again. The signature is not: bytes with
    this digest are the bytes whose signature was verified when they were admitted.

    Raises:
        RecordError: these are not the bytes that were stored.
    """
    parts = _check_structure(frame_record(raw, len(raw)))
    if parts.hash_text != identifier:
        raise fault(
            "010-digest", f"the bytes stored as {identifier} are {parts.hash_text}", _HASH_AT
        )
    return tuple.__new__(ValidRecord, parts)


def embedded_records(record: ValidRecord) -> list[ValidRecord]:
    """Return the records that this one embeds, outermost first, valid as it is."""
    made: list[ValidRecord] = []
    for text in (record.plex_hash, record.blob_hash):
        if text is not None:
            start = record.bytes.index(MARKER + text.encode() + b"\n")
            made.append(trust_stored(record.bytes[start:], trusted_record_id(text)))
    return made


def _check_structure(raw: RawRecord) -> _Parts:
    """Check everything but the signature; offsets in errors count from the record."""
    data, view = raw.data, memoryview(raw.data)
    outer = _check_digest(data, view, 0)
    if raw.blob_at == 0:
        return _Parts(data, outer, raw.data_at)
    signed_by: bytes | None = None
    signature: bytes | None = None
    if raw.plex_at > 0:
        signed_by, signature = _parse_seal_head(data, raw.plex_at)
        plex_hash: str | None = _check_digest(data, view, raw.plex_at)
    else:
        plex_hash = None
    start = raw.plex_at + MARKLINE_BYTES
    headers = parse_headers(data[start : raw.blob_at], start)
    group, app, name, tai = _check_required(headers, start)
    extra = tuple(headers[4:])
    check_extra_headers(extra, start)
    blob_hash = _check_digest(data, view, raw.blob_at)
    return _Parts(
        data,
        outer,
        raw.data_at,
        group,
        app,
        name,
        tai,
        extra,
        blob_hash,
        plex_hash,
        signed_by.decode("ascii") if signed_by else None,
        signature.decode("ascii") if signature else None,
    )


def _check_digest(data: bytes, view: memoryview, at: int) -> str:
    """Return the hash text of the record whose markline starts there."""
    text = data[at + _HASH_AT : at + MARKLINE_BYTES - 1].decode("ascii")
    actual = b64a.encode(digest(view[at + MARKLINE_BYTES :]))
    if text[2:45] == actual:
        return text
    try:
        b64a.decode(text[2:45])
    except b64a.B64AError as error:
        raise relocate(error, None, at + _HASH_AT + 2) from None
    raise fault(
        "010-digest", f"{text} does not match its payload, whose hash is {actual}", at + _HASH_AT
    )


def _check_required(headers: list[Header], start: int) -> tuple[str, str, str, str]:
    names = tuple(name for name, _value in headers[:4])
    if names != _REQUIRED:
        at = next((i for i, name in enumerate(names) if name != _REQUIRED[i]), len(names))
        found = f"found {names[at]!r}" if at < len(names) else "the headers end"
        raise fault(
            "010-header-order",
            f"{found} where {_REQUIRED[at]!r} should be",
            start + _length(headers[:at]),
        )
    (_, group), (_, app), (_, name), (_, tai) = headers[:4]
    if not (PATH.fullmatch(group) and PATH.fullmatch(app) and PATH.fullmatch(name)):
        _raise_path_fault(headers, start)
    if not _TAI.fullmatch(tai):
        at = start + _length(headers[:3]) + len("TAI: ")
        raise fault("010-tai", f"{tai!r} is not a TAI instant", at)
    return group, app, name, tai


def _raise_path_fault(headers: list[Header], start: int) -> NoReturn:
    for position, (name, value) in enumerate(headers[:3]):
        try:
            check_path(name, value)
        except PathError as error:
            at = start + _length(headers[:position]) + len(name) + 2
            raise relocate(error, None, at) from None
    raise AssertionError("a path that fails the pattern has a fault")


def _length(headers: list[Header]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + 3 for name, value in headers)


def _parse_seal_head(data: bytes, end: int) -> tuple[bytes, bytes]:
    found = _SEAL_HEAD.fullmatch(data, MARKLINE_BYTES, end)
    if found:
        return found[1], found[2]
    headers = parse_headers(data[MARKLINE_BYTES:end], MARKLINE_BYTES)
    names = [name for name, _value in headers]
    if names != ["Signed-By", "Signature"]:
        raise fault(
            "010-header-order",
            f"a Seal has the headers {names}, not Signed-By and Signature",
            MARKLINE_BYTES,
        )
    (_, signed_by), (_, signature) = headers
    if not _SEAL_HEAD.match(f"Signed-By: {signed_by}\nSignature: {'0' * 86}\n".encode()):
        raise fault("009-verifier", f"{signed_by!r} is not a verifier", MARKLINE_BYTES)
    at = MARKLINE_BYTES + _length(headers[:1])
    raise fault("009-signature-text", f"{signature!r} is not a signature", at)


def _signature_check(parts: _Parts) -> tuple[bytes, bytes, bytes]:
    """Return public key, message and signature; texts that are not canonical verify nothing."""
    signed_by, signature, plex = parts.signed_by or "", parts.signature or "", parts.plex_hash or ""
    try:
        return b64a.decode(signed_by[2:45]), b64a.decode(plex[2:45]), b64a.decode(signature)
    except b64a.B64AError:
        return b"", b"", b""


def _signature_fault(record: ValidRecord | RecordError) -> RecordError:
    if isinstance(record, RecordError):
        return record
    signed_by, signature = record.signed_by or "", record.signature or ""
    for rule, text, what in (
        ("009-verifier", signed_by[2:45], "verifier"),
        ("009-signature-text", signature, "signature"),
    ):
        try:
            b64a.decode(text)
        except b64a.B64AError as error:
            return fault(rule, f"the {what} is not canonical: {error.message}", MARKLINE_BYTES)
    return fault(
        "009-signature",
        f"the signature is not one by {signed_by} over {record.plex_hash}",
        MARKLINE_BYTES,
    )
