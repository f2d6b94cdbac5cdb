"""`lace pipeline ingest|facts|evaluate|advertise|run|import-lace`: the stages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.base import b64a
from lace.cli.command import command as lace_command
from lace.cli.pipeline_session import (
    EXCHANGE_NAME,
    RULES_NAME,
    SparkOptions,
    engine_options,
    note_without_facts,
    open_job,
    read_exchange,
    read_question,
    show_evaluated,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.policy_options import exchange_options
from lace.cli.progress import Progress
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.spark.pipeline.evaluate import Question
    from lace.spark.pipeline.ingest import Ingested, NewFiles
    from lace.spark.pipeline.run import Ran
    from lace.spark.pipeline.warehouse import Job


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
    api="Warehouse.ingest",
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
def ingest(
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
    from lace.spark.pipeline.warehouse import WarehouseFolder

    options = SparkOptions(master, python_env, spark_settings)
    paths = find_files(sources)
    limit = session.settings(None)[0].max_data_bytes
    opened = WarehouseFolder.create(Path(warehouse))  # after all that can be refused
    with open_job(session, opened, "ingest") as job:
        new = find_new(opened, paths)
        done = Ingested(skipped=new.skipped)
        if new.files:  # else there is nothing to start Spark for
            with spark_session(session, options, "ingest") as spark:
                done = ingest(spark, job, new, max_data_bytes=limit)
    return show_ingested(session, done, opened.folder)


# -- `lace pipeline facts`: facts and their dictionary from the records of a warehouse.


@lace_command(
    "facts",
    api="Warehouse.make_facts",
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
def facts(
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
    from lace.spark.pipeline.warehouse import WarehouseFolder

    options = SparkOptions(master, python_env, spark_settings)
    opened = WarehouseFolder.open(Path(warehouse))
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


# -- `lace pipeline evaluate`: what follows from rules, over the facts of a warehouse.


def _read(
    session: Session, rules: str | None, predicates: tuple[str, ...], exchange: PolicyArguments
) -> Question:
    if (rules is None) != exchange.is_given:
        raise UsageError(
            "an evaluation is of rules or of an exchange",
            hint="give --rules FILE, or --select FILE and --peer-select FILE",
        )
    if rules is not None:
        return read_question(session, rules, predicates)
    if predicates:
        raise UsageError(
            "an exchange answers with MaySend/1 and MayRequest/1", hint="leave out --predicate"
        )
    return read_exchange(session, exchange)


@lace_command(
    "evaluate",
    api="Warehouse.evaluate",
    piped="Lines of a predicate and the number of its facts, `Name/arity N`.",
    json_keys={
        "name": "what the answer is called in the warehouse",
        "fresh": "whether it was made now; false when it was there already",
        "derived": "an object of the number of facts by predicate",
    },
    examples=[
        ("lace pipeline evaluate big.wh --rules policy.lace", "all that the rules derive"),
        (
            "lace pipeline evaluate big.wh --rules policy.lace --predicate Selected/1 --out chosen",
            "one predicate, kept as chosen",
        ),
        (
            "lace pipeline evaluate big.wh --select mine.lace --peer-select theirs.lace "
            "--expose team.lace@V.….H3 --viewer V.….H3",
            "what an exchange would send and request",
        ),
    ],
)
@warehouse_argument
@click.option("--rules", metavar="FILE", help="Read the rules from FILE, or - for standard input.")
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
    help=f"What to call the answer: {RULES_NAME}, of an exchange {EXCHANGE_NAME}, unless said.",
)
@exchange_options(required=False)
@spark_options
@click.pass_obj
def evaluate(
    session: Session,
    warehouse: str,
    rules: str | None,
    predicates: tuple[str, ...],
    name: str | None,
    exchange: PolicyArguments,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Evaluate rules over the facts of a warehouse, and keep what follows.

    Each predicate becomes a table of texts, derived/NAME/PREDICATE, in place of what was there
    under that NAME. Rules that are not legal are refused before Spark starts; an evaluation
    that passes a limit commits nothing. The same rules over the same facts are not evaluated
    again. With --select and --peer-select the answer is MaySend and MayRequest, as in `lace
    preview`.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.derived import check_name
    from lace.spark.pipeline.evaluate import evaluate, find_answer
    from lace.spark.pipeline.warehouse import WarehouseFolder

    kept = check_name(name or (EXCHANGE_NAME if rules is None else RULES_NAME))
    options = SparkOptions(master, python_env, spark_settings)
    question = _read(session, rules, predicates, exchange)
    opened = WarehouseFolder.open(Path(warehouse))
    with open_job(session, opened, "evaluate") as job:
        note_without_facts(session, opened.manifest)
        done = find_answer(opened, kept, question)
        if done is None:  # else there is nothing to start Spark for
            how = engine_options(session, options)
            with spark_session(session, options, "evaluate") as spark:
                done = evaluate(spark, job, kept, question, options=how)
    show_evaluated(session, done)
    return 0


# -- `lace pipeline advertise`: advertisements and Merkle roots of the records of a warehouse.


@lace_command(
    "advertise",
    api="Warehouse.advertise",
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
def advertise(
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
    from lace.spark.pipeline.warehouse import WarehouseFolder

    options = SparkOptions(master, python_env, spark_settings)
    opened = WarehouseFolder.open(Path(warehouse))
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


# -- `lace pipeline run`: all stages one after another, in one Spark session.


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
    api="Warehouse.run",
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
def run(
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
    from lace.spark.pipeline.warehouse import WarehouseFolder

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
    opened = WarehouseFolder.create(Path(warehouse))  # after all that can be refused
    with open_job(session, opened, "run") as job:
        ran = run_stages(job, work, lambda: spark_session(session, options, "run"))
    _show(session, _counts(ran))
    return note_quarantine(session, ran.ingested, opened.folder)


# -- `lace pipeline import-lace`: the records of a lace into a warehouse.


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
    api="Warehouse.import_lace",
    piped=INGEST_PIPED,
    json_keys=INGEST_KEYS,
    examples=[("lace pipeline import-lace big.wh", "take over what the lace here has")],
)
@warehouse_argument
@spark_options
@click.pass_obj
def import_lace(
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
    from lace.spark.pipeline.warehouse import WarehouseFolder

    options = SparkOptions(master, python_env, spark_settings)
    limit = session.settings(session.folder())[0].max_data_bytes
    opened = WarehouseFolder.create(Path(warehouse))
    with open_job(session, opened, "import-lace") as job:
        new = _find_records(session, job)
        done = Ingested(skipped=new.skipped)
        if new.files:  # else there is nothing to start Spark for
            with spark_session(session, options, "import-lace") as spark:
                done = ingest(spark, job, new, max_data_bytes=limit)
    return show_ingested(session, done, opened.folder)
