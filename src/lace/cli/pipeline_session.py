"""What the pipeline commands share: Spark options, the session, its progress, rules."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.cli.files import read_file, refusing
from lace.cli.output import plural
from lace.cli.policy_files import (
    explain_empty_view,
    note_missing_facts,
    read_policy,
    warn_of,
    warn_of_unmet,
)
from lace.cli.progress import Waiting
from lace.cli.query import SELECTED
from lace.errors import RuleError, UsageError
from lace.policy.local import prepare_exchange
from lace.query.evaluate import check_rules, find_predicates
from lace.rules.checks.emptiness import parse_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.progress import Progress

    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.session import Options
    from lace.spark.pipeline.derived import Evaluated
    from lace.spark.pipeline.evaluate import Question
    from lace.spark.pipeline.warehouse import Job, Manifest, WarehouseFolder


# -- What Spark is at, shown on a terminal: the stage, its tasks, the rows so far, the time left.

_AFTER_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """The stages that run: their numbers, tasks done and in all, and rows that went through."""

    stages: tuple[int, ...] = ()
    done: int = 0
    total: int = 0
    rows: int = 0


def look(context: Any) -> SparkProgress:  # noqa: ANN401 - PySpark has no types here
    """Return what a Spark context is at, by its StatusTracker; rows are known as tasks report."""
    done = total = rows = 0
    tracker = context.statusTracker()
    stages = tuple(sorted(tracker.getActiveStageIds()))
    for number in stages:
        found = tracker.getStageInfo(number)
        if found is not None:
            done += found.numCompletedTasks
            total += found.numTasks
            rows += _rows_of(context, number)
    return SparkProgress(stages, done, total, rows)


def _rows_of(context: Any, number: int) -> int:  # noqa: ANN401 - PySpark has no types here
    """Return how many rows a stage has read or written, whichever is more.

    The tracker does not tell; the store behind it, which is there without a web page, does.
    """
    found = context._jsc.sc().statusStore().lastStageAttempt(number)
    read = found.inputRecords() + found.shuffleReadRecords()
    return int(max(read, found.outputRecords() + found.shuffleWriteRecords()))


def standing_text(context: Any) -> str:  # noqa: ANN401 - PySpark has no types here
    """Return in words what a Spark context is at; nothing where it is at nothing, or gone."""
    if context is None:
        return ""
    try:
        now = look(context)
    except Exception:  # noqa: BLE001 - the Java process may be going; it is only a display
        return ""
    if not now.stages:
        return ""
    numbers = ", ".join(map(str, now.stages))
    return f"stage {numbers}, {now.done} of {plural(now.total, 'task')}, {plural(now.rows, 'row')}"


def stage_bar(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
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


class StageProgress:
    """A bar of the tasks of Spark's current stages; nothing where nobody would see it."""

    def __init__(self, session: Session, spark: Any, title: str) -> None:  # noqa: ANN401
        is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._enabled = is_seen and not session.output.quiet
        self._color = session.output.color
        self._title = title
        self._context: Any = spark.sparkContext if self._enabled else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="stages", daemon=True)

    def __enter__(self) -> None:
        if self._enabled:
            self._thread.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._enabled:
            self._over.set()
            self._thread.join()

    def _show(self) -> None:
        if self._over.wait(_AFTER_SECONDS):
            return
        from rich.console import Console

        console = Console(stderr=True, color_system="auto" if self._color else None)
        with stage_bar(console) as bar:
            task = bar.add_task(self._title, total=None, rows=0)
            shown: tuple[int, ...] = ()
            while not self._over.wait(_AGAIN_SECONDS):
                now = self._look()
                if now.stages and now.stages != shown:
                    shown = now.stages
                    numbers = ", ".join(map(str, shown))
                    what = f"{self._title}, stage {numbers}"
                    bar.reset(task, description=what, total=now.total, rows=now.rows)
                if now.stages:
                    bar.update(task, completed=now.done, total=now.total, rows=now.rows)

    def _look(self) -> SparkProgress:
        try:
            return look(self._context)
        except Exception:  # noqa: BLE001 - the Java process may be going; it is only a display
            time.sleep(_AGAIN_SECONDS)
            return SparkProgress()


_Command = TypeVar("_Command", bound="Callable[..., Any]")


class SparkOptions:
    """Where Spark runs, and with which settings."""

    def __init__(self, master: str, archive: str | None, settings: Sequence[str]) -> None:
        from lace.spark.engine.session import check_master

        self.master = master
        self.archive = Path(archive) if archive else None
        check_master(self.master, self.archive)
        self.settings: dict[str, str] = {}
        for text in settings:
            name, separator, value = text.partition("=")
            if not separator or not name.startswith("spark."):
                raise UsageError(
                    f"--spark {text!r} is no setting of Spark", hint="write spark.NAME=VALUE"
                )
            self.settings[name] = value


def warehouse_argument(function: _Command) -> _Command:
    """Add the WAREHOUSE argument."""
    made: _Command = click.argument("warehouse", metavar="WAREHOUSE", type=click.Path())(function)
    return made


def spark_options(function: _Command) -> _Command:
    """Add the options that say where Spark runs."""
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
        function = option(function)
    return function


@contextmanager
def spark_session(session: Session, options: SparkOptions, title: str) -> Iterator[Any]:
    """Open a Spark session; while it works, its stages are shown on a terminal."""
    from lace.spark.engine.session import open_session

    opening = open_session(
        options.master,
        settings=options.settings,
        archive=options.archive,
        debug=session.debug,
        environ=session.environ,
    )
    with silenced_libraries(session), ExitStack() as stack:
        with Waiting(session, "starting Spark"):
            spark = stack.enter_context(opening)
        with StageProgress(session, spark, title):
            yield spark


@contextmanager
def silenced_libraries(session: Session) -> Iterator[None]:
    """Keep what libraries log off standard error: Py4J logs every call that a signal cuts off."""
    import logging

    before = logging.root.manager.disable
    if not session.debug:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def open_job(session: Session, warehouse: WarehouseFolder, purpose: str) -> Iterator[Job]:
    """Be the one who writes to the warehouse, after waiting as long as the settings say."""
    session.durable = "what was committed before this stays; run it again to go on from there"
    wait = session.settings(None)[0].wait_seconds
    try:
        with warehouse.writing(f"lace pipeline {purpose}", wait) as job:
            yield job
    finally:
        for error in warehouse.not_removed:
            session.output.warn(
                f"{error.filename} is needed no more and cannot be removed: {error.strerror}"
            )


# -- Rules over a warehouse, as the commands of the pipeline read them and show their answers.

RULES_NAME = "result"
"""What the answer to rules is called, unless --out says another name."""
EXCHANGE_NAME = "exchange"
"""What the answer to an exchange is called, unless --out says another name."""


def read_question(
    session: Session,
    rules: str,
    predicates: Sequence[str] = (),
    allowed: frozenset[PredicateKey] | None = None,
) -> Question:
    """Read and check a file of rules; what is wanted is all that they define, or what is named."""
    from lace.spark.pipeline.evaluate import Question

    file = read_file(session, rules)
    try:
        checked = check_rules(
            file.text(), limits=session.rule_limits(), name=file.name, allowed=allowed
        )
    except RuleError as error:
        raise refusing(session, file, error) from error
    wanted = tuple(dict.fromkeys(find_predicates(checked, predicates))) or checked.derived
    warn_of(session, checked.warnings)
    return Question((checked,), wanted)


def read_selection(
    session: Session, rules: str, predicate: str | None, allow_undefined: Sequence[str]
) -> Question:
    """Read rules that choose records: one predicate of one argument."""
    from lace.spark.pipeline.evaluate import check_selection

    try:
        allowed = parse_allowed(allow_undefined)
        question = read_question(session, rules, [predicate or SELECTED], allowed)
    except UsageError as error:
        if predicate is None and "no rule defines" in error.message:
            error.hint = "name the predicate that chooses records, as in --predicate Chosen/1"
        raise
    return check_selection(question)


def read_exchange(session: Session, given: PolicyArguments) -> Question:
    """Read what a command line says of an exchange; it means what it does in `lace preview`."""
    from lace.query.preview import offer_of
    from lace.spark.pipeline.evaluate import exchange_question

    read = read_policy(session, given)
    executable = prepare_exchange(read.policy, read.peer, read.viewer).executable
    if executable.exposes_nothing:
        explain_empty_view(
            session, read.policy.exposures, read.viewer, so=", so nothing would be sent"
        )
    note_missing_facts(session, executable, read.public)
    settings = session.settings(session.find_settings())[0]
    offer = offer_of(settings, read.policy, executable.plan.required)
    warn_of_unmet(session, offer)
    return exchange_question(executable, read.public, offer.schema)


def engine_options(session: Session, options: SparkOptions) -> Options:
    """Return how the engine goes about it, by the settings and by where Spark runs."""
    from lace.spark.engine.session import options_of

    is_cluster = not options.master.startswith("local")
    return options_of(session.settings(session.find_settings())[0], cluster=is_cluster)


def note_without_facts(session: Session, manifest: Manifest) -> None:
    """Report records that rules do not see yet."""
    from lace.spark.pipeline.facts import has_fresh_records

    if has_fresh_records(manifest):
        session.output.note(
            "some records have no facts yet, and rules do not see them; see `lace pipeline facts`"
        )


def show_evaluated(session: Session, done: Evaluated) -> None:
    """Show how many facts an answer has."""
    counts = {str(key): count for key, count in done.counts.items()}
    if session.output.json:
        document = {"name": done.name, "fresh": done.fresh, "derived": counts}
        session.output.json_document(document)
        return
    session.output.counts(counts)
    if not done.fresh:
        session.output.note(f"{done.name} was there already: same rules, same facts")
