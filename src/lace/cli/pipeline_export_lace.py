"""`lace pipeline export-lace`: the records of a warehouse into a lace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_session import warehouse_argument
from lace.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.session import Session
    from lace.errors import RecordError
    from lace.store.intake import Intake

__all__ = ["command"]


@lace_command(
    "export-lace",
    piped="Three lines of a name and a number: stored, known (they were there already), rejected.",
    json_keys={
        "stored": "how many records are new in the lace",
        "known": "how many were there already",
        "rejected": "how many the lace does not take, by its limits",
    },
    examples=[("lace pipeline export-lace big.wh --lace small", "fill a lace that is there")],
)
@warehouse_argument
@click.pass_obj
def command(session: Session, warehouse: str) -> int:
    """Store the records of a warehouse in the lace.

    The lace is the one that --lace names, or the one here. Every record is validated as an
    import does it.
    """
    from lace.engines.spark.session import check_installed

    check_installed()
    from lace.pipeline.records import iterate_records
    from lace.pipeline.tables import RECORDS
    from lace.pipeline.warehouse import Warehouse
    from lace.store.intake import import_stream
    from lace.store.validation import ALONE_BATCHES

    opened = Warehouse.open(Path(warehouse))
    total = opened.manifest.rows(RECORDS)
    with (
        session.changing("pipeline export-lace") as change,
        Progress(session, "export-lace", total, "records") as progress,
    ):

        def report(counts: Intake, errors: Sequence[RecordError]) -> None:
            for error in errors:
                session.output.complain(str(error))
            progress.update(counts.stored + counts.known + counts.rejected)

        done = import_stream(
            change.lace.store,
            (record.bytes for record in iterate_records(opened)),
            settings=change.lace.settings,
            random_bytes=os.urandom,
            workers=change.lace.workers,
            alone=ALONE_BATCHES,
            source=warehouse,
            report=report,
        )
        counts = {"stored": done.stored, "known": done.known, "rejected": done.rejected}
        change.result.update(counts)
        change.exit_code = 1 if done.rejected else 0
    if session.output.json:
        session.output.json_document(counts)
    else:
        session.output.counts(counts)
    return change.exit_code
