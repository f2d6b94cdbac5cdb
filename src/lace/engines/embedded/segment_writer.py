"""Segments, for writing: a generation is made once and then only appended to.

One append adds the facts of some records as a chunk; it counts once its entry in the journal
is whole, which may be written later than the chunk. Nothing is forced to the disk: what a power
cut takes away, the checksums of the next reader notice, and the segments are rebuilt.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.segment import ID, NAMED, RANGE, REST, Segments, open_segments
from lace.engines.embedded.segment_files import SUM, Ids, block_sums
from lace.engines.embedded.segment_journal import (
    COLUMNS,
    DIRECTORY,
    FILES,
    HEADER,
    HEAPS,
    JOURNAL,
    LOCATE,
    REMOVED,
    SUMS,
    Covered,
    Entry,
    RunEntry,
    SegmentDamagedError,
    checksum,
    format_entry,
    format_header,
    read_last_entry,
    run_name,
)
from lace.engines.embedded.segment_texts import Texts
from lace.engines.embedded.stored_hash import TextHash
from lace.engines.embedded.stored_index import merge_runs
from lace.facts.columns import FIRST, FactColumns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["MOST_NAMES", "SegmentWriter", "create_generation"]

MOST_NAMES: Final = 256
"""Names of an append that the directory lists one by one; rarer ones share a range."""


def create_generation(folder: Path, key: bytes) -> None:
    """Make an empty generation in a new folder; its first entry covers nothing."""
    folder.mkdir(parents=True)
    for name in (*FILES, SUMS, DIRECTORY):
        (folder / name).touch()
    (folder / HEADER).write_bytes(format_header(key))
    empty = checksum(b"")
    entry = Entry(0, 0, 0, 0, 0, 0, 0, (0,) * len(FILES), 0, empty, 0, empty, ())
    (folder / JOURNAL).write_bytes(format_entry(entry))


class SegmentWriter:
    """Appends to one generation; only the holder of the write lock may have one.

    Raises:
        SegmentDamagedError: the generation is not what was written.
        OSError: its files cannot be read or written.
    """

    def __init__(self, folder: Path, *, make_hash: Callable[[bytes], TextHash] = TextHash) -> None:
        self.folder = folder
        self._make_hash = make_hash
        entry, self._journal_bytes = read_last_entry(folder)
        self.segments = open_segments(folder, entry, make_hash=make_hash)
        self._entries: list[Entry] = []
        """Those of what was added and is not published."""
        self._merged: list[RunEntry] = []

    @property
    def entry(self) -> Entry:
        """The state as it is."""
        return self.segments.entry

    def is_current(self) -> bool:
        """Tell whether nobody else has appended meanwhile, and all of this was published."""
        return read_last_entry(self.folder) == (self.entry, self._journal_bytes)

    def append(self, columns: FactColumns, covered: Covered, removed: Ids) -> Segments:
        """Append the facts of records, as `add` and `publish` do; returns the new state."""
        self.add(columns, covered, removed)
        self.publish()
        return self.segments

    def add(self, columns: FactColumns, covered: Covered, removed: Ids) -> None:
        """Add the facts of records; others see them when they are published.

        Args:
            columns: the facts of the records that are new here.
            covered: what the segments cover then.
            removed: ids of all covered records that are not stored now, sorted.
        """
        before = self.entry
        texts = Texts(columns, self.segments.dictionary, self.segments.text_hash)
        if before.texts + len(texts.new_hashes) > np.iinfo(np.int32).max:
            raise SegmentDamagedError(f"{self.folder} is full")
        heaps, located = texts.stored([before.length(name) for name in HEAPS])
        parts: dict[str, npt.NDArray[Any]] = {
            **dict(zip(HEAPS, heaps, strict=True)),
            LOCATE: located,
            REMOVED: self._removal_log(removed),
        }
        ranges: list[npt.NDArray[Any]] = []
        for predicate, rows in _rows(columns, texts).items():
            if predicate in NAMED:
                first_row = before.length(COLUMNS[predicate][0]) // ID.itemsize
                rows, found = _by_name(rows, NAMED.index(predicate), first_row)
                ranges.append(found)
            parts.update(zip(COLUMNS[predicate], rows, strict=True))
        runs: list[RunEntry] = list(before.runs)
        merged: list[RunEntry] = []
        if len(texts.new_hashes):
            number = max((run.number for run in runs), default=0) + 1
            runs, merged = merge_runs(
                self.folder, self.segments.runs, number, texts.new_hashes, texts.new_ids
            )
        lengths, sums = self._write_parts(parts)
        sums_bytes, sums_check = self._write_table(SUMS, before.sums_bytes, sums)
        directory_bytes, directory_check = self._write_table(
            DIRECTORY, before.directory_bytes, np.concatenate(ranges)
        )
        entry = Entry(
            before.sequence + 1,
            covered.high_water,
            covered.removal_sequence,
            covered.records,
            covered.record_bytes,
            covered.key_xor,
            before.texts + len(texts.new_hashes),
            lengths,
            sums_bytes,
            sums_check,
            directory_bytes,
            directory_check,
            tuple(runs),
        )
        older = self.segments
        self.segments = open_segments(
            self.folder, entry, make_hash=self._make_hash, known_runs=older.runs
        )
        self.segments.keep_checks_of(older)
        self._entries.append(entry)
        self._merged += merged

    def publish(self) -> None:
        """Have others see what was added."""
        entries, self._entries = self._entries, []
        for entry in entries:
            self._commit(entry)
        merged, self._merged = self._merged, []
        for run in merged:
            with suppress(OSError):  # a reader opens runs at once, or begins again
                (self.folder / run_name(run.number)).unlink()

    def _removal_log(self, removed: Ids) -> Ids:
        """Return what the log of removals lacks: ids, and complements of those that came back."""
        known = self.segments.removed()
        gone = np.setdiff1d(removed, known, assume_unique=True)
        back = np.setdiff1d(known, removed, assume_unique=True)
        return np.concatenate([gone, ~back]).astype(ID)

    def _write_parts(
        self, parts: dict[str, npt.NDArray[Any]]
    ) -> tuple[tuple[int, ...], npt.NDArray[Any]]:
        lengths: list[int] = []
        sums: list[npt.NDArray[Any]] = [np.empty(0, SUM)]
        for number, name in enumerate(FILES):
            before = self.entry.lengths[number]
            data = np.ascontiguousarray(parts[name]).reshape(-1).view(np.uint8).data
            if len(data):
                _write_at(self.folder / name, before, data)
                sums.append(block_sums(number, before, data))
            lengths.append(before + len(data))
        return tuple(lengths), np.concatenate(sums)

    def _write_table(self, name: str, before: int, rows: npt.NDArray[Any]) -> tuple[int, int]:
        data = rows.tobytes()
        _write_at(self.folder / name, before, memoryview(data))
        whole = (self.folder / name).read_bytes()
        return len(whole), checksum(whole)

    def _commit(self, entry: Entry) -> None:
        raw = format_entry(entry)
        _write_at(self.folder / JOURNAL, self._journal_bytes, memoryview(raw))
        self._journal_bytes += len(raw)


def _write_at(path: Path, offset: int, data: memoryview) -> None:
    """Write bytes behind those that count, in the place of what a crash may have left there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < offset:
            raise SegmentDamagedError(f"{path} has been cut")
        if size > offset:
            os.ftruncate(descriptor, offset)
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)


def _rows(columns: FactColumns, texts: Texts) -> dict[str, list[Ids]]:
    """Return the columns of every predicate as ids."""
    ids = texts.ids
    records = texts.records
    plexes = records[np.array(columns.plexes, np.int64)]
    seals = records[np.array(columns.seals, np.int64)]
    header_p = records[np.array(columns.header_row, np.int64)]
    header_name, header_index = ids(columns.header_name), ids(columns.header_index)
    link_at = np.array(columns.link_at, np.int64)
    fixed: list[tuple[str, Ids, Ids]] = [
        *((name, records, ids(values)) for name, values in columns.record_fields()),
        *(
            (name, plexes, texts.tai if name == "TAI" else ids(values))
            for name, values in columns.plex_fields()
        ),
        ("Signed-By", seals, ids(columns.signed_by)),
        ("Signature", seals, texts.signature),
    ]
    names = ids([name for name, _rows, _values in fixed])
    counts = [len(rows) for _name, rows, _values in fixed]
    first = np.repeat(ids([FIRST]), sum(counts))
    return {
        "Have": [records],
        "Field": [
            np.concatenate([*(rows for _name, rows, _values in fixed), header_p]),
            np.concatenate([np.repeat(names, counts), header_name]),
            np.concatenate([first, header_index]),
            np.concatenate([*(values for _n, _r, values in fixed), ids(columns.header_value)]),
        ],
        "RecordLink": [
            header_p[link_at],
            header_name[link_at],
            header_index[link_at],
            ids(columns.link_data),
            texts.targets(columns.link_target),
        ],
        "BlobHash": [plexes, texts.blob],
        "PlexHash": [seals, texts.plex],
    }


def _by_name(rows: list[Ids], predicate: int, first_row: int) -> tuple[list[Ids], npt.NDArray[Any]]:
    """Sort rows by their Name, the rare ones last; returns them and their directory."""
    names, counts = np.unique(rows[1], return_counts=True)
    if len(names) > MOST_NAMES:
        frequent = np.zeros(len(names), np.bool_)
        frequent[np.argsort(counts, kind="stable")[-(MOST_NAMES - 1) :]] = True
        order = np.argsort(~frequent, kind="stable")
        names, counts, frequent = names[order], counts[order], frequent[order]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keys = rank[np.searchsorted(np.sort(names), rows[1])]
        listed = int(frequent.sum())
    else:
        keys, listed = rows[1].astype(np.int64), len(names)
    by_name = np.argsort(keys, kind="stable")
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    made = np.empty(listed + (listed < len(names)), RANGE)
    made["predicate"] = predicate
    made["name"][:listed] = names[:listed]
    made["start"][:listed] = first_row + ends[:listed] - counts[:listed]
    made["count"][:listed] = counts[:listed]
    if listed < len(names):
        start = int(ends[listed - 1])
        made[listed] = (predicate, REST, first_row + start, total - start)
    return [column[by_name] for column in rows], made
