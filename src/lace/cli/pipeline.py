"""`lace pipeline`: many records at once, with Spark, over a warehouse folder; its stages."""

from __future__ import annotations

import functools
import logging
import shlex
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api.warehouse import EXCHANGE, RESULT, open_spark, open_warehouse, spark_progress
from lace.cli.command import LazyGroup, require_subcommand
from lace.cli.command import command as lace_command
from lace.cli.files import read_file
from lace.cli.output import plural
from lace.cli.policy_files import (
    explain_empty_view,
    note_missing_facts,
    read_policy,
    warn_of,
    warn_of_unmet,
)
from lace.cli.policy_options import exchange_options
from lace.cli.progress import Progress
from lace.cli.query import QueryRequest
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console
    from rich.progress import Progress as Bar

    from lace.api.warehouse import Ingested, Question, Ran, Rules, Warehouse
    from lace.cli.files import RuleFile
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session


# -- What Spark is at, shown on a terminal: the stage, its tasks, the rows so far, the time left.

_AFTER_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.25


def spark_text() -> str:
    """Return in words what Spark is doing in this process; empty where it does nothing."""
    now = spark_progress()
    if now is None or not now.stages:
        return ""
    numbers = ", ".join(map(str, now.stages))
    return f"stage {numbers}, {now.done} of {plural(now.total, 'task')}, {plural(now.rows, 'row')}"


def stage_bar(console: Console, clock: Callable[[], float] = time.monotonic) -> Bar:
    """Return the bar: what, tasks, `rows` of the task's fields, time so far and left."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("tasks, {task.fields[rows]:,} rows", markup=False),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        get_time=clock,
        transient=True,
    )


@contextmanager
def _stages_shown(session: Session, title: str) -> Iterator[None]:
    """Show a bar of the tasks of Spark's current stages, where a person sees it."""
    if sys.stderr is None or not sys.stderr.isatty() or session.output.quiet:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_show_stages, args=(session.output.color, title, over), name="stages", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_stages(color: bool, title: str, over: threading.Event) -> None:
    if over.wait(_AFTER_SECONDS):
        return
    from rich.console import Console

    console = Console(stderr=True, color_system="auto" if color else None)
    with stage_bar(console) as bar:
        task = bar.add_task("starting Spark", total=None, rows=0)
        shown: tuple[int, ...] = ()
        while not over.wait(_AGAIN_SECONDS):
            now = spark_progress()
            if now is None or not now.stages:
                continue
            if now.stages != shown:
                shown = now.stages
                what = f"{title}, stage {', '.join(map(str, shown))}"
                bar.reset(task, description=what, total=now.total, rows=now.rows)
            bar.update(task, completed=now.done, total=now.total, rows=now.rows)


# -- What the commands share: the warehouse, Spark, rules.

_Command = TypeVar("_Command", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class SparkArguments:
    """What a command line says of Spark: where it runs, and with which settings."""

    master: str
    archive: Path | None
    settings: Mapping[str, str]

    def options(
        self, session: Session, title: str, before: ExitStack | None = None
    ) -> dict[str, Any]:
        """Return `spark` and `master` for a method of a warehouse; Spark's work is shown.

        `before` is closed when Spark starts: what was shown until then.
        """

        @contextmanager
        def opening() -> Iterator[Any]:
            if before is not None:
                before.close()
            with (
                _silenced_libraries(session),
                _stages_shown(session, title),
                open_spark(
                    self.master,
                    settings=self.settings,
                    archive=self.archive,
                    debug=session.debug,
                    environ=session.environ,
                ) as spark,
            ):
                yield spark

        return {"spark": opening, "master": self.master}


@contextmanager
def _silenced_libraries(session: Session) -> Iterator[None]:
    """Keep what libraries log off standard error: Py4J logs every call that a signal cuts off."""
    before = logging.root.manager.disable
    if not session.debug:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def warehouse_argument(function: _Command) -> _Command:
    """Add the WAREHOUSE argument."""
    made: _Command = click.argument("warehouse", metavar="WAREHOUSE", type=click.Path())(function)
    return made


def spark_options(function: _Command) -> _Command:
    """Add the options that say where Spark runs, as one `spark` argument."""

    @functools.wraps(function)
    def collected(
        *args: Any,  # noqa: ANN401 - click's own
        master: str,
        python_env: Path | None,
        spark_settings: tuple[str, ...],
        **given: Any,  # noqa: ANN401 - click's own
    ) -> Any:  # noqa: ANN401 - click's own
        settings: dict[str, str] = {}
        for text in spark_settings:
            name, separator, value = text.partition("=")
            if not separator or not name.startswith("spark."):
                raise UsageError(
                    f"--spark must be spark.NAME=VALUE, got {text!r}",
                    hint="as in spark.driver.memory=8g",
                )
            settings[name] = value
        if python_env is not None and not python_env.is_file():
            raise UsageError(f"there is no file {python_env}", hint="name a packed environment")
        return function(*args, spark=SparkArguments(master, python_env, settings), **given)

    made: Any = collected
    for option in (
        click.option(
            "--spark",
            "spark_settings",
            metavar="NAME=VALUE",
            multiple=True,
            help="A setting of Spark, such as spark.driver.memory=8g. Repeatable.",
        ),
        click.option(
            "--python-env",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="A packed Python environment for the workers of a cluster.",
        ),
        click.option(
            "--master",
            metavar="URL",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: local[N] or the URL of a cluster, spark://HOST:PORT.",
        ),
    ):
        made = option(made)
    return made  # type: ignore[no-any-return]  # the same function to click


@contextmanager
def changed_warehouse(
    session: Session, folder: str, *, create: bool = False, lace: bool = False
) -> Iterator[Warehouse]:
    """Open a warehouse for a stage, with the settings of this run; with `lace`, also a lace's."""
    session.durable = "what was committed before this stays; run it again to go on from there"
    settings = session.settings(session.find_settings() if lace else None)[0]
    opened = open_warehouse(
        folder, create=create, deferred=True, settings=settings, purpose="lace pipeline"
    )
    try:
        yield opened
    finally:
        for error in opened.not_removed:
            session.output.warn(
                f"{error.filename} is needed no more and cannot be removed: {error.strerror}"
            )


def note_without_facts(session: Session, warehouse: Warehouse) -> None:
    """Report records that rules do not see yet."""
    if warehouse.status()["without_facts"]:
        session.output.note(
            "some records have no facts yet, and rules do not see them; see `lace pipeline facts`"
        )


def read_rules(session: Session, file: RuleFile) -> Rules:
    """Check the rules of a file, and show warnings."""
    checked = QueryRequest(session, file).checked
    warn_of(session, checked.warnings)
    return checked


_MODULES: Final[Mapping[str, str]] = {
    "ingest": "lace.cli.pipeline:ingest",
    "facts": "lace.cli.pipeline:facts",
    "advertise": "lace.cli.pipeline:advertise",
    "diff": "lace.cli.pipeline_tables:diff",
    "evaluate": "lace.cli.pipeline:evaluate",
    "run": "lace.cli.pipeline:run",
    "status": "lace.cli.pipeline_tables:status",
    "verify": "lace.cli.pipeline_tables:verify",
    "export": "lace.cli.pipeline_tables:export",
    "import-lace": "lace.cli.pipeline:import_lace",
    "export-lace": "lace.cli.pipeline_tables:export_lace",
}


class _Pipeline(LazyGroup):
    modules = _MODULES


@click.group(
    "pipeline",
    cls=_Pipeline,
    examples=[
        ("lace pipeline ingest big.wh backup.records", "validate a file of records"),
        ("lace pipeline facts big.wh", "make the facts of its records"),
        ("lace pipeline advertise big.wh --source V.….H3", "what a peer would be told of them"),
        ("lace pipeline evaluate big.wh --rules policy.lace", "what follows from rules"),
        ("lace pipeline run big.wh incoming --rules policy.lace", "all of it, one after another"),
        ("lace pipeline status big.wh", "what is in it"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Work on many records at once, with Spark.

    A WAREHOUSE is a folder of Parquet tables that any tool can read, and of one manifest that
    says which files count. Every command can be run again: what is done is not done twice, and
    a job that died leaves nothing half-done. Needs pip install 'lace[spark]'.
    """
    require_subcommand(ctx)


# -- `lace pipeline ingest` and `import-lace`: records into a warehouse.

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


def _note_quarantine(session: Session, done: Ingested, folder: Path) -> int:
    """Report where the rejected records are, if any; returns the exit code."""
    if not done.rejected:
        return 0
    session.output.note(
        f"what was rejected, and why, is in the table quarantine of {folder}; "
        f"`lace pipeline status {shlex.quote(str(folder))} --quarantine` shows it"
    )
    return 1


def _ingest_counts(done: Ingested) -> dict[str, int]:
    return {name: getattr(done, name) for name in INGEST_KEYS}


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
    session: Session, warehouse: str, sources: tuple[str, ...], spark: SparkArguments
) -> int:
    """Validate the records of files, and keep those that are new.

    A SOURCE is a file of records one after another, a folder of such files, or a pattern. Files
    that were ingested before and have not changed are skipped. A bad record goes to the table
    quarantine with its file, offset, rule and reason, and never stops the good ones; the exit
    code is then 1. The warehouse is made if it does not exist.
    """
    with changed_warehouse(session, warehouse, create=True) as opened:
        done = opened.ingest(*sources, **spark.options(session, "ingest"))
    session.output.counts(_ingest_counts(done))
    return _note_quarantine(session, done, opened.path)


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
def import_lace(session: Session, warehouse: str, spark: SparkArguments) -> int:
    """Ingest the records of the lace into a warehouse.

    The lace is the one that --lace names, or the one here. Its records are validated again, and
    those that are new are kept. A record that is removed from the lace stays in the warehouse.
    """
    with (
        changed_warehouse(session, warehouse, create=True) as opened,
        session.reading("pipeline import-lace") as lace,
        ExitStack() as shown,
    ):
        progress = shown.enter_context(Progress(session, "read", len(lace), "records"))
        done = opened.import_lace(
            lace,
            report=lambda number, _total: progress.update(number),
            **spark.options(session, "import-lace", shown),
        )
    session.output.counts(_ingest_counts(done))
    return _note_quarantine(session, done, opened.path)


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
def facts(session: Session, warehouse: str, spark: SparkArguments) -> int:
    """Make the facts of the records that have none yet.

    Facts are kept by predicate, as rows of numbers; the table dictionary has their texts.
    """
    with changed_warehouse(session, warehouse) as opened:
        done = opened.make_facts(**spark.options(session, "facts"))
    session.output.counts({"records": done.records, "facts": done.facts, "texts": done.texts})
    return 0


# -- `lace pipeline evaluate`: what follows from rules, over the facts of a warehouse.


def _exchange_question(session: Session, warehouse: Warehouse, given: PolicyArguments) -> Question:
    """Read what a command line says of an exchange; it means what it does in `lace preview`."""
    read = read_policy(session, given)
    question = warehouse.exchange_question(
        read.policy,
        read.peer.module,
        index=given.index,
        viewer=read.viewer,
        public=read.public,
    )
    if question.exchange is not None:
        if question.exchange.exposes_nothing:
            so = ", so nothing would be sent"
            explain_empty_view(session, read.policy.exposures, read.viewer, so=so)
        note_missing_facts(session, question.exchange, read.public)
    warn_of_unmet(session, question.offer)
    return question


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
    help=f"What to call the answer: {RESULT}, of an exchange {EXCHANGE}, unless said.",
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
    spark: SparkArguments,
) -> int:
    """Evaluate rules over the facts of a warehouse, and keep what follows.

    Each predicate becomes a table of texts, derived/NAME/PREDICATE, in place of what was there
    under that NAME. Rules that are not legal are refused before Spark starts; an evaluation
    that passes a limit commits nothing. The same rules over the same facts are not evaluated
    again. With --select and --peer-select the answer is MaySend and MayRequest, as in `lace
    preview`.
    """
    if (rules is None) != exchange.is_given:
        raise UsageError(
            "an evaluation is of rules or of an exchange",
            hint="give --rules FILE, or --select FILE and --peer-select FILE",
        )
    if rules is None and predicates:
        raise UsageError(
            "an exchange answers with MaySend/1 and MayRequest/1", hint="leave out --predicate"
        )
    with changed_warehouse(session, warehouse, lace=True) as opened:
        asked = (
            _exchange_question(session, opened, exchange)
            if rules is None
            else read_rules(session, read_file(session, rules))
        )
        note_without_facts(session, opened)
        done = opened.evaluate(
            asked,
            name=name or (EXCHANGE if rules is None else RESULT),
            predicates=predicates,
            **spark.options(session, "evaluate"),
        )
    counts = {str(key): count for key, count in done.counts.items()}
    document = {"name": done.name, "fresh": done.fresh, "derived": counts}
    session.output.counts(counts, document)
    if not (done.fresh or session.output.json):
        session.output.note(f"{done.name} was there already: same rules, same facts")
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
    spark: SparkArguments,
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
    with changed_warehouse(session, warehouse) as opened:
        done = opened.advertise(
            source,
            fields=fields,
            all_fields=all_fields,
            of=of,
            exchange=exchange,
            name=name,
            **spark.options(session, "advertise"),
        )
    counts = {"records": done.records, "added": done.added, "partitions": done.partitions}
    session.output.counts(counts, {"name": done.name, **counts, "root": done.root_text})
    if not session.output.json:
        session.output.say(f"root {done.root_text}")
    return 0


# -- `lace pipeline run`: all stages one after another, in one Spark session.


def _run_counts(ran: Ran) -> dict[str, dict[str, int]]:
    """Return what each stage counts, by the names that its own command has for it."""
    done = {
        "ingest": _ingest_counts(ran.ingested),
        "facts": {"facts": ran.extracted.facts, "texts": ran.extracted.texts},
        "evaluate": {str(key): count for key, count in ran.evaluated.counts.items()},
    }
    if ran.advertised is not None:
        names = ("records", "added", "partitions")
        done["advertise"] = {name: getattr(ran.advertised, name) for name in names}
    return done


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
    default=RESULT,
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
    spark: SparkArguments,
) -> int:
    """Run all stages: ingest, facts, evaluate, and with --source advertise.

    Each stage does what is not done yet and commits by itself, so a run that was interrupted
    goes on where it was. What cannot be is refused before anything is read or made. When
    records were rejected the stages go on without them, and the exit code is 1.
    """
    with changed_warehouse(session, warehouse, create=True, lace=True) as opened:
        ran = opened.run(
            *sources,
            rules=read_rules(session, read_file(session, rules)),
            name=name,
            predicates=predicates,
            source=source,
            fields=fields,
            **spark.options(session, "run"),
        )
    done = _run_counts(ran)
    counts = {f"{stage} {name}": n for stage, found in done.items() for name, n in found.items()}
    session.output.counts(counts, done)
    return _note_quarantine(session, ran.ingested, opened.path)
