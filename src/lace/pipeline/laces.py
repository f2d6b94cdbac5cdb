"""Records between a lace and a warehouse: a snapshot as a file to ingest, and the way back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lace.pipeline.ingest import find_new
from lace.pipeline.records import iterate_records
from lace.pipeline.warehouse import not_written, told
from lace.store.file_errors import open_writer
from lace.store.intake import import_stream
from lace.store.interface import Order
from lace.store.validation import batches_alone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.base.limits import Settings
    from lace.pipeline.ingest import NewFiles
    from lace.pipeline.warehouse import Job, Warehouse
    from lace.store.intake import Intake, Report
    from lace.store.interface import RecordStore
    from lace.store.sqlite.snapshot import SqliteSnapshot

__all__ = ["find_lace_records", "store_records"]


def find_lace_records(
    job: Job,
    folder: Path,
    snapshot: SqliteSnapshot,
    report: Callable[[int, int], None] | None = None,
) -> NewFiles:
    """Write the records of a lace to a file of the job; returns it unless it was ingested so.

    Args:
        job: the writer's hold of the warehouse.
        folder: that of the lace, by which the tables name it.
        snapshot: the state of the lace.
        report: hears how many of how many records were written so far.

    Raises:
        StoreUnavailableError: the disk is full.
        StoreError: the lace or the warehouse is damaged.
    """
    target = job.scratch("lace") / "lace.records"
    total = snapshot.totals().records
    with told(target):
        target.parent.mkdir(parents=True)
    with open_writer(target, lambda error: not_written(target, error)) as file:
        for number, record in enumerate(snapshot.records(order=Order.ID), 1):
            file.write(record.bytes)
            if report is not None:
                report(number, total)
    path = target.resolve()
    return find_new(job.warehouse, [path], {str(path): f"lace:{folder.resolve()}"})


def store_records(
    warehouse: Warehouse,
    store: RecordStore,
    *,
    settings: Settings,
    workers: int,
    report: Report | None = None,
) -> Intake:
    """Store the records of a warehouse, each validated as an import does it; returns the counts.

    Args:
        warehouse: what to read.
        store: where the records go.
        settings: limits and batch sizes of the store.
        workers: validation processes to use when there is more than one batch.
        report: called after each batch.

    Raises:
        WarehouseDamagedError: a file of the warehouse is damaged.
        StoreError: the records could not be stored.
    """
    return import_stream(
        store,
        (record.bytes for record in iterate_records(warehouse)),
        settings=settings,
        random_bytes=os.urandom,
        workers=workers,
        alone=batches_alone(settings),
        source=str(warehouse.folder),
        report=report,
    )
