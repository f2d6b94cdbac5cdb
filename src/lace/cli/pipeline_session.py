"""What the commands of the pipeline share: the Spark options, the session, and its progress."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.cli.progress import Waiting
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.cli.session import Session
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = ["SparkOptions", "open_job", "spark_options", "spark_session", "warehouse_argument"]

_Command = TypeVar("_Command", bound="Callable[..., Any]")
_AFTER_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.25


class SparkOptions:
    """Where Spark runs, and with which settings."""

    def __init__(self, master: str, archive: str | None, settings: Sequence[str]) -> None:
        self.master = master
        self.archive = Path(archive) if archive else None
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
    from lace.engines.spark.session import open_session

    opening = open_session(
        options.master,
        settings=options.settings,
        archive=options.archive,
        debug=session.debug,
        environ=session.environ,
    )
    with Waiting(session, "starting Spark"):
        spark = opening.__enter__()
    try:
        with _Stages(session, spark, title):
            yield spark
    except BaseException as error:
        opening.__exit__(type(error), error, error.__traceback__)
        raise
    else:
        opening.__exit__(None, None, None)


@contextmanager
def open_job(session: Session, warehouse: Warehouse, purpose: str) -> Iterator[Job]:
    """Be the one who writes to the warehouse, after waiting as long as the settings say."""
    wait = session.settings(None)[0].wait_seconds
    with warehouse.writing(f"lace pipeline {purpose}", wait) as job:
        yield job


class _Stages:
    """A bar of the tasks of Spark's current stages; nothing where nobody would see it."""

    def __init__(self, session: Session, spark: Any, title: str) -> None:  # noqa: ANN401
        is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._enabled = is_seen and not session.output.quiet
        self._color = session.output.color
        self._title = title
        self._tracker: Any = spark.sparkContext.statusTracker() if self._enabled else None
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
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True, color_system="auto" if self._color else None)
        with progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("tasks", markup=False),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            transient=True,
        ) as bar:
            task = bar.add_task(self._title, total=None)
            shown: list[int] = []
            while not self._over.wait(_AGAIN_SECONDS):
                stages, done, total = self._look()
                if stages and stages != shown:
                    shown = stages
                    numbers = ", ".join(str(each) for each in stages)
                    bar.reset(task, description=f"{self._title}, stage {numbers}", total=total)
                if stages:
                    bar.update(task, completed=done, total=total)

    def _look(self) -> tuple[list[int], int, int]:
        """Return the stages that run, and how many of their tasks are done, of how many."""
        done = total = 0
        try:
            stages = sorted(self._tracker.getActiveStageIds())
            for number in stages:
                found = self._tracker.getStageInfo(number)
                if found is not None:
                    done += found.numCompletedTasks
                    total += found.numTasks
        except Exception:  # noqa: BLE001 - the Java process may be going; it is only a display
            time.sleep(_AGAIN_SECONDS)
            return [], 0, 0
        return stages, done, total
