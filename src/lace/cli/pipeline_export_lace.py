"""`lace pipeline export-lace`: the records of a warehouse into a lace."""

from __future__ import annotations

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
    import does it. It needs no Spark.
    """
    from lace.base.arrow import load_pyarrow

    load_pyarrow()
    from lace.spark.pipeline.run import store_records
    from lace.spark.pipeline.tables import RECORDS
    from lace.spark.pipeline.warehouse import Warehouse

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

        lace = change.lace
        done = store_records(
            opened, lace.store, settings=lace.settings, workers=lace.workers, report=report
        )
        counts = {"stored": done.stored, "known": done.known, "rejected": done.rejected}
        change.result.update(counts)
        change.exit_code = 1 if done.rejected else 0
    if session.output.json:
        session.output.json_document(counts)
    else:
        session.output.counts(counts)
    return change.exit_code
