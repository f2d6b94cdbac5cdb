"""RECORD arguments: a hash, `////hash` or a coordinate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.text import shorten
from lace.errors import LaceError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.store.interface import Snapshot, StoredRecord

__all__ = ["NotFoundError", "find_records"]


class NotFoundError(LaceError):
    """A record that is not in the lace."""


def find_records(snapshot: Snapshot, texts: Sequence[str]) -> list[StoredRecord]:
    """Return the record that each text names, the tip of a coordinate, each record once.

    Raises:
        AddressError: a text is no hash and no coordinate.
        NotFoundError: at least one is not there; all of them are named.
    """
    addresses = [parse_address(text) for text in texts]
    found: dict[str, StoredRecord] = {}
    missing: list[str] = []
    for text, address in zip(texts, addresses, strict=True):
        records = snapshot.find(address, limit=1)
        if records:
            found[records[0].id] = records[0]
        else:
            missing.append(text)
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotFoundError(f"not in this lace: {names}", hint="`lace list` shows what is there")
    return list(found.values())
