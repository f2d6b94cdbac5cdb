"""Inserting beside the making of facts: what fails is undone, and facts are never ahead."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lace.columns.segment import SegmentWriter
from lace.errors import StoreError
from lace.store.sqlite import insert as inserting
from lace.store.sqlite import segment_append
from lace.store.sqlite.insert import key_of_record
from lace.store.sqlite.store import SqliteStore
from tests.store.samples import blob, plex, seal, valid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import apsw

    from lace.columns.segment_journal import JournalEntry

MANY = 300  # enough for segments


@pytest.fixture(params=["apart", "here"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserting, "_MANY", 1 if request.param == "apart" else 10**9)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "some.lace", create=True)) as opened:
        yield opened


def writer_of(store: SqliteStore) -> apsw.Connection:
    assert store._writer is not None
    return store._writer


def covered(store: SqliteStore) -> int:
    state = store.segments.state()
    return 0 if state is None else state[1].high_water


def test_facts_follow_what_was_committed(store: SqliteStore) -> None:
    first, second = (
        valid(*(blob(f"{part} {number}") for number in range(MANY))) for part in range(2)
    )
    assert len(store.admit(first).stored) == MANY
    assert covered(store) == MANY
    again = store.admit([*first[-5:], *second])
    assert (len(again.stored), again.known) == (MANY, 5)
    assert covered(store) == 2 * MANY + 5  # numbers of known ones are passed over
    with store.fact_snapshot() as (_snapshot, state):
        assert state.records == 2 * MANY
        assert not state.tail


@pytest.mark.parametrize("slice_records", [10**6, 40], ids=["one part", "parts"])
def test_a_known_record_that_nobody_looked_for_is_passed_over(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, slice_records: int
) -> None:
    """All seemed to be new, and facts were made of all of them: these are not published."""
    monkeypatch.setattr(segment_append, "SLICE_RECORDS", slice_records)
    ended: list[type[BaseException] | None] = []
    original = inserting.Transaction.__exit__

    def noting(self: inserting.Transaction, *error: Any) -> None:
        try:
            original(self, *error)
        except BaseException as failed:
            error = (type(failed), failed, None)
            raise
        finally:
            ended.append(error[0])

    monkeypatch.setattr(inserting.Transaction, "__exit__", noting)
    records = valid(*(blob(f"data {number}") for number in range(2 * MANY)))
    known, more = records[:MANY], records[MANY:]
    store.admit(known)
    ended.clear()
    again = store.admit([more[0], known[0], *more[1:], *known[1:7]])
    assert ended == [*([inserting.SomeKnownError] if len(records) >= inserting._MANY else []), None]
    assert (len(again.stored), again.known) == (MANY, 7)
    assert store.segments.warning is None
    assert covered(store) == again.stored[-1]
    with store.fact_snapshot() as (snapshot, state):
        assert state.records == snapshot.totals().records == 2 * MANY
        assert not state.tail
    assert store.admit(records).known == 2 * MANY


def test_rows_say_what_the_records_say(store: SqliteStore) -> None:
    """Blobs have no coordinate, and only Seals a signer; texts are not all ASCII."""
    plexes = [
        plex("ä/name", group="grüße", app="a", at=7, data="1"),
        plex("n", group="u", app="bücher", at=8, data="2"),
        plex("x" * 900, group="g" * 900, app="y" * 900, at=9, data="3"),
        plex("𝄞", group="u", app="a", at=10, data="4"),
    ]
    records = valid(
        *(record for each in plexes for record in (seal(each), blob("x" + each.tai), each))
    )
    store.admit(records)
    rows = writer_of(store).execute(
        "SELECT store_record_id, id, group_path, app, name, tai, signed_by, bytes FROM record"
    )
    assert rows.fetchall() == [
        (
            number,
            key_of_record(record),
            record.group,
            record.app,
            record.name,
            record.tai,
            record.signed_by,
            record.bytes,
        )
        for number, record in enumerate(records, 1)
    ]


def test_a_commit_that_fails_leaves_nothing(store: SqliteStore) -> None:
    records = valid(*(blob(f"data {number}") for number in range(MANY)))
    store.admit(records[:1])
    writer_of(store).set_commit_hook(lambda: True)  # refuses
    with pytest.raises(StoreError):
        store.admit(records)
    assert not writer_of(store).in_transaction
    assert covered(store) <= 1
    with store.snapshot() as snapshot:
        assert snapshot.totals().records == 1
    writer_of(store).set_commit_hook(None)
    assert len(store.admit(records).stored) == MANY - 1
    with store.fact_snapshot() as (_snapshot, state):
        assert state.records == MANY
    assert store.segments.warning is None


def test_no_entry_is_written_before_the_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    original = SegmentWriter._commit

    def noting(self: SegmentWriter, entry: JournalEntry) -> None:
        with store.snapshot() as snapshot:
            seen.append((snapshot.counters().high_water, entry.high_water))
        original(self, entry)

    monkeypatch.setattr(SegmentWriter, "_commit", noting)
    store.admit(valid(*(blob(f"data {number}") for number in range(MANY))))
    assert seen
    assert all(stored >= entry for stored, entry in seen)


def test_without_more_threads_it_is_committed_all_the_same(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    assert len(store.admit(valid(*(blob(f"data {number}") for number in range(MANY)))).stored) == (
        MANY
    )
    assert not writer_of(store).in_transaction


@pytest.mark.parametrize("when", ["insert", "commit"])
def test_an_interrupt_leaves_nothing_half_done(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It comes when it is known what became of the transaction, and others can write then."""
    records = valid(*(blob(f"data {number}") for number in range(MANY)))
    store.admit(records[:1])

    def interrupt(*_given: object) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # the main thread has it by then
        return False

    if when == "insert":
        monkeypatch.setattr(inserting, "write_counters", interrupt)
    else:
        writer_of(store).set_commit_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.admit(records)
    assert not [each for each in threading.enumerate() if each.name == "lace-commit"]
    assert not writer_of(store).in_transaction
    writer_of(store).set_commit_hook(None)
    monkeypatch.undo()
    with store.snapshot() as snapshot:
        assert snapshot.totals().records in ([1] if when == "insert" else [1, MANY])
    assert store.admit(records).known >= 1
    with store.fact_snapshot() as (_snapshot, state):
        assert state.records == MANY
