"""What Spark is at, shown on a terminal: the stage, its tasks, the rows so far, the time left."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.cli.output import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress

    from lace.cli.session import Session

__all__ = ["Stages", "Standing", "look", "stage_bar", "standing_text"]

_AFTER_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Standing:
    """The stages that run: their numbers, tasks done and in all, and rows that went through."""

    stages: tuple[int, ...] = ()
    done: int = 0
    total: int = 0
    rows: int = 0


def look(context: Any) -> Standing:  # noqa: ANN401 - PySpark has no types here
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
    return Standing(stages, done, total, rows)


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


class Stages:
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

    def _look(self) -> Standing:
        try:
            return look(self._context)
        except Exception:  # noqa: BLE001 - the Java process may be going; it is only a display
            time.sleep(_AGAIN_SECONDS)
            return Standing()
