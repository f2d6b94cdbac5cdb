"""A disk that is full or fails: everything or nothing is stored, and nothing old is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import pytest

from lace.base.limits import Settings
from lace.record.validate import ValidRecord
from lace.store.interface import StoreUnavailableError
from lace.store.sqlite.store import SqliteStore
from lace.store.sqlite.verify import verify_store
from tests.store.actors import finish, start
from tests.store.faulty_disk import faulty_disk
from tests.store.samples import contents, mixed, valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

OLD = mixed(10, prefix="old")
NEW = mixed(6, prefix="new", size=3000)
SETTINGS = Settings(store_cache_bytes=1 << 20, wait_seconds=1)
MOST_STEPS = 400


def made(folder: Path) -> None:
    store = SqliteStore(folder, create=True)
    store.admit(valid(*OLD))
    store.close()


def admit(store: SqliteStore) -> None:
    store.admit(valid(*NEW))


def remove(store: SqliteStore) -> None:
    store.remove([record.id for record in OLD[::2]])


T = TypeVar("T")


def attempt(work: Callable[[T], None], argument: T) -> StoreUnavailableError | None:
    """Do it; returns the refusal, if there was one."""
    try:
        work(argument)
    except StoreUnavailableError as refusal:
        return refusal
    return None


def make_and_close(folder: Path) -> None:
    store = SqliteStore(folder, create=True, settings=SETTINGS)
    assert store._writer is not None
    assert store._writer.pragma("journal_mode") == "wal"
    store.close()


def checked(folder: Path) -> dict[str, bytes]:
    """What a store holds when its disk works again, after it was verified."""
    store = SqliteStore(folder)
    with store.snapshot() as snapshot:
        found = verify_store(snapshot, settings=SETTINGS, random_bytes=os.urandom, workers=0)
    assert found.damage == []
    result = contents(store)
    store.close()
    return result


CASES = [
    pytest.param("full", True, True, id="full"),
    pytest.param("full", False, False, id="full-once"),
    pytest.param("io", True, False, id="io"),
    pytest.param("io", False, True, id="io-once-partly"),
]


@pytest.mark.slow
@pytest.mark.parametrize("change", [admit, remove])
@pytest.mark.parametrize(("error", "lasting", "partly"), CASES)
def test_a_failing_disk_leaves_the_old_or_the_new_records(
    tmp_path: Path,
    change: Callable[[SqliteStore], None],
    error: str,
    lasting: bool,
    partly: bool,
) -> None:
    made(tmp_path / "made")
    old = checked(tmp_path / "made")
    shutil.copytree(tmp_path / "made", tmp_path / "changed")
    store = SqliteStore(tmp_path / "changed")
    change(store)
    new = contents(store)
    store.close()
    assert old != new
    failures = 0
    for number in range(1, MOST_STEPS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", folder)
        with faulty_disk() as disk:
            store = SqliteStore(folder, settings=SETTINGS)
            disk.plan(number, error=error, lasting=lasting, partly=partly)
            refusal = attempt(change, store)
            acknowledged = refusal is None
            if refusal:
                assert refusal.exit_code == 3
                assert str(folder) in str(refusal)
                assert refusal.hint
                failures += 1
            if disk.failed and not acknowledged:
                disk.plan(None, error=error, lasting=False, partly=False)
                assert contents(store) == old  # this process goes on with what was there
            reached = disk.failed or not acknowledged
            disk.plan(None, error=error, lasting=False, partly=False)
            store.close()
        found = checked(folder)
        assert found == new if acknowledged else found in (old, new)
        shutil.rmtree(folder)
        if acknowledged and not reached:
            break
    else:
        pytest.fail("the disk never stopped failing")
    assert failures >= 3


@pytest.mark.slow
def test_a_disk_that_fills_in_the_middle_of_a_large_batch(tmp_path: Path) -> None:
    """A batch larger than the page cache reaches the disk before it is complete."""
    large = valid(*mixed(500, prefix="large", size=4000))
    made(tmp_path / "made")
    old = checked(tmp_path / "made")
    for number in range(1, 5000, 60):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", folder)
        with faulty_disk() as disk:
            store = SqliteStore(folder, settings=SETTINGS)
            disk.plan(number, error="full", lasting=False, partly=False)
            refusal = attempt(lambda store: drop(store.admit(large)), store)
            assert contents(store) == old or not refusal
            disk.plan(None, error="full", lasting=False, partly=False)
            store.close()
        found = checked(folder)
        assert found == old if refusal else len(found) == len(old) + 500
        shutil.rmtree(folder)
        if not refusal:
            break
    assert number > 300


def drop(_result: object) -> None:
    """Take a result that nobody needs."""


class Interrupted(list[ValidRecord]):
    """A batch that is interrupted when so many records of it have been looked at."""

    def __init__(self, records: Sequence[ValidRecord], after: int) -> None:
        super().__init__(records)
        self.left = after

    def __iter__(self) -> Iterator[ValidRecord]:
        for record in super().__iter__():
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield record


def test_an_interrupted_batch_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "lace", create=True)
    store.admit(valid(*OLD))
    old, batch = contents(store), valid(*NEW)
    for after in range(100):
        try:
            store.admit(Interrupted(batch, after))
        except KeyboardInterrupt:
            assert contents(store) == old
        else:
            break
    assert after > len(batch)  # some were interrupted while the batch was being written
    assert len(contents(store)) == len(OLD) + len(NEW)
    store.close()
    checked(tmp_path / "lace")


@pytest.mark.parametrize("error", ["full", "io"])
def test_the_same_store_goes_on_when_the_disk_works_again(tmp_path: Path, error: str) -> None:
    folder = tmp_path / "lace"
    made(folder)
    with faulty_disk() as disk:
        store = SqliteStore(folder, settings=SETTINGS)
        failed = 0
        for number in range(1, 12):
            disk.plan(number, error=error, lasting=True, partly=True)
            try:
                admit(store)
            except StoreUnavailableError:
                failed += 1
            disk.plan(None, error=error, lasting=False, partly=False)
            assert len(contents(store)) in (len(OLD), len(OLD) + len(NEW))
            store.remove([record.id for record in NEW])
        admit(store)
        assert len(contents(store)) == len(OLD) + len(NEW)
        store.close()
        assert failed >= 3
    assert len(checked(folder)) == len(OLD) + len(NEW)


@pytest.mark.slow
@pytest.mark.parametrize(("error", "lasting"), [("full", True), ("io", False)])
def test_a_failing_disk_while_a_lace_is_made(tmp_path: Path, error: str, lasting: bool) -> None:
    failures = 0
    for number in range(1, MOST_STEPS):
        folder = tmp_path / str(number)
        with faulty_disk() as disk:
            disk.plan(number, error=error, lasting=lasting, partly=True)
            refusal = attempt(make_and_close, folder)
            failures += refusal is not None
            failed = disk.failed
        store = SqliteStore(folder, create=True)  # the next try completes it
        store.admit(valid(*OLD))
        store.close()
        assert len(checked(folder)) == len(OLD)
        if not failed:
            break
    else:
        pytest.fail("the disk never stopped failing")
    assert failures >= 3


@pytest.mark.parametrize("error", ["full", "io"])
def test_a_failing_disk_while_the_log_is_put_into_the_database(tmp_path: Path, error: str) -> None:
    """Closing writes the log into the database; a failure there loses nothing."""
    made(tmp_path / "made")
    for number in range(1, MOST_STEPS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", folder)
        with faulty_disk() as disk:
            store = SqliteStore(folder, settings=SETTINGS)
            admit(store)
            disk.plan(number, error=error, lasting=True, partly=True)
            with suppress(StoreUnavailableError):  # SQLite itself would not even mention it
                store.close()
            failed = disk.failed
        assert len(checked(folder)) == len(OLD) + len(NEW)
        if not failed:
            break
    else:
        pytest.fail("the disk never stopped failing")
    assert number > 3


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_really_full_disk(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("this process may not mount a small disk of its own")
    mount = f'mount -t tmpfs -o size=3m tmpfs {tmp_path} && exec "$@"'
    actor = start("fill", tmp_path, before=["unshare", "-rm", "sh", "-c", mount, "sh"])
    error, counts, after = finish(actor).splitlines()
    assert error == "StoreUnavailableError 3 True"
    acknowledged, counted, whole = map(int, counts.split())
    assert acknowledged == counted == whole > 0
    assert after == f"{acknowledged} 0"
