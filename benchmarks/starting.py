"""How long `import lace` and a short listing of a large lace take."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.corpus import FOLDER
from benchmarks.measure import run_command
from benchmarks.results import Row

__all__ = ["benchmark_listing", "benchmark_start"]

ROUNDS = 7
_TIMED_IMPORT = (
    "import time; start = time.perf_counter(); import lace; print(time.perf_counter() - start)"
)


def benchmark_start() -> list[Row]:
    """Time `import lace` in fresh processes."""
    seconds = statistics.median(
        float(subprocess.check_output([sys.executable, "-c", _TIMED_IMPORT])) for _ in range(ROUNDS)
    )
    return [Row("`import lace`", f"{seconds:.3f} s", "< 0.3 s", seconds < 0.3)]


def benchmark_listing(records: int) -> list[Row]:
    """Time `lace list` in the lace that the growth benchmark has left."""
    lace = str(FOLDER / "import.lace")
    arguments = ["-m", "lace", "--lace", lace, "list", "--limit", "20"]
    seconds = statistics.median(run_command(arguments).wall_seconds for _ in range(ROUNDS))
    name = f"`lace list` of 20 rows from {records:,}"
    return [Row(name, f"{seconds:.3f} s", "< 0.5 s", seconds < 0.5)]
