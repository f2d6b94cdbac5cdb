"""Two laces in one process: how fast records move, what they cost, what waiting costs.

The CPU of an exchange is compared with that of importing the same records in the same run.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from benchmarks.corpus import FOLDER, corpus
from benchmarks.exchange_side import IDLE_SECONDS
from benchmarks.measure import StepsRun, run_command, run_steps
from benchmarks.results import Row

__all__ = ["benchmark_exchange", "benchmark_open_exchange"]

ROUNDS: Final = 4
LEAST_RATE: Final = 15_000
MOST_CPU: Final = 2.0
MOST_GROWTH: Final = 12.0
MOST_MEMORY: Final = 1_500
MOST_SECONDS: Final = 0.050
_FROM, _TO = FOLDER / "exchange-from.lace", FOLDER / "exchange-to.lace"


@dataclass(frozen=True)
class _Moved:
    records: int
    wall: float
    cpu: float
    import_cpu: float
    peak: int
    loops: int


def _imported(records: int) -> float:
    """Import the corpus into the lace that records are moved from; returns its CPU."""
    shutil.rmtree(_FROM, ignore_errors=True)
    run_command(["-m", "lace", "--lace", str(_FROM), "init", "--quiet"])
    arguments = ["-m", "lace", "--lace", str(_FROM), "import", "--quiet", str(corpus(records))]
    return run_command(arguments).cpu_seconds


def _side(action: str) -> StepsRun:
    shutil.rmtree(_TO, ignore_errors=True)
    found = run_steps(["-m", "benchmarks.exchange_side", action, str(_FROM), str(_TO)])
    if found is None:
        raise RuntimeError("the exchange did not end")
    return found


def _moved(records: int) -> _Moved:
    import_cpu = _imported(records)
    found = _side("move")
    return _Moved(
        found.counts["records"],
        found.wall_sum("exchange"),
        found.cpu_sum("exchange") + found.counts["children-ms"] / 1000,
        import_cpu,
        found.peak_bytes,
        found.counts["loops"],
    )


def benchmark_exchange(small: int, large: int) -> list[Row]:
    """Move signed records one way, from the first word to stored; few and many, in turn."""
    runs, larges = [_moved(small)], []
    for _ in range(ROUNDS - 1):
        larges.append(_moved(large))
        runs.append(_moved(small))
    rate = median(run.records / run.wall for run in runs)
    cpu = median(run.cpu for run in runs) / small
    ratio = median(run.cpu / run.import_cpu for run in runs)
    # A machine is faster in one minute than in another: each is compared with its neighbours.
    beside = [(before.wall + after.wall) / 2 for before, after in pairwise(runs)]
    growth = median(each.wall / near for each, near in zip(larges, beside, strict=True))
    many = larges[0]
    peak = max(each.peak for each in larges)
    _clean()
    return [
        Row(
            f"{small:,} signed records one way",
            f"{rate:,.0f} records/s",
            f"≥ {LEAST_RATE:,} records/s",
            rate >= LEAST_RATE,
        ),
        Row("CPU a record, both sides", f"{cpu * 1e6:.0f} µs"),
        Row(
            "its CPU / that of an import", f"{ratio:.2f} ×", f"≤ {MOST_CPU:g} ×", ratio <= MOST_CPU
        ),
        Row(
            f"{large:,} records one way",
            f"{many.wall:.1f} s, {many.loops} loops, {many.cpu / large * 1e6:.0f} µs CPU a record",
        ),
        Row(
            f"time of {large:,} / time of {small:,}",
            f"{growth:.1f} ×",
            f"≤ {MOST_GROWTH:g} ×",
            growth <= MOST_GROWTH,
        ),
        Row(
            f"memory of both sides, {large:,} records",
            f"{peak / 1e6:.0f} MB",
            f"< {MOST_MEMORY:,} MB",
            peak / 1e6 < MOST_MEMORY,
        ),
    ]


def benchmark_open_exchange(records: int) -> list[Row]:
    """Keep two laces interlaced: how soon a record is there, and what waiting costs."""
    _imported(records)
    found = _side("open")
    reached, idle = median(found.wall["reached"]), found.cpu_sum("idle")
    _clean()
    return [
        Row(
            "a new record is on the other side after",
            f"{reached * 1e3:.1f} ms",
            f"< {MOST_SECONDS * 1e3:g} ms",
            reached < MOST_SECONDS,
        ),
        Row("the slowest of them", f"{max(found.wall['reached']) * 1e3:.1f} ms"),
        Row(
            f"CPU of {IDLE_SECONDS} s of waiting",
            f"{idle * 1e3:.1f} ms",
            "< 1 %",
            idle < IDLE_SECONDS / 100,
        ),
    ]


def _clean() -> None:
    for folder in (_FROM, _TO):
        shutil.rmtree(folder, ignore_errors=True)
