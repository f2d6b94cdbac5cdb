"""The same bytes by programs that many know: `git fetch`, and `rsync` where it is installed.

Git checks hashes and no signatures, and compresses; rsync compares names, sizes and times.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import FOLDER, corpus
from benchmarks.measure import Run, environment, run_program
from lace.api import read_chunks
from lace.record.reader import RawRecord, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["git_fetch", "rsync_files"]

IN_A_FOLDER: Final = 1_000
_PLACE: Final = FOLDER / "wire-others"
_WHO: Final = "Bench <bench@example.org> 1700000000 +0000"


def _records(records: int) -> Iterator[tuple[str, bytes]]:
    """Yield a name and the bytes of each record of the corpus."""
    with corpus(records).open("rb") as file:
        for number, raw in enumerate(read_records(read_chunks(file))):
            if not isinstance(raw, RawRecord):
                raise RuntimeError("the corpus holds legal records only")
            yield f"{number // IN_A_FOLDER}/{number}", bytes(raw.data)


def _git(folder: Path, *arguments: str) -> list[str]:
    return ["git", "-c", "gc.auto=0", "-C", str(folder), *arguments]


def _empty_repository(folder: Path) -> None:
    folder.mkdir(parents=True)
    run_program(_git(folder, "init", "--quiet", "--bare"))


def _fill_repository(folder: Path, records: int) -> None:
    """Put each record into a repository as a file of one commit."""
    command = _git(folder, "fast-import", "--quiet")
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment()) as process:
        if process.stdin is None:
            raise AssertionError("its standard input is a pipe")
        process.stdin.write(f"commit refs/heads/main\ncommitter {_WHO}\ndata 0\n".encode())
        for name, data in _records(records):
            process.stdin.write(b"M 100644 inline %s\ndata %d\n" % (name.encode(), len(data)))
            process.stdin.write(data + b"\n")
        process.stdin.close()
        if process.wait() != 0:
            raise RuntimeError("git fast-import failed")


def git_fetch(records: int) -> Run:
    """Fetch all records from a repository into an empty one."""
    shutil.rmtree(_PLACE, ignore_errors=True)
    source, target = _PLACE / "from.git", _PLACE / "to.git"
    _empty_repository(source)
    _fill_repository(source, records)
    _empty_repository(target)
    place = f"file://{source.resolve()}"
    run = run_program(_git(target, "fetch", "--quiet", place, "main:main"))
    listed = subprocess.check_output(_git(target, "ls-tree", "-r", "--name-only", "main"))
    shutil.rmtree(_PLACE)
    if listed.count(b"\n") != records:
        raise RuntimeError("git did not fetch all records")
    return run


def rsync_files(records: int) -> Run | None:
    """Copy all records as files into an empty folder; None where rsync is not installed."""
    if shutil.which("rsync") is None:
        return None
    shutil.rmtree(_PLACE, ignore_errors=True)
    source, target = _PLACE / "from", _PLACE / "to"
    target.mkdir(parents=True)
    for name, data in _records(records):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    run = run_program(["rsync", "--archive", f"{source}/", f"{target}/"])
    count = sum(path.is_file() for path in target.glob("*/*"))
    shutil.rmtree(_PLACE)
    if count != records:
        raise RuntimeError("rsync did not copy all records")
    return run
