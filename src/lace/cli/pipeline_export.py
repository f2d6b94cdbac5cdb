"""`lace pipeline export`: record bytes out of a warehouse."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from lace.base.arrow import load_pyarrow
from lace.cli.command import command as lace_command
from lace.cli.export import Target, check_output
from lace.cli.files import written
from lace.cli.output import plural
from lace.cli.pipeline_rules import engine_options, note_without_facts, read_selection
from lace.cli.pipeline_session import (
    SparkOptions,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.progress import Progress
from lace.cli.questions import SELECTED
from lace.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lace.cli.session import Session
    from lace.spark.pipeline.warehouse import Warehouse

__all__ = ["command"]


def _chosen(
    session: Session,
    warehouse: Warehouse,
    rules: str,
    predicate: str | None,
    allow_undefined: tuple[str, ...],
    options: SparkOptions,
) -> frozenset[str]:
    """Return the records that rules choose; values that are no record here are counted."""
    from lace.spark.pipeline.evaluate import choose_records

    question = read_selection(session, rules, predicate, allow_undefined)
    note_without_facts(session, warehouse.manifest)
    how = engine_options(session, options)
    with spark_session(session, options, "export") as spark:
        found = choose_records(spark, warehouse, question, how)
    if found.strangers:
        are = "is no record" if found.strangers == 1 else "are no records"
        count = plural(found.strangers, "value")
        session.output.note(f"{count} of {question.predicates[0]} {are} of this warehouse")
    return found.hashes


@lace_command(
    "export",
    piped="The bytes of the records, one after another; nothing with -o.",
    json_keys={
        "id": "the record's hash; one line a record; wants -o",
        "offset": "where it begins in the file",
        "bytes": "how many bytes it has",
    },
    examples=[
        ("lace pipeline export big.wh --all -o all.records", "write every record to a file"),
        ("lace pipeline export big.wh //u//notes//today | lace import -", "copy one to a lace"),
        ("lace pipeline export big.wh --rules chosen.lace -o chosen.records", "what rules choose"),
    ],
)
@warehouse_argument
@click.argument("records", metavar="[RECORD]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every record.")
@click.option("--rules", metavar="FILE", help="The records that the rules of FILE choose.")
@click.option(
    "--predicate",
    metavar="NAME/1",
    help=f"With --rules, the predicate that chooses.  [default: {SELECTED}]",
)
@ALLOW_UNDEFINED_OPTION
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, whole or not.")
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    records: tuple[str, ...],
    everything: bool,
    rules: str | None,
    predicate: str | None,
    allow_undefined: tuple[str, ...],
    target: str | None,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Write the bytes of records of a warehouse.

    Of the RECORDs named, of all, or of those that rules choose, in the order of the warehouse.
    Each is checked against its hash. When one that is named is not there, nothing is written
    and the exit code is 1. Only --rules needs Spark. `lace import` reads the result.
    """
    if bool(records) + everything + (rules is not None) != 1:
        raise UsageError("name what to export", hint="give RECORDs, --all, or --rules FILE")
    if predicate is not None and rules is None:
        raise UsageError("--predicate is of rules", hint="give --rules FILE")
    check_output(session.output, target)
    if rules is not None:
        from lace.spark.engine.session import check_installed

        check_installed()
    load_pyarrow()
    from lace.spark.pipeline.evaluate import find_named
    from lace.spark.pipeline.records import iterate_records
    from lace.spark.pipeline.tables import RECORDS
    from lace.spark.pipeline.warehouse import Warehouse

    opened = Warehouse.open(Path(warehouse))
    wanted = None if everything else find_named(opened, records)
    if rules is not None:
        options = SparkOptions(master, python_env, spark_settings)
        wanted = _chosen(session, opened, rules, predicate, allow_undefined, options)
    total = opened.manifest.rows(RECORDS) if wanted is None else len(wanted)
    place: AbstractContextManager[IO[bytes] | None] = written(target) if target else nullcontext()
    with place as file, Progress(session, "export", total, "records") as progress:
        goal = Target(session.output, file)
        for record in iterate_records(opened, wanted):
            goal.write(record)
            progress.update(goal.records)
    if target:
        size = plural(goal.bytes, "byte")
        session.output.note(f"wrote {plural(goal.records, 'record')}, {size}, to {target}")
    return 0
