"""Inserting records: the rows of a transaction, the counters after it, and its commit.

A large transaction touches most pages of the indexes, and to write them takes as long as to
make the facts of its records. That needs no interpreter, so that both are done at once.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from lace.record.structure import SIGNED_BY
from lace.store.sqlite.connection import translated
from lace.store.sqlite.counters import Counters, read_counters, xor_of_digests
from lace.store.sqlite.recent import key_of_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    import apsw

    from lace.record.validate import ValidRecord

__all__ = ["INSERT", "Inserted", "Transaction", "insert_records", "record_rows", "write_counters"]

INSERT: Final = (
    "INSERT INTO record "
    "(store_record_id, id, group_path, app, name, tai, signed_by, bytes) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)
_MANY: Final = 2_000
"""Records from which a commit is worth a thread."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """What an insertion did: the StoreRecordIds of the records that are new, and the counters."""

    stored: Sequence[int]
    new: Sequence[ValidRecord]
    before: Counters
    now: Counters


def insert_records(
    connection: apsw.Connection, path: Path, records: Sequence[ValidRecord]
) -> Inserted:
    """Insert the records that are not there yet, inside a transaction; counts them."""
    before = read_counters(connection.execute("SELECT name, value FROM counter"), path)
    first = before.high_water + 1
    stored = _insert(connection, records, first)
    if not stored:
        return Inserted((), (), before, before)
    new = list(records)
    if len(stored) < len(new):
        new = [new[number - first] for number in stored]
    now = replace(
        before,
        high_water=stored[-1],
        records=before.records + len(new),
        record_bytes=before.record_bytes + sum(len(record.bytes) for record in new),
        key_xor=(before.key_xor or 0) ^ xor_of_digests([record.digest for record in new]),
    )
    write_counters(connection, now)
    return Inserted(stored, new, before, now)


def record_rows(
    records: Sequence[ValidRecord], first: int
) -> Iterator[tuple[apsw.SQLiteValue, ...]]:
    """Yield what `INSERT` takes for each record; StoreRecordIds count from first."""
    for number, record in enumerate(records, first):
        raw, _digest, plex_at, _blob_at, _data_at, group, app, name, tai = record
        signed_by = raw[SIGNED_BY].decode("ascii") if plex_at > 0 else None
        yield number, key_of_record(record), group, app, name, tai, signed_by, raw


def _insert(
    connection: apsw.Connection, records: Sequence[ValidRecord], first: int
) -> Sequence[int]:
    """Insert the records that are not there yet; returns the StoreRecordIds they got."""
    before = connection.total_changes()
    connection.executemany(INSERT, record_rows(records, first))
    if connection.total_changes() - before == len(records):
        return range(first, first + len(records))
    numbers = connection.execute(
        "SELECT store_record_id FROM record WHERE store_record_id >= ?", (first,)
    )
    return [number for (number,) in numbers]


def write_counters(connection: apsw.Connection, counters: Counters) -> None:
    """Write what was counted, inside a transaction."""
    connection.executemany(
        "UPDATE counter SET value = ? WHERE name = ?",
        [(value, name) for name, value in asdict(counters).items() if value is not None],
    )


class Transaction:
    """A transaction inside a `with` block: committed when that was asked for, else undone.

    A commit has a thread of its own when there is much to write. Whatever happens, the block
    ends when nobody is at the connection any more.
    """

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._claim = threading.Lock()
        """Whoever has it decides: the one who commits, or the one who undoes."""
        self._done = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        with translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._claim.acquire(blocking=False):
            with translated(self._path):
                self._undo()
            return
        interrupt: BaseException | None = None
        while not self._done.is_set():  # an interrupt comes when it is known what came of it
            try:
                self._done.wait()
            except BaseException as later:  # noqa: BLE001 - raised below
                interrupt = later
        if interrupt is not None:
            raise interrupt
        if error is None:
            self.wait()

    def commit(self, records: int) -> None:
        """Commit so many records that were inserted; of many, `wait` tells when that is done.

        Raises:
            StoreError: it could not be, and is undone.
        """
        if records >= _MANY:
            try:
                threading.Thread(target=self._commit, name="lace-commit").start()
            except RuntimeError:  # no more threads
                self._commit()
        else:
            self._commit()
            self.wait()

    def wait(self) -> None:
        """Return when it is committed.

        Raises:
            StoreError: it could not be, and is undone.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error

    def _commit(self) -> None:
        if not self._claim.acquire(blocking=False):
            return  # it is undone already
        try:
            with translated(self._path):
                try:
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._undo()
                    raise
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            self._error = error
        finally:
            self._done.set()

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
