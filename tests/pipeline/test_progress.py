"""What a terminal shows of Spark: the stage, its tasks, and the rows that went through."""

from __future__ import annotations

import io
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from lace.cli.pipeline_progress import Standing, look, stage_bar
from lace.engines.spark.arrow import map_in_arrow
from lace.pipeline.tables import struct_of

if TYPE_CHECKING:
    from pathlib import Path

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
    seen = Standing()
    deadline = time.monotonic() + 120
    while not (seen.done and seen.rows) and time.monotonic() < deadline:
        seen = look(spark.sparkContext)
        time.sleep(0.05)
    gate.touch()
    running.join(120)
    assert not running.is_alive()
    assert len(seen.stages) == 1
    assert seen.total == TASKS
    assert seen.done in (1, 2)
    assert seen.rows in (ROWS, ROWS * 2)
    assert look(spark.sparkContext) == Standing()


def test_the_bar_has_stage_tasks_and_rows() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=120)
    with stage_bar(console) as bar:
        bar.add_task("facts, stage 3", total=8, completed=2, rows=1_234_567)
    line = next(line for line in shown.getvalue().splitlines() if "stage" in line)
    assert "facts, stage 3" in line
    assert "2/8 tasks, 1,234,567 rows" in line
