"""Segments beside the store: whatever happens to them, the facts are those of the records."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lace.base.limits import Settings
from lace.columns import segment as segment_writer
from lace.columns.segment_journal import ENTRY_BYTES, SegmentDamagedError
from lace.store.sqlite import segment_append, segments
from lace.store.sqlite.connection import key_number, xor_of_digests, xor_of_keys
from lace.store.sqlite.store import DATABASE_NAME, SqliteStore
from tests.store.samples import blob, contents, flip, make_older, valid
from tests.store.segment_samples import checked, generation, linked, segment_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.record.validate import ValidRecord

FEW = 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records be enough for everything."""
    monkeypatch.setattr(segments, "APPEND_RECORDS", FEW)
    monkeypatch.setattr(segments, "_MOST_TAIL", 2 * FEW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lace"


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(folder, create=True, settings=Settings(wait_seconds=1))
    yield made
    made.close()


RECORDS = linked(120)


def ids(records: list[ValidRecord]) -> list[object]:
    return [record.id for record in records]


# -- appending ------------------------------------------------------------------------------


def test_few_records_need_no_segments(store: SqliteStore, folder: Path) -> None:
    assert checked(store).segments is None
    store.admit(RECORDS[: FEW - 1])
    state = checked(store)
    assert state.segments is None
    assert len(state.tail) == FEW - 1
    assert not (folder / "segments").exists()


def test_an_import_appends_once_a_transaction(store: SqliteStore) -> None:
    for start_at in range(0, 60, 20):
        store.admit(RECORDS[start_at : start_at + 20])
    state = checked(store)
    assert state.segments is not None
    assert (state.segments.records, state.tail, state.segments.entry.sequence) == (60, [], 3)


def test_records_one_by_one_become_a_tail_and_then_an_append(store: SqliteStore) -> None:
    sizes = []
    for record in RECORDS[:40]:
        store.admit([record])
        sizes.append(len(checked(store).tail))
    assert max(sizes) == FEW - 1
    assert sizes[-1] == 40 % FEW
    assert store.segments.warning is None


def test_large_records_are_appended_however_few(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "APPEND_BYTES", 5000)
    store.admit(RECORDS[:20])
    store.admit(valid(blob("x" * 6000)))
    assert checked(store).tail == []


def test_known_records_among_new_ones(store: SqliteStore) -> None:
    store.admit(RECORDS[:30:2])
    store.admit(RECORDS[:30])
    state = checked(store)
    assert state.segments is not None
    assert state.segments.records == 30


def test_appends_in_parts(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_append, "SLICE_RECORDS", 7)
    store.admit(RECORDS[:50])
    state = checked(store)
    assert state.segments is not None
    assert state.segments.entry.sequence == 8
    store.discard_segments()
    assert checked(store).tail == []


def test_rare_names_share_a_range(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MOST_NAMES", 5)
    store.admit(RECORDS[:50])
    store.admit(linked(40, "m"))
    assert checked(store).segments is not None


def test_an_older_state_stays_as_it_is(store: SqliteStore) -> None:
    store.admit(RECORDS[:30])
    with store.fact_snapshot() as (_snapshot, state):
        assert state.segments is not None
        store.admit(RECORDS[30:])
        store.discard_segments()
        checked(store)  # rebuilt: the files of the older state are deleted
        assert state.segments.records == 30
        texts = state.segments.dictionary.texts(state.segments.column("Have", 0))
        assert texts == [record.hash_text for record in RECORDS[:30]]
        assert state.segments.dictionary.find(texts).tolist() == sorted(
            state.segments.column("Have", 0).tolist(), key=lambda _id: 0
        )


def test_columns_of_one_range_are_not_copied(store: SqliteStore) -> None:
    store.admit(RECORDS[:30])
    state = checked(store)
    assert state.segments is not None
    name = int(state.segments.dictionary.find(["Name"])[0])
    column = state.segments.column("Field", 3, name)
    assert not column.flags.owndata
    assert not column.flags.writeable
    assert column.dtype == np.int32


# -- removals -------------------------------------------------------------------------------


def test_removed_records_and_their_return(store: SqliteStore) -> None:
    store.admit(RECORDS[:60])
    checked(store)
    store.remove(ids(RECORDS[:5]))  # type: ignore[arg-type]  # they are identifiers
    state = checked(store)
    assert len(state.removed) == 5
    store.admit(RECORDS[2:4])
    state = checked(store)
    assert (len(state.removed), state.tail) == (3, [])
    store.admit(RECORDS[60:90])  # an append that covers all of this
    state = checked(store)
    assert state.segments is not None
    assert (len(state.removed), state.segments.records) == (3, 90)
    store.admit(RECORDS[:2])
    state = checked(store)
    assert (len(state.removed), state.segments and state.segments.records) == (1, 90)
    store.remove(ids(RECORDS[:2]))  # type: ignore[arg-type]
    store.admit(RECORDS[:1])
    store.remove(ids(RECORDS[:1]))  # type: ignore[arg-type]
    assert len(checked(store).removed) == 3


def test_many_removals_cause_a_rebuild(store: SqliteStore, folder: Path) -> None:
    store.admit(RECORDS[:60])
    before = generation(folder)
    store.remove(ids(RECORDS[:16]))  # type: ignore[arg-type]
    state = checked(store)
    assert state.segments is not None
    assert (state.segments.records, len(state.removed)) == (44, 0)
    assert generation(folder) != before
    assert not before.exists()


def test_a_record_that_was_behind_the_segments_and_is_removed(store: SqliteStore) -> None:
    store.admit(RECORDS[:30])
    store.admit(RECORDS[30:33])
    store.remove(ids(RECORDS[31:32]))  # type: ignore[arg-type]
    state = checked(store)
    assert (len(state.tail), len(state.removed)) == (2, 0)


def test_removals_that_are_covered_are_forgotten(store: SqliteStore) -> None:
    store.admit(RECORDS[:60])
    for number in range(3):
        store.remove(ids(RECORDS[number * FEW : number * FEW + 3]))  # type: ignore[arg-type]
        store.admit(RECORDS[60 + number * 20 : 80 + number * 20])
        checked(store)
    store.remove(ids(RECORDS[50:51]))  # type: ignore[arg-type]
    with store.snapshot() as snapshot:
        assert [sequence for sequence, _record in snapshot.removals(0)] == [10]
    assert len(checked(store).removed) == 10


# -- stale, foreign and damaged ---------------------------------------------------------------


def test_a_database_from_a_backup(store: SqliteStore, folder: Path, tmp_path: Path) -> None:
    store.admit(RECORDS[:30])
    store.close()
    shutil.copy(folder / DATABASE_NAME, tmp_path / "backup")
    for more in (RECORDS[30:33], RECORDS[30:60]):
        later = SqliteStore(folder)
        later.admit(more)
        checked(later)
        later.close()
    shutil.copy(tmp_path / "backup", folder / DATABASE_NAME)
    again = SqliteStore(folder)
    checked(again)
    again.admit(RECORDS[60:90])  # as many numbers as before, for other records
    state = checked(again)
    assert state.segments is not None
    assert state.segments.records == 60
    again.close()


def test_a_database_from_a_backup_that_goes_on_at_once(
    store: SqliteStore, folder: Path, tmp_path: Path
) -> None:
    store.admit(RECORDS[:30])
    store.close()
    shutil.copy(folder / DATABASE_NAME, tmp_path / "backup")
    later = SqliteStore(folder)
    later.admit(RECORDS[30:60])
    later.close()
    shutil.copy(tmp_path / "backup", folder / DATABASE_NAME)
    again = SqliteStore(folder)
    again.admit(RECORDS[60:90])
    again.admit(RECORDS[90:])
    checked(again)
    again.close()


def test_segments_of_another_lace(store: SqliteStore, folder: Path, tmp_path: Path) -> None:
    store.admit(RECORDS[:30])
    other = SqliteStore(tmp_path / "other", create=True)
    other.admit(RECORDS[30:60])
    other.close()
    shutil.rmtree(folder / "segments")
    shutil.copytree(tmp_path / "other" / "segments", folder / "segments")
    checked(store)
    shutil.rmtree(folder / "segments")
    shutil.copytree(tmp_path / "other" / "segments", folder / "segments")
    store.admit(RECORDS[60:90])
    checked(store)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_bit_of_any_file(folder: Path, tmp_path: Path, read_only: bool) -> None:
    make(folder)
    source = random.Random(1)
    for file in segment_files(folder):
        for _ in range(3):
            place = tmp_path / "damaged"
            shutil.copytree(folder, place)
            path = place / file.relative_to(folder)
            raw = path.read_bytes()
            path.write_bytes(flip(raw, source.randrange(len(raw))))
            store = SqliteStore(place, read_only=read_only)
            checked(store)
            if not read_only:
                store.admit(linked(20, "more"))
                checked(store)
            store.close()
            shutil.rmtree(place)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_any_file_cut_or_missing(folder: Path, tmp_path: Path, keep: float) -> None:
    make(folder)
    for file in segment_files(folder):
        place = tmp_path / "damaged"
        shutil.copytree(folder, place)
        path = place / file.relative_to(folder)
        if keep:
            raw = path.read_bytes()
            path.write_bytes(raw[: int(len(raw) * keep)])
        else:
            path.unlink()
        store = SqliteStore(place)
        if file.name.startswith("f"):
            store.admit(linked(20, "more"))
        checked(store)
        store.close()
        shutil.rmtree(place)


def make(folder: Path) -> None:
    store = SqliteStore(folder, create=True)
    store.admit(RECORDS[:60])
    store.admit(RECORDS[60:90])
    store.remove(ids(RECORDS[:3]))  # type: ignore[arg-type]
    store.admit(RECORDS[90:])
    store.admit(linked(3, "tail"))
    checked(store)
    store.close()


def test_an_entry_that_a_crash_left_unfinished(folder: Path) -> None:
    make(folder)
    journal = generation(folder) / "journal"
    whole = journal.read_bytes()
    for cut in (1, ENTRY_BYTES // 2, ENTRY_BYTES - 1, ENTRY_BYTES):
        journal.write_bytes(whole[:-cut])
        store = SqliteStore(folder, read_only=True)
        checked(store)
        store.close()
    store = SqliteStore(folder)
    checked(store)
    store.admit(linked(30, "z"))
    assert checked(store).tail == []
    store.close()


def test_bytes_that_a_crash_left_behind_the_end(folder: Path) -> None:
    make(folder)
    for path in generation(folder).iterdir():
        if not path.name.startswith("run-") and path.name != "header":
            path.write_bytes(path.read_bytes() + b"\xff" * 100)
    store = SqliteStore(folder)
    before = generation(folder)
    checked(store)
    store.admit(linked(30, "z"))
    checked(store)
    assert generation(folder) == before
    store.close()


def test_nonsense_in_the_place_of_the_generation(folder: Path) -> None:
    make(folder)
    for text in (b"", b"../../etc", b"0123456789abcdef\n", b"\xff\xff", b"x" * 10_000):
        (folder / "segments" / "current").write_bytes(text)
        store = SqliteStore(folder)
        checked(store)
        store.close()


def test_a_damaged_page_is_told_where_it_is_read(store: SqliteStore, folder: Path) -> None:
    store.admit(RECORDS[:30])
    path = generation(folder) / "field.3"
    path.write_bytes(flip(path.read_bytes(), 0))
    with store.fact_snapshot() as (_snapshot, state):
        assert state.segments is not None
        assert len(state.segments.column("Have", 0)) == 30  # nobody looks at what is not asked for
        with pytest.raises(SegmentDamagedError):
            state.segments.column("Field", 3)


# -- who may write ----------------------------------------------------------------------------


def test_reading_only_writes_nothing(folder: Path) -> None:
    make(folder)
    shutil.rmtree(folder / "segments")
    store = SqliteStore(folder, read_only=True)
    first, second = checked(store), checked(store)
    assert first.segments is not None
    assert first.segments is second.segments
    assert not (folder / "segments").exists()
    store.close()


def test_reading_only_with_much_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segments.SegmentKeeper, "after_admission", lambda *_: False)
        store = SqliteStore(folder, create=True)
        store.admit(RECORDS)
        store.close()
    store = SqliteStore(folder, read_only=True)
    state = checked(store)
    assert state.segments is not None
    assert state.tail == []
    store.close()


def test_a_lace_that_another_process_writes_to(store: SqliteStore, folder: Path) -> None:
    store.admit(RECORDS[:30])
    with store._transaction():
        reader = SqliteStore(folder, settings=Settings(wait_seconds=0))
        reader.discard_segments()
        state = checked(reader)
        assert state.segments is not None
        assert state.segments.records == 30  # of this process alone
        reader.close()


def test_a_disk_without_space(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.admit(RECORDS[:30])
    writes = 0

    def full(path: Path, offset: int, data: memoryview) -> None:
        nonlocal writes
        writes += 1
        if writes == fail_at:
            usual(path, offset, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        usual(path, offset, data)

    usual = segment_writer._write_at
    monkeypatch.setattr(segment_writer, "_write_at", full)
    for fail_at in range(1, 30):
        writes = 0
        store.admit(linked(10, f"d{fail_at}"))
        assert store.segments.warning is None or "No space left" in store.segments.warning
        checked(store)
    assert store.segments.warning is None


def test_a_rebuild_that_fails_is_not_tried_again_and_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.admit(RECORDS[:30])
    tries = 0

    def full(*_arguments: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_append, "fill_generation", full)
    store.discard_segments()
    for number in range(3):
        store.admit(linked(10, f"f{number}"))
        checked(store)
    assert tries == 1 + 3  # once beside the store, and each time in a folder of its own
    assert "No space left" in (store.segments.warning or "")


def test_a_folder_that_cannot_be_made(store: SqliteStore, folder: Path) -> None:
    (folder / "segments").write_text("in the way")
    assert len(store.admit(RECORDS[:30]).stored) == 30
    assert store.segments.warning
    checked(store)
    assert len(contents(store)) == 30


# -- versions -----------------------------------------------------------------------------------


def test_an_older_lace_gets_its_counters(folder: Path) -> None:
    make(folder)
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        before = snapshot.counters()
    store.close()
    make_older(folder, 1)
    reader = SqliteStore(folder, read_only=True)
    assert checked(reader).segments is None
    reader.close()
    store = SqliteStore(folder)
    with store.snapshot() as snapshot:
        counters = snapshot.counters()
        assert counters.key_xor == before.key_xor != 0
        assert counters.removal_sequence == 0
    assert checked(store).segments is not None
    store.admit(linked(20, "z"))
    store.remove([RECORDS[50].id])
    checked(store)
    store.close()


# -- what is read -------------------------------------------------------------------------------


def test_reading_names_touches_neither_hashes_nor_signatures(store: SqliteStore) -> None:
    store.admit(RECORDS)
    with store.fact_snapshot() as (_snapshot, state):
        found = state.segments
        assert found is not None
        (name,) = found.dictionary.find(["Name"]).tolist()
        assert set(found.dictionary.texts(found.column("Field", 3, name))) == {
            f"l/{number}" for number in range(7)
        }
        untouched = {file for file, data in found.files.items() if not data._is_checked.any()}
    assert {"heap.hashes", "heap.cold", "have.0", "field.0", "field.1", "field.2"} <= untouched


# -- counters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 1_000])
def test_the_mark_of_digests_is_that_of_keys(count: int) -> None:
    noise = random.Random(count)
    digests = [noise.randbytes(32) for _number in range(count)]
    assert xor_of_digests(digests) == xor_of_keys(b"S" + digest for digest in digests)
    assert count != 1 or xor_of_digests(digests) == key_number(b"S" + digests[0])
