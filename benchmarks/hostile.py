"""A good peer beside hostile ones: how much longer its sync takes, and what the server holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import FOLDER, corpus
from benchmarks.hostile_side import CONNECTIONS, KINDS
from benchmarks.measure import environment
from benchmarks.results import Row
from benchmarks.wire_sides import Sides, Synced, import_file, make_sides, serving, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["benchmark_hostile"]

RECORDS: Final = 1_000
ROUNDS: Final = 5
MOST_SLOWER: Final = 5.0
MOST_MEMORY: Final = 1_000
ATTACK_SECONDS: Final = 120.0
_FROM, _TO = FOLDER / "hostile-from.lace", FOLDER / "hostile-to.lace"
_OPTIONS: Final = ("--max-links-of-address", "64")
"""All peers are on this machine."""


@contextmanager
def _attacking(kind: str, address: str) -> Iterator[None]:
    """Attack inside the block."""
    command = [sys.executable, "-m", "benchmarks.hostile_side", kind, address]
    with subprocess.Popen(
        [*command, f"{ATTACK_SECONDS}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the attackers did not begin")
            process.stdin.write("go\n")
            process.stdin.flush()
            yield
        finally:
            process.kill()


def _peak(process: int) -> int:
    """Return the most bytes that a process has held."""
    found = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{process}/status").read_text("utf-8"))
    if found is None:
        raise RuntimeError("this system does not tell how much memory a process has held")
    return int(found[1]) * 1024


def _synced(sides: Sides, address: str) -> Synced:
    """Bring all records to a copy of an empty lace."""
    empty = _TO.with_suffix(".empty")
    if not empty.exists():
        shutil.copytree(sides.there, empty)
    shutil.rmtree(sides.there)
    shutil.copytree(empty, sides.there)
    made = sync(sides.there, address, sides.options_there)
    if made.received != RECORDS:
        raise RuntimeError(f"{made.received:,} of {RECORDS:,} records came")
    return made


def benchmark_hostile() -> list[Row]:
    """Sync a thousand records, alone and beside all attackers at once."""
    shutil.rmtree(_TO.with_suffix(".empty"), ignore_errors=True)
    sides = make_sides(_FROM, _TO)
    import_file(sides.here, corpus(RECORDS))
    with serving(sides.here, [*sides.options_here, *_OPTIONS]) as server:
        alone = [_synced(sides, server.address) for _ in range(ROUNDS)]
        with ExitStack() as stack:
            for kind in KINDS:
                stack.enter_context(_attacking(kind, server.address))
            beside = [_synced(sides, server.address) for _ in range(ROUNDS)]
        peak = _peak(server.process.pid) / 1e6
    for folder in (_FROM, _TO, _TO.with_suffix(".empty")):
        shutil.rmtree(folder, ignore_errors=True)
    times = [median(run.command_seconds for run in runs) for runs in (alone, beside)]
    links = [median(run.link_seconds for run in runs) for runs in (alone, beside)]
    ratio = times[1] / times[0]
    return [
        Row(
            f"{RECORDS:,} records, alone and beside {len(KINDS)} × {CONNECTIONS} attackers",
            f"{times[0]:.2f} s, {times[1]:.2f} s",
        ),
        Row("the link alone, and beside them", f"{links[0]:.2f} s, {links[1]:.2f} s"),
        Row("beside / alone", f"{ratio:.1f} ×", f"≤ {MOST_SLOWER:g} ×", ratio <= MOST_SLOWER),
        Row(
            "most memory of the server",
            f"{peak:.0f} MB",
            f"< {MOST_MEMORY:,} MB",
            peak < MOST_MEMORY,
        ),
    ]
