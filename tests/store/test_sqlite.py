"""The SQLite store as such: its settings, its files, its versions, and other processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from lace.base.limits import Settings
from lace.errors import StoreError
from lace.record.ids import RecordId
from lace.record.paths import parse_address
from lace.store.interface import (
    NoStoreError,
    Order,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    StoreVersionError,
)
from lace.store.lock import WriteLock
from lace.store.sqlite.connection import APPLICATION_ID, MIGRATIONS
from lace.store.sqlite.store import DATABASE_NAME, Operation, SqliteStore, is_lace
from lace.store.sqlite.verify import verify_store
from tests.store.actors import finish, line, start
from tests.store.contract import LISTED, PREFIXES, coordinate
from tests.store.samples import (
    blob,
    contents,
    files_of,
    make_older,
    mixed,
    numbers,
    plex,
    tai,
    valid,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.store.sqlite.snapshot import SqliteSnapshot

IMPATIENT = Settings(wait_seconds=0)
OPERATION = Operation(started=tai(1), finished=tai(2), command="c", exit_code=0, result={})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lace"


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(folder, create=True)
    yield made
    made.close()


def is_clean(store: SqliteStore) -> bool:
    with store.snapshot() as snapshot:
        found = verify_store(snapshot, settings=Settings(), random_bytes=os.urandom, workers=0)
    return found.damaged == 0 and found.damage == []


def pragma(store: SqliteStore, name: str) -> object:
    assert store._writer is not None
    return store._writer.pragma(name)


def make(folder: Path, count: int = 5) -> dict[str, bytes]:
    """Make a store with records in it; returns them."""
    store = SqliteStore(folder, create=True)
    store.admit(valid(*mixed(count)))
    found = contents(store)
    store.close()
    return found


# -- settings of the database -----------------------------------------------------------


def test_sqlite_has_the_fix_of_the_wal_reset_fault() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


def test_commits_reach_the_disk_before_they_are_acknowledged(store: SqliteStore) -> None:
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 2
    assert pragma(store, "application_id") == APPLICATION_ID
    assert pragma(store, "user_version") == len(MIGRATIONS)
    assert pragma(store, "trusted_schema") == 0


def test_every_later_opening_has_the_same_settings(folder: Path) -> None:
    make(folder)
    store = SqliteStore(folder)
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 2
    store.close()


def test_a_new_lace_is_for_its_owner_only(folder: Path, store: SqliteStore) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    assert is_lace(folder)


# -- opening ----------------------------------------------------------------------------


def test_everything_is_there_again_after_reopening(folder: Path) -> None:
    records = mixed(20)
    store = SqliteStore(folder, create=True)
    store.admit(valid(*records))
    last = max(numbers(store).items(), key=lambda item: item[1])
    store.remove([records[-1].id])
    before = contents(store), numbers(store)
    store.close()
    again = SqliteStore(folder)
    assert (contents(again), numbers(again)) == before
    [number] = again.admit(valid(*records)).stored  # the highest of all, removed and added again
    assert number > last[1]
    assert is_clean(again)
    again.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["nothing", "empty folder", "file"])
def test_no_lace_where_there_is_none(folder: Path, kind: str, read_only: bool) -> None:
    if kind == "empty folder":
        folder.mkdir()
    elif kind == "file":
        folder.write_text("hello")
    with pytest.raises(NoStoreError) as caught:
        SqliteStore(folder, create=False, read_only=read_only)
    assert caught.value.exit_code == 2
    assert str(folder) in str(caught.value)
    assert not is_lace(folder)
    assert folder.exists() == (kind != "nothing")


def test_reading_only_never_makes_a_lace(folder: Path) -> None:
    with pytest.raises(NoStoreError):
        SqliteStore(folder, create=True, read_only=True)
    assert not folder.exists()


def test_an_empty_folder_becomes_a_lace(folder: Path) -> None:
    folder.mkdir()
    assert len(make(folder)) == 5


def test_a_deeper_folder_is_made(tmp_path: Path) -> None:
    assert len(make(tmp_path / "a" / "b" / "c")) == 5


@pytest.mark.parametrize("name", ["notes.txt", ".git", "Keys", "store.sqlite"])
def test_a_folder_of_something_else_is_refused(folder: Path, name: str) -> None:
    folder.mkdir()
    (folder / name).write_text("mine")
    with pytest.raises(NoStoreError, match="something else") as caught:
        SqliteStore(folder, create=True)
    assert caught.value.exit_code == 2
    assert repr(name) in str(caught.value)
    assert files_of(folder) == {name: b"mine"}


def test_a_file_is_no_folder_for_a_lace(folder: Path) -> None:
    folder.write_text("mine")
    with pytest.raises(NoStoreError):
        SqliteStore(folder, create=True)
    assert folder.read_text() == "mine"


def test_settings_and_keys_may_be_there_before_the_database(folder: Path) -> None:
    folder.mkdir()
    (folder / "lace.toml").write_text("")
    (folder / "keys").mkdir()
    assert len(make(folder)) == 5


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("version", [0, 1])
def test_a_foreign_database_is_refused_and_left_as_it_is(
    folder: Path, mode: str, read_only: bool, create: bool, version: int
) -> None:
    folder.mkdir()
    foreign = apsw.Connection(str(folder / DATABASE_NAME))
    foreign.pragma("journal_mode", mode)
    foreign.execute("CREATE TABLE record (x); INSERT INTO record VALUES (1)")
    foreign.pragma("user_version", version)
    foreign.close()
    before = (folder / DATABASE_NAME).read_bytes()
    with pytest.raises(NoStoreError, match="is not a lace") as caught:
        SqliteStore(folder, create=create, read_only=read_only)
    assert caught.value.exit_code == 2
    assert (folder / DATABASE_NAME).read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database" * 1000, b"\0" * 4096])
def test_a_database_that_is_none_is_damage(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / DATABASE_NAME).write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreDamagedError) as caught:
            SqliteStore(folder, create=True, read_only=read_only)
        assert caught.value.exit_code == 6
    assert (folder / DATABASE_NAME).read_bytes() == content


@pytest.mark.parametrize("leftover", ["", "-journal", "-wal", "-shm"])
def test_a_half_made_lace_is_completed(folder: Path, leftover: str) -> None:
    folder.mkdir()
    for name in {DATABASE_NAME, DATABASE_NAME + leftover, "write.lock", "write.turnstile"}:
        (folder / name).touch()
    with pytest.raises(NoStoreError):
        SqliteStore(folder, create=False)
    assert len(make(folder)) == 5


def test_a_database_without_its_tables_is_completed(folder: Path) -> None:
    folder.mkdir()
    empty = apsw.Connection(str(folder / DATABASE_NAME))
    empty.pragma("journal_mode", "wal")
    empty.close()
    assert (folder / DATABASE_NAME).stat().st_size > 0
    assert len(make(folder)) == 5


def test_processes_that_make_one_lace_at_once_all_succeed(folder: Path) -> None:
    actors = [start("open_and_add", folder, name, 1) for name in "abcdef"]
    for actor in actors:
        assert finish(actor) == "done\n"
    store = SqliteStore(folder)
    assert len(contents(store)) == 6
    assert is_clean(store)
    store.close()


# -- reading only -----------------------------------------------------------------------


def test_reading_only_changes_nothing(folder: Path) -> None:
    records = make(folder)
    before = files_of(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    store = SqliteStore(folder, read_only=True)
    assert contents(store) == records
    assert is_clean(store)
    assert store.operations() == []
    refused: list[Callable[[], object]] = [
        lambda: store.admit(valid(blob("x"))),
        lambda: store.remove([plex().id]),
        lambda: store.append_operation(OPERATION),
    ]
    for write in refused:
        with pytest.raises(StoreUnavailableError, match="reading only") as caught:
            write()
        assert caught.value.exit_code == 3
    store.close()
    after = files_of(folder)
    # SQLite's shared memory and its empty log may appear: a reader needs them to see writers.
    assert after.pop(f"{DATABASE_NAME}-wal", b"") == b""
    after.pop(f"{DATABASE_NAME}-shm", None)
    assert after == before
    for path, changed in times.items():
        assert path.stat().st_mtime_ns == changed


def test_reading_only_sees_what_writers_do(folder: Path, store: SqliteStore) -> None:
    reader = SqliteStore(folder, read_only=True)
    for count in range(1, 4):
        store.admit(valid(blob(str(count))))
        assert len(contents(reader)) == count
    reader.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_folder_that_may_not_be_written_is_read() -> None:
    place = Path(tempfile.mkdtemp(prefix="lace-read-"))
    try:
        place.chmod(0o755)
        folder = place / "lace"
        records = make(folder)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = files_of(folder)
        actor = start("read_as_stranger", folder)
        assert finish(actor).split() == [str(len(records)), "0", "StoreUnavailableError", "3"]
        assert files_of(folder) == before
    finally:
        shutil.rmtree(place)


# -- versions ---------------------------------------------------------------------------


NEWER = (
    *MIGRATIONS,
    "ALTER TABLE record ADD COLUMN note TEXT; CREATE TABLE extra (x ANY) STRICT",
)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_store_is_refused_in_words(folder: Path, read_only: bool) -> None:
    make(folder)
    SqliteStore(folder, migrations=NEWER).close()
    before = (folder / DATABASE_NAME).read_bytes()
    with pytest.raises(StoreVersionError) as caught:
        SqliteStore(folder, read_only=read_only)
    text = str(caught.value)
    assert f"store version {len(NEWER)}" in text
    assert f"up to {len(MIGRATIONS)}" in text
    assert "newer Lace" in text
    assert caught.value.exit_code == 3
    assert (folder / DATABASE_NAME).read_bytes() == before


def test_an_older_store_is_brought_up_to_date_with_all_its_records(folder: Path) -> None:
    records = make(folder, 30)
    store = SqliteStore(folder, migrations=NEWER)
    assert pragma(store, "user_version") == len(NEWER)
    assert contents(store) == records
    assert is_clean(store)
    store.admit(valid(blob("after")))
    with store.snapshot() as snapshot:
        assert list(snapshot.select("SELECT count(*) FROM extra", ())) == [(0,)]
        assert list(snapshot.select("SELECT count(note) FROM record", ())) == [(0,)]
    store.close()
    again = SqliteStore(folder, migrations=NEWER, read_only=True)
    assert len(contents(again)) == 31
    again.close()


def test_several_versions_are_passed_one_by_one(folder: Path) -> None:
    make(folder)
    steps = (*NEWER, "INSERT INTO extra VALUES ('three')", "UPDATE extra SET x = x || ', four'")
    store = SqliteStore(folder, migrations=steps)
    with store.snapshot() as snapshot:
        assert list(snapshot.select("SELECT x FROM extra", ())) == [("three, four",)]
    assert pragma(store, "user_version") == len(steps)
    store.close()


def test_reading_only_does_not_migrate(folder: Path) -> None:
    records = make(folder)
    before = (folder / DATABASE_NAME).read_bytes()
    store = SqliteStore(folder, migrations=NEWER, read_only=True)
    assert contents(store) == records
    store.close()
    assert (folder / DATABASE_NAME).read_bytes() == before


def test_a_program_of_an_older_version_stores_nothing_any_more(folder: Path) -> None:
    """It had the lace open when it was brought to version 3: nobody would list its records."""
    records = make(folder)
    older = apsw.Connection(str(folder / DATABASE_NAME))
    older.execute("BEGIN IMMEDIATE")
    older.execute("INSERT INTO record (store_record_id, id, bytes) VALUES (1000, x'42', x'')")
    with pytest.raises(apsw.ConstraintError, match="a newer Lace has changed the store meanwhile"):
        older.execute("UPDATE counter SET value = 1000 WHERE name = 'high_water'")
    older.execute("ROLLBACK")
    assert len(older.execute("SELECT * FROM record").fetchall()) == len(records)  # it may read
    older.close()


def test_a_store_that_got_another_version_meanwhile_is_not_written_to(folder: Path) -> None:
    records = make(folder)
    store = SqliteStore(folder)
    SqliteStore(folder, migrations=NEWER).close()
    some = RecordId(next(iter(records)))
    for write in (
        lambda: store.admit(valid(blob("new"))),
        lambda: store.remove([some]),
        lambda: store.append_operation(OPERATION),
    ):
        with pytest.raises(StoreVersionError) as caught:
            write()
        assert f"store version {len(NEWER)} meanwhile" in str(caught.value)
        assert caught.value.exit_code == 3
    assert contents(store) == records
    store.close()
    again = SqliteStore(folder, migrations=NEWER)
    again.admit(valid(blob("new")))
    assert len(contents(again)) == len(records) + 1
    again.close()


def plan_of(snapshot: SqliteSnapshot, prefix: str = "", *, order: Order) -> str:
    """Return what SQLite says of the first query of a listing of a few records."""
    plans: list[str] = []
    select = snapshot.select

    def explained(sql: str, values: tuple[apsw.SQLiteValue, ...]) -> Iterator[Any]:
        plans.append("; ".join(row[3] for row in select(f"EXPLAIN QUERY PLAN {sql}", values)))
        return select(sql, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "select", explained)
        list(snapshot.listing(prefix, order=order, limit=3))
    return plans[0]


@pytest.mark.parametrize("prefix", ["", "/", "//", "//u", "//u//a//n"])
@pytest.mark.parametrize("order", [Order.COORDINATE, Order.TAI, Order.STORED, Order.ID])
def test_a_few_records_are_listed_without_a_look_at_all(
    store: SqliteStore, prefix: str, order: Order
) -> None:
    store.admit(valid(*LISTED))
    with store.snapshot() as snapshot:
        plan = plan_of(snapshot, prefix, order=order)
    if prefix.startswith("//u"):
        assert "SEARCH coordinate USING PRIMARY KEY (group_path" in plan
        is_sorted = order in (Order.TAI, Order.ID)  # for which the chosen ones are read
    else:
        first = {Order.COORDINATE: "SCAN coordinate", Order.TAI: "SCAN moment"}
        assert plan.startswith(first.get(order, "SCAN record"))
        is_sorted = False
    whole = plan.replace("TEMP B-TREE FOR LAST TERM", "")
    if order is Order.STORED and prefix.startswith("//u"):
        assert plan.startswith("CO-ROUTINE coordinate")  # entries alone are put in order
    else:
        assert ("TEMP B-TREE FOR ORDER BY" in whole) == is_sorted


def listings(store: SqliteStore) -> list[object]:
    """Return all listings, and what addresses find."""
    with store.snapshot() as snapshot:
        found: list[object] = [
            list(snapshot.listing(prefix, order=order, reverse=reverse, limit=limit))
            for prefix in PREFIXES
            for order in Order
            for reverse in (False, True)
            for limit in (None, 3)
        ]
        paths = {coordinate(record) for record in LISTED} - {""}
        found += [snapshot.find(parse_address(path), limit=5) for path in sorted(paths)]
    return found


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_an_older_store_is_listed_as_it_will_be(folder: Path, version: int) -> None:
    """Where it may only be read, its indexes serve for the tables that it does not have yet."""
    store = SqliteStore(folder, create=True)
    store.admit(valid(*LISTED))
    expected = listings(store)
    store.close()
    make_older(folder, version)
    before = (folder / DATABASE_NAME).read_bytes()
    reader = SqliteStore(folder, read_only=True)
    assert reader.version == version
    assert listings(reader) == expected
    assert is_clean(reader)
    assert (folder / DATABASE_NAME).read_bytes() == before
    store = SqliteStore(folder)
    assert listings(store) == expected
    assert is_clean(store)
    assert listings(reader) == expected  # it goes on while another process brings it up to date
    with reader.snapshot() as snapshot:
        assert "SCAN coordinate" in plan_of(snapshot, order=Order.COORDINATE)  # not a view
    reader.close()
    gone = [record.id for record in LISTED[::3]]
    assert store.remove(gone) == len(gone)
    assert is_clean(store)
    store.close()


@pytest.mark.parametrize(
    "broken",
    [
        "ALTER TABLE record ADD COLUMN note TEXT; SELECT no_such_function()",
        "DELETE FROM record; CREATE TABLE record (x)",
        "DROP TABLE counter; INSERT INTO nowhere VALUES (1)",
    ],
)
def test_a_migration_that_fails_leaves_the_old_version(folder: Path, broken: str) -> None:
    records = make(folder)
    with pytest.raises(StoreError):
        SqliteStore(folder, migrations=(*MIGRATIONS, broken))
    store = SqliteStore(folder)
    assert pragma(store, "user_version") == len(MIGRATIONS)
    assert contents(store) == records
    assert is_clean(store)
    store.close()
    later = SqliteStore(folder, migrations=NEWER)  # and a right one passes afterwards
    assert contents(later) == records
    later.close()


def test_a_failure_in_the_second_of_two_steps_keeps_the_first(folder: Path) -> None:
    records = make(folder)
    with pytest.raises(StoreError):
        SqliteStore(folder, migrations=(*NEWER, "DELETE FROM record; nonsense"))
    store = SqliteStore(folder, migrations=NEWER)
    assert pragma(store, "user_version") == len(NEWER)
    assert contents(store) == records
    store.close()


# -- other processes --------------------------------------------------------------------


def test_a_writer_never_blocks_readers(folder: Path) -> None:
    records = make(folder)
    holder = start("hold", folder, "import big.file")
    try:
        assert line(holder.stdout) == "holding"
        began = time.monotonic()
        for read_only in (False, True):
            store = SqliteStore(folder, read_only=read_only, settings=Settings(wait_seconds=60))
            assert contents(store) == records  # the holder has deleted them, but not committed
            assert is_clean(store)
            store.close()
        assert time.monotonic() - began < 30  # had a reader waited, it would have for 60 s
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_writer_waits_and_then_names_the_holder(folder: Path, seconds: int) -> None:
    records = make(folder)
    holder = start("hold", folder, "import big.file")
    try:
        assert line(holder.stdout) == "holding"
        store = SqliteStore(folder, settings=Settings(wait_seconds=seconds))
        began = time.monotonic()
        with pytest.raises(StoreBusyError) as caught:
            store.admit(valid(blob("mine")))
        assert time.monotonic() - began >= seconds
        assert caught.value.exit_code == 5
        text = str(caught.value)
        assert f"process {holder.pid} (import big.file" in text
        assert str(folder) in text
        with pytest.raises(StoreBusyError):
            store.remove([plex().id])
        assert contents(store) == records
    finally:
        holder.kill()
        holder.communicate()
    assert len(store.admit(valid(blob("mine"))).stored) == 1  # the dead let go
    assert contents(store).keys() > records.keys()
    assert is_clean(store)
    store.close()


def test_a_waiting_writer_gets_in_when_the_holder_dies(folder: Path) -> None:
    make(folder)
    holder = start("hold", folder, "hold")
    assert line(holder.stdout) == "holding"
    waiting = start("open_and_add", folder, "second", 1)
    time.sleep(0.3)
    assert waiting.poll() is None
    holder.kill()
    holder.communicate()
    assert finish(waiting) == "done\n"


def test_a_process_that_writes_on_and_on_lets_others_in(folder: Path, store: SqliteStore) -> None:
    writer = start("write_on", folder)
    try:
        began = time.monotonic()
        for number in range(5):
            assert line(writer.stdout) == "writing"  # it holds the lace again
            store.admit(valid(blob(f"mine {number}")))
        assert time.monotonic() - began < 15  # by luck alone it would take a minute
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    assert is_clean(store)


def test_the_holders_name_is_forgotten_when_it_is_done(folder: Path, store: SqliteStore) -> None:
    store.admit(valid(blob("x")))
    assert (folder / "write.lock").read_bytes() == b""


@pytest.mark.parametrize("left", [b"", b"{", b'{"pid": "x"}', b"\xff\xfe", b"[]", b"null"])
def test_a_holder_whose_name_cannot_be_read_is_another_process(
    folder: Path, store: SqliteStore, left: bytes
) -> None:
    rival = SqliteStore(folder, settings=IMPATIENT)
    with store._transaction():
        (folder / "write.lock").write_bytes(left)
        with pytest.raises(StoreBusyError, match="written by another process"):
            rival.admit(valid(blob("x")))
    rival.close()


def test_another_programs_lock_on_the_database_is_busy_too(
    folder: Path, store: SqliteStore
) -> None:
    foreign = apsw.Connection(str(folder / DATABASE_NAME))
    foreign.execute("BEGIN IMMEDIATE")
    rival = SqliteStore(folder, settings=IMPATIENT)
    with pytest.raises(StoreBusyError) as caught:
        rival.admit(valid(blob("x")))
    assert caught.value.exit_code == 5
    foreign.execute("ROLLBACK")
    foreign.close()
    assert len(rival.admit(valid(blob("x"))).stored) == 1
    rival.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_opening_waits_for_a_moment_of_exclusion(folder: Path, read_only: bool) -> None:
    """SQLite shuts everyone out while it recovers a log or removes it with the last closing."""
    records = make(folder)
    foreign = apsw.Connection(str(folder / DATABASE_NAME))
    foreign.pragma("locking_mode", "exclusive")
    foreign.execute("BEGIN IMMEDIATE; ROLLBACK")
    with pytest.raises(StoreBusyError):
        SqliteStore(folder, read_only=read_only, settings=IMPATIENT)
    ending = threading.Timer(0.3, foreign.close)
    ending.start()
    store = SqliteStore(folder, read_only=read_only, settings=Settings(wait_seconds=30))
    assert contents(store) == records
    store.close()
    ending.join()


def test_a_disk_without_shared_memory_is_refused_in_words(folder: Path) -> None:
    usual = apsw.vfs_names()[0]
    apsw.set_default_vfs("unix-dotfile")  # its databases cannot be in WAL mode
    try:
        with pytest.raises(StoreUnavailableError, match="WAL") as caught:
            SqliteStore(folder, create=True)
    finally:
        apsw.set_default_vfs(usual)
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_opening_and_closing_at_once_is_never_busy(folder: Path) -> None:
    make(folder, 3)
    actors = [start("open_and_add", folder, name, 40) for name in "ab"]
    actors += [start("open_and_read", folder, 80) for _number in range(2)]
    for actor in actors:
        assert finish(actor, 120) == "done\n"
    store = SqliteStore(folder)
    assert len(contents(store)) == 83
    assert is_clean(store)
    store.close()


# -- the log of operations --------------------------------------------------------------


def test_the_log_keeps_the_newest_operations(folder: Path) -> None:
    store = SqliteStore(folder, create=True, settings=Settings(log_max_operations=3))
    for number in range(5):
        store.append_operation(
            Operation(
                started=tai(number),
                finished=tai(number + 1),
                command=f"put é {number}",
                exit_code=number,
                result={"stored": number, "names": ["é"]},
            )
        )
    found = store.operations()
    assert [operation.exit_code for operation in found] == [2, 3, 4]
    assert [operation.operation_id for operation in found] == [3, 4, 5]
    assert found[0].command == "put é 2"
    assert found[0].result == {"stored": 2, "names": ["é"]}
    assert (found[0].started, found[0].finished) == (tai(2), tai(3))
    assert [operation.exit_code for operation in store.operations(1)] == [4]
    assert store.operations(0) == []
    store.close()


# -- copies -----------------------------------------------------------------------------


def test_a_copied_folder_is_the_same_lace(folder: Path, tmp_path: Path) -> None:
    records = make(folder)
    shutil.copytree(folder, tmp_path / "copy")
    store = SqliteStore(tmp_path / "copy")
    assert contents(store) == records
    store.close()


def test_threads_of_one_process_wait_for_each_other(tmp_path: Path) -> None:
    """Many links of a server write to one lace: that they are many does not make it busy."""
    lock = WriteLock(tmp_path, "a test")
    inside: list[int] = []
    seen: list[int] = []

    def write(number: int) -> None:
        with lock.held(0.5):
            inside.append(number)
            time.sleep(0.02)
            seen.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(write, range(50)))
    assert seen == [1] * 50
    with lock.held(0), pytest.raises(StoreBusyError), lock.held(0):
        pass
