"""The pipeline against its targets: beside what is done without Spark, and as it grows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.measure import run_steps
from benchmarks.plots import COLOURS, Line, line_chart
from benchmarks.results import Row

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import StepsRun

__all__ = ["PIPELINE_PLOT", "benchmark_pipeline"]

PIPELINE_PLOT: Final = "pipeline-growth.svg"
MOST_TIMES_POOL: Final = 1.5
MOST_TIMES_PLAIN: Final = 4.5
MOST_GROWTH: Final = 1.15
FURTHER: Final = 5
"""How many times as many records the longest run has."""
STAGES: Final = ("ingest", "advertise")


def _run(records: int, *more: str) -> StepsRun:
    found = run_steps(["-m", "benchmarks.pipeline_side", str(records), *more])
    if found is None:
        raise RuntimeError("Spark did not end")
    for name in (*STAGES, *(each.removeprefix("--") for each in more)):
        if found.counts[f"{name} records"] != records:
            raise RuntimeError(f"{name} did not find all records, or another root")
    return found


def _processor(run: StepsRun, name: str) -> float:
    return run.counts[f"{name} cpu ms"] / 1e3


def _each(run: StepsRun, name: str, records: int) -> float:
    """Return the processor microseconds of a record."""
    return _processor(run, name) * 1e6 / records


def benchmark_pipeline(small: int, large: int, folder: Path, *, further: bool) -> list[Row]:
    """Run stages in warm sessions of several sizes; with `further`, of the largest as well."""
    run = _run(large, "--pool", "--plain")
    pool, spark = median(run.wall["pool"]), median(run.wall["ingest"])
    processor = _processor(run, "ingest") / max(0.01, _processor(run, "pool"))
    pairs = zip(run.wall["ingest"], run.wall["pool"], strict=True)
    times = median(ours / theirs for ours, theirs in pairs)
    plain = _processor(run, "advertise") / _processor(run, "plain")
    rows = [
        Row("a plain pool that validates and writes the same", f"{pool:.1f} s"),
        Row(
            "ingest in a warm session",
            f"{spark:.1f} s, {times:.2f} × ({processor:.2f} × CPU)",
            f"≤ {MOST_TIMES_POOL:g} ×",
            times <= MOST_TIMES_POOL,
        ),
        Row("a plain function that advertises the same", f"{_processor(run, 'plain'):.1f} s CPU"),
        Row(
            "advertise in a warm session",
            f"{_processor(run, 'advertise'):.1f} s CPU, {plain:.2f} ×",
            f"≤ {MOST_TIMES_PLAIN:g} ×",
            plain <= MOST_TIMES_PLAIN,
        ),
    ]
    runs = {small: _run(small), large: run}
    if further:
        runs[large * FURTHER] = _run(large * FURTHER)
    rows += _growth(runs, large)
    lines = [
        Line(name, tuple((float(size), _processor(each, name)) for size, each in runs.items()), hue)
        for name, hue in zip(STAGES, COLOURS, strict=False)
    ]
    chart = line_chart(
        "Stages of the pipeline", lines, across="records", up="processor time", unit=_seconds
    )
    (folder / PIPELINE_PLOT).write_text(chart, "utf-8")
    return rows


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _growth(runs: dict[int, StepsRun], large: int) -> list[Row]:
    """Compare the processor time of a record at all sizes."""
    rows: list[Row] = []
    for name in STAGES:
        for size, run in runs.items():
            each = _each(run, name, size)
            times = each / _each(runs[large], name, large)
            is_target = name == "ingest" and size > large
            rows.append(
                Row(
                    f"{name}: CPU a record at {size:,}",
                    f"{each:.1f} µs, {times:.2f} ×",
                    f"≤ {MOST_GROWTH:g} ×" if is_target else "",
                    times <= MOST_GROWTH if is_target else None,
                )
            )
    return rows
