"""A commit beside the making of facts: what fails is undone, and facts are never ahead."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from lace.engines.embedded.segment_writer import SegmentWriter
from lace.errors import StoreError
from lace.store.sqlite import inserting
from lace.store.sqlite.store import SqliteStore
from tests.store.samples import blob, valid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import apsw

    from lace.engines.embedded.segment_journal import Entry

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

    def noting(self: SegmentWriter, entry: Entry) -> None:
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
