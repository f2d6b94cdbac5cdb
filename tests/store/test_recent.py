"""Records that were just stored: remembered within limits, and never against a snapshot."""

from __future__ import annotations

import gc
import threading
from contextlib import closing
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import apsw
import pytest

from lace.errors import StoreError
from lace.store.sqlite import insert as recent_module
from lace.store.sqlite.insert import MOST_BYTES, MOST_RECORDS, RecentRecords, key_of_record
from lace.store.sqlite.snapshot import SqliteSnapshot, key_of_id
from lace.store.sqlite.store import DATABASE_NAME, SqliteStore
from tests.store.samples import blob, mixed, plex, valid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lace.record.validate import ValidRecord


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "asked.lace"


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder, create=True)
    yield opened
    opened.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which StoreRecordIds records were read from the database."""
    made: list[int] = []
    records = SqliteSnapshot.records

    def noting(self: SqliteSnapshot, *, after: int = 0) -> Iterator[ValidRecord]:
        made.append(after)
        return records(self, after=after)

    monkeypatch.setattr(SqliteSnapshot, "records", noting)
    return made


def blobs(*numbers: int) -> list[ValidRecord]:
    return valid(*(blob(f"data {number}") for number in numbers))


def keys(records: Sequence[ValidRecord]) -> list[bytes]:
    return [key_of_record(record) for record in records]


def new(store: SqliteStore, after: int = 0) -> list[ValidRecord]:
    with store.snapshot() as snapshot:
        found = snapshot.new_records(after)
        assert found == [record for _number, record in snapshot.numbered_records(after)]
    return found


def test_the_key_is_that_of_the_identifier() -> None:
    for record in valid(*mixed(6)):
        assert key_of_record(record) == key_of_id(record.id)


def test_all_or_none_are_found_and_in_the_order_asked() -> None:
    one, two, three = blobs(1, 2, 3)
    recent = RecentRecords()
    assert recent.find_all([]) == []
    recent.remember([one, two])
    assert recent.find_all(keys([two, one])) == [two, one]
    assert recent.find_all(keys([one, three])) is None
    assert recent.find_all(keys([three])) is None
    recent.remember([three])
    assert recent.find_all(keys([one, two, three])) == [one, two, three]


def test_those_that_came_first_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "MOST_RECORDS", 3)
    one, two, three, four, five = blobs(1, 2, 3, 4, 5)
    recent = RecentRecords()
    recent.remember([one, two, three])
    recent.remember([one])  # came again: now the last
    recent.remember([four])
    assert recent.find_all(keys([two])) is None
    assert recent.find_all(keys([three, one, four])) == [three, one, four]
    recent.remember([one, two, three, four, five])
    assert len(recent) == 3
    assert recent.find_all(keys([three, four, five])) == [three, four, five]


def test_no_more_bytes_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    small, other = blobs(1, 2)
    (large,) = valid(blob("x" * 1000))
    monkeypatch.setattr(recent_module, "MOST_BYTES", len(large.bytes) + len(small.bytes))
    recent = RecentRecords()
    for _ in range(5):  # what comes again counts once
        recent.remember([small, large])
    assert recent.find_all(keys([small, large])) == [small, large]
    recent.remember([other])
    assert recent.find_all(keys([small])) is None
    assert recent.find_all(keys([large, other])) == [large, other]
    monkeypatch.setattr(recent_module, "MOST_BYTES", len(large.bytes) - 1)
    recent.remember([large])
    assert len(recent) == 0
    recent.remember([small])
    assert recent.find_all(keys([small])) == [small]


def test_the_limits_are_modest() -> None:
    assert MOST_RECORDS <= 4096
    assert MOST_BYTES <= 4 * 1024 * 1024


def test_what_was_just_stored_is_not_read(store: SqliteStore, reads: list[int]) -> None:
    first, second = blobs(1, 2), blobs(2, 3, 4)
    assert store.admit(first).stored == (1, 2)
    assert new(store) == first
    store.admit(second)  # one of them is there already
    assert new(store, 2) == second[1:]
    assert new(store, 99) == []
    assert reads == []


def test_what_was_removed_is_not_there(store: SqliteStore, reads: list[int]) -> None:
    one, two, three = blobs(1, 2, 3)
    store.admit([one, two, three])
    store.remove([two.id])
    assert new(store) == [one, three]
    store.admit([two])
    assert new(store) == [one, three, two]
    assert reads == []


def test_all_of_a_process_remember_together(
    folder: Path, store: SqliteStore, reads: list[int]
) -> None:
    one, two, three = blobs(1, 2, 3)
    with closing(SqliteStore(folder)) as other:
        store.admit([one])
        other.admit([two])
        assert new(store) == new(other) == [one, two]
    store.admit([three])
    with closing(SqliteStore(folder, read_only=True)) as reader:
        assert new(reader) == [one, two, three]
    assert reads == []


def test_what_nobody_has_open_is_forgotten(folder: Path, reads: list[int]) -> None:
    records = blobs(1, 2)
    with closing(SqliteStore(folder, create=True)) as store:
        store.admit(records)
    del store
    gc.collect()
    with closing(SqliteStore(folder)) as again:
        assert new(again) == records
        assert reads == [0]
        assert new(again) == records  # what was read is remembered, too
        assert reads == [0]


def test_threads_remember_together() -> None:
    recent = RecentRecords()
    shares = [blobs(*range(start, 200, 4)) for start in range(4)]
    found: list[bool] = []

    def tell(share: list[ValidRecord]) -> None:
        for record in share:
            recent.remember([record])
            found.append(recent.find_all(keys([record])) == [record])

    threads = [threading.Thread(target=tell, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 200
    assert recent.find_all(keys(blobs(*range(200)))) == blobs(*range(200))


def test_what_other_processes_stored_is_read(
    folder: Path, store: SqliteStore, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = blobs(1, 2, 3)
    monkeypatch.setattr(recent_module, "_by_database", WeakValueDictionary())
    other = SqliteStore(folder)
    store.admit([one])
    other.admit([two])
    store.admit([three])
    assert new(store) == [one, two, three]
    assert new(other, 1) == [two, three]
    assert reads == [0, 1]
    assert new(store, 2) == [three]
    other.remove([three.id])
    assert new(store, 2) == []
    other.close()
    reader = SqliteStore(folder, read_only=True)
    assert new(reader) == [one, two]
    assert reads == [0, 1, 0]
    reader.close()


def test_too_many_to_remember_are_read(
    store: SqliteStore, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_module, "MOST_RECORDS", 3)
    records = blobs(1, 2, 3, 4, 5)
    store.admit(records)
    assert new(store) == records
    assert reads == [0]
    assert new(store, 2) == records[2:]
    assert reads == [0]


def test_what_was_not_committed_is_not_remembered(folder: Path, store: SqliteStore) -> None:
    kept, before, lost = valid(plex("kept"), plex("before"), plex("lost"))
    store.admit([kept])
    with apsw.Connection(str(folder / DATABASE_NAME)) as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON record WHEN NEW.name = 'lost' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises((StoreError, apsw.Error)):
        store.admit([before, lost])
    assert len(store._recent) == 1
    assert new(store) == [kept]
