"""The Spark engine against its targets: the workloads, what is handed over, and rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.measure import run_steps
from benchmarks.results import Row

if TYPE_CHECKING:
    from benchmarks.measure import StepsRun

__all__ = ["benchmark_spark_engine"]

WORKLOADS: Final = ("W1", "W2", "W3")
MOST_SECONDS: Final = 25.0
MOST_HANDED: Final = 5.0
MOST_ROUND: Final = 0.5


def _run(size: int) -> StepsRun:
    found = run_steps(["-m", "benchmarks.spark_side", str(size)])
    if found is None:
        raise RuntimeError("Spark did not end")
    return found


def _at_most(name: str, measured: float, most: float, told: str = "") -> Row:
    return Row(name, f"{measured:.2f} s{told}", f"≤ {most:g} s", measured <= most)


def benchmark_spark_engine(small: int, large: int) -> list[Row]:
    """Evaluate the workloads at two sizes in warm sessions, and recursion on both paths."""
    before, run = _run(small), _run(large)
    whole = run.wall_sum(*WORKLOADS)
    processor = sum(run.counts[f"{name} cpu ms"] for name in WORKLOADS) / 1e3
    handed = sum(run.counts[f"{name} handed ms"] for name in WORKLOADS) / 1e3
    rows = [
        _at_most(
            f"W1 + W2 + W3, {large:,} records", whole, MOST_SECONDS, f", {processor:.1f} s CPU"
        ),
        _at_most("of which handed to the embedded engine, both ways", handed, MOST_HANDED),
    ]
    rows += [
        Row(
            f"{name}: {run.counts[f'{name} goal']:,} facts",
            f"{run.wall_sum(name):.2f} s, {run.counts[f'{name} cpu ms'] / 1e3:.1f} s CPU",
        )
        for name in WORKLOADS
    ]
    growth = whole / before.wall_sum(*WORKLOADS)
    rows.append(Row(f"growth from {small:,} to {large:,} records", f"{growth:.1f} ×"))
    for cuts in ("local", "reliable"):
        rounds = max(1, run.counts[f"{cuts} rounds"])
        each = run.wall_sum(cuts) / rounds
        told = f", {run.counts[f'{cuts} cpu ms'] / 1e3 / rounds:.2f} s CPU, {rounds} rounds"
        name = f"a round of W2 on Spark, {cuts} checkpoints"
        if cuts == "local":
            rows.append(_at_most(name, each, MOST_ROUND, told))
        else:
            rows.append(Row(name, f"{each:.2f} s{told}"))
        if run.counts[f"{cuts} goal"] != run.counts["W2 goal"]:
            raise RuntimeError("both paths of recursion give one answer")
    return rows
