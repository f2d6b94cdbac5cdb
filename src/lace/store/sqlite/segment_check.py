"""A look at the segments of a lace, all of them: are they whole, and of its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.engines.embedded.segment_journal import SegmentDamagedError
from lace.store.sqlite.fact_state import advance
from lace.store.sqlite.segments import APPEND_RECORDS

if TYPE_CHECKING:
    from lace.store.sqlite.store import SqliteStore

__all__ = ["SegmentCheck", "check_segments"]


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
