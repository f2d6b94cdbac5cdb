"""How things are measured: processor seconds of a process and its children, peak memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "Run",
    "Steps",
    "StepsRun",
    "children_cpu",
    "cpu_of",
    "cpu_of_tree",
    "environment",
    "machine",
    "peak_of",
    "process_cpu",
    "run_command",
    "run_program",
    "run_steps",
    "settle",
]


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


def cpu_of_tree() -> float:
    """Return the processor seconds of this process and of all below it, ended ones included."""
    parents: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        ticks = sum(int(each) for each in found[11:15])
        parents[int(path.parent.name)] = int(found[1]), ticks / os.sysconf("SC_CLK_TCK")
    below, total = [os.getpid()], 0.0
    while below:
        pid = below.pop()
        total += parents[pid][1] if pid in parents else 0.0
        below += [each for each, (parent, _) in parents.items() if parent == pid]
    return total


def run_command(
    arguments: Sequence[str], *, memory: bool = False, given: Path | None = None
) -> Run:
    """Run `python …` and return what it and all its children used."""
    return run_program([sys.executable, *arguments], memory=memory, given=given)


def run_program(command: Sequence[str], *, memory: bool = False, given: Path | None = None) -> Run:
    """Run a program, with a file as its input, and return what it and all its children used."""
    settle()
    before = children_cpu()
    with (given or Path(os.devnull)).open("rb") as file:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=file, stdout=subprocess.DEVNULL, env=environment()
        )
    watcher = _MemoryWatcher(process.pid) if memory else None
    code = process.wait()
    wall = time.perf_counter() - start
    cpu = children_cpu() - before
    if code != 0:
        raise RuntimeError(f"{command} gave exit code {code}")
    return Run(cpu, wall, watcher.stop() if watcher else 0)


def children_cpu() -> float:
    """Return the processor seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Steps:
    """The steps of a process that measures itself and tells the one that started it."""

    def __init__(self) -> None:
        self._cpu: dict[str, list[float]] = {"start": [time.process_time()]}
        self._wall: dict[str, list[float]] = {}
        self._counts: dict[str, int] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure what is done within; a name may come several times."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self._cpu.setdefault(name, []).append(time.process_time() - cpu)
        self._wall.setdefault(name, []).append(time.perf_counter() - wall)

    def count(self, name: str, number: int) -> None:
        """Note a number, such as that of the facts derived."""
        self._counts[name] = number

    def take(self, other: StepsRun) -> None:
        """Take over what another process has told."""
        for mine, theirs in ((self._cpu, other.cpu), (self._wall, other.wall)):
            for name, seconds in theirs.items():
                mine.setdefault(name, []).extend(seconds)
        self._counts |= other.counts

    def tell(self) -> None:
        """Print what `run_steps` reads."""
        print(json.dumps([self._cpu, self._wall, self._counts, peak_of()]))


@dataclass(frozen=True)
class StepsRun:
    """What a process told about its steps: seconds by name and time, and its highest memory."""

    cpu: dict[str, list[float]]
    wall: dict[str, list[float]]
    counts: dict[str, int]
    peak_bytes: int

    def cpu_sum(self, *names: str) -> float:
        """Return the processor seconds of the first time of each of some steps."""
        return sum(self.cpu[name][0] for name in names)

    def wall_sum(self, *names: str) -> float:
        """Return the seconds of the first time of each of some steps."""
        return sum(self.wall[name][0] for name in names)


def run_steps(arguments: Sequence[str], *, seconds: float | None = None) -> StepsRun | None:
    """Run `python …` whose last line is what `Steps.tell` prints; None when it takes too long."""
    settle()
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            env=environment(),
            timeout=seconds,
            check=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return None
    return StepsRun(*json.loads(done.stdout.splitlines()[-1]))


def settle() -> None:
    """Wait until what was written before is on the disk: it would slow down what comes next."""
    os.sync()


def process_cpu(pid: int) -> float:
    """Return the processor seconds that a running process has used, without its children."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid: int | str = "self") -> int:
    """Return the highest memory of a process alone, 0 for none; a fork's is that of its parent."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def environment() -> dict[str, str]:
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
