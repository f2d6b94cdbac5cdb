"""The runs that the engine's tables are made of: fresh processes, engine and peers by turns.

What has been measured once in a run of the benchmarks is remembered, for one run serves
several tables. Every evaluation is compared with the peers' by the number of its results.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import FOLDER
from benchmarks.measure import StepsRun, run_command, run_steps
from benchmarks.workload_facts import candidates, edges
from benchmarks.workload_records import (
    export_facts,
    further_records,
    record_facts_of,
    records,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "BATCHES",
    "FULL",
    "QUICK",
    "TINY",
    "WORKLOADS",
    "RecordRuns",
    "Sizes",
    "agree",
    "engine_run",
    "facts_folder",
    "further_run",
    "lace_folder",
    "middle",
    "peer_run",
    "record_runs",
    "warm",
]

WORKLOADS: Final = ("W1", "W2", "W3")
DUCKDB: Final = ("texts", "interned", "open")
BATCHES: Final = 9
ROUNDS: Final = 3
PATIENCE: Final = 120.0
"""Seconds after which a peer is taken to give no answer."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the workloads are; of W4 one size for the engine and two for DuckDB."""

    records: tuple[int, ...]
    nodes: int
    candidates: int
    peer_candidates: tuple[int, ...]
    tiny: int

    @property
    def largest(self) -> int:
        return self.records[-1]


FULL: Final = Sizes((10_000, 100_000, 1_000_000), 2_500, 100_000, (1_000, 10_000), 200)
QUICK: Final = Sizes((4_000, 20_000), 1_000, 10_000, (1_000,), 200)
TINY: Final = Sizes((60, 120), 30, 110, (110,), 60)
"""What the reference evaluator can do."""


@dataclass(frozen=True, slots=True)
class RecordRuns:
    """All runs of W1, W2 and W3 at one size; `engine` is empty when there is none to measure."""

    engine: list[StepsRun]
    texts: list[StepsRun]
    interned: list[StepsRun]
    opened: list[StepsRun]


def middle(values: list[float]) -> float:
    """Return the median."""
    return median(values)


def warm(runs: list[StepsRun], step: str) -> float:
    """Return the median processor seconds of a step, leaving out its first time in each run."""
    return median(second for run in runs for second in run.cpu[step][1:])


@cache
def facts_folder(kind: str, size: int) -> Path:
    """Return the folder of exported facts: of records, of `TC` or of `W4`."""
    if kind == "TC":
        return export_facts(edges(size), FOLDER / f"edges-{size}.facts")
    if kind == "W4":
        return export_facts(candidates(size), FOLDER / f"candidates-{size}.facts")
    files = records(size)
    folder = files.path.with_suffix(".facts")
    return folder if folder.exists() else export_facts(record_facts_of(files), folder)


@cache
def lace_folder(size: int) -> Path:
    """Return a lace with the records of a workload, made anew by this version of Lace."""
    files = records(size)
    folder = files.path.with_suffix(".store")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"importing {size:,} records …", file=sys.stderr)
    command = ["-m", "lace", "--lace", str(folder)]
    run_command([*command, "init", "--quiet"])
    run_command([*command, "import", "--quiet", str(files.path)])
    return folder


def peer_run(module: str, action: str, folder: Path) -> StepsRun | None:
    """Run a peer in a fresh process; None when it gives no answer in time."""
    return run_steps(["-m", f"benchmarks.{module}", action, str(folder)], seconds=PATIENCE)


def _steps(module: str, *arguments: str) -> StepsRun:
    found = run_steps(["-m", f"benchmarks.{module}", *arguments])
    if found is None:
        raise RuntimeError(f"{module} {arguments} did not end")
    return found


def engine_run(engine: str, action: str, path: Path) -> StepsRun:
    """Run the engine in a fresh process."""
    return _steps("lace_side", engine, action, str(path))


@cache
def record_runs(engine: str, size: int) -> RecordRuns:
    """Run W1, W2 and W3 on the same facts, by turns, each in a fresh process."""
    facts = facts_folder("records", size)
    found = RecordRuns([], [], [], [])
    lace = lace_folder(size)
    print(f"running W1, W2 and W3 on {size:,} records …", file=sys.stderr)
    _steps("peers_duckdb", "save", str(facts))
    for _ in range(ROUNDS):
        found.engine.append(_steps("lace_side", engine, "records", str(lace)))
        for runs, action in zip((found.texts, found.interned, found.opened), DUCKDB, strict=True):
            runs.append(_steps("peers_duckdb", action, str(facts)))
    for workload in WORKLOADS:
        agree(workload, [*found.engine, *found.texts, *found.interned, *found.opened])
    return found


def agree(step: str, runs: list[StepsRun]) -> None:
    """Refuse to compare runs that found different numbers of facts."""
    counts = {run.counts[step] for run in runs}
    if len(counts) > 1:
        raise RuntimeError(f"{step} gave different numbers of facts: {sorted(counts)}")


def further_run(engine: str, size: int) -> StepsRun:
    """Follow the workloads while batches of records come, in a copy of the lace."""
    files = records(size)
    further_records(files, BATCHES)
    copy = files.path.with_name(f"{files.path.stem}.copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lace_folder(size), copy)
    try:
        return _steps("lace_side", engine, "further", str(copy))
    finally:
        shutil.rmtree(copy)
