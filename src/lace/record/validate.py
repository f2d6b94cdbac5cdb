"""Validation: the only way to a `ValidRecord`.

Cheap checks come first (hash, structure), signatures last, many at a time. A
`ValidRecord` is what the store admits and what facts are made from; its parts are
texts that need no further checks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Self

from lace.arguments import check_argument, kind_of
from lace.base import b64a
from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import RecordError
from lace.record.faults import detach, fault, relocate
from lace.record.framing import Framer
from lace.record.ids import RecordId, trusted_record_id
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.reader import Fault, RawRecord, RecordReader
from lace.record.seal import RandomBytes, verify_many
from lace.record.structure import SIGNATURE, SIGNED_BY, Octets, Parts, check_structure
from lace.record.writer import MARKER, MARKLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ValidRecord",
    "embedded_records",
    "frame_record",
    "frame_records",
    "parse_record",
    "restore_valid",
    "trust_stored",
    "validate_many",
]


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


def frame_records(records: Sequence[bytes]) -> tuple[RawRecord, ...]:
    """Return the frames of records that were stored, and so are whole.

    Raises:
        RecordError: something among them is not just one record.
    """
    framer = Framer()
    made: list[RawRecord] = []
    offset = 0
    for raw in records:
        framer.restart()
        if not framer.frame(raw, 0, offset) or framer.end != len(raw):
            raise fault("010-trailing", "the bytes of a record are not just one record", offset)
        made.append(RawRecord(offset, raw, framer.plex_at, framer.blob_at, framer.data_at))
        offset += len(raw)
    return tuple(made)


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
