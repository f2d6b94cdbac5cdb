"""Values to bytes: the one writer of record bytes (010)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base.digest import digest
from lace.record.ids import HASH_TEXT_BYTES, RecordId, record_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.record.headers import Header

__all__ = [
    "MARKER",
    "MARKLINE_BYTES",
    "blob_payload",
    "plex_payload",
    "seal_payload",
    "write_record",
]

MARKER: Final = bytes.fromhex("f09f96a73a20")
MARKLINE_BYTES: Final = len(MARKER) + HASH_TEXT_BYTES + 1


def blob_payload(data: bytes) -> bytes:
    """Return the payload of a Blob with that data."""
    return b"Data-Length: %d\n\n%b" % (len(data), data)


def plex_payload(
    group: str, app: str, name: str, tai: str, headers: Iterable[Header], blob: bytes
) -> bytes:
    """Return the payload of a Plex that embeds the Blob record whose bytes are given."""
    lines = [f"Group: {group}\nApp: {app}\nName: {name}\nTAI: {tai}\n"]
    lines += [f"{header}: {value}\n" for header, value in headers]
    return "".join(lines).encode() + blob


def seal_payload(signed_by: str, signature: str, plex: bytes) -> bytes:
    """Return the payload of a Seal that embeds the Plex record whose bytes are given."""
    return f"Signed-By: {signed_by}\nSignature: {signature}\n".encode() + plex


def write_record(type_letter: str, payload: bytes) -> tuple[RecordId, bytes]:
    """Return identifier and complete bytes of the record with that payload."""
    identifier = record_id(type_letter, digest(payload))
    return identifier, b"%b%b\n%b" % (MARKER, identifier.encode(), payload)
