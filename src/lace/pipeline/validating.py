"""What an executor does of an ingest: ranges of files in, rows of records and of faults out.

Everything here is importable by name, so that Spark sends no code. The rows are made by the same
functions as those of `lace import`. A fault is a row of the kind `fault`, whose `head` is its rule
and reason as JSON.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

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

__all__ = [
    "FAULT",
    "RECORD",
    "STAGED_COLUMNS",
    "WRITTEN_COLUMNS",
    "Piece",
    "Validation",
    "WritingValidation",
    "record_row",
]

RECORD: Final = "record"
FAULT: Final = "fault"
STAGED_COLUMNS: Final = (("kind", "string"), *columns_of(RECORDS))
WRITTEN_COLUMNS: Final = (("kind", "string"), ("file", "string"), ("rows", "bigint"))
_NAME_BYTES: Final = 16
_REPEATED: Final = ("type", "group_path", "app", "signed_by")
"""Columns in which many rows have the same value."""


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


@dataclass(frozen=True, slots=True)
class WritingValidation:
    """The function of a task that writes the rows itself, and returns the files that it made.

    Rows need not pass through the Java process then, which takes as long as validating them.
    Each attempt of a task has files of its own; only those count of which Spark hears.
    """

    validation: Validation
    target: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield an Arrow batch that names the files of this attempt."""
        import pyarrow as pa

        with ExitStack() as stack:
            files: dict[str, _File] = {}
            for batch in self.validation(batches):
                for kind, rows in _by_kind(batch):
                    if kind not in files:
                        files[kind] = stack.enter_context(_File(Path(self.target), kind, rows))
                    files[kind].write(rows)
        made = [(kind, file.name, file.rows) for kind, file in files.items()]
        columns = list(zip(*made, strict=True)) or [(), (), ()]
        kinds = (pa.string(), pa.string(), pa.int64())
        arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, [name for name, _kind in WRITTEN_COLUMNS])


class _File:
    """A file of rows of one kind, which is being written."""

    def __init__(self, folder: Path, kind: str, rows: Any) -> None:  # noqa: ANN401 - Arrow
        from pyarrow import parquet

        self.name = f"{kind}-{os.urandom(_NAME_BYTES).hex()}.parquet"
        self.rows = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = parquet.ParquetWriter(
            folder / self.name,
            rows.schema,
            compression="zstd",
            use_dictionary=list(_REPEATED),
            write_statistics=False,  # hashes are in no order: nobody can pass over a page
            write_page_checksum=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._writer.close()

    def write(self, rows: Any) -> None:  # noqa: ANN401 - Arrow has no types
        """Add rows."""
        self._writer.write_batch(rows)
        self.rows += rows.num_rows


def _by_kind(batch: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Arrow has no types
    """Yield the rows of each kind that a batch has, without the column that says it."""
    from pyarrow import compute

    kinds = batch.column("kind")
    rows = batch.drop_columns(["kind"])
    for kind in kinds.unique().to_pylist():
        is_kind = compute.equal(kinds, kind)
        yield kind, rows if compute.all(is_kind).as_py() else rows.filter(is_kind)


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
