"""How long `import lace`, commands on a small lace, a short listing and the demonstration take."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.corpus import FOLDER
from benchmarks.local_commands import lines_of, prepare
from benchmarks.measure import run_command
from benchmarks.results import Row

__all__ = ["benchmark_demo", "benchmark_listing", "benchmark_start"]

ROUNDS = 7
MOST_HELP = 0.25
MOST_COMMAND = 0.5
MOST_DEMO = 90
_TIMED_IMPORT = (
    "import time; start = time.perf_counter(); import lace; print(time.perf_counter() - start)"
)


def benchmark_start() -> list[Row]:
    """Time `import lace` in fresh processes."""
    seconds = statistics.median(
        float(subprocess.check_output([sys.executable, "-c", _TIMED_IMPORT])) for _ in range(ROUNDS)
    )
    helped = _time("--help")
    times = _command_times()
    slowest = max(times, key=lambda name: times[name])
    return [
        Row("`import lace`", f"{seconds:.3f} s", "< 0.3 s", seconds < 0.3),
        Row("`lace --help`", f"{helped:.3f} s", f"< {MOST_HELP:g} s", helped < MOST_HELP),
        Row(
            f"the slowest of {len(times)} local commands on a small lace, `lace {slowest}`",
            f"{times[slowest]:.3f} s",
            f"< {MOST_COMMAND:g} s",
            times[slowest] < MOST_COMMAND,
        ),
    ]


def _time(*words: str) -> float:
    return statistics.median(
        run_command(["-m", "lace", *words]).wall_seconds for _ in range(ROUNDS)
    )


def _command_times() -> dict[str, float]:
    """Return the seconds of each local command on a lace of a few records."""
    small = prepare(FOLDER / "small", ROUNDS)
    found: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        for name, line in lines_of(small, number).items():
            run = run_command(["-m", "lace", *line.words], given=line.given)
            found.setdefault(name, []).append(run.wall_seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def benchmark_demo() -> list[Row]:
    """Time the demonstration, when it runs for the second time."""
    first, second = (run_command(["-m", "lace", "demo"]).wall_seconds for _ in range(2))
    return [
        Row("`lace demo`, the first time", f"{first:.0f} s"),
        Row(
            "`lace demo`, the second time",
            f"{second:.0f} s",
            f"< {MOST_DEMO:g} s",
            second < MOST_DEMO,
        ),
    ]


def benchmark_listing(records: int) -> list[Row]:
    """Time `lace list` in the lace that the growth benchmark has left."""
    lace = str(FOLDER / "import.lace")
    arguments = ["-m", "lace", "--lace", lace, "list", "--limit", "20"]
    seconds = statistics.median(run_command(arguments).wall_seconds for _ in range(ROUNDS))
    name = f"`lace list` of 20 rows from {records:,}"
    return [Row(name, f"{seconds:.3f} s", "< 0.5 s", seconds < 0.5)]
