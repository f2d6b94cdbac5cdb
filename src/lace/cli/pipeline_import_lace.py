"""`lace pipeline import-lace`: the records of a lace into a warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_ingest import INGEST_KEYS, INGEST_PIPED, show_ingested
from lace.cli.pipeline_session import (
    SparkOptions,
    open_job,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.progress import Progress

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.spark.pipeline.ingest import NewFiles
    from lace.spark.pipeline.warehouse import Job

__all__ = ["command"]


def _find_records(session: Session, job: Job) -> NewFiles:
    """Read the records of the lace, shown as it goes on."""
    from lace.spark.pipeline.run import find_lace_records

    with session.reading("pipeline import-lace") as lace, lace.snapshot() as snapshot:
        total = snapshot.totals().records
        with Progress(session, "read", total, "records") as progress:
            return find_lace_records(
                job, lace.store.folder, snapshot, lambda number, _total: progress.update(number)
            )


@lace_command(
    "import-lace",
    piped=INGEST_PIPED,
    json_keys=INGEST_KEYS,
    examples=[("lace pipeline import-lace big.wh", "take over what the lace here has")],
)
@warehouse_argument
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Ingest the records of the lace into a warehouse.

    The lace is the one that --lace names, or the one here. Its records are validated again, and
    those that are new are kept. A record that is removed from the lace stays in the warehouse.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.ingest import Ingested, ingest
    from lace.spark.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    limit = session.settings(session.folder())[0].max_data_bytes
    opened = Warehouse.create(Path(warehouse))
    with open_job(session, opened, "import-lace") as job:
        new = _find_records(session, job)
        done = Ingested(skipped=new.skipped)
        if new.files:  # else there is nothing to start Spark for
            with spark_session(session, options, "import-lace") as spark:
                done = ingest(spark, job, new, max_data_bytes=limit)
    return show_ingested(session, done, opened.folder)
