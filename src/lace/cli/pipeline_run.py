"""`lace pipeline run`: all stages one after another, in one Spark session."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_ingest import INGEST_KEYS
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
    from collections.abc import Callable

    from lace.cli.session import Session
    from lace.pipeline.evaluate import Question
    from lace.pipeline.states import Asked
    from lace.pipeline.warehouse import Job

__all__ = ["command"]


class _Run:
    """One run: the stages, and a Spark session from the first on that has work for it."""

    def __init__(self, session: Session, options: SparkOptions, job: Job, stack: ExitStack) -> None:
        self._session = session
        self._options = options
        self._job = job
        self._stack = stack
        self._spark: Any = None

    def _started(self) -> Any:  # noqa: ANN401 - PySpark's own
        if self._spark is None:
            opening = spark_session(self._session, self._options, "run")
            self._spark = self._stack.enter_context(opening)
        return self._spark

    def ingest(self, paths: list[Path], max_data_bytes: int) -> dict[str, int]:
        """Take in the files that are new."""
        from lace.pipeline.ingest import Ingested, find_new, ingest

        new = find_new(self._job.warehouse, paths)
        done = Ingested(skipped=new.skipped)
        if new.files:
            done = ingest(self._started(), self._job, new, max_data_bytes=max_data_bytes)
        return {name: getattr(done, name) for name in INGEST_KEYS}

    def facts(self) -> dict[str, int]:
        """Make the facts of the records that have none."""
        from lace.pipeline.facts import Extracted, has_fresh_records, make_facts

        done = Extracted(0, 0, 0)
        if has_fresh_records(self._job.warehouse.manifest):
            done = make_facts(self._started(), self._job)
        return {"facts": done.facts, "texts": done.texts}

    def evaluate(self, name: str, question: Question) -> dict[str, int]:
        """Answer a question that has no answer yet."""
        from lace.pipeline.evaluate import evaluate, find_answer

        done = find_answer(self._job.warehouse, name, question)
        if done is None:
            how = engine_options(self._session, self._options)
            done = evaluate(self._started(), self._job, name, question, options=how)
        return {str(key): count for key, count in done.counts.items()}

    def advertise(self, asked: Asked) -> dict[str, int]:
        """Advertise all records."""
        from lace.pipeline.advertise import advertise, is_current

        done = is_current(self._job.warehouse, asked)
        if done is None:
            done = advertise(self._started(), self._job, asked)
        return {"records": done.records, "added": done.added, "partitions": done.partitions}


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


def _asked(source: str, fields: tuple[str, ...]) -> Asked:
    from lace.interlacing.capabilities import Schema
    from lace.pipeline.states import Asked

    schema = Schema(names=frozenset(fields), all=False)
    return Asked(name="all", source=source, schema=schema, of="")


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
    from lace.engines.spark.session import check_installed

    check_installed()
    from lace.pipeline.derived import answer_table, check_name
    from lace.pipeline.sources import find_files
    from lace.pipeline.warehouse import Warehouse

    check_name(name)
    if fields and source is None:
        raise UsageError("--field is of what is advertised", hint="give --source S")
    options = SparkOptions(master, python_env, spark_settings)
    question = read_question(session, rules, predicates)
    paths = find_files(sources)
    for key in question.predicates:
        answer_table(name, key)
    asked = _asked(source, fields) if source is not None else None
    limit = session.settings(None)[0].max_data_bytes
    opened = Warehouse.create(Path(warehouse))  # after all that can be refused
    with open_job(session, opened, "run") as job, ExitStack() as stack:
        run = _Run(session, options, job, stack)
        stages: dict[str, Callable[[], dict[str, int]]] = {
            "ingest": lambda: run.ingest(paths, limit),
            "facts": run.facts,
            "evaluate": lambda: run.evaluate(name, question),
        }
        if asked is not None:
            stages["advertise"] = lambda: run.advertise(asked)
        results = {stage: work() for stage, work in stages.items()}
    _show(session, results)
    return 1 if results["ingest"]["rejected"] else 0
