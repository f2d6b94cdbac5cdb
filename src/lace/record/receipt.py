"""Receipts: a receiver's signed word that it has stored a record (050)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.record.ids import RecordId, Verifier
from lace.record.model import Plex

if TYPE_CHECKING:
    from lace.record.model import Seal
    from lace.record.seal import SigningKey

__all__ = [
    "RECEIPT_APP",
    "RECEIPT_GROUP",
    "STORED_FROM",
    "make_receipt",
    "receipt_name",
]

RECEIPT_GROUP: Final = "lace"
RECEIPT_APP: Final = "receipt"
STORED_FROM: Final = "Stored-From"
"""The header that names the verifier of the sender."""


def receipt_name(record: str) -> str:
    """Return the Name that receipts for a record have."""
    return f"store/{record}"


def make_receipt(record: str, sender: str, key: SigningKey, *, tai: str | None = None) -> Seal:
    """Return a receipt: an ordinary record that others take or leave by ordinary rules.

    Args:
        record: the hash of the record that was stored.
        sender: the verifier that the sender has proven.
        key: the receiver's.
        tai: when it was stored; else the clock says.

    Raises:
        RecordError: one of them is not what it should be.
    """
    stored, sent_by = RecordId(record), Verifier(sender)
    return Plex(
        group=RECEIPT_GROUP,
        app=RECEIPT_APP,
        name=receipt_name(stored),
        data=b"",
        tai=tai,
        headers=[("Stored-Hash", stored), (STORED_FROM, sent_by)],
    ).seal(key)
