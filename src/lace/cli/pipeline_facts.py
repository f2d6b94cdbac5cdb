"""`lace pipeline facts`: facts and their dictionary from the records of a warehouse."""

from __future__ import annotations

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

__all__ = ["command"]


@lace_command(
    "facts",
    piped="Lines of a name and a number: records (that had no facts yet), facts, texts (new ones).",
    json_keys={
        "records": "how many records got their facts now",
        "facts": "how many facts these have",
        "texts": "how many texts are new in the dictionary",
    },
    examples=[("lace pipeline facts big.wh", "make the facts of what was ingested")],
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
    """Make the facts of the records that have none yet.

    Facts are kept by predicate, as rows of numbers; the table dictionary has their texts.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.facts import Extracted, has_fresh_records, make_facts
    from lace.spark.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    opened = Warehouse.open(Path(warehouse))
    with open_job(session, opened, "facts") as job:
        if has_fresh_records(opened.manifest):
            with spark_session(session, options, "facts") as spark:
                done = make_facts(spark, job)
        else:  # nothing to start Spark for
            done = Extracted(0, 0, 0)
    counts = {"records": done.records, "facts": done.facts, "texts": done.texts}
    if session.output.json:
        session.output.json_document(counts)
    else:
        session.output.counts(counts)
    return 0
