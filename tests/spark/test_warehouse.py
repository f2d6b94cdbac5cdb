"""The folder of a warehouse: commits, leftovers, one writer, damage. No Spark here."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from lace.errors import UsageError
from lace.spark.pipeline.warehouse import (
    MANIFEST_NAME,
    DataFile,
    WarehouseDamagedError,
    WarehouseFolder,
    check_file,
    file_digest,
)
from lace.store.interface import NoStoreError, StoreBusyError, StoreUnavailableError
from tests.spark.samples import names_of, run_script

if TYPE_CHECKING:
    from pathlib import Path

    from lace.spark.pipeline.warehouse import Job

LOCKS = {"write.lock", "write.turnstile"}


@pytest.fixture
def warehouse(tmp_path: Path) -> WarehouseFolder:
    return WarehouseFolder.create(tmp_path / "wh")


def put(job: Job, name: str = "part-0.parquet", text: bytes = b"some rows") -> DataFile:
    """Write something with the ends of a Parquet file, as a job writes its files."""
    path = job.folder("records") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1" + text + b"PAR1")
    return DataFile(
        path=path.relative_to(job.warehouse.folder).as_posix(),
        size=path.stat().st_size,
        digest=file_digest(path),
        rows=1,
        generation=job.generation,
    )


def commit(warehouse: WarehouseFolder, text: bytes = b"some rows") -> DataFile:
    with warehouse.writing("a test") as job:
        file = put(job, text=text)
        job.commit(warehouse.manifest.with_added({"records": [file]}))
    return file


def test_what_is_committed_is_there(warehouse: WarehouseFolder) -> None:
    file = commit(warehouse)
    again = WarehouseFolder.open(warehouse.folder)
    assert again.manifest.generation == 1
    assert again.files("records") == [warehouse.folder / file.path]
    assert again.files("quarantine") == []


def test_what_is_not_committed_is_gone(warehouse: WarehouseFolder) -> None:
    before = names_of(warehouse.folder)

    def fail() -> None:
        with warehouse.writing("a test") as job:
            put(job)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names_of(warehouse.folder) == before | LOCKS
    assert WarehouseFolder.open(warehouse.folder).manifest.generation == 0


def test_scratch_files_go_with_the_commit(warehouse: WarehouseFolder) -> None:
    with warehouse.writing("a test") as job:
        scratch = job.scratch("x")
        scratch.mkdir(parents=True)
        (scratch / "y").write_bytes(b"z")
        job.commit(warehouse.manifest.with_added({"records": [put(job)]}))
        assert not scratch.exists()


def test_a_reader_keeps_its_state_and_files(warehouse: WarehouseFolder) -> None:
    old = commit(warehouse)
    reader = WarehouseFolder.open(warehouse.folder)
    for _number in range(3):
        with warehouse.writing("a test") as job:
            job.commit(warehouse.manifest.with_replaced("records", [put(job)]))
    assert reader.files("records") == [warehouse.folder / old.path]
    for _number in range(4):
        with warehouse.writing("a test") as job:
            job.commit(warehouse.manifest.with_replaced("records", [put(job)]))
    with warehouse.writing("a test"):
        pass
    with pytest.raises(WarehouseDamagedError, match="it is missing"):
        reader.files("records")
    assert len(list((warehouse.folder / "manifests").iterdir())) <= 6


def test_leftovers_of_a_dead_job_are_swept(warehouse: WarehouseFolder) -> None:
    file = commit(warehouse)
    left = warehouse.folder / "data" / "g00000009-0011"
    left.mkdir()
    (left / "part-0.parquet").write_bytes(b"PAR1")
    (warehouse.folder / f"{MANIFEST_NAME}.0123.part").write_bytes(b"{")
    with warehouse.writing("a test"):
        assert names_of(warehouse.folder / "data") == {file.path.removeprefix("data/")}
    assert not list(warehouse.folder.glob("*.part"))


@pytest.mark.parametrize(
    ("where", "generation"), [("fsync", 1), ("link", 1), ("replace", 1), ("sync", 2)]
)
def test_a_kill_inside_the_commit_leaves_one_state(
    warehouse: WarehouseFolder, where: str, generation: int
) -> None:
    commit(warehouse)
    script = f"""
import os, signal, sys
from pathlib import Path
from lace.spark.pipeline import warehouse as module
from tests.spark.test_warehouse import put
def die(*_rest): os.kill(os.getpid(), signal.SIGKILL)
opened = module.WarehouseFolder.open(Path(sys.argv[1]))
with opened.writing("a test") as job:
    file = put(job)
    where = {where!r}
    if where == "fsync": os.fsync = die
    if where == "link": os.link = die
    if where == "replace": Path.replace = die
    if where == "sync": module._sync = die
    job.commit(opened.manifest.with_added({{"records": [file]}}))
"""
    done = run_script(script, str(warehouse.folder))
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = WarehouseFolder.open(warehouse.folder)
    assert again.manifest.generation == generation
    assert len(again.files("records")) == generation
    with again.writing("a test") as job:  # the dead one's lock is free
        job.commit(again.manifest.with_added({"records": [put(job)]}))
    last = WarehouseFolder.open(warehouse.folder)
    assert last.manifest.generation == generation + 1
    listed = {file.path.removeprefix("data/") for file in last.manifest.all_files()}
    assert names_of(warehouse.folder / "data") == listed


def test_two_writers_at_once_are_refused(warehouse: WarehouseFolder) -> None:
    other = WarehouseFolder.open(warehouse.folder)
    with (
        warehouse.writing("lace pipeline facts"),
        pytest.raises(StoreBusyError) as caught,
        other.writing("a test"),
    ):
        raise AssertionError("both write")
    assert caught.value.exit_code == 5
    assert "warehouse" in str(caught.value)
    assert f"process {os.getpid()} (lace pipeline facts" in str(caught.value)


def test_a_full_disk_leaves_the_state_before(
    warehouse: WarehouseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(warehouse)

    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with warehouse.writing("a test") as job:
        file = put(job)
        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreUnavailableError, match="No space left") as caught:
            job.commit(warehouse.manifest.with_added({"records": [file]}))
    assert caught.value.exit_code == 3
    assert WarehouseFolder.open(warehouse.folder).manifest.generation == 1
    assert not list(warehouse.folder.glob("*.part"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), "it is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "16 bytes instead of 17"),
        (lambda path: path.write_bytes(b"x" * 17), "no whole Parquet file"),
        (lambda path: path.write_bytes(b"PAR1" + b"y" * 9 + b"XXXX"), "no whole Parquet file"),
    ],
)
def test_damage_is_found_before_reading(warehouse: WarehouseFolder, change, reason: str) -> None:  # type: ignore[no-untyped-def]
    file = commit(warehouse)
    change(warehouse.folder / file.path)
    with pytest.raises(WarehouseDamagedError, match=reason) as caught:
        warehouse.files("records")
    assert file.path in str(caught.value)


def test_changed_bytes_are_found_by_their_digest(warehouse: WarehouseFolder) -> None:
    file = commit(warehouse)
    (warehouse.folder / file.path).write_bytes(b"PAR1some r0wsPAR1")
    check_file(warehouse.folder, file)
    with pytest.raises(WarehouseDamagedError, match="its bytes have changed"):
        check_file(warehouse.folder, file, whole=True)


def test_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError) as caught:
        WarehouseFolder.open(tmp_path)
    assert caught.value.exit_code == 2


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"no warehouse: it holds 'letter.txt'"):
        WarehouseFolder.create(tmp_path)
    assert names_of(tmp_path) == {"letter.txt"}
    with pytest.raises(UsageError, match="is not a folder"):
        WarehouseFolder.create(tmp_path / "letter.txt")


def test_a_warehouse_whose_manifest_is_gone_is_not_made_anew(warehouse: WarehouseFolder) -> None:
    commit(warehouse)
    (warehouse.folder / MANIFEST_NAME).unlink()
    for use in (WarehouseFolder.create, WarehouseFolder.open):
        with pytest.raises(WarehouseDamagedError, match="manifest of the warehouse is missing"):
            use(warehouse.folder)
    shutil.rmtree(warehouse.folder / "manifests")
    for use in (WarehouseFolder.create, WarehouseFolder.open):
        with pytest.raises(WarehouseDamagedError, match="manifest of the warehouse is missing"):
            use(warehouse.folder)


def test_data_of_something_else_is_no_warehouse(tmp_path: Path) -> None:
    (tmp_path / "wh" / "data" / "mine").mkdir(parents=True)
    with pytest.raises(UsageError, match="its data is of something else"):
        WarehouseFolder.create(tmp_path / "wh")


def test_a_making_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "wh"
    (folder / "data").mkdir(parents=True)
    (folder / f"{MANIFEST_NAME}.00ff.part").write_bytes(b"{")
    assert WarehouseFolder.create(folder).manifest.generation == 0
