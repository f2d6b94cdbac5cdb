"""Appending the records of a store to segments, in parts of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.columns.segment_journal import SegmentDamagedError
from lace.facts.extract import fact_columns
from lace.store.sqlite.fact_state import advance, covered_by_counters, extended
from lace.store.sqlite.segments import APPEND_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.columns.segment import Segments, SegmentWriter
    from lace.columns.segment_files import Ids
    from lace.columns.segment_journal import Covered, JournalEntry
    from lace.record.validate import ValidRecord
    from lace.store.sqlite.connection import StoreCounters
    from lace.store.sqlite.snapshot import SqliteSnapshot
    from lace.store.sqlite.store import SqliteStore


SLICE_RECORDS: Final = 16_000
_SLICE_BYTES: Final = 16 * 1024 * 1024
_SLICE_HEAD_BYTES: Final = 3 * 1024 * 1024
"""What one append takes at most, of records and of headers: memory grows with it."""
_REMOVED_PART: Final = 4
"""When more than one in this many covered records is removed, the segments are rebuilt."""


def is_at(entry: JournalEntry, counters: StoreCounters) -> bool:
    """Tell whether an entry covers exactly what the counters count."""
    return (
        entry.high_water == counters.high_water
        and entry.removal_sequence == counters.removal_sequence
        and entry.records == counters.records
        and entry.key_xor == counters.key_xor
    )


def is_thin(segments: Segments, removed: int) -> bool:
    """Tell whether enough covered records are removed for the segments to be rebuilt."""
    return removed * _REMOVED_PART > segments.records


def fill_generation(writer: SegmentWriter, snapshot: SqliteSnapshot) -> None:
    """Append all records of a snapshot to an empty generation."""
    covered = covered_by_counters(snapshot.counters())
    append_all(writer, snapshot.numbered_records(), covered, writer.segments.removed())


def append_all(
    writer: SegmentWriter,
    numbered: Iterable[tuple[int, ValidRecord]],
    covered: Covered,
    removed: Ids,
    committed: Callable[[], None] | None = None,
) -> None:
    """Append records in parts of bounded size; the last part brings the segments to `covered`.

    A part before it covers its records only: removals and what came back wait for the last.
    Where records are still being stored, `committed` waits for that, and nothing is published
    before; its failure leaves the segments as they were, and the writer of no more use.
    """
    part: list[ValidRecord] = []
    size = head_size = 0
    for number, record in numbered:
        part.append(record)
        size += len(record.bytes)
        head_size += record.blob_at - record.plex_at
        is_large = size >= _SLICE_BYTES or head_size >= _SLICE_HEAD_BYTES
        if is_large or len(part) >= SLICE_RECORDS:
            so_far = extended(writer.entry, part, number)
            if so_far.high_water < covered.high_water:
                writer.add(fact_columns(part), so_far, writer.segments.removed())
                if committed is None:
                    writer.publish()
                part, size, head_size = [], 0, 0
    writer.add(fact_columns(part), covered, removed)
    if committed is not None:
        committed()
    writer.publish()


# -- A look at the segments of a lace, all of them: are they whole, and of its records.


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """What was found: records covered and not covered, and why segments cannot be used."""

    covered: int
    behind: int
    reason: str = ""


def check_segments(store: SqliteStore) -> SegmentCheck:
    """Check every byte of the segments, and whether they are those of the records stored."""
    segments = store.segments.open()
    with store.snapshot() as snapshot:
        records = snapshot.totals().records
        if segments is None:
            reason = "none that can be used" if records >= APPEND_RECORDS else ""
            return SegmentCheck(0, records, reason)
        try:
            for file in segments.files.values():
                file.check(0, file.length)
            for run in segments.runs:
                run.check()
            found = advance(segments, snapshot)
        except SegmentDamagedError as error:
            return SegmentCheck(0, records, str(error))
    if found is None:
        return SegmentCheck(0, records, "they are of other records")
    covered = segments.records - len(found.removed)
    return SegmentCheck(covered, records - covered)
