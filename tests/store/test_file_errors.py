"""An error belongs to the file that failed, and to nothing else that went on beside it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.cli.fact_files import GivenFacts, read_fact_files
from lace.cli.files import written
from lace.cli.output import OutputError
from lace.cli.session import Session
from lace.errors import StoreError, UsageError
from lace.outside import opened_file, written_file
from lace.pipeline.laces import find_lace_records
from lace.rules.limits import OWN_LIMITS
from lace.stocktaking import _written
from lace.store.file_errors import open_reader, open_writer
from tests.store.samples import plex

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

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
        lambda path: _written(path),
        lambda path: written_file(path, lambda _error: StoreError("of the file")),
        lambda path: open_reader(path, lambda _error: StoreError("of the file")),
    ],
    ids=["opened_file", "written", "_written", "written_file", "open_reader"],
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
