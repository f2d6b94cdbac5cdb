"""Segments under kill -9 and beside other processes, and any sequence of changes to a lace."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lace.base.limits import Settings
from lace.store.sqlite import segment_append, segments
from lace.store.sqlite.store import DATABASE_NAME, SqliteStore
from tests.store.actors import finish, line, start
from tests.store.samples import flip, mixed
from tests.store.segment_samples import checked, linked, segment_files

KILLS = 12
RECORDS = 3000
FEW = 5
SMALL = Settings(store_cache_bytes=1 << 20)


@pytest.mark.slow
def test_kills_at_random_moments_of_an_import(tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(RECORDS)))
    folder = tmp_path / "lace"
    SqliteStore(folder, create=True).close()
    source = random.Random(5)
    for _kill in range(KILLS):
        actor = start("run_import", folder, file, 0, 300)
        try:
            while line(actor.stdout) != "importing":
                pass
            time.sleep(source.uniform(0, 0.4))
        finally:
            os.kill(actor.pid, signal.SIGKILL)
            actor.communicate()
        reader = SqliteStore(folder, read_only=True)
        checked(reader)
        reader.close()
        if source.random() < 0.5:
            store = SqliteStore(folder)
            checked(store)
            store.close()
    assert finish(start("run_import", folder, file, 0, 300)).splitlines()[-1].startswith("done")
    store = SqliteStore(folder)
    state = checked(store)
    assert state.segments is not None
    assert state.segments.records - len(state.removed) + len(state.tail) == RECORDS
    store.close()


@pytest.mark.slow
def test_a_reader_while_another_process_imports(tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(RECORDS)))
    folder = tmp_path / "lace"
    SqliteStore(folder, create=True).close()
    actor = start("run_import", folder, file, 0, 300)
    seen: set[int] = set()
    readers = [SqliteStore(folder, read_only=flag, settings=SMALL) for flag in (True, False)]
    while actor.poll() is None:
        for reader in readers:
            state = checked(reader)
            seen.add(state.segments.records if state.segments else 0)
    finish(actor)
    assert len(seen) > 1
    for reader in readers:
        state = checked(reader)
        assert state.segments is not None
        assert state.segments.records + len(state.tail) == RECORDS
        reader.close()


PROVEN = linked(30)
batches = st.lists(st.integers(0, len(PROVEN) - 1), max_size=12)


class AnyChanges(RuleBasedStateMachine):
    """Whatever is done to a lace and to its segments, the facts are those of the records."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()  # so that few records are enough
        self.patch.setattr(segments, "APPEND_RECORDS", FEW)
        self.patch.setattr(segments, "_MOST_TAIL", FEW)
        self.patch.setattr(segment_append, "SLICE_RECORDS", 4)
        self.place = Path(tempfile.mkdtemp(prefix="lace-segments-test-"))
        self.store = self.opened()

    def opened(self, *, read_only: bool = False) -> SqliteStore:
        folder = self.place / "lace"
        return SqliteStore(folder, create=not read_only, read_only=read_only, settings=SMALL)

    @initialize(batch=batches)
    def begin(self, batch: list[int]) -> None:
        self.admit(batch)

    @rule(batch=batches)
    def admit(self, batch: list[int]) -> None:
        self.store.admit([PROVEN[index] for index in batch])

    @rule(batch=batches)
    def remove(self, batch: list[int]) -> None:
        self.store.remove([PROVEN[index].id for index in batch])

    @rule()
    def check(self) -> None:
        checked(self.store)

    @rule()
    def look_from_outside(self) -> None:
        reader = self.opened(read_only=True)
        checked(reader)
        reader.close()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()

    @rule()
    def rebuild(self) -> None:
        self.store._rebuild_segments()

    @rule()
    def discard(self) -> None:
        self.store.discard_segments()

    @rule(file=st.integers(0, 99), at=st.integers(0, 99_999))
    def damage(self, file: int, at: int) -> None:
        files = sorted(segment_files(self.place / "lace"), key=lambda path: path.name)
        if files:
            path = files[file % len(files)]
            raw = path.read_bytes()
            damaged = flip(raw, at % len(raw))
            path.unlink()  # what is open keeps what it has
            path.write_bytes(damaged)

    @rule()
    def keep_a_copy(self) -> None:
        self.store.close()
        shutil.copy(self.place / "lace" / DATABASE_NAME, self.place / "copy")
        self.store = self.opened()

    @rule()
    def restore_the_copy(self) -> None:
        if (self.place / "copy").exists():
            self.store.close()
            shutil.copy(self.place / "copy", self.place / "lace" / DATABASE_NAME)
            self.store = self.opened()

    @invariant()
    def nothing_warns(self) -> None:
        assert self.store.segments.warning is None

    def teardown(self) -> None:
        checked(self.store)
        self.store.close()
        shutil.rmtree(self.place)
        self.patch.undo()


AnyChanges.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAnyChanges = pytest.mark.slow(pytest.mark.property(AnyChanges.TestCase))
