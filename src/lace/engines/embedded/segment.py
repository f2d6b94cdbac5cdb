"""Segments, for reading: the facts of records as columns of ids, memory-mapped.

One object is one state, given by an entry of the journal; whatever a writer appends later
does not reach it. Every page is checked before it is used, and only pages that are asked
for are read. Rows of Field and RecordLink lie sorted by Name inside each append, and a
directory says where each Name begins, so that one Name can be read without the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.keys import distinct_sorted
from lace.engines.embedded.segment_files import SUM, CheckedFile, Ids, read_table
from lace.engines.embedded.segment_journal import (
    COLUMNS,
    DIRECTORY,
    FILES,
    HEAPS,
    LOCATE,
    REMOVED,
    SUMS,
    Entry,
    SegmentDamagedError,
    read_header,
)
from lace.engines.embedded.stored_dictionary import LOCATE_KIND, StoredDictionary
from lace.engines.embedded.stored_hash import TextHash
from lace.engines.embedded.stored_index import Run, read_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["ID", "NAMED", "RANGE", "REST", "SegmentDamagedError", "Segments", "open_segments"]

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
        entry: Entry,
        files: dict[str, CheckedFile],
        runs: list[Run],
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
        """Return a column, whole or for one Name; rows of one Name keep their order.

        Raises:
            SegmentDamagedError: it is not what was written.
        """
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
        """Return the columns of the rows from one on, in the order in which they were written.

        Raises:
            SegmentDamagedError: they are not what was written.
        """
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
    entry: Entry,
    *,
    make_hash: Callable[[bytes], TextHash] = TextHash,
    known_runs: Sequence[Run] = (),
) -> Segments:
    """Open the state that an entry of a generation's journal describes.

    All files are opened now, so that they may be deleted while this state is in use; runs of
    an older state are taken as they are, with what was checked of them.

    Raises:
        SegmentDamagedError: a file is missing bytes or is not what was written.
        OSError: a file cannot be opened, perhaps because it was deleted meanwhile.
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


def _check_shape(folder: Path, entry: Entry, files: dict[str, CheckedFile]) -> None:
    """Refuse lengths that contradict one another."""
    right = files[LOCATE].length == entry.texts * LOCATE_KIND.itemsize
    right &= sum(run.count for run in entry.runs) == entry.texts
    for names in COLUMNS.values():
        lengths = {files[name].length for name in names}
        right &= len(lengths) == 1 and lengths.pop() % ID.itemsize == 0
    if not right:
        raise SegmentDamagedError(f"{folder} contradicts itself")
