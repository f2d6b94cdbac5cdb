"""The simple store, in memory: what the SQLite store is compared with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lace.facts.source import RecordFacts, Values
from lace.record.validate import ValidRecord
from lace.store.interface import Admission, Order, StoredRecord, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.record.ids import RecordId
    from lace.record.paths import Address

__all__ = ["MemorySnapshot", "MemoryStore"]

_Entries = dict[str, tuple[int, ValidRecord]]


class MemoryStore:
    """Keeps records in a dictionary; a snapshot is a copy of it."""

    def __init__(self) -> None:
        self._entries: _Entries = {}
        self._high_water = 0

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Store the records that are not there yet."""
        stored: list[int] = []
        for record in records:
            if not isinstance(record, ValidRecord):
                raise TypeError("a store admits ValidRecords only")
        for record in records:
            if record.hash_text not in self._entries:
                self._high_water += 1
                self._entries[record.hash_text] = (self._high_water, record)
                stored.append(self._high_water)
        return Admission(tuple(stored), len(records) - len(stored))

    def remove(self, identifiers: Iterable[RecordId]) -> int:
        """Take records out; returns how many were there."""
        return sum(self._entries.pop(identifier, None) is not None for identifier in identifiers)

    @contextmanager
    def snapshot(self) -> Iterator[MemorySnapshot]:
        """Give a view that later changes do not reach."""
        yield MemorySnapshot(dict(self._entries), self._high_water)

    def close(self) -> None:
        """Nothing is held open."""


class MemorySnapshot:
    """One state of a memory store."""

    def __init__(self, entries: _Entries, high_water: int) -> None:
        self._entries = entries
        self._high_water = high_water
        self._facts = RecordFacts(self.records, self.load)

    def totals(self) -> Totals:
        """Return the counts of this state."""
        size = sum(len(record.bytes) for _, record in self._entries.values())
        return Totals(len(self._entries), size, self._high_water)

    def has(self, identifier: str) -> bool:
        """Tell whether the record is stored here in its own right."""
        return identifier in self._entries

    def describe(self, identifier: str) -> StoredRecord | None:
        """Return what is known of a record."""
        entry = self._entries.get(identifier)
        return _describe(*entry) if entry else None

    def read(self, identifier: str) -> bytes | None:
        """Return a record's bytes."""
        record = self.load(identifier)
        return record.bytes if record else None

    def load(self, identifier: str) -> ValidRecord | None:
        """Return a record with its parts."""
        entry = self._entries.get(identifier)
        return entry[1] if entry else None

    def records(self, *, order: Order = Order.STORED, after: int = 0) -> Iterator[ValidRecord]:
        """Yield every record with a StoreRecordId above `after`."""
        for found in self.listing(order=order):
            if found.store_record_id > after:
                yield self._entries[found.id][1]

    def find(self, address: Address, *, limit: int | None = None) -> list[StoredRecord]:
        """Return the records that an address names, the tip first."""
        found = [entry for entry in self._described() if _matches(entry, address)]
        return sorted(found, key=_tip_order, reverse=True)[:limit]

    def listing(
        self,
        prefix: str = "",
        *,
        order: Order = Order.COORDINATE,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield the records whose coordinate text starts with prefix, Blobs last."""
        found = [
            entry
            for entry in self._described()
            if not prefix or (entry.coordinate and entry.coordinate.startswith(prefix))
        ]
        found.sort(key=lambda entry: _order_key(entry, order), reverse=reverse)
        if order in (Order.COORDINATE, Order.TAI):
            found.sort(key=lambda entry: entry.group is None)
        yield from found[:limit]

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of a record predicate."""
        return self._facts.iterate(predicate)

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the tuples whose first values are the given ones."""
        return self._facts.query(predicate, *leading)

    def count(self, predicate: str) -> int:
        """Return how many tuples the predicate has."""
        return self._facts.count(predicate)

    def _described(self) -> Iterator[StoredRecord]:
        return (_describe(number, record) for number, record in self._entries.values())


def _describe(number: int, record: ValidRecord) -> StoredRecord:
    return StoredRecord(
        store_record_id=number,
        id=record.id,
        size=len(record.bytes),
        group=record.group,
        app=record.app,
        name=record.name,
        tai=record.tai,
        signed_by=record.signed_by,
    )


def _order_key(entry: StoredRecord, order: Order) -> tuple[str | int, ...]:
    match order:
        case Order.COORDINATE:
            place = (entry.group or "", entry.app or "", entry.name or "")
            return (*place, entry.tai or "", str(entry.id))
        case Order.TAI:
            return (entry.tai or "", str(entry.id))
        case Order.STORED:
            return (entry.store_record_id,)
        case Order.ID:
            return (str(entry.id),)


def _matches(stored: StoredRecord, address: Address) -> bool:
    """Tell whether a record is one that the address names."""
    wanted = address.coordinate
    if wanted is not None and stored.coordinate != str(wanted):
        return False
    return (
        (address.hash is None or address.hash == stored.id)
        and (address.type is None or address.type == stored.id.type)
        and (address.tai is None or address.tai == stored.tai)
        and (address.signed_by is None or address.signed_by == stored.signed_by)
    )


def _tip_order(stored: StoredRecord) -> tuple[str, str]:
    """Return the key by which the tip of a coordinate is the largest: TAI, then hash text."""
    return (stored.tai or "", str(stored.id))
