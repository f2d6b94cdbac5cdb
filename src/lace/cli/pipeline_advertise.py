"""`lace pipeline advertise`: advertisements and Merkle roots of the records of a warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.base import b64a
from lace.cli.command import command as lace_command
from lace.cli.pipeline_session import (
    SparkOptions,
    open_job,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]


@lace_command(
    "advertise",
    piped="Lines of a name and a number: records (advertised in all), added (of them, now), "
    "partitions (two-character prefixes that have some); then `root` and the Merkle root.",
    json_keys={
        "name": "the name of these advertisements",
        "records": "how many records are advertised",
        "added": "how many of them were added now",
        "partitions": "how many two-character prefixes have some",
        "root": "the Merkle root over all",
    },
    examples=[
        ("lace pipeline advertise big.wh --source V.….H3", "advertise every record, no fields"),
        (
            "lace pipeline advertise big.wh --source V.….H3 --field App --field Group --name mine",
            "with two fields, under a name",
        ),
        (
            "lace pipeline advertise big.wh --source V.….H3 --exchange exchange",
            "what `lace pipeline evaluate` of an exchange allows, for `lace serve --warehouse`",
        ),
    ],
)
@warehouse_argument
@click.option("--source", metavar="S", required=True, help="Who advertises: V.….H3 or Opq_0.")
@click.option("--field", "fields", metavar="N", multiple=True, help="A field to carry. Repeatable.")
@click.option("--all-fields", is_flag=True, help="Carry every field.")
@click.option(
    "--of", metavar="NAME", help="Only a derived set: NAME, or NAME/PREDICATE; all by default."
)
@click.option(
    "--exchange",
    metavar="NAME",
    help="What the exchange evaluated as NAME may send, with the fields that its plan needs and "
    "that you offered there.",
)
@click.option("--name", metavar="NAME", help="What to call it: `all`, or the derived set's name.")
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    source: str,
    fields: tuple[str, ...],
    all_fields: bool,
    of: str | None,
    exchange: str | None,
    name: str | None,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Make the advertisements of records, with their digests and Merkle roots.

    They are what a peer would be told of these records, for the whole and for each two-character
    prefix, under a name. Records that came since the last run are added. Run with another source,
    other fields or another set, the advertisements of that name are replaced.
    """
    if fields and all_fields:
        raise UsageError("all fields are more than some", hint="give --field or --all-fields")
    if exchange is not None and (fields or all_fields or of is not None):
        raise UsageError(
            "an exchange says itself what is advertised, and with which fields",
            hint="leave out --of, --field and --all-fields",
        )
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.policy.schema import Schema
    from lace.spark.pipeline.advertise import advertise, asked_of, is_current
    from lace.spark.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    opened = Warehouse.open(Path(warehouse))
    schema = Schema(names=frozenset(fields), all=all_fields)
    asked = asked_of(opened, source, schema, of=of, exchange=exchange, name=name)
    with open_job(session, opened, "advertise") as job:
        done = is_current(opened, asked)
        if done is None:  # else there is nothing to start Spark for
            with spark_session(session, options, "advertise") as spark:
                done = advertise(spark, job, asked)
    counts = {"records": done.records, "added": done.added, "partitions": done.partitions}
    root = b64a.encode(done.root)
    if session.output.json:
        session.output.json_document({"name": asked.name, **counts, "root": root})
    else:
        session.output.counts(counts)
        session.output.say(f"root {root}")
    return 0
