"""Records of a lace: added, found by their addresses, listed by their fields, and as facts."""

from __future__ import annotations

import heapq
import os
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base import b64a
from lace.base.arguments import check_many, kind_of
from lace.base.digest import digest
from lace.base.text import shorten
from lace.errors import LaceError, RecordError
from lace.facts.extract import record_facts
from lace.facts.lines import Fact, format_fact
from lace.record.headers import Header
from lace.record.ids import RecordId
from lace.record.paths import parse_address
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.store.intake import Intake, Report
from lace.store.interface import Order, Snapshot, StoredRecord
from lace.store.sqlite.snapshot import SqliteSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.base.limits import Settings
    from lace.record.model import Record
    from lace.record.reader import RawRecord
    from lace.store.interface import Admission
    from lace.store.sqlite.store import SqliteStore

__all__ = [
    "HEADER",
    "LISTED_FIELDS",
    "Fact",
    "FieldValue",
    "Header",
    "Intake",
    "NotFoundError",
    "Order",
    "Report",
    "Snapshot",
    "SqliteSnapshot",
    "StoredRecord",
    "ValidRecord",
    "admit_records",
    "as_identifier",
    "digest_text",
    "facts_by_record",
    "find_records",
    "format_fact",
    "list_rows",
    "load_records",
    "parse_address",
    "record_facts",
    "sorted_facts",
]


# -- Records that a program adds: values or bytes, validated, and stored all or none.


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


# -- Records by their addresses.


class NotFoundError(LaceError):
    """A record that is not in the lace."""


def find_records(snapshot: Snapshot, texts: Sequence[str]) -> list[StoredRecord]:
    """Return the record that each address names, the tip of a coordinate, each record once.

    Raises:
        NotFoundError: at least one of them is not in the lace.
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


def load_records(
    snapshot: Snapshot, identifiers: Iterable[str] | None = None
) -> Iterator[ValidRecord]:
    """Yield the records of some identifiers, or all in the order of storing."""
    if identifiers is None:
        yield from snapshot.records(order=Order.STORED)
        return
    for identifier in identifiers:
        record = snapshot.load(identifier)
        if record is not None:
            yield record


# -- Records by their fields.
#
# A field is one of the store's columns (id, coordinate, tai, stored, size, signed-by) or a header
# of the record by its exact name. Only fields that the store does not keep beside the record make
# a listing read record bytes.

FieldValue: TypeAlias = str | int | list[str] | None
HEADER: Final = "header:"
"""Precedes the name of a header that has the name of a column."""

_COLUMNS: Final[dict[str, Callable[[StoredRecord], FieldValue]]] = {
    "id": lambda stored: stored.id,
    "coordinate": lambda stored: stored.coordinate or None,
    "tai": lambda stored: stored.tai,
    "stored": lambda stored: stored.store_record_id,
    "size": lambda stored: stored.size,
    "signed-by": lambda stored: stored.signed_by,
    "Type": lambda stored: stored.id.type,
    "Group": lambda stored: stored.group,
    "App": lambda stored: stored.app,
    "Name": lambda stored: stored.name,
    "TAI": lambda stored: stored.tai,
    "Signed-By": lambda stored: stored.signed_by,
}
_READ_FIELDS: Final[dict[str, Callable[[ValidRecord], FieldValue]]] = {
    "Data-Length": lambda record: record.data_length,
    "Signature": lambda record: record.signature,
}
LISTED_FIELDS: Final = (*_COLUMNS, *_READ_FIELDS)
"""The fields that are not extra headers."""
_ORDERS: Final = {
    "coordinate": Order.COORDINATE,
    "tai": Order.TAI,
    "TAI": Order.TAI,
    "stored": Order.STORED,
    "id": Order.ID,
}


class RecordRow:
    """A record in a listing; its bytes are read when a field needs them, and never kept.

    Sorting holds a row of every record: they must stay small.
    """

    __slots__ = ("_snapshot", "stored")

    def __init__(self, snapshot: Snapshot, stored: StoredRecord) -> None:
        self._snapshot = snapshot
        self.stored = stored

    def value(self, name: str) -> FieldValue:
        """Return the value of a field; a list for an extra header."""
        return self.values([name])[0]

    def values(self, names: Sequence[str]) -> list[FieldValue]:
        """Return the values of fields; the record is read at most once."""
        is_read = any(self._must_read(name) for name in names)
        record = self._snapshot.load(self.stored.id) if is_read else None
        return [self._value(name, record) for name in names]

    def _must_read(self, name: str) -> bool:
        if name in _COLUMNS:
            return False
        return name in _READ_FIELDS or self.stored.group is not None  # a Blob has no headers

    def _value(self, name: str, record: ValidRecord | None) -> FieldValue:
        if name in _COLUMNS:
            return _COLUMNS[name](self.stored)
        if record is None:
            return None
        if name in _READ_FIELDS:
            return _READ_FIELDS[name](record)
        wanted = name.removeprefix(HEADER)
        return [value for header, value in record.headers if header == wanted] or None


def list_rows(
    snapshot: Snapshot, prefix: str, *, sort: str, reverse: bool, limit: int | None
) -> Iterator[RecordRow]:
    """Yield the records whose coordinate starts with a text, sorted by any field."""
    if sort in _ORDERS:
        found = snapshot.listing(prefix, order=_ORDERS[sort], reverse=reverse, limit=limit)
        return (RecordRow(snapshot, stored) for stored in found)
    rows = (RecordRow(snapshot, stored) for stored in snapshot.listing(prefix, order=Order.ID))
    return _sort(rows, sort, reverse, limit)


def _sort(
    rows: Iterable[RecordRow], name: str, reverse: bool, limit: int | None
) -> Iterator[RecordRow]:
    """Yield rows by a value, then by identifier; those without the value come last."""
    absent: list[RecordRow] = []

    def present() -> Iterator[tuple[object, str, RecordRow]]:
        for row in rows:
            value = row.value(name)
            if value is not None:
                yield value, row.stored.id, row
            elif limit is None or len(absent) < limit:
                absent.append(row)

    order = itemgetter(0, 1)
    if limit is None:
        found = sorted(present(), key=order, reverse=reverse)
    else:
        pick = heapq.nlargest if reverse else heapq.nsmallest
        found = pick(limit, present(), key=order)
    return islice(chain((row for _value, _id, row in found), absent), limit)


def digest_text(data: bytes) -> str:
    """Return the digest of bytes as the text that identifiers have."""
    return b64a.encode(digest(data))


# -- Record facts, sorted bytewise as lines over the whole output.
#
# Identifiers have one length and their text sorts as the store's index does, so the sorted whole
# is: the predicates by name, in each the records by identifier, and the lines of one record
# sorted. Of the whole, one byte a record is held.

FactLine: TypeAlias = tuple[str, Fact]
"""A fact line, and the fact it shows."""
_BITS: Final = {"PlexHash": 1, "RecordLink": 2}


def sorted_facts(
    snapshot: Snapshot,
    max_value_bytes: int,
    records: Sequence[str] = (),
    *,
    report: Callable[[int], None] = lambda _count: None,
) -> Iterator[list[FactLine]]:
    """Yield the facts of all records, or of some, in the order of their lines, in small lists.

    Args:
        snapshot: the state of the lace.
        max_value_bytes: the most bytes that a value may have.
        records: the addresses of the records; nothing for all.
        report: takes how many records have been read.
    """
    if records:
        facts: set[Fact] = set()
        for stored in find_records(snapshot, records):
            record = snapshot.load(stored.id)
            if record is not None:
                facts.update(record_facts(record, max_value_bytes=max_value_bytes))
        yield _lines(facts)
        return
    # The first pass reads every record, so that damage shows before anything that a listing
    # alone could tell; it notes which records the last two predicates need.
    needed = bytearray()
    count = 0

    def facts_of(record: ValidRecord, predicate: str) -> list[FactLine]:
        nonlocal count
        count += 1
        report(count)
        found = record_facts(record, max_value_bytes=max_value_bytes)
        if predicate == "BlobHash":
            names = {fact[0] for fact in found}
            needed.append(sum(bit for name, bit in _BITS.items() if name in names))
        return _lines(fact for fact in found if fact[0] == predicate)

    for predicate in ("BlobHash", "Field"):
        for record in snapshot.records(order=Order.ID):
            yield facts_of(record, predicate)
    for stored in snapshot.listing(order=Order.ID):
        yield _lines([("Have", stored.id)])
    for predicate, bit in _BITS.items():
        for position, stored in enumerate(snapshot.listing(order=Order.ID)):
            found = snapshot.load(stored.id) if needed[position] & bit else None
            if found is not None:
                yield facts_of(found, predicate)


def _lines(facts: Iterable[Fact]) -> list[FactLine]:
    return sorted((format_fact(fact), fact) for fact in facts)


def facts_by_record(
    snapshot: Snapshot, max_value_bytes: int, records: Sequence[str] = ()
) -> Iterator[Fact]:
    """Yield the facts of all records, or of some; those of one record together, sorted."""
    if records:
        found: Iterable[ValidRecord | None] = (
            snapshot.load(stored.id) for stored in find_records(snapshot, records)
        )
    else:
        found = snapshot.records(order=Order.ID)
    for record in found:
        if record is not None:
            facts = record_facts(record, max_value_bytes=max_value_bytes)
            yield from (fact for _line, fact in _lines(facts))
