"""What the commands of the pipeline share: the Spark options, the session and the job."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lace.cli.pipeline_progress import Stages
from lace.cli.progress import Waiting
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.cli.session import Session
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = [
    "SparkOptions",
    "open_job",
    "silenced_libraries",
    "spark_options",
    "spark_session",
    "warehouse_argument",
]

_Command = TypeVar("_Command", bound="Callable[..., Any]")


class SparkOptions:
    """Where Spark runs, and with which settings.

    Raises:
        UsageError: the master, the archive or a setting is invalid.
    """

    def __init__(self, master: str, archive: str | None, settings: Sequence[str]) -> None:
        from lace.engines.spark.session import check_master

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
    from lace.engines.spark.session import open_session

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
        with Stages(session, spark, title):
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
def open_job(session: Session, warehouse: Warehouse, purpose: str) -> Iterator[Job]:
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
