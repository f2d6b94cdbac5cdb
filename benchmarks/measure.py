"""How things are measured: processor seconds of a process and its children, peak memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Run", "cpu_of", "machine", "run_command"]


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


def cpu_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that this process spends on some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def run_command(arguments: Sequence[str], *, memory: bool = False) -> Run:
    """Run `python …` and return what it and all its children used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=_environment()
    )
    watcher = _MemoryWatcher(process.pid) if memory else None
    code = process.wait()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        raise RuntimeError(f"{arguments} gave exit code {code}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(cpu, wall, watcher.stop() if watcher else 0)


def _environment() -> dict[str, str]:
    """Return an environment in which modules are compiled once, as they are for users."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class _MemoryWatcher:
    """Samples the proportional memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self._peak = max(self._peak, sum(_memory_of(pid) for pid in _tree(self._pid)))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in children:
        found += _tree(int(child))
    return found


def _memory_of(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def machine() -> str:
    """Describe this machine in a line."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    version = sys.version.split()[0]
    return f"{os.cpu_count()} × {model}, {memory} GiB, Python {version}"
