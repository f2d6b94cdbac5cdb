"""kill -9 at any moment of an import: every record whole or absent, and a rerun completes."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import IO, TYPE_CHECKING

import pytest

import lace
from lace.base.limits import Settings
from lace.record.ids import RecordId
from lace.store import validation
from lace.store.intake import Intake, import_stream
from lace.store.validation import ValidationProcess
from tests.oracle.memory_store import MemoryStore
from tests.store.actors import finish, is_running, line, start
from tests.store.samples import blob, contents, flip, mixed, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lace.errors import RecordError

KILLS = 20
RECORDS = 3000
BATCH = 50


@pytest.mark.slow
@pytest.mark.exhaustive
def test_kills_at_random_moments_of_an_import(tmp_path: Path) -> None:
    records = mixed(RECORDS)
    everything = {record.id: record.bytes for record in records}
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in records))
    folder = tmp_path / "lace"
    moments = random.Random(20)
    high_water, taken_out, in_the_middle = 0, set[int](), 0
    for _kill in range(KILLS):
        actor = start("run_import", folder, file, 0, BATCH)
        workers = wait_for_batches(actor.stdout, moments.randrange(RECORDS // BATCH - 15))
        time.sleep(moments.random() * 0.01)
        in_the_middle += actor.poll() is None
        actor.send_signal(signal.SIGKILL)
        actor.communicate()
        with lace.open(folder) as store:
            found = contents(store.store)
            assert found.items() <= everything.items()
            assert store.verify().damage == []
            given = numbers(store.store)
            with store.snapshot() as snapshot:
                totals = snapshot.totals()
            assert totals.high_water >= max([high_water, *given.values()])
            assert not taken_out & set(given.values()), "a StoreRecordId was used again"
            high_water = totals.high_water
            # Half of what is there is taken out, so that every run has something to write.
            gone = moments.sample(sorted(found), len(found) // 2)
            taken_out |= {given[name] for name in gone}
            assert store.remove(*map(RecordId, gone)) == len(gone)
        assert_gone(workers)
    assert in_the_middle >= KILLS * 3 // 4
    output = finish(start("run_import", folder, file, 0, BATCH))
    assert output.splitlines()[-1].startswith("done ")
    _done, stored, known, rejected = output.splitlines()[-1].split()
    assert int(stored) + int(known) == RECORDS
    assert rejected == "0"
    with lace.open(folder, read_only=True) as store:
        assert contents(store.store) == everything
        assert store.verify().damage == []


def wait_for_batches(stream: IO[str] | None, count: int) -> list[int]:
    """Read what an import says until so many batches are stored; returns its processes."""
    workers: list[int] = []
    left = count
    while True:
        words = line(stream).split()
        assert words, "the import failed"
        assert words[0] != "done", "the import ended before it was to be killed"
        if words[0] == "worker":
            workers.append(int(words[1]))
        elif words[0] == "importing":
            left = count
        else:
            left -= 1
        if left <= 0:
            return workers


def assert_gone(processes: Sequence[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(is_running, processes)):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_import_leaves_no_process_behind(tmp_path: Path, workers: int) -> None:
    actor = start("run_endless_import", tmp_path / "lace", workers)
    assert actor.stdin is not None
    for number in range(20):
        actor.stdin.write(blob(str(number).ljust(1000)).bytes.decode())
    actor.stdin.flush()
    pids = [int(line(actor.stdout).split()[1]) for _worker in range(workers)]
    assert all(map(is_running, pids))
    actor.kill()
    actor.wait()
    assert_gone(pids)
    actor.communicate()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("moment", [0, 1, 7, 15])
def test_an_import_completes_without_its_validation_processes(
    monkeypatch: pytest.MonkeyPatch, workers: int, moment: int
) -> None:
    records = mixed(1000)
    raws = [record.bytes for record in records]
    for bad in (3, 333, 666, 999):
        raws[bad] = flip(raws[bad], len(raws[bad]) - 1)
    settings = Settings(import_batch_records=50)
    processes: list[int] = []

    class Known(ValidationProcess):
        def __init__(self) -> None:
            super().__init__()
            processes.append(self._process.pid)

    monkeypatch.setattr(validation, "ValidationProcess", Known)

    def run(count: int, *, kill: bool) -> tuple[Intake, dict[str, bytes], list[str]]:
        store, errors, batches = MemoryStore(), list[str](), 0

        def chunks() -> Iterator[bytes]:
            for number in range(0, 1000, 50):
                if kill and moment == 0 and processes:
                    kill_processes()
                yield b"".join(raws[number : number + 50])

        def kill_processes() -> None:
            for pid in processes:
                os.kill(pid, signal.SIGKILL)

        def report(_counts: Intake, found: Sequence[RecordError]) -> None:
            nonlocal batches
            batches += 1
            errors.extend(map(str, found))
            if kill and batches == moment:
                kill_processes()

        counts = import_stream(
            store,
            chunks(),
            settings=settings,
            random_bytes=os.urandom,
            workers=count,
            source="a stream",
            report=report,
        )
        return counts, contents(store), errors

    expected = run(0, kill=False)
    assert processes == []
    found = run(workers, kill=True)
    assert len(processes) == workers
    assert found == expected
    assert found[0] == Intake(996, 0, 4, sum(map(len, raws)))
    assert len(found[2]) == 4
    assert_gone(processes)
