"""An error belongs to the file that failed, and to nothing else that went on beside it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.api.query import GivenFacts
from lace.api.system import opened_file, writing_file, written_file
from lace.cli.files import read_fact_files, written
from lace.cli.output import OutputError
from lace.cli.pipeline import changed_warehouse
from lace.cli.session import Session
from lace.errors import StoreError, UsageError
from lace.rules.limits import OWN_LIMITS
from lace.spark.pipeline.ingest import find_lace_records
from lace.spark.pipeline.warehouse import WarehouseFolder
from lace.store import links
from lace.store.file_errors import open_reader, open_writer, remove_all
from lace.store.links import LinkFiles
from tests.store.samples import plex

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

FULL = Path("/dev/full")
"""A device that takes nothing."""
OTHERS = [
    FileNotFoundError(errno.ENOENT, "of a callback"),
    PermissionError(errno.EACCES, "of a callback"),
    OSError(errno.ENOSPC, "of a callback"),
    ValueError("of a callback"),
    BrokenPipeError(errno.EPIPE, "of a callback"),
]


@pytest.fixture(params=OTHERS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest) -> Exception:
    """What work beside a file may raise."""
    made: Exception = request.param
    return made


@pytest.mark.parametrize(
    "opened",
    [
        lambda path: opened_file(path),
        lambda path: written(str(path)),
        lambda path: writing_file(path),
        lambda path: written_file(path, lambda _error: StoreError("of the file")),
        lambda path: open_reader(path, lambda _error: StoreError("of the file")),
    ],
    ids=["opened_file", "written", "writing_file", "written_file", "open_reader"],
)
def test_what_fails_beside_a_file(
    tmp_path: Path, error: Exception, opened: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(type(error)) as caught, opened(tmp_path / "file"):
        raise error
    assert caught.value is error
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_callback_of_an_import(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "records").write_bytes(plex("a").bytes)

    def report(*_seen: object) -> None:
        raise error

    with lace.open(tmp_path / "some.lace") as store:
        with pytest.raises(type(error)) as caught:
            store.import_file(tmp_path / "records", report=report)
        assert caught.value is error


def test_a_check_of_facts(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "facts").write_bytes(b"A('x')\n")

    def add(_self: object, _line: bytes) -> None:
        raise error

    monkeypatch.setattr(GivenFacts, "add", add)
    with pytest.raises(type(error)) as caught:
        read_fact_files(Session({}), [str(tmp_path / "facts")], OWN_LIMITS)
    assert caught.value is error


def test_a_callback_while_a_lace_is_staged(tmp_path: Path, error: Exception) -> None:
    class Job:
        def scratch(self, name: str) -> Path:
            return tmp_path / name

    def report(_done: int, _total: int) -> None:
        raise error

    with lace.open(tmp_path / "some.lace") as store:
        store.add(plex("a"))
        with store.snapshot() as snapshot, pytest.raises(type(error)) as caught:
            find_lace_records(Job(), tmp_path, snapshot, report)  # type: ignore[arg-type]  # a part of one
    assert caught.value is error


def test_what_the_file_itself_refuses(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="cannot be read: No such file"),
        opened_file(tmp_path / "x"),
    ):
        pass
    with pytest.raises(UsageError, match="cannot be read: Is a directory"), opened_file(tmp_path):
        pass
    with pytest.raises(OutputError, match="No space left"), written(str(FULL)) as file:
        file.write(b"x" * 100_000)
    with pytest.raises(OutputError, match="No space left"), written(str(FULL)) as file:
        file.write(b"few")  # is refused when the file is closed
    with (
        pytest.raises(StoreError, match="of the file"),
        open_writer(FULL, lambda _error: StoreError("of the file")) as opened,
    ):
        opened.write(b"few")
    with pytest.raises(UsageError, match="cannot be read"):
        read_fact_files(Session({}), [str(tmp_path)], OWN_LIMITS)
    with pytest.raises(UsageError, match="cannot be read: embedded null"):
        read_fact_files(Session({}), ["a\0b"], OWN_LIMITS)


# -- cleaning up -------------------------------------------------------------------------------


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose names begin with stuck stay when they are removed."""
    unlink = os.unlink

    def refuse(path: Any, *, dir_fd: int | None = None) -> None:
        if Path(path).name.startswith("stuck"):
            raise PermissionError(errno.EACCES, "it is stuck", str(path))
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)


@pytest.mark.usefixtures("stuck")
def test_all_is_removed_that_can_be(tmp_path: Path) -> None:
    names = ["stuck", "a", "b/stuck", "b/c", "d/e/f", "stuck-too", "g"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    tops = ["stuck", "missing", "a", "link", "b", "d", "stuck-too", "g"]
    failed = remove_all(tmp_path / name for name in tops)
    left = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(tmp_path / name for name in ("stuck", "b/stuck", "stuck-too"))
    reasons = [(error.strerror, Path(error.filename).name) for error in failed]
    assert reasons == [
        ("it is stuck", "stuck"),
        ("it is stuck", "stuck"),
        ("it is stuck", "stuck-too"),
    ]
    assert sorted(Path(error.filename) for error in failed) == left


@pytest.mark.usefixtures("stuck")
def test_a_warehouse_removes_what_it_can_and_tells_the_rest(tmp_path: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "house")
    parts = [f"manifest.json.{digit * 12}.part" for digit in "0a"]
    for part in parts:
        (warehouse.folder / part).write_bytes(b"x")
    for name in ("g00000009-0000000000aa", "g00000009-0000000000bb"):
        (warehouse.folder / "data" / name).mkdir()
        (warehouse.folder / "data" / name / "stuck.parquet").write_bytes(b"x")
        (warehouse.folder / "data" / name / "other.parquet").write_bytes(b"x")
    with warehouse.writing("a test") as job:
        (job.folder("records") / "stuck").mkdir(parents=True)
        (job.folder("records") / "stuck" / "stuck").write_bytes(b"x")
    assert not [part for part in parts if (warehouse.folder / part).exists()]
    assert not [*warehouse.folder.rglob("other.parquet")]
    told = {Path(error.filename).name for error in warehouse.not_removed}
    assert {"stuck.parquet", "stuck"} <= told
    with pytest.raises(ValueError, match="of the job"), warehouse.writing("another"):
        raise ValueError("of the job")
    assert sum("stuck.parquet" in str(error) for error in warehouse.not_removed) == 2


@pytest.mark.usefixtures("stuck")
def test_a_command_warns_of_every_file_that_it_could_not_remove(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It warns of what was there and of what the job has left, also where the job has failed."""
    warehouse = WarehouseFolder.create(tmp_path / "house")
    left = warehouse.folder / "data" / "g00000009-0000000000aa" / "stuck.parquet"
    left.parent.mkdir()
    left.write_bytes(b"x")
    made: list[Path] = []

    def fail() -> None:
        with (
            changed_warehouse(Session({}), str(warehouse.folder)) as opened,
            opened._job("ingest", None, "local") as (job, _opening),
        ):
            made.append(job.folder("records") / "stuck")
            made[0].parent.mkdir(parents=True, exist_ok=True)
            made[0].write_bytes(b"x")
            raise ValueError("of the job")

    with pytest.raises(ValueError, match="of the job"):
        fail()
    said = capsys.readouterr().err
    for path in (left, *made):
        assert f"warning: {path} is needed no more and cannot be removed: it is stuck" in said
    assert said.count("warning: ") == 2


@pytest.mark.usefixtures("stuck")
def test_files_of_links_are_pruned_past_one_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MOST_LINKS", 1)
    kept = LinkFiles(tmp_path, may_write=True)
    for at, name in enumerate(["old", "stuck", "older", "new"]):
        kept.folder.mkdir(exist_ok=True)
        path = kept.folder / f"{name}{links._SUFFIX}"
        path.write_bytes(b"x")
        os.utime(path, (at if name != "new" else 99, at if name != "new" else 99))
    kept._prune()
    assert sorted(path.stem for path in kept.folder.iterdir()) == ["new", "stuck"]
