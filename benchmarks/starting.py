"""How long `import lace`, commands on a small lace and a short listing of a large one take."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys

from benchmarks.corpus import FOLDER
from benchmarks.measure import run_command
from benchmarks.results import Row

__all__ = ["benchmark_listing", "benchmark_start"]

ROUNDS = 7
MOST_HELP = 0.25
MOST_COMMAND = 0.5
SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
EXPOSE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
RULE = "Note(P) :- Field(P,'App',_,'notes')."
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
    folder = FOLDER / "small"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in (("select.lace", SELECT), ("expose.lace", EXPOSE), ("note.txt", "hi\n")):
        (folder / name).write_text(text, "utf-8")
    here = "--lace", str(folder / "small.lace")
    select, expose, note = (
        str(folder / name) for name in ("select.lace", "expose.lace", "note.txt")
    )
    for words in (("init",), ("key", "new")):
        run_command(["-m", "lace", *here, *words])
    commands = {
        "put": ("put", note, "--group", "g", "--app", "notes", "--name", "n", "--sign"),
        "status": ("status",),
        "key list": ("key", "list"),
        "get": ("get", "//g//notes//n"),
        "list": ("list",),
        "facts": ("facts",),
        "query": ("query", "-e", RULE),
        "rules check": ("rules", "check", select),
        "plan": ("plan", "--operand0", select, "--operand1", select),
        "preview": ("preview", "--select", select, "--peer-select", select, "--expose", expose),
        "export": ("export", "--all", "-o", str(folder / "all.records")),
        "import": ("import", str(folder / "all.records")),
        "verify": ("verify",),
        "config show": ("config", "show"),
        "log": ("log",),
        "doctor": ("doctor",),
    }
    return {name: _time(*here, *words) for name, words in commands.items()}


def benchmark_listing(records: int) -> list[Row]:
    """Time `lace list` in the lace that the growth benchmark has left."""
    lace = str(FOLDER / "import.lace")
    arguments = ["-m", "lace", "--lace", lace, "list", "--limit", "20"]
    seconds = statistics.median(run_command(arguments).wall_seconds for _ in range(ROUNDS))
    name = f"`lace list` of 20 rows from {records:,}"
    return [Row(name, f"{seconds:.3f} s", "< 0.5 s", seconds < 0.5)]
