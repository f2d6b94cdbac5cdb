"""What a terminal shows of Spark: the stage, its tasks, and the rows that went through."""

from __future__ import annotations

import io
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from rich.console import Console

from lace.api import open_lace
from lace.api.warehouse import spark_progress
from lace.cli.pipeline import spark_text, stage_bar
from lace.cli.progress import Waiting
from lace.spark.engine.relations import map_in_arrow
from lace.spark.engine.session import SparkProgress
from lace.spark.pipeline.tables import struct_of
from tests.cli.running import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.cli.session import Session
    from lace.record.model import Blob, Plex, Seal

pytestmark = pytest.mark.spark

TASKS, ROWS = 6, 100


def test_rows_are_told_while_a_stage_runs(spark: Any, tmp_path: Path) -> None:
    """Tasks wait until they were seen: the first ones are done then, and their rows counted."""
    gate = tmp_path / "gate"

    def wait(batches: Any) -> Any:  # sent to the workers by value
        from pathlib import Path
        from time import sleep

        for batch in batches:
            while batch.column(0)[0].as_py() >= ROWS * 2 and not Path(place).exists():
                sleep(0.05)
            yield batch

    place = str(gate)
    rows = spark.range(0, ROWS * TASKS, 1, TASKS)
    slow = map_in_arrow(rows, wait, struct_of([("id", "bigint")]))
    running = threading.Thread(
        target=lambda: slow.write.parquet(str(tmp_path / "out")), daemon=True
    )
    running.start()
    seen = SparkProgress()
    deadline = time.monotonic() + 120
    while not (seen.done and seen.rows) and time.monotonic() < deadline:
        seen = spark_progress() or SparkProgress()
        time.sleep(0.05)
    gate.touch()
    running.join(120)
    assert not running.is_alive()
    assert len(seen.stages) == 1
    assert seen.total == TASKS
    assert seen.done in (1, 2)
    assert seen.rows in (ROWS, ROWS * 2)
    assert spark_progress() == SparkProgress()


def test_a_query_tells_what_spark_is_at(
    spark: Any,
    tmp_path: Path,
    records: list[Blob | Plex | Seal],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that a terminal would show while it waits, read more often than a person could."""
    shown: set[str] = set()

    class Watched(Waiting):
        def __init__(
            self, session: Session, title: str, detail: Callable[[], str] = str, **rest: Any
        ) -> None:
            super().__init__(session, title, detail, **rest)
            self.over = threading.Event()
            self.watching = threading.Thread(target=self.watch, args=(detail,), daemon=True)

        def watch(self, detail: Callable[[], str]) -> None:
            while not self.over.wait(0.005):
                shown.add(detail())

        def __enter__(self) -> Self:
            self.watching.start()
            return super().__enter__()

        def __exit__(self, *failure: Any) -> None:
            self.over.set()
            self.watching.join()
            super().__exit__(*failure)

    assert spark is not None
    monkeypatch.setattr("lace.cli.query.Waiting", Watched)
    with open_lace(tmp_path / "some") as lace:
        lace.add_all(record.bytes for record in records)
    rules = ("-e", "R(P,Q) :- RecordLink(P,_,_,_,Q).", "-e", "R(P,S) :- R(P,Q), R(Q,S).")
    whole = ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")
    asked = ("query", "--lace", tmp_path / "some", *rules, *whole)
    result = call(*asked, "--engine", "spark")
    assert (result.code, bool(result.raw)) == (0, True), result.err
    form = r"(.* visited, )?stage [0-9, ]+, [0-9]+ of [0-9]+ tasks?, [0-9,]+ rows?"
    assert [each for each in shown if re.fullmatch(form, each)], shown
    shown.clear()
    assert call(*asked).raw == result.raw
    assert not [each for each in shown if "stage" in each]
    assert spark_text() == ""


def test_the_bar_has_the_time_left() -> None:
    """Of eight tasks, one is done every five seconds."""
    shown, now = io.StringIO(), 0.0
    console = Console(file=shown, force_terminal=True, color_system=None, width=120)
    with stage_bar(console, lambda: now) as bar:
        task = bar.add_task("ingest, stage 0", total=8, rows=0)
        for done in (1, 2, 3):
            now += 5
            bar.update(task, completed=done, rows=done * 1000)
    line = [line for line in shown.getvalue().splitlines() if "3/8 tasks, 3,000 rows" in line][-1]
    assert "0:00:15 0:00:25" in line, "so far, and left"


def test_the_bar_has_stage_tasks_and_rows() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=120)
    with stage_bar(console) as bar:
        bar.add_task("facts, stage 3", total=8, completed=2, rows=1_234_567)
    line = next(line for line in shown.getvalue().splitlines() if "stage" in line)
    assert "facts, stage 3" in line
    assert "2/8 tasks, 1,234,567 rows" in line
