"""The SQLite store: admission, removal, snapshots and the log of operations.

One folder holds the database, the keys, `lace.toml` and the lock files. Many
processes may read while one writes; a writer that must wait for another does so for
`wait_seconds` and then says who holds the lace.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import apsw

from lace.base.limits import DEFAULT_SETTINGS, MIB, Settings
from lace.errors import StoreError
from lace.record.validate import ValidRecord
from lace.store.interface import (
    Admission,
    NoStoreError,
    StoreBusyError,
    StoreUnavailableError,
)
from lace.store.lock import WriteLock
from lace.store.sqlite.connection import connect, translated
from lace.store.sqlite.counters import Counters, read_counters, xor_of_keys
from lace.store.sqlite.inserting import (
    Insertion,
    SomeKnownError,
    Transaction,
    write_counters,
)
from lace.store.sqlite.migrations import (
    MIGRATIONS,
    Migration,
    check_version,
    migrate,
    show_as_newest,
)
from lace.store.sqlite.recent import recent_of
from lace.store.sqlite.segments import SEGMENTS_NAME, SegmentKeeper
from lace.store.sqlite.snapshot import SqliteSnapshot, key_of_id
from lace.store.watching import announce_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lace.record.ids import RecordId
    from lace.store.sqlite.fact_state import FactState
    from lace.store.sqlite.inserting import Inserted

__all__ = ["DATABASE_NAME", "Operation", "SqliteStore", "is_lace"]

DATABASE_NAME: Final = "store.sqlite3"
_OWN_NAMES: Final = frozenset(
    {"keys", "lace.toml", "links", "write.lock", "write.turnstile", SEGMENTS_NAME}
)
_READ_CACHE_BYTES: Final = 4 * MIB
"""What a reader keeps of the database: enough for the inner pages of large indexes.

The system keeps the rest of what was read, and records that are read by their hashes lie all
over a large store: a larger cache is seldom hit, and colder memory for the pages that pass.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation on a lace, and its outcome."""

    started: str
    finished: str
    command: str
    exit_code: int
    result: Mapping[str, object]
    operation_id: int | None = None


def is_lace(folder: Path) -> bool:
    """Tell whether a folder holds a lace, by its database alone."""
    return (folder / DATABASE_NAME).is_file()


class SqliteStore:
    """A lace on disk.

    Args:
        folder: the lace's folder.
        create: make it when it is not there.
        read_only: never write, not even to bring an older store up to date.
        settings: cache size, waiting time and what else the store heeds.
        purpose: what this process is doing, for processes that wait for it.
        migrations: the versions of the store, for tests.
        random_bytes: randomness for the segments beside the database.

    Raises:
        NoStoreError: no lace is there, or the folder is something else.
        StoreVersionError: a newer program wrote it.
        StoreUnavailableError: the disk or its permissions stand in the way.
    """

    def __init__(
        self,
        folder: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        settings: Settings = DEFAULT_SETTINGS,
        purpose: str = "lace",
        migrations: Sequence[Migration] = MIGRATIONS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.folder = folder
        self.path = folder / DATABASE_NAME
        self.read_only = read_only
        self._settings = settings
        self._lock = WriteLock(folder, purpose)
        self.segments = SegmentKeeper(folder, random_bytes)
        self._migrations = migrations
        self._idle: list[apsw.Connection] = []  # for snapshots
        self._recent = recent_of(self.path)
        self._writer: apsw.Connection | None = None
        self._closed = False
        try:
            self._prepare_folder(create=create and not read_only)
        except OSError as error:
            raise StoreUnavailableError(
                f"{folder} cannot be used: {error.strerror}", hint="check it and its parent folder"
            ) from error
        try:
            self._prepare_database()
        except BaseException:
            with suppress(StoreError):
                self.close()
            raise

    def _prepare_folder(self, *, create: bool) -> None:
        if self.path.is_file() and self.path.stat().st_size > 0:
            return
        if not create:
            raise NoStoreError(
                f"there is no lace at {self.folder}", hint="it is made where create is allowed"
            )
        if self.folder.exists():
            foreign = _foreign_names(self.folder)
            if foreign:
                raise NoStoreError(
                    f"{self.folder} is a folder of something else: it holds {foreign[0]!r}",
                    hint="name an empty or a new folder with --lace DIR",
                )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _prepare_database(self) -> None:
        if not self.read_only:
            with self._connection_for_writing(create=True) as connection:
                with translated(self.path):
                    version = connection.pragma("user_version")
                if version != len(self._migrations):
                    with self._lock.held(self._settings.wait_seconds), translated(self.path):
                        migrate(connection, self.path, self._migrations)
        with translated(self.path):
            self._idle.append(self._connect(read_only=True))
            self.version = check_version(self._idle[0], self.path, self._migrations)

    def _connect(self, *, read_only: bool, create: bool = False) -> apsw.Connection:
        if self._closed:
            raise StoreError(f"{self.folder} was closed", hint="open it again")
        connection = connect(
            self.path,
            read_only=read_only,
            create=create,
            cache_bytes=_READ_CACHE_BYTES if read_only else self._settings.store_cache_bytes,
            wait_seconds=self._settings.wait_seconds,
        )
        if read_only:
            try:
                with translated(self.path):
                    show_as_newest(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def _connection_for_writing(self, *, create: bool = False) -> Iterator[apsw.Connection]:
        if self.read_only:
            raise StoreUnavailableError(f"{self.folder} was opened for reading only")
        if self._writer is None:
            self._writer = self._connect(read_only=False, create=create)
        yield self._writer

    @contextmanager
    def _locked(self) -> Iterator[apsw.Connection]:
        """Hold the write lock."""
        with (
            self._connection_for_writing() as connection,
            self._lock.held(self._settings.wait_seconds),
        ):
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """Hold the write lock and a transaction."""
        with (
            self._locked() as connection,
            Transaction(connection, self.path, self.version) as transaction,
        ):
            with translated(self.path):
                yield connection
            transaction.commit()

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Store every record that is not there yet: all of them, or on any failure none."""
        for record in records:
            if not isinstance(record, ValidRecord):
                raise TypeError("a store admits ValidRecords only")
        if not records:
            return Admission((), 0)
        with self._locked() as connection:
            try:
                made, is_rebuild_due = self._insert(connection, records, beside=True)
            except SomeKnownError:  # and all is undone
                made, is_rebuild_due = self._insert(connection, records, beside=False)
            self._recent.remember(made.new)
        if made.stored:
            announce_change(self.folder)
        if is_rebuild_due:
            self._rebuild_segments()
        return Admission(tuple(made.stored), len(records) - len(made.stored))

    def _insert(
        self, connection: apsw.Connection, records: Sequence[ValidRecord], *, beside: bool
    ) -> tuple[Inserted, bool]:
        """Insert records and append their facts; tells too whether a rebuild of these is due."""
        with Transaction(connection, self.path, self.version) as transaction:
            with translated(self.path):
                insertion = Insertion(connection, self.path, records)
                if beside and insertion.is_apart:
                    made = insertion.expect_all()
                    transaction.commit_after(insertion.insert_all)
                else:
                    made = insertion.insert()
                    transaction.commit()
            if not made.stored:
                return made, False
            return made, self.segments.after_admission(made, self.snapshot, transaction.wait)

    def remove(self, identifiers: Iterable[RecordId]) -> int:
        """Take records out; returns how many were there."""
        keys = [key_of_id(identifier) for identifier in identifiers]
        gone: list[bytes] = []
        size = 0
        with self._transaction() as connection:
            before = self._counters(connection)
            sequence = before.removal_sequence or 0
            for key in keys:
                for (length,) in connection.execute(
                    "DELETE FROM record WHERE id = ? RETURNING length(bytes)", (key,)
                ):
                    gone.append(key or b"")
                    size += int(length)
            if gone:
                connection.executemany(
                    "INSERT INTO removal (sequence, id) VALUES (?, ?)",
                    enumerate(gone, sequence + 1),
                )
                covered = self.segments.state()
                if covered:  # nobody asks for older ones any more
                    oldest = covered[1].removal_sequence
                    connection.execute("DELETE FROM removal WHERE sequence <= ?", (oldest,))
                now = replace(
                    before,
                    records=before.records - len(gone),
                    record_bytes=before.record_bytes - size,
                    removal_sequence=sequence + len(gone),
                    key_xor=(before.key_xor or 0) ^ xor_of_keys(gone),
                )
                write_counters(connection, now)
        if gone:
            announce_change(self.folder)
        return len(gone)

    def _counters(self, connection: apsw.Connection) -> Counters:
        return read_counters(connection.execute("SELECT name, value FROM counter"), self.path)

    @contextmanager
    def fact_snapshot(self) -> Iterator[tuple[SqliteSnapshot, FactState]]:
        """Open a consistent view together with its facts, from segments where they are.

        Segments that are missing, behind, stale or damaged are brought up to date first when
        this process may write and no other is at it; the answer is right in any case.
        """
        for as_it_is in (self.read_only, True):
            self.segments.open()  # before the snapshot, which is then never the older one
            with self.snapshot() as snapshot:
                state = self.segments.facts(snapshot, as_it_is=as_it_is)
                if state is not None:
                    yield snapshot, state
                    return
            self._tend_segments()

    def discard_segments(self) -> None:
        """Give up segments in which damage was found; the next `fact_snapshot` has others."""
        self.segments.discard(for_others=not self.read_only)

    def _tend_segments(self) -> None:
        """Append to the segments or rebuild them, unless another process is writing."""
        with suppress(StoreBusyError, StoreUnavailableError):
            with self._lock.held(0), self.snapshot() as snapshot:
                is_rebuild_due = self.segments.catch_up(snapshot.counters(), self.snapshot)
            if is_rebuild_due:
                self._rebuild_segments()

    def _rebuild_segments(self) -> None:
        self.segments.rebuild(self.snapshot, lambda: self._lock.held(self._settings.wait_seconds))

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Open a consistent view that no writer changes or blocks."""
        # A snapshot inside another needs a connection of its own.
        connection = self._idle.pop() if self._idle else self._connect(read_only=True)
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                connection.execute("SELECT value FROM counter LIMIT 1").fetchall()
            yield SqliteSnapshot(connection, self.path, self._recent)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            is_done = connection.txn_state() == apsw.SQLITE_TXN_NONE
            is_newest = self.version == len(self._migrations)
            if is_done and is_newest and not self._closed:
                self._idle.append(connection)
            else:  # closed; or an iterator that nobody finished still holds this state; or the
                # store was an older one, and another process may bring it up to date
                connection.close()

    def append_operation(self, operation: Operation) -> None:
        """Add an operation to the log and forget the oldest ones above the limit."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO operation (started, finished, command, exit_code, result) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    operation.started,
                    operation.finished,
                    operation.command,
                    operation.exit_code,
                    json.dumps(operation.result, ensure_ascii=False, sort_keys=True),
                ),
            )
            connection.execute(
                "DELETE FROM operation WHERE operation_id <= "
                "(SELECT max(operation_id) FROM operation) - ?",
                (self._settings.log_max_operations,),
            )

    def operations(self, limit: int | None = None) -> list[Operation]:
        """Return the newest operations, the oldest of them first."""
        sql = (
            "SELECT operation_id, started, finished, command, exit_code, result "
            "FROM operation ORDER BY operation_id DESC LIMIT ?"
        )
        made: list[Operation] = []
        with self.snapshot() as snapshot:
            for number, started, finished, command, exit_code, result in snapshot.select(
                sql, (-1 if limit is None else limit,)
            ):
                made.append(
                    Operation(
                        operation_id=number,
                        started=started,
                        finished=finished,
                        command=command,
                        exit_code=exit_code,
                        result=json.loads(result),
                    )
                )
        return made[::-1]

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close every connection; what is asked of the store afterwards is refused."""
        self._closed = True
        connections = [*self._idle, *([self._writer] if self._writer else [])]
        self._idle, self._writer = [], None
        for connection in connections:
            with translated(self.path):
                connection.close()


def _foreign_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return [folder.name]
    ours = {DATABASE_NAME + end for end in ("", "-wal", "-shm", "-journal")} | _OWN_NAMES
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in ours)
