"""`lace pipeline ingest`: files of records into a warehouse."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_session import (
    SparkOptions,
    open_job,
    spark_options,
    spark_session,
    warehouse_argument,
)

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.spark.pipeline.ingest import Ingested

__all__ = ["INGEST_KEYS", "INGEST_PIPED", "command", "note_quarantine", "show_ingested"]

INGEST_PIPED = (
    "Lines of a name and a number: files (read now), skipped (read before), stored, known (they "
    "were here already), rejected."
)
INGEST_KEYS = {
    "files": "how many files were read",
    "skipped": "how many were read before, and have not changed",
    "stored": "how many records are new here",
    "known": "how many were here already, or came twice",
    "rejected": "how many were not valid, and are in the quarantine",
}


def show_ingested(session: Session, done: Ingested, folder: Path) -> int:
    """Show the counts of an ingest; returns the exit code."""
    counts = {name: getattr(done, name) for name in INGEST_KEYS}
    if session.output.json:
        session.output.json_document(counts)
    else:
        session.output.counts(counts)
    return note_quarantine(session, done, folder)


def note_quarantine(session: Session, done: Ingested, folder: Path) -> int:
    """Say where that is which was rejected, if anything was; returns the exit code."""
    if not done.rejected:
        return 0
    session.output.note(
        f"what was rejected, and why, is in the table quarantine of {folder}; "
        f"`lace pipeline status {shlex.quote(str(folder))} --quarantine` shows it"
    )
    return 1


@lace_command(
    "ingest",
    piped=INGEST_PIPED,
    json_keys=INGEST_KEYS,
    examples=[
        ("lace pipeline ingest big.wh backup.records", "a file"),
        ("lace pipeline ingest big.wh incoming 'old/*.records'", "a folder, and what matches"),
    ],
)
@warehouse_argument
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True)
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    sources: tuple[str, ...],
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Validate the records of files, and keep those that are new.

    A SOURCE is a file of records one after another, a folder of such files, or a pattern. Files
    that were ingested before and have not changed are skipped. A bad record goes to the table
    quarantine with its file, offset, rule and reason, and never stops the good ones; the exit
    code is then 1. The warehouse is made if it does not exist.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.ingest import Ingested, find_files, find_new, ingest
    from lace.spark.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    paths = find_files(sources)
    limit = session.settings(None)[0].max_data_bytes
    opened = Warehouse.create(Path(warehouse))  # after all that can be refused
    with open_job(session, opened, "ingest") as job:
        new = find_new(opened, paths)
        done = Ingested(skipped=new.skipped)
        if new.files:  # else there is nothing to start Spark for
            with spark_session(session, options, "ingest") as spark:
                done = ingest(spark, job, new, max_data_bytes=limit)
    return show_ingested(session, done, opened.folder)
