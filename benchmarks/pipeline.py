"""The pipeline against its targets: ingest beside a plain pool of processes, and its growth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.measure import run_steps
from benchmarks.results import Row

if TYPE_CHECKING:
    from benchmarks.measure import StepsRun

__all__ = ["FURTHER", "benchmark_ingest"]

MOST_TIMES_POOL: Final = 1.5
MOST_GROWTH: Final = 1.15
FURTHER: Final = 5
"""How many times as many records the longer run has."""


def _run(records: int, *more: str) -> StepsRun:
    found = run_steps(["-m", "benchmarks.pipeline_side", str(records), *more])
    if found is None:
        raise RuntimeError("Spark did not end")
    for name in ("ingest", *(each.removeprefix("--") for each in more)):
        if found.counts[f"{name} records"] != records:
            raise RuntimeError(f"{name} did not find all records")
    return found


def _each(run: StepsRun, records: int) -> float:
    """Return the processor microseconds of a record."""
    return run.counts["ingest cpu ms"] * 1e3 / records


def benchmark_ingest(records: int, *, further: bool) -> list[Row]:
    """Ingest records in a warm session; with `further`, five times as many as well."""
    run = _run(records, "--pool")
    pool, spark = run.wall_sum("pool"), run.wall_sum("ingest")
    processor = run.counts["ingest cpu ms"] / max(1, run.counts["pool cpu ms"])
    times = spark / pool
    rows = [
        Row("a plain pool that validates and writes the same", f"{pool:.1f} s"),
        Row(
            "ingest in a warm session",
            f"{spark:.1f} s, {times:.2f} × ({processor:.2f} × CPU)",
            f"≤ {MOST_TIMES_POOL:g} ×",
            times <= MOST_TIMES_POOL,
        ),
        Row("CPU a record", f"{_each(run, records):.1f} µs"),
    ]
    if further:
        more = _run(records * FURTHER)
        growth = _each(more, records * FURTHER) / _each(run, records)
        rows.append(
            Row(
                f"CPU a record at {records * FURTHER:,}",
                f"{_each(more, records * FURTHER):.1f} µs, {growth:.2f} ×",
                f"≤ {MOST_GROWTH:g} ×",
                growth <= MOST_GROWTH,
            )
        )
    return rows
