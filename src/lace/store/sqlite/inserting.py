"""Inserting records: the rows of a transaction, where they lie, the counters, and the commit.

All rows go into the database by one statement, then entries for them into the tables that say
where records lie, and a large transaction touches most pages of these when it is written. That
takes as long as to make the facts of the records, and needs no interpreter. So it is done beside
that, in a thread.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import apsw

from lace.errors import StoreError
from lace.record.structure import SIGNED_BY
from lace.store.interface import StoreVersionError
from lace.store.sqlite.connection import translated
from lace.store.sqlite.counters import Counters, read_counters, xor_of_digests
from lace.store.sqlite.recent import key_of_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from lace.record.validate import ValidRecord

__all__ = [
    "Inserted",
    "Insertion",
    "SomeKnownError",
    "Transaction",
    "enter_places",
    "write_counters",
]

_KEY_BYTES: Final = 33
_TAI_BYTES: Final = 20
_HEAD: Final = b"%b%010d%04d%04d%04d"
"""What is told of a row beside its bytes: its key, where its texts begin, how long each is."""
_HEAD_BYTES: Final = _KEY_BYTES + 10 + 3 * 4
_NO_TEXTS: Final = (0, 0, 0, 0)
# A row that fails makes the whole transaction fail: SQLite need not be able to undo the
# statement alone, for which it would copy every page once more.
_INSERT: Final = f"""
INSERT OR FAIL INTO record (store_record_id, id, group_path, app, name, tai, signed_by, bytes)
SELECT
    number,
    substr(head, 1, {_KEY_BYTES}),
    CAST(substr(:texts, place, group_bytes) AS TEXT),
    CAST(substr(:texts, place + group_bytes, app_bytes) AS TEXT),
    CAST(substr(:texts, place + group_bytes + app_bytes, name_bytes) AS TEXT),
    CAST(substr(:texts, place + group_bytes + app_bytes + name_bytes, {_TAI_BYTES}) AS TEXT),
    iif(
        substr(head, 1, 1) = x'53',  -- S, a Seal
        CAST(substr(bytes, {SIGNED_BY.start + 1}, {SIGNED_BY.stop - SIGNED_BY.start}) AS TEXT),
        NULL
    ),
    bytes
FROM (
    SELECT
        number, head, bytes,
        nullif(CAST(substr(head, {_KEY_BYTES + 1}, 10) AS INTEGER), 0) AS place,
        CAST(substr(head, {_KEY_BYTES + 11}, 4) AS INTEGER) AS group_bytes,
        CAST(substr(head, {_KEY_BYTES + 15}, 4) AS INTEGER) AS app_bytes,
        CAST(substr(head, {_KEY_BYTES + 19}, 4) AS INTEGER) AS name_bytes
    FROM (
        SELECT
            :first + rowid - 1 AS number,
            substr(:heads, (rowid - 1) * {_HEAD_BYTES} + 1, {_HEAD_BYTES}) AS head,
            value AS bytes
        FROM carray(:records)
    )
)
WHERE TRUE
ON CONFLICT (id) DO NOTHING
"""
# In the order of the tables, not that of the records: each page is found and written once.
_ENTER: Final = (
    """
INSERT OR FAIL INTO coordinate (group_path, app, name, tai, store_record_id)
SELECT group_path, app, name, tai, store_record_id
FROM record
WHERE store_record_id >= ? AND group_path IS NOT NULL
ORDER BY group_path, app, name, tai, store_record_id
""",
    """
INSERT OR FAIL INTO moment (tai, store_record_id)
SELECT tai, store_record_id
FROM record
WHERE store_record_id >= ? AND tai IS NOT NULL
ORDER BY tai, store_record_id
""",
)
_MANY: Final = 2_000
"""Records from which a transaction is worth a thread."""
_LOOKED_AT: Final = 16
"""Records that are looked for, of many, to tell whether all of them may be new."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """What an insertion did: the StoreRecordIds of the records that are new, and the counters."""

    stored: Sequence[int]
    new: Sequence[ValidRecord]
    before: Counters
    now: Counters


class SomeKnownError(StoreError):
    """Not all records were new, although that was to be expected; the caller inserts them again."""


class Insertion:
    """Records that are to be inserted inside a transaction.

    Args:
        connection: the connection; nobody else uses it meanwhile.
        path: the database.
        records: the records; those that are there already are passed over.
    """

    def __init__(
        self, connection: apsw.Connection, path: Path, records: Sequence[ValidRecord]
    ) -> None:
        self._connection = connection
        self._records = records
        self._before = read_counters(connection.execute("SELECT name, value FROM counter"), path)
        self._first = self._before.high_water + 1
        heads, texts = _heads_of(records)
        self._given = {
            "records": apsw.carray(tuple([record.bytes for record in records])),
            "heads": heads,
            "texts": texts,
            "first": self._first,
        }

    @property
    def is_apart(self) -> bool:
        """Whether it is worth a thread: there are many records, and they seem to be new."""
        if len(self._records) < _MANY:
            return False
        some = self._records[:: -(-len(self._records) // _LOOKED_AT)]
        marks = ",".join("?" * len(some))
        found = self._connection.execute(
            f"SELECT 1 FROM record WHERE id IN ({marks})", tuple(map(key_of_record, some))
        )
        return found.get is None

    def expect_all(self) -> Inserted:
        """Write the counters as they are if all records are new; returns what is done then."""
        return self._count(range(self._first, self._first + len(self._records)))

    def insert_all(self) -> None:
        """Insert the records, all of which are expected to be new.

        Raises:
            SomeKnownError: they are not.
        """
        if self._insert() != len(self._records):
            raise SomeKnownError("some of the records are here already")

    def insert(self) -> Inserted:
        """Insert the records that are not there yet, and count them."""
        if self._insert() == len(self._records):
            return self.expect_all()
        numbers = self._connection.execute(
            "SELECT store_record_id FROM record WHERE store_record_id >= ?", (self._first,)
        )
        return self._count([number for (number,) in numbers])

    def _insert(self) -> int:
        """Insert the records that are not there yet; returns how many."""
        before = self._connection.total_changes()
        # A statement that is kept for the next time keeps what it was given as well.
        self._connection.execute(_INSERT, self._given, can_cache=False)
        inserted = self._connection.total_changes() - before
        if inserted:
            enter_places(self._connection, self._first)
        return inserted

    def _count(self, stored: Sequence[int]) -> Inserted:
        before, new = self._before, self._records
        if len(stored) < len(new):
            new = [new[number - self._first] for number in stored]
        if not stored:
            return Inserted((), (), before, before)
        now = replace(
            before,
            high_water=stored[-1],
            records=before.records + len(new),
            record_bytes=before.record_bytes + sum(len(record.bytes) for record in new),
            key_xor=(before.key_xor or 0) ^ xor_of_digests([record.digest for record in new]),
        )
        write_counters(self._connection, now)
        return Inserted(stored, new, before, now)


def enter_places(connection: apsw.Connection, first: int) -> None:
    """Enter where the records from a StoreRecordId on lie by coordinate and by time."""
    for sql in _ENTER:
        connection.execute(sql, (first,))


def _heads_of(records: Sequence[ValidRecord]) -> tuple[bytes, bytes]:
    """Return the heads of the rows of records, and the texts of all of them in a row."""
    heads: list[bytes] = []
    texts: list[str] = []
    place = 1
    for record in records:
        _raw, _digest, _plex_at, _blob_at, _data_at, group, app, name, tai = record
        if group is None or app is None or name is None or tai is None:  # a Blob
            heads.append(_HEAD % (key_of_record(record), *_NO_TEXTS))
            continue
        text = f"{group}{app}{name}{tai}"
        lengths: tuple[int, ...] = len(group), len(app), len(name)
        size = len(text)
        if not text.isascii():
            lengths = tuple(len(part.encode()) for part in (group, app, name))
            size = sum(lengths) + len(tai)
        heads.append(_HEAD % (key_of_record(record), place, *lengths))
        texts.append(text)
        place += size
    return b"".join(heads), "".join(texts).encode()


def write_counters(connection: apsw.Connection, counters: Counters) -> None:
    """Write what was counted, inside a transaction in which places are entered, too."""
    values = {"placed": counters.high_water, **asdict(counters)}
    connection.executemany(
        "UPDATE counter SET value = ? WHERE name = ?",
        [(value, name) for name, value in values.items() if value is not None],
    )


class Transaction:
    """A transaction inside a `with` block: committed when that was asked for, else undone.

    It begins only if the store has still the version that it was opened with. What is left to
    do, and the commit, have a thread of their own when that is asked for.
    Whatever happens, the block ends when nobody is at the connection any more.
    """

    def __init__(self, connection: apsw.Connection, path: Path, version: int) -> None:
        self._connection = connection
        self._path = path
        self._version = version
        self._claim = threading.Lock()
        """Its holder decides: the thread that commits, or the one that undoes."""
        self._done = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        with translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            version = int(self._connection.pragma("user_version"))
            if version != self._version:
                self._undo()
                raise StoreVersionError(
                    f"{self._path} has been brought to store version {version} meanwhile; "
                    f"it had {self._version} when it was opened",
                    hint="start this program again",
                )
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
        while not self._done.is_set():  # an interrupt is raised once the outcome is known
            try:
                self._done.wait()
            except BaseException as later:  # noqa: BLE001 - raised below
                interrupt = later
        if interrupt is not None:
            raise interrupt
        if error is None:
            self.wait()

    def commit(self) -> None:
        """Commit what was done.

        Raises:
            StoreError: it could not be, and is undone.
        """
        self._finish(lambda: None)
        self.wait()

    def commit_after(self, last: Callable[[], None]) -> None:
        """Do what is left in a thread, and commit there; `wait` tells when that is done."""
        try:
            threading.Thread(target=self._finish, args=(last,), name="lace-commit").start()
        except RuntimeError:  # no more threads
            self._finish(last)

    def wait(self) -> None:
        """Return when it is committed.

        Raises:
            StoreError: it could not be, and is undone.
            BaseException: what else the last work failed with; it is undone, too.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error

    def _finish(self, last: Callable[[], None]) -> None:
        if not self._claim.acquire(blocking=False):
            return  # it is undone already
        try:
            with translated(self._path):
                try:
                    last()
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._undo()
                    raise
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            self._error = error
        finally:
            self._done.set()

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
