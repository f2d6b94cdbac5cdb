"""What other processes do in the tests: `start` runs one of these in a process of its own.

An actor says on standard output what it has come to; the test reads lines.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import lace
from lace.api import open_lace
from lace.base.limits import Settings
from lace.store import validation
from lace.store.sqlite.store import SqliteStore
from lace.store.validation import ValidationProcess
from tests.store.samples import blob, valid

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["finish", "is_running", "line", "start"]

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


def start(name: str, *arguments: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start an actor; what it prints comes through `stdout`."""
    command = [sys.executable, "-m", "tests.store.actors", name, *map(str, arguments)]
    return subprocess.Popen(
        [*before, *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """Wait for an actor to end well, and return all that it printed."""
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == 0, out + error
    return out


def line(stream: IO[str] | None) -> str:
    """The next line that an actor prints."""
    assert stream is not None
    return stream.readline().strip()


def is_running(pid: int) -> bool:
    """Tell whether a process is there and has not ended, reaped or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not Path("/proc/self").exists()
    return state not in "ZX"


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hold(folder: str, purpose: str) -> None:
    """Hold the lace in an open write transaction that has changed something already."""
    with SqliteStore(Path(folder), purpose=purpose)._transaction() as connection:
        connection.execute("DELETE FROM record")
        say("holding")
        time.sleep(600)


def write_on(folder: str) -> None:
    """Write on and on, and never let go of the lace for longer than a moment."""
    store = SqliteStore(Path(folder), purpose="writing on")
    while True:
        with store._transaction():
            say("writing")
            time.sleep(0.2)


def open_and_add(folder: str, name: str, rounds: str) -> None:
    """Open, add one record, close; again and again."""
    for number in range(int(rounds)):
        with open_lace(folder) as store:
            store.add(lace.Blob(f"{name}/{number}".encode()))
    say("done")


def open_and_read(folder: str, rounds: str) -> None:
    """Open for reading only, look, close; again and again. What is seen never shrinks."""
    seen = 0
    for _number in range(int(rounds)):
        with open_lace(folder, read_only=True) as store:
            count = len(store)
            with store.snapshot() as snapshot:
                whole = sum(1 for _record in snapshot.records())
                assert whole == snapshot.totals().records
        assert seen <= count <= whole
        seen = count
    say("done")


def read_as_stranger(folder: str) -> None:
    """Become a user who may not write to the folder; read the lace, then try to write."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    with open_lace(folder, read_only=True) as store:
        say(len(store), store.verify().damaged)
    try:
        open_lace(folder)
    except lace.StoreError as error:
        say(type(error).__name__, error.exit_code)


class _Known(ValidationProcess):
    """A validation process that says its number."""

    def __init__(self) -> None:
        super().__init__()
        say("worker", self._process.pid)


def run_import(folder: str, file: str, workers: str, batch: str) -> None:
    """Import a file in small batches."""
    setattr(validation, "ValidationProcess", _Known)  # noqa: B010 - the tests need their numbers
    settings = {"import_batch_records": batch, "import_workers": workers, "wait_seconds": 60}
    with open_lace(folder, settings=settings) as store:
        say("importing")
        counts = store.import_file(file, report=lambda counts, _errors: say(counts.bytes_read))
    say("done", counts.stored, counts.known, counts.rejected)


def run_endless_import(folder: str, workers: str) -> None:
    """Import from a pipe that never ends."""
    setattr(validation, "ValidationProcess", _Known)  # noqa: B010 - the tests need their numbers
    with open_lace(
        folder, settings={"import_batch_records": 1, "import_workers": workers}
    ) as store:
        store.import_file(sys.stdin.buffer)


def most_memory() -> int:
    """Return the most memory of this program in kB, not of what forked it, as getrusage does."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmHWM"))


def measure_import(folder: str, file: str, how: str) -> None:
    """Import a file by its path or as a stream; say the counts and the most memory used."""
    if how == "path on one processor" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    with open_lace(folder) as store:
        if how.startswith("path"):
            counts = store.import_file(file)
        else:
            with Path(file).open("rb") as stream:
                counts = store.import_file(stream)
    own = most_memory()
    below = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    say(counts.stored, counts.known, counts.rejected, own // 1024, below // 1024)


def fill(folder: str) -> None:
    """Admit until the disk is full; say what the error was and what is left."""
    kept = 0
    store = SqliteStore(Path(folder) / "lace", create=True, settings=Settings(wait_seconds=1))
    try:
        for number in range(10_000):
            batch = valid(*(blob(f"{number}/{part}".ljust(4000)) for part in range(10)))
            kept += len(store.admit(batch).stored)
    except lace.StoreError as error:
        say(type(error).__name__, error.exit_code, "no space is left" in error.message)
    with store.snapshot() as snapshot:
        say(kept, snapshot.totals().records, sum(1 for _record in snapshot.records()))
    store.close()
    with open_lace(Path(folder) / "lace", read_only=True) as again:
        say(len(again), again.verify().damaged)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
