"""The rules of the record format that an error can cite, and how a fault is placed.

`RECORD_RULES` is the register: the documentation shows it and every `RecordError`
raised in this package names one of its keys.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.errors import Place, RecordError

if TYPE_CHECKING:
    from collections.abc import Mapping


RECORD_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "006-alphabet": "a Base64-Ascend text holds only the 64 characters of its alphabet",
        "006-fill-bits": "the unused low bits of a Base64-Ascend text's last character are zero",
        "006-length": "a Base64-Ascend text has a length that some byte count gives",
        "009-aux": "the auxiliary randomness of a signature is 32 bytes and not all zero",
        "009-secret": "a signing secret is `&.`, 43 Base64-Ascend characters and `.H3`",
        "009-signature": "the signature of a Seal verifies over the digest of its Plex record",
        "009-signature-text": "a signature is 86 canonical Base64-Ascend characters",
        "009-verifier": "a verifier is `V.`, 43 canonical Base64-Ascend characters and `.H3`",
        "010-address": "an address is `////hash` or `//group//app//name`, perhaps narrowed",
        "010-control": "headers hold no byte 00-1F and no 7F",
        "010-cut": "a record is complete: its bytes do not end before its data does",
        "010-data": "the data of a record is bytes",
        "010-data-length": "`Data-Length` is a decimal number without leading zeros, below 2^31",
        "010-digest": "the hash text of a record is the BLAKE3 digest of its own payload",
        "010-empty-line": "one empty line separates `Data-Length` from the data",
        "010-extra-count": "a Plex has at most 512 extra headers",
        "010-extra-order": "the names of extra headers ascend bytewise",
        "010-extra-reserved": "an extra header has none of the names that the format uses",
        "010-head-size": "the headers of a record end within 1 MiB",
        "010-header-form": "a header is `Name: value`, one space, neither part empty",
        "010-header-order": "the headers that a record type requires stand in their order",
        "010-line-length": "a header line has at most 1024 bytes",
        "010-markline": "a record begins with the marker, its hash text and LF",
        "010-nesting": "a Seal embeds a Plex, and a Plex embeds a Blob",
        "010-nfc": "headers are in Unicode normalisation form C",
        "010-path": "Group, App and Name are paths of legal, non-empty segments",
        "010-size-limit": "a record's data is not above the local limit `max_data_bytes`",
        "010-tai": "a TAI instant is ten digits, a colon and nine digits",
        "010-trailing": "nothing follows a record that stands alone",
        "010-unsupported": "the trailer-hash and thin forms are not supported",
        "010-utf8": "headers are UTF-8",
        "020-01": "a record identifier is B, P or S with a canonical digest and suffix H3",
    }
)


def fault(rule: str, message: str, offset: int, hint: str | None = None) -> RecordError:
    """Return an error at a byte offset, counted from the start of the record."""
    return RecordError(message, rule=rule, place=Place(offset=offset), hint=hint)


def relocate(error: RecordError, source: str | None, base: int) -> RecordError:
    """Move an error from an offset in a record to one in the source that holds the record."""
    inside = error.place.offset if error.place else None
    error.place = Place(source=source, offset=base + (inside or 0))
    return error


def detach(error: RecordError) -> RecordError:
    """Return an error without the frames it came through, which would keep their batch alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
