"""The upkeep of segments beside the database: when they are appended to, rebuilt, or left.

A lace has the folder `segments`: generations, each a folder with a random name, and the
file `current`, which names the one that counts. The holder of the write lock may append to
it. A rebuild writes a generation aside, under a lock of its own, so that it keeps no writer
waiting, and then switches. Segments are a cache: a failure to write them is a warning.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.columns.segment_journal import (
    KEY_BYTES,
    JournalEntry,
    SegmentDamagedError,
    read_last_entry,
)
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lace.columns.segment import Segments, SegmentWriter
    from lace.store.sqlite.connection import StoreCounters
    from lace.store.sqlite.fact_state import FactState
    from lace.store.sqlite.insert import Inserted
    from lace.store.sqlite.snapshot import SqliteSnapshot

    Snapshots = Callable[[], AbstractContextManager[SqliteSnapshot]]


SEGMENTS_NAME: Final = "segments"
APPEND_RECORDS: Final = 256
"""This many records or removals after the segments are worth an append."""
APPEND_BYTES: Final = 4 * 1024 * 1024
"""This many record bytes are, too: a reader holds all that is behind the segments."""
_REBUILD_RECORDS: Final = 100_000
"""This many records after the segments are caught up by a rebuild, which keeps nobody waiting."""
_CURRENT: Final = "current"
_REBUILD_LOCK: Final = "rebuild.lock"
_GENERATION: Final = re.compile("[0-9a-f]{16}")
_TRIES: Final = 5
_MOST_TAIL: Final = 4096
"""With more records than this behind the segments, a reader that may not write makes its own."""


def is_behind(entry: JournalEntry, counters: StoreCounters, *, more: int = 0) -> bool:
    """Tell whether enough has happened since an entry to append what is new.

    `more` is how many more records there must be, whatever their bytes.
    """
    removals = (counters.removal_sequence or 0) - entry.removal_sequence
    return (
        counters.high_water - entry.high_water >= APPEND_RECORDS + more
        or removals >= APPEND_RECORDS + more
        or (not more and counters.record_bytes - entry.record_bytes >= APPEND_BYTES)
    )


class SegmentKeeper:
    """The segments of one lace."""

    def __init__(self, folder: Path, random_bytes: Callable[[int], bytes]) -> None:
        self.folder = folder / SEGMENTS_NAME
        self.warning: str | None = None
        """Why segments could not be written, when they could not."""
        self._random_bytes = random_bytes
        self._distrusted: set[str] = set()
        self._opened: tuple[str, Segments] | None = None
        self._private: Segments | None = None
        self._writer: SegmentWriter | None = None
        self._gave_up = False

    # -- reading ------------------------------------------------------------------------

    def state(self) -> tuple[str, JournalEntry] | None:
        """Return the generation that counts and its last entry; None without one."""
        with suppress(OSError, UnicodeDecodeError, SegmentDamagedError):
            generation = (self.folder / _CURRENT).read_text("ascii").strip()
            if _GENERATION.fullmatch(generation) and generation not in self._distrusted:
                return generation, read_last_entry(self.folder / generation)[0]
        return None

    def open(self) -> Segments | None:
        """Open the segments as they are; None when there are none to be trusted."""
        from lace.columns.segment import open_segments

        for _try in range(_TRIES):
            state = self.state()
            if state is None:
                self._opened = None
                return None
            generation, entry = state
            known = self._opened
            if known is not None and known[0] == generation and known[1].entry == entry:
                return known[1]
            older = known[1] if known is not None and known[0] == generation else None
            runs = older.runs if older is not None else ()
            try:
                opened = open_segments(self.folder / generation, entry, known_runs=runs)
            except FileNotFoundError:
                continue  # a writer has merged a run, or switched to another generation
            except SegmentDamagedError:
                break
            except OSError:
                self._opened = None
                return None
            if older is not None:
                opened.keep_checks_of(older)
            self._opened = generation, opened
            return opened
        self.discard()
        return None

    def size(self) -> int:
        """Return how many bytes the present generation has on the disk."""
        state = self.state()
        total = 0
        with suppress(OSError):
            for path in (self.folder / state[0]).iterdir() if state else ():
                total += path.stat().st_size
        return total

    def discard(self, *, for_others: bool = False) -> None:
        """Never use the present generation again: something in it is not what was written.

        With `for_others`, no process that comes later does.
        """
        current = self.folder / _CURRENT
        with suppress(OSError, UnicodeDecodeError):
            self._distrusted.add(current.read_text("ascii").strip())
        if for_others:
            with suppress(OSError):
                current.unlink()
        self._opened = self._private = self._writer = None

    def facts(self, snapshot: SqliteSnapshot, *, as_it_is: bool) -> FactState | None:
        """Return the facts of a snapshot that is not older than the last `open`."""
        from lace.store.sqlite.fact_state import all_as_tail, fact_state
        from lace.store.sqlite.segment_append import is_thin

        counters = snapshot.counters()
        segments = self._opened[1] if self._opened else None
        if segments is not None and counters.key_xor is not None:
            limit = _MOST_TAIL if as_it_is else 0
            if not is_behind(segments.entry, counters, more=limit):
                try:
                    state = fact_state(segments, snapshot)
                except SegmentDamagedError:
                    self.discard()
                    state = None
                if state is not None and (as_it_is or not is_thin(segments, len(state.removed))):
                    return state
        elif counters.records < APPEND_RECORDS and counters.record_bytes < APPEND_BYTES:
            return all_as_tail(snapshot)
        if not as_it_is:
            return None
        return self._private_facts(snapshot, counters) or all_as_tail(snapshot)

    def _private_facts(self, snapshot: SqliteSnapshot, counters: StoreCounters) -> FactState | None:
        """Return the facts from segments of this process alone, in a folder without a name."""
        from lace.columns.segment import SegmentWriter
        from lace.store.sqlite.fact_state import fact_state
        from lace.store.sqlite.segment_append import fill_generation

        if counters.key_xor is None or counters.records <= _MOST_TAIL:
            return None
        with suppress(OSError, SegmentDamagedError):
            if self._private and not is_behind(self._private.entry, counters, more=_MOST_TAIL):
                state = fact_state(self._private, snapshot)
                if state is not None:
                    return state
            with tempfile.TemporaryDirectory(prefix="lace-segments-") as scratch:
                writer = SegmentWriter(self._create(Path(scratch)))
                fill_generation(writer, snapshot)
                self._private = writer.segments
            return fact_state(self._private, snapshot)
        self._private = None
        return None

    # -- writing ------------------------------------------------------------------------

    def after_admission(
        self, inserted: Inserted, snapshots: Snapshots, committed: Callable[[], None]
    ) -> bool:
        """Append what is being stored, under the write lock; True when a rebuild is due."""
        state, before, now = self.state(), inserted.before, inserted.now
        if state is None:
            if now.records < APPEND_RECORDS and now.record_bytes < APPEND_BYTES:
                return False
            if before.high_water:
                return True
            with self._noting_failures():
                self._switch(self._create(self.folder))
            state = self.state()
        if state is None or not is_behind(state[1], now):
            return False
        is_rebuild_due = False
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                committed()
            except BaseException as error:
                failed.append(error)
                raise

        with self._noting_failures():
            is_rebuild_due = self._append(state, inserted, now, snapshots, wait)
        if failed:  # the records are not stored, and the segments have nothing to do with it
            self.warning = None
            raise failed[0]
        return is_rebuild_due

    def catch_up(self, counters: StoreCounters, snapshots: Snapshots) -> bool:
        """Append all that is behind the segments, under the write lock; True: rebuild instead."""
        state = self.state()
        if state is None:
            return True
        is_rebuild_due = False
        with self._noting_failures():
            is_rebuild_due = self._append(state, None, counters, snapshots)
        return is_rebuild_due

    def _append(
        self,
        state: tuple[str, JournalEntry],
        inserted: Inserted | None,
        now: StoreCounters,
        snapshots: Snapshots,
        committed: Callable[[], None] = lambda: None,
    ) -> bool:
        from lace.columns.segment import SegmentWriter
        from lace.store.sqlite.fact_state import advance, covered_by_counters
        from lace.store.sqlite.segment_append import append_all, is_at, is_thin

        generation, entry = state
        try:
            writer = self._writer
            if writer is None or writer.folder.name != generation or not writer.is_current():
                writer = self._writer = SegmentWriter(self.folder / generation)
            removed = writer.segments.removed()
            if inserted is not None and not len(removed) and is_at(entry, inserted.before):
                numbered = zip(inserted.stored, inserted.new, strict=True)
                append_all(writer, numbered, covered_by_counters(now), removed, committed)
                return False
            committed()
            if now.high_water - entry.high_water > _REBUILD_RECORDS:
                return True
            with snapshots() as snapshot:
                found = advance(writer.segments, snapshot)
                if found is None or is_thin(writer.segments, len(found.removed)):
                    return True
                behind = found.not_returned(snapshot.numbered_records(after=entry.high_water))
                append_all(writer, behind, found.covered, found.removed)
        except SegmentDamagedError:
            self.discard()
            return True
        return False

    def rebuild(
        self, snapshots: Snapshots, write_lock: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Write a new generation aside and switch to it; nothing when another process does so."""
        from lace.columns.segment import SegmentWriter
        from lace.store.sqlite.segment_append import fill_generation

        if self._gave_up:  # trying again and again would take as long as all that is stored
            return
        self._gave_up = True
        with self._noting_failures(), self._rebuild_lock() as is_ours:
            if not is_ours:
                self._gave_up = False
                return
            folder = self._create(self.folder)
            try:
                with snapshots() as snapshot:
                    fill_generation(SegmentWriter(folder), snapshot)
                with write_lock():
                    self._switch(folder)
                    for other in self.folder.iterdir():
                        if _GENERATION.fullmatch(other.name) and other != folder:
                            shutil.rmtree(other, ignore_errors=True)
                self._gave_up = False
            except BaseException:
                state = self.state()
                if state is None or state[0] != folder.name:
                    shutil.rmtree(folder, ignore_errors=True)
                raise

    def _create(self, parent: Path) -> Path:
        from lace.columns.segment import create_generation

        folder = parent / self._random_bytes(8).hex()
        try:
            create_generation(folder, self._random_bytes(KEY_BYTES))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def _switch(self, folder: Path) -> None:
        scratch = self.folder / f"{_CURRENT}.new"
        scratch.write_text(folder.name + "\n", "ascii")
        scratch.replace(self.folder / _CURRENT)
        self._opened = self._writer = None

    @contextmanager
    def _rebuild_lock(self) -> Iterator[bool]:
        self.folder.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.folder / _REBUILD_LOCK, flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """Note why segments could not be written: nothing that was stored depends on them."""
        try:
            yield
        except (OSError, LaceError) as error:
            self._writer = None
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.warning = f"the facts beside the store could not be brought up to date: {reason}"
        else:
            self.warning = None
