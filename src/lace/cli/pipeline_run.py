"""`lace pipeline run`: all stages one after another, in one Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_ingest import INGEST_KEYS, note_quarantine
from lace.cli.pipeline_rules import RULES_NAME, engine_options, read_question
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
    from lace.spark.pipeline.run import Ran

__all__ = ["command"]


def _counts(ran: Ran) -> dict[str, dict[str, int]]:
    """Return what each stage counts, by the names that its own command has for it."""
    done = {
        "ingest": {name: getattr(ran.ingested, name) for name in INGEST_KEYS},
        "facts": {"facts": ran.extracted.facts, "texts": ran.extracted.texts},
        "evaluate": {str(key): count for key, count in ran.evaluated.counts.items()},
    }
    if ran.advertised is not None:
        names = ("records", "added", "partitions")
        done["advertise"] = {name: getattr(ran.advertised, name) for name in names}
    return done


def _show(session: Session, results: dict[str, dict[str, int]]) -> None:
    if session.output.json:
        session.output.json_document(results)
        return
    session.output.counts(
        {
            f"{stage} {name}": count
            for stage, found in results.items()
            for name, count in found.items()
        }
    )


@lace_command(
    "run",
    piped="Lines of a stage, a name and a number, such as `ingest stored 12`, in the order of the "
    "stages: ingest, facts, evaluate, and advertise with --source. The names are those of the "
    "stages' own commands.",
    json_keys={
        "ingest": "an object of what `lace pipeline ingest` tells",
        "facts": "an object of how many facts were made now, and how many texts were new",
        "evaluate": "an object of the number of facts by predicate",
        "advertise": "with --source, an object of what `lace pipeline advertise` counts",
    },
    examples=[
        ("lace pipeline run big.wh incoming --rules policy.lace", "from files to derived facts"),
    ],
)
@warehouse_argument
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True)
@click.option("--rules", metavar="FILE", required=True, help="Read the rules from FILE.")
@click.option(
    "--predicate",
    "predicates",
    metavar="NAME/N",
    multiple=True,
    help="Keep only this predicate. Repeatable. Else all that the rules define.",
)
@click.option(
    "--out",
    "name",
    metavar="NAME",
    default=RULES_NAME,
    show_default=True,
    help="What to call the answer.",
)
@click.option("--source", metavar="S", help="Advertise all records too: who does, V.….H3 or Opq_0.")
@click.option(
    "--field", "fields", metavar="N", multiple=True, help="A field to advertise. Repeatable."
)
@spark_options
@click.pass_obj
def command(
    session: Session,
    warehouse: str,
    sources: tuple[str, ...],
    rules: str,
    predicates: tuple[str, ...],
    name: str,
    source: str | None,
    fields: tuple[str, ...],
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Run all stages: ingest, facts, evaluate, and with --source advertise.

    Each stage does what is not done yet and commits by itself, so a run that was interrupted
    goes on where it was. What cannot be is refused before anything is read or made. When
    records were rejected the stages go on without them, and the exit code is 1.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.advertise import asked_for_all
    from lace.spark.pipeline.ingest import find_files
    from lace.spark.pipeline.run import Work, run_stages
    from lace.spark.pipeline.warehouse import Warehouse

    if fields and source is None:
        raise UsageError("--field is of what is advertised", hint="give --source S")
    options = SparkOptions(master, python_env, spark_settings)
    work = Work(
        question=read_question(session, rules, predicates),
        paths=find_files(sources),
        max_data_bytes=session.settings(None)[0].max_data_bytes,
        name=name,
        options=engine_options(session, options),
        asked=asked_for_all(source, fields) if source is not None else None,
    )
    opened = Warehouse.create(Path(warehouse))  # after all that can be refused
    with open_job(session, opened, "run") as job:
        ran = run_stages(job, work, lambda: spark_session(session, options, "run"))
    _show(session, _counts(ran))
    return note_quarantine(session, ran.ingested, opened.folder)
