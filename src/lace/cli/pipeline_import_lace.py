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
from lace.store.interface import Order

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.pipeline.warehouse import Job

__all__ = ["command"]


def _write_records(session: Session, job: Job) -> tuple[Path, str]:
    """Write the records of the lace to a file of the job; returns it, and the lace's name."""
    from lace.pipeline.warehouse import told

    folder = session.folder().resolve()
    target = job.scratch("lace") / "lace.records"
    with session.reading("pipeline import-lace") as lace, lace.snapshot() as snapshot, told(target):
        target.parent.mkdir(parents=True)
        total = snapshot.totals().records
        with target.open("wb") as file, Progress(session, "read", total, "records") as progress:
            for number, record in enumerate(snapshot.records(order=Order.ID)):
                file.write(record.bytes)
                progress.update(number)
    return target.resolve(), f"lace:{folder}"


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
    from lace.engines.spark.session import check_installed

    check_installed()
    from lace.pipeline.ingest import Ingested, find_new, ingest
    from lace.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    limit = session.settings(session.folder())[0].max_data_bytes
    opened = Warehouse.create(Path(warehouse))
    with open_job(session, opened, "import-lace") as job:
        path, name = _write_records(session, job)
        new = find_new(opened, [path], {str(path): name})
        done = Ingested(skipped=new.skipped)
        if new.files:  # else there is nothing to start Spark for
            with spark_session(session, options, "import-lace") as spark:
                done = ingest(spark, job, new, max_data_bytes=limit)
    return show_ingested(session, done, opened.folder)
