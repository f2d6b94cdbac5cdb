"""Records that a program adds: values or bytes, validated, and stored all or none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lace.arguments import check_many, kind_of
from lace.errors import RecordError
from lace.record.ids import RecordId
from lace.record.validate import ValidRecord, frame_record, validate_many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.base.limits import Settings
    from lace.record.model import Record
    from lace.record.reader import RawRecord
    from lace.store.interface import Admission
    from lace.store.sqlite.store import SqliteStore

__all__ = ["admit_records", "as_identifier"]


def admit_records(
    store: SqliteStore, settings: Settings, records: Iterable[Record | bytes]
) -> tuple[list[RecordId], Admission]:
    """Store records and return their identifiers, in order, and which of them are new.

    Raises:
        RecordError: one is no valid record; none is stored then.
        StoreError: they could not be stored.
        UsageError: it is one thing instead of several.
    """
    check_many(records, "records are several records", "give a list of them, or use `add` for one")
    frames = [_frame(record, settings.max_data_bytes) for record in records]
    valid: list[ValidRecord] = []
    for outcome in validate_many(frames, os.urandom):
        if isinstance(outcome, RecordError):
            raise outcome
        valid.append(outcome)
    admission = store.admit(valid)
    return [record.id for record in valid], admission


def _frame(record: Record | bytes, max_data_bytes: int) -> RawRecord:
    raw: object = getattr(record, "bytes", record)
    if not isinstance(raw, bytes):
        raise RecordError(
            f"a record is a Blob, a Plex, a Seal or its bytes, not {kind_of(record)}",
            rule="010-data",
            hint="make one, as with lace.Blob(data)",
        )
    return frame_record(raw, max_data_bytes)


def as_identifier(identifier: object) -> RecordId:
    """Return a record hash that a program names.

    Raises:
        RecordError: the bytes are not a valid record.
    """
    if isinstance(identifier, str):
        return RecordId(identifier)
    raise RecordError(
        f"a record hash is text, not {kind_of(identifier)}",
        rule="020-01",
        hint="give the record's id",
    )
