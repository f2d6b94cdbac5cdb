"""Verification: everything a store holds, looked at again, signatures included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lace.errors import RecordError
from lace.record.validate import ValidRecord, frame_record
from lace.store.interface import StoreDamagedError
from lace.store.sqlite.connection import PLACES_SINCE, key_number
from lace.store.sqlite.snapshot import SqliteSnapshot, id_from_key
from lace.store.validation import (
    SIGNATURE_BATCH,
    SIGNATURE_BATCH_BYTES,
    Batch,
    validate_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.base.limits import Settings
    from lace.record.reader import RawRecord
    from lace.record.seal import RandomBytes


_COLUMNS: Final = "store_record_id, id, group_path, app, name, tai, signed_by, bytes"
_NUMBERED: Final = (
    "SELECT store_record_id, id FROM record INDEXED BY record_by_id WHERE store_record_id > ?"
)
_PLACES: Final = {
    "coordinate": (
        "coordinate.group_path = record.group_path AND coordinate.app = record.app "
        "AND coordinate.name = record.name AND coordinate.tai = record.tai"
    ),
    "moment": "moment.tai = record.tai",
}
"""The tables that say where records lie, and what an entry has of its record."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it should be; `record` is empty for the store as a whole."""

    record: str
    store_record_id: int | None
    reason: str


@dataclass(slots=True)
class Verification:
    """What a verification has seen so far; `damage` holds the first findings, up to a limit."""

    records: int = 0
    record_bytes: int = 0
    damaged: int = 0
    damage: list[Damage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as it is in the database; its identifier may be nonsense."""

    store_record_id: int
    identifier: str
    columns: tuple[object, ...]


def verify_store(
    snapshot: SqliteSnapshot,
    *,
    settings: Settings,
    random_bytes: RandomBytes,
    workers: int,
    alone: int = 0,
    report: Callable[[Verification], None] | None = None,
) -> Verification:
    """Check the database, every record's bytes and signature, its columns, and the counts."""
    verifier = _Verifier(settings)
    verifier.check_database(snapshot)
    for verdicts in validate_batches(verifier.batches(snapshot), random_bytes, workers, alone):
        rows = verifier.rows.pop(id(verdicts.batch))
        for row, outcome in zip(rows, verdicts.outcomes, strict=True):
            verifier.compare(row, outcome)
        if report:
            report(verifier.seen)
    verifier.check_totals(snapshot)
    verifier.check_places(snapshot)
    return verifier.seen


class _Verifier:
    def __init__(self, settings: Settings) -> None:
        self.seen = Verification()
        self.rows: dict[int, list[_Row]] = {}
        self._settings = settings
        self._highest = 0
        self._key_xor = 0
        self._noted: set[int] = set()
        """The StoreRecordIds of damaged records."""

    def note(self, damage: Damage) -> None:
        self.seen.damaged += 1
        if damage.store_record_id is not None:
            self._noted.add(damage.store_record_id)
        if len(self.seen.damage) < self._settings.import_max_reports:
            self.seen.damage.append(damage)

    def batches(self, snapshot: SqliteSnapshot) -> Iterator[Batch]:
        """Yield the stored records in batches; what cannot be framed is noted at once."""
        records: list[RawRecord] = []
        rows: list[_Row] = []
        size = 0
        for number, key, *columns, raw in self._readable_rows(snapshot):
            row = _Row(number, _identifier(key), tuple(columns))
            self._highest = number
            self._key_xor ^= key_number(key)
            self.seen.records += 1
            self.seen.record_bytes += len(raw)
            try:
                records.append(frame_record(raw, len(raw)))
            except RecordError as error:
                self.note(Damage(row.identifier, number, str(error)))
                continue
            rows.append(row)
            size += len(raw)
            if len(records) >= SIGNATURE_BATCH or size >= SIGNATURE_BATCH_BYTES:
                yield self._batch(records, rows)
                records, rows, size = [], [], 0
        if records:
            yield self._batch(records, rows)

    def _readable_rows(self, snapshot: SqliteSnapshot) -> Iterator[Any]:
        """Yield the rows; behind a place that cannot be read, one by one, noting which cannot."""
        after = 0
        try:
            for row in snapshot.select(f"SELECT {_COLUMNS} FROM record ORDER BY 1", ()):
                yield row
                after = row[0]
        except StoreDamagedError:
            pass
        else:
            return
        try:
            left = sorted(snapshot.select(_NUMBERED, (after,)))
        except StoreDamagedError as error:
            self.note(Damage("", None, str(error)))
            return
        for number, key in left:
            sql = f"SELECT {_COLUMNS} FROM record WHERE store_record_id = ?"
            try:
                yield from list(snapshot.select(sql, (number,)))
            except StoreDamagedError as error:
                self.note(Damage(_identifier(key), number, str(error)))

    def _batch(self, records: list[RawRecord], rows: list[_Row]) -> Batch:
        batch = Batch(records, [])
        self.rows[id(batch)] = rows
        return batch

    def compare(self, row: _Row, outcome: ValidRecord | RecordError) -> None:
        """Note a record that is not valid, or whose row says something else than its bytes."""
        if isinstance(outcome, RecordError):
            self.note(Damage(row.identifier, row.store_record_id, str(outcome)))
            return
        if outcome.hash_text != row.identifier:
            reason = f"its bytes are those of {outcome.hash_text}"
            self.note(Damage(row.identifier, row.store_record_id, reason))
        actual = (outcome.group, outcome.app, outcome.name, outcome.tai, outcome.signed_by)
        if actual != row.columns:
            reason = "its columns differ from its bytes"
            self.note(Damage(row.identifier, row.store_record_id, reason))

    def check_database(self, snapshot: SqliteSnapshot) -> None:
        """Note what SQLite finds wrong with its own pages and indexes."""
        try:
            for (problem,) in snapshot.select("PRAGMA integrity_check(100)", ()):
                if problem != "ok":
                    self.note(Damage("", None, f"database: {problem}"))
        except StoreDamagedError as error:
            self.note(Damage("", None, str(error)))

    def check_places(self, snapshot: SqliteSnapshot) -> None:
        """Note records that are not found by coordinate or by time, and entries of no record."""
        ((version,),) = snapshot.select("PRAGMA user_version", ())
        if version < PLACES_SINCE:
            return
        is_whole = not self.seen.damaged  # else that may be why entries are left over
        for table, same in _PLACES.items():
            lacking = (
                "SELECT store_record_id, id FROM record WHERE group_path IS NOT NULL "
                f"AND NOT EXISTS (SELECT 1 FROM {table} "
                f"WHERE {same} AND {table}.store_record_id = record.store_record_id)"
            )
            surplus = (
                f"SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM record) "
                "+ (SELECT count(*) FROM record WHERE group_path IS NULL)"
            )
            left_over = 0
            try:
                for number, key in snapshot.select(lacking, ()):
                    left_over += 1  # another entry may stand for it
                    if number not in self._noted:
                        reason = f"it is not in the table {table}: listings leave it out"
                        self.note(Damage(_identifier(key), number, reason))
                left_over += sum(count for (count,) in snapshot.select(surplus, ()))
            except StoreDamagedError as error:
                self.note(Damage("", None, str(error)))
                continue
            if left_over and is_whole:
                reason = f"the table {table} has entries of no record: {left_over}"
                self.note(Damage("", None, reason))

    def check_totals(self, snapshot: SqliteSnapshot) -> None:
        """Note counts that are not what the rows add up to."""
        seen = self.seen
        try:
            totals = snapshot.counters()
        except StoreDamagedError as error:
            self.note(Damage("", None, str(error)))
            return
        for name, counted, kept in (
            ("records", seen.records, totals.records),
            ("record bytes", seen.record_bytes, totals.record_bytes),
        ):
            if counted != kept:
                self.note(Damage("", None, f"the store counts {kept} {name}, but has {counted}"))
        is_other_set = totals.key_xor is not None and self._key_xor != totals.key_xor
        if is_other_set and not seen.damaged:  # other damage would explain it
            self.note(Damage("", None, "the store's mark of its records' keys is not theirs"))
        if self._highest > totals.high_water:
            reason = f"StoreRecordId {self._highest} is above the high water {totals.high_water}"
            self.note(Damage("", None, reason))


def _identifier(key: bytes) -> str:
    try:
        return id_from_key(key)
    except RecordError:
        return f"(key {key.hex()})"
