"""What an executor does of an ingest: ranges of files in, rows of records and of faults out.

Everything here is importable by name, so that Spark sends no code. The rows are made by the same
functions as those of `lace import`. A fault is a row of the kind `fault`, whose `head` is its rule
and reason as JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lace.pipeline.ranges import Range, read_range
from lace.pipeline.tables import RECORDS, columns_of
from lace.record.validate import ValidRecord
from lace.store.validation import (
    SIGNATURE_BATCH,
    SIGNATURE_BATCH_BYTES,
    make_batches,
    validate_batches,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.errors import RecordError
    from lace.store.validation import Verdicts

__all__ = ["FAULT", "RECORD", "STAGED_COLUMNS", "Piece", "Validation", "record_row"]

RECORD: Final = "record"
FAULT: Final = "fault"
STAGED_COLUMNS: Final = (("kind", "string"), *columns_of(RECORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A range of a source to validate; `size` is that of the whole file."""

    path: str
    source: int
    size: int
    range: Range


@dataclass(frozen=True, slots=True)
class Validation:
    """The function of a task: which pieces each task validates."""

    tasks: tuple[tuple[Piece, ...], ...]
    max_data_bytes: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches for the tasks whose numbers come."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from _validated(piece, self.max_data_bytes)


def _validated(piece: Piece, max_data_bytes: int) -> Iterator[Any]:
    outcomes = read_range(Path(piece.path), piece.range, piece.size, max_data_bytes)
    batches = make_batches(outcomes, max_records=SIGNATURE_BATCH, max_bytes=SIGNATURE_BATCH_BYTES)
    for verdicts in validate_batches(batches, os.urandom, 0):
        yield _rows(verdicts, piece.source)


def _rows(verdicts: Verdicts, source: int) -> Any:  # noqa: ANN401 - Arrow has no types
    import pyarrow as pa

    rows: list[tuple[object, ...]] = [
        (RECORD, *record_row(outcome), source, raw.offset)
        for raw, outcome in zip(verdicts.batch.records, verdicts.outcomes, strict=True)
        if isinstance(outcome, ValidRecord)
    ]
    rows += [_fault_row(error, source) for error in verdicts.errors()]
    kinds = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(values, kinds[kind])
        for values, (_name, kind) in zip(columns, STAGED_COLUMNS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _kind in STAGED_COLUMNS])


def record_row(record: ValidRecord) -> tuple[object, ...]:
    """Return a record as a row of its table, without where it was met."""
    return (
        record.hash_text,
        record.type,
        len(record.bytes),
        record.bytes[: record.data_at],
        record.bytes[record.data_at :],
        record.plex_at,
        record.blob_at,
        record.group,
        record.app,
        record.name,
        record.tai,
        record.signed_by,
    )


def _fault_row(error: RecordError, source: int) -> tuple[object, ...]:
    offset = error.place.offset if error.place else None
    told = json.dumps({"rule": error.rule or "", "reason": error.message}).encode()
    nothing = (None,) * (len(STAGED_COLUMNS) - 7)
    return (FAULT, None, None, None, told, *nothing, source, offset or 0)
