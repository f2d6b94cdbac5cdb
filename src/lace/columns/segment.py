"""Segments, for reading: the facts of records as columns of ids, memory-mapped.

One object is one state, given by an entry of the journal; whatever a writer appends later
does not reach it. Every page is checked before it is used, and only pages that are asked
for are read. Rows of Field and RecordLink lie sorted by Name inside each append, and a
directory says where each Name begins, so that one Name can be read without the others.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.columns.keys import distinct_sorted
from lace.columns.segment_files import SUM, CheckedFile, Ids, block_sums, read_table
from lace.columns.segment_journal import (
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
    JournalEntry,
    RunEntry,
    SegmentDamagedError,
    checksum,
    format_entry,
    format_header,
    read_header,
    read_last_entry,
    run_name,
)
from lace.columns.stored_dictionary import (
    COLD,
    HASHES,
    LOCATE_KIND,
    TEXTS,
    SortedRun,
    StoredDictionary,
    TextHash,
    merge_runs,
    pack_locations,
    read_runs,
)
from lace.facts.extract import FIRST, FactColumns
from lace.record.hash_rows import encode_hashes
from lace.record.ids import HASH_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lace.columns.segment_files import Bytes
    from lace.columns.stored_dictionary import Hashes


_MANY_ROWS: Final = 100_000
"""Rows that are copied from a file from which on its memory is given back."""

ID: Final = np.dtype("<i4")
RANGE: Final = np.dtype([("predicate", "<i4"), ("name", "<i4"), ("start", "<i8"), ("count", "<i8")])
"""A row of the directory: where the rows with a Name begin, and how many there are."""
NAMED: Final = ("Field", "RecordLink")
"""The predicates that the directory knows; their Name stands at position 1."""
REST: Final = -1
"""In the place of a Name: the rare names of an append, sorted, one behind the other."""


class Segments:
    """One state of the segments; made by `open_segments`.

    `records` is how many records are covered, removed ones included. Columns are shared
    and read-only.
    """

    def __init__(
        self,
        entry: JournalEntry,
        files: dict[str, CheckedFile],
        runs: list[SortedRun],
        directory: npt.NDArray[Any],
        text_hash: TextHash,
    ) -> None:
        self.entry = entry
        self.files = files
        self.runs = runs
        self.text_hash = text_hash
        self.dictionary = StoredDictionary(
            entry.texts, files[LOCATE], [files[name] for name in HEAPS], runs, text_hash
        )
        self.records = self.rows("Have")
        self._directory = directory
        self._ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def rows(self, predicate: str, name: int | None = None) -> int:
        """Return how many rows a predicate has, or those with one Name."""
        if name is None:
            return self.files[COLUMNS[predicate][0]].length // ID.itemsize
        return sum(stop - start for start, stop in self._ranges_of(predicate, name))

    def column(self, predicate: str, position: int, name: int | None = None) -> Ids:
        """Return a column, whole or for one Name; rows of one Name keep their order."""
        file = self.files[COLUMNS[predicate][position]]
        file.check_length()
        if name is None:
            return self._known(file.array(ID, 0, file.length // ID.itemsize))
        parts = [file.array(ID, *place) for place in self._ranges_of(predicate, name)]
        if len(parts) == 1:
            return self._known(parts[0])
        if not parts:
            return np.empty(0, np.int32)
        copied = np.concatenate(parts)
        if len(copied) > _MANY_ROWS:
            file.forget_pages()
        return self._known(copied)

    @property
    def generation(self) -> str:
        """What the states have in common of which each continues the one before."""
        return self.files[LOCATE].path.parent.name

    def rows_from(self, predicate: str, start: int) -> list[Ids]:
        """Return the columns of the rows from one on, in the order in which they were written."""
        made: list[Ids] = []
        for name in COLUMNS[predicate]:
            file = self.files[name]
            file.check_length()
            made.append(self._known(file.array(ID, start, file.length // ID.itemsize)))
        return made

    def _known(self, ids: Ids) -> Ids:
        """Refuse ids that no text has."""
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= len(self.dictionary)):
            raise SegmentDamagedError("the segments name a text that they do not have")
        return ids

    def check_files(self) -> None:
        """Refuse files that have become shorter."""
        for file in self.files.values():
            file.check_length()

    def names(self, predicate: str) -> Ids:
        """Return the distinct ids at position 1 of Field or RecordLink, in order."""
        ranges = self._directory[self._directory["predicate"] == NAMED.index(predicate)]
        found = [ranges["name"][ranges["name"] != REST]]
        column = self.files[COLUMNS[predicate][1]]
        for row in ranges[ranges["name"] == REST]:
            start = int(row["start"])
            found.append(column.array(ID, start, start + int(row["count"])))
        return distinct_sorted(np.concatenate(found).astype(np.int32, copy=False))

    def removed(self) -> Ids:
        """Return the ids of covered records that this state knows to be removed, sorted."""
        file = self.files[REMOVED]
        log: Ids = file.array(ID, 0, file.length // ID.itemsize)
        if not len(log):
            return log
        # An id for a removal, its complement for a record that came back; the last one counts.
        ids = np.where(log < 0, ~log, log)
        latest, at = np.unique(ids[::-1], return_index=True)
        return latest[log[::-1][at] >= 0].astype(np.int32, copy=False)

    def keep_checks_of(self, older: Segments) -> None:
        """Take over what an older state of the same generation has checked."""
        for name, file in self.files.items():
            file.keep_checks_of(older.files[name])

    def _ranges_of(self, predicate: str, name: int) -> list[tuple[int, int]]:
        """Return the ranges of rows with a Name, in order."""
        known = self._ranges.get((predicate, name))
        if known is not None:
            return known
        of_predicate = self._directory["predicate"] == NAMED.index(predicate)
        named = (self._directory["name"] == name) | (self._directory["name"] == REST)
        made: list[tuple[int, int]] = []
        for row in self._directory[of_predicate & named]:
            start = int(row["start"])
            stop = start + int(row["count"])
            if row["name"] == REST:
                names = self.files[COLUMNS[predicate][1]].array(ID, start, stop)
                low, high = (int(np.searchsorted(names, name, side)) for side in ("left", "right"))
                start, stop = start + low, start + high
            if stop > start:
                made.append((start, stop))
        self._ranges[predicate, name] = made
        return made


def open_segments(
    folder: Path,
    entry: JournalEntry,
    *,
    make_hash: Callable[[bytes], TextHash] = TextHash,
    known_runs: Sequence[SortedRun] = (),
) -> Segments:
    """Open the state that an entry of a generation's journal describes.

    All files are opened now, so that they may be deleted while this state is in use; runs of
    an older state are taken as they are, with what was checked of them.
    """
    text_hash = make_hash(read_header(folder))
    sums = read_table(folder / SUMS, entry.sums_bytes, entry.sums_check, SUM)
    directory = read_table(folder / DIRECTORY, entry.directory_bytes, entry.directory_check, RANGE)
    order = np.argsort(sums["file"], kind="stable")
    sums = sums[order]
    bounds = np.searchsorted(sums["file"], np.arange(len(FILES) + 1))
    files: dict[str, CheckedFile] = {}
    for number, (name, length) in enumerate(zip(FILES, entry.lengths, strict=True)):
        own = sums[bounds[number] : bounds[number + 1]]
        files[name] = CheckedFile(
            folder / name, length, own["offset"].astype(np.int64), own["check"]
        )
    _check_shape(folder, entry, files)
    return Segments(entry, files, read_runs(folder, entry.runs, known_runs), directory, text_hash)


def _check_shape(folder: Path, entry: JournalEntry, files: dict[str, CheckedFile]) -> None:
    """Refuse lengths that contradict one another."""
    right = files[LOCATE].length == entry.texts * LOCATE_KIND.itemsize
    right &= sum(run.count for run in entry.runs) == entry.texts
    for names in COLUMNS.values():
        lengths = {files[name].length for name in names}
        right &= len(lengths) == 1 and lengths.pop() % ID.itemsize == 0
    if not right:
        raise SegmentDamagedError(f"{folder} contradicts itself")


# -- The texts of one append: which are new, what they get as ids, and how they are stored.
#
# Texts of one length (record hashes, signatures, times) are rows of a matrix and never
# become Python values; all others go through a dictionary once.

_HASH_END: Final = ".H3"
_SIGNATURE_BYTES: Final = 86
_TAI_BYTES: Final = 20

Positions = npt.NDArray[np.int64]


class SegmentTexts:
    """The texts of a batch of facts, with their ids; new texts get the next ones.

    The order of the parts decides how a text is stored that is in several of them: as a
    record hash rather than as a text.
    """

    def __init__(
        self, columns: FactColumns, dictionary: StoredDictionary, text_hash: TextHash
    ) -> None:
        targets = [text.encode() for text in columns.link_target if _is_hash(text)]
        tai = "".join(columns.tai).encode()
        others = dict.fromkeys(_other_texts(columns))
        rows = [
            (HASHES, _matrix(b"".join(columns.records), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(columns.blob), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(columns.plex), HASH_TEXT_BYTES)),
            (HASHES, _matrix(b"".join(targets), HASH_TEXT_BYTES)),
            (COLD, _matrix(b"".join(columns.signature), _SIGNATURE_BYTES)),
            (TEXTS, _matrix(tai, _TAI_BYTES)),
        ]
        self._rows = rows
        self._others = [text.encode() for text in others]
        sizes = [*(len(matrix) for _heap, matrix in rows), len(self._others)]
        self._bounds: list[int] = [0, *np.cumsum(sizes).tolist()]
        hashes = np.concatenate(
            [
                *(text_hash.of_rows(matrix) for _heap, matrix in rows),
                text_hash.of_texts(self._others),
            ]
        )
        order = np.argsort(hashes)
        first_of = self._first_of(hashes, order)
        is_first = first_of == np.arange(len(hashes))
        order = order[is_first[order]]
        ids = np.full(len(hashes), -1, np.int32)
        sorted_hashes = hashes[order]
        for at, found in dictionary.find_sorted(sorted_hashes, lambda at: self._text(order[at])):
            ids[order[at]] = found
        self._new = np.flatnonzero(is_first & (ids < 0))
        ids[self._new] = len(dictionary) + np.arange(len(self._new))
        new = ids[order] >= len(dictionary)
        self.new_hashes: Hashes = sorted_hashes[new]
        """The hashes of the new texts, sorted."""
        self.new_ids: Ids = ids[order[new]]
        """Their ids."""
        self._ids = ids[first_of]
        self._ids_of_others = dict(zip(others, self._ids[self._bounds[-2] :].tolist(), strict=True))
        self.records, self.blob, self.plex, _targets, self.signature, self.tai = (
            self._ids[start:stop] for start, stop in pairwise(self._bounds[:-1])
        )

    def ids(self, column: Sequence[str]) -> Ids:
        """Return a column of other texts as ids."""
        return np.fromiter(map(self._ids_of_others.__getitem__, column), np.int32, len(column))

    def targets(self, column: Sequence[str]) -> Ids:
        """Return the targets of record links as ids."""
        made = np.empty(len(column), np.int32)
        is_hash = np.fromiter(map(_is_hash, column), np.bool_, len(column))
        made[is_hash] = self._ids[self._bounds[3] : self._bounds[4]]
        made[~is_hash] = self.ids([text for text in column if not _is_hash(text)])
        return made

    def stored(self, ends: Sequence[int]) -> tuple[list[Bytes], npt.NDArray[np.uint64]]:
        """Return what each heap, which ends there now, and `locate` get for the new texts."""
        heaps: list[list[Bytes]] = [[] for _end in ends]
        places = list(ends)
        located: list[npt.NDArray[np.uint64]] = []

        def add(heap: int, data: Bytes, lengths: Positions) -> None:
            heaps[heap].append(data.reshape(-1))
            offsets = places[heap] + np.cumsum(lengths) - lengths
            places[heap] += len(heaps[heap][-1])
            located.append(pack_locations(heap, lengths, offsets))

        cuts = np.searchsorted(self._new, self._bounds).tolist()
        for part, (heap, matrix) in enumerate(self._rows):
            rows = matrix[self._new[cuts[part] : cuts[part + 1]] - self._bounds[part]]
            data = encode_hashes(rows) if heap == HASHES else rows
            add(heap, data, np.full(len(rows), data.shape[1], np.int64))
        at = (self._new[cuts[-2] :] - self._bounds[-2]).tolist()
        texts = [self._others[n] for n in at]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        add(TEXTS, np.frombuffer(b"".join(texts), np.uint8), lengths)
        return [np.concatenate([*parts, _NOTHING]) for parts in heaps], np.concatenate(located)

    def _first_of(self, hashes: Hashes, order: Positions) -> Positions:
        """Return for each text the position of one that is equal: the same for all equal ones."""
        ordered = hashes[order]
        leads = np.ones(len(order), np.bool_)
        leads[1:] = ordered[1:] != ordered[:-1]
        lead_at = np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))
        leader = order[lead_at]
        made = np.empty(len(order), np.int64)
        made[order] = leader
        strangers: dict[bytes, int] = {}  # texts whose hash is also that of another one
        followers = np.flatnonzero(~leads)
        for place, lead in zip(order[followers].tolist(), leader[followers].tolist(), strict=True):
            text = self._text(place)
            if text != self._text(lead):
                made[place] = strangers.setdefault(text, place)
        return made

    def _text(self, position: int) -> bytes:
        part = bisect_right(self._bounds, position) - 1
        at = position - self._bounds[part]
        if part == len(self._rows):
            return self._others[at]
        text: bytes = self._rows[part][1][at].tobytes()
        return text


_NOTHING: Final[Bytes] = np.empty(0, np.uint8)


def _matrix(data: bytes, width: int) -> Bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def _other_texts(columns: FactColumns) -> chain[str]:
    record_fields, plex_fields = columns.record_fields(), columns.plex_fields()
    return chain(
        (FIRST, "Signed-By", "Signature"),
        *((name, *values) for name, values in record_fields),
        *((name, *values) for name, values in plex_fields if name != "TAI"),
        ("TAI",),
        columns.signed_by,
        columns.header_name,
        columns.header_index,
        columns.header_value,
        columns.link_data,
        (text for text in columns.link_target if not _is_hash(text)),
    )


def _is_hash(target: str) -> bool:
    """Tell whether a record link's target is a record hash."""
    return len(target) == HASH_TEXT_BYTES and target.endswith(_HASH_END)


# -- Segments, for writing: a generation is made once and then only appended to.
#
# One append adds the facts of some records as a chunk; it counts once its entry in the journal
# is whole, which may be written later than the chunk. Nothing is forced to the disk: what a power
# cut takes away, the checksums of the next reader notice, and the segments are rebuilt.

MOST_NAMES: Final = 256
"""Names of an append that the directory lists one by one; rarer ones share a range."""


def create_generation(folder: Path, key: bytes) -> None:
    """Make an empty generation in a new folder; its first entry covers nothing."""
    folder.mkdir(parents=True)
    for name in (*FILES, SUMS, DIRECTORY):
        (folder / name).touch()
    (folder / HEADER).write_bytes(format_header(key))
    empty = checksum(b"")
    entry = JournalEntry(0, 0, 0, 0, 0, 0, 0, (0,) * len(FILES), 0, empty, 0, empty, ())
    (folder / JOURNAL).write_bytes(format_entry(entry))


class SegmentWriter:
    """Appends to one generation; only the holder of the write lock may have one."""

    def __init__(self, folder: Path, *, make_hash: Callable[[bytes], TextHash] = TextHash) -> None:
        self.folder = folder
        self._make_hash = make_hash
        entry, self._journal_bytes = read_last_entry(folder)
        self.segments = open_segments(folder, entry, make_hash=make_hash)
        self._entries: list[JournalEntry] = []
        """Those of what was added and is not published."""
        self._merged: list[RunEntry] = []

    @property
    def entry(self) -> JournalEntry:
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
        """Add the facts of records; others see them when they are published."""
        before = self.entry
        texts = SegmentTexts(columns, self.segments.dictionary, self.segments.text_hash)
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
        entry = JournalEntry(
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

    def _commit(self, entry: JournalEntry) -> None:
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


def _rows(columns: FactColumns, texts: SegmentTexts) -> dict[str, list[Ids]]:
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
