"""Intake: a stream of record bytes into a store.

Read, validate, store, a batch at a time. A bad record is reported and never stops
the good ones; a batch is stored whole or not at all, so a crash leaves only whole
records and the same import run again completes the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.errors import RecordError
from lace.record.reader import read_records
from lace.record.validate import ValidRecord, embedded_records
from lace.store.validation import (
    SIGNATURE_BATCH,
    SIGNATURE_BATCH_BYTES,
    make_batches,
    validate_batches,
)

if TYPE_CHECKING:
    from lace.base.limits import Settings
    from lace.record.seal import RandomBytes
    from lace.store.interface import RecordStore
    from lace.store.validation import ValidationResults


@dataclass(slots=True)
class Intake:
    """Counts of an import so far."""

    stored: int = 0
    known: int = 0
    rejected: int = 0
    bytes_read: int = 0


Report = Callable[[Intake, Sequence[RecordError]], None]
"""Called after each batch with the counts so far and the batch's errors."""


def import_stream(
    store: RecordStore,
    chunks: Iterable[bytes],
    *,
    settings: Settings,
    random_bytes: RandomBytes,
    workers: int,
    alone: int = 0,
    source: str | None = None,
    size: int | None = None,
    admit_embedded: bool = False,
    report: Report | None = None,
) -> Intake:
    """Store every valid record of a stream; returns the counts."""
    counts = Intake()
    outcomes = read_records(
        chunks, max_data_bytes=settings.max_data_bytes, source=source, recover=True, size=size
    )
    batches = make_batches(
        outcomes,
        max_records=min(SIGNATURE_BATCH, settings.import_batch_records),
        max_bytes=min(SIGNATURE_BATCH_BYTES, settings.import_batch_bytes),
        source=source,
    )
    validated = validate_batches(batches, random_bytes, workers, alone)
    for records, errors, end in _transactions(validated, settings):
        admission = store.admit(_with_embedded(records) if admit_embedded else records)
        counts.stored += len(admission.stored)
        counts.known += admission.known
        counts.rejected += len(errors)
        counts.bytes_read = max(counts.bytes_read, end)
        records.clear()  # not kept while the next are read: they may be large
        if report:
            report(counts, errors)
    return counts


def _transactions(
    validated: Iterable[ValidationResults], settings: Settings
) -> Iterator[tuple[list[ValidRecord], list[RecordError], int]]:
    """Group validated batches: a large transaction writes each page of the tables once."""
    records: list[ValidRecord] = []
    errors: list[RecordError] = []
    size = end = 0
    for verdicts in validated:
        records += verdicts.valid()
        errors += verdicts.errors()
        size += verdicts.batch.size
        end = verdicts.batch.end
        full = len(records) + len(errors) >= settings.import_batch_records
        if full or size >= settings.import_batch_bytes:
            yield records, errors, end
            records, errors, size = [], [], 0
    if records or errors:
        yield records, errors, end


def _with_embedded(records: Iterable[ValidRecord]) -> list[ValidRecord]:
    made: list[ValidRecord] = []
    for record in records:
        made.append(record)
        made += embedded_records(record)
    return made
