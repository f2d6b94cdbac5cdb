"""Two sides of a connection as real processes: `lace serve`, and `lace sync` with it.

Both are started as users start them, with default settings, and talk over TCP on this machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import FOLDER
from benchmarks.exchange_side import EXPOSE, SELECT
from benchmarks.measure import Run, environment, peak_of, run_command, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "ALL",
    "Server",
    "Sides",
    "Synced",
    "import_file",
    "make_lace",
    "make_sides",
    "policies",
    "serving",
    "sync",
]

ANY_PORT: Final = "tcp:127.0.0.1:0"
ALL: Final = (SELECT, EXPOSE)
"""A selector of everything, and an exposure of everything."""
_ENDED: Final = frozenset({0, 143})
"""Exit codes of a server that was told to end."""
_END_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Sides:
    """Two laces and the options of a link between them, each exposing to the other alone."""

    here: Path
    there: Path
    options_here: list[str]
    options_there: list[str]


@dataclass(frozen=True)
class Server:
    """A server that accepts."""

    address: str
    ready_seconds: float
    process: subprocess.Popen[str]


@dataclass(frozen=True)
class Synced:
    """What a `lace sync` told, and what was seen of its process."""

    figures: dict[str, str]
    link_seconds: float
    command_seconds: float
    peak_bytes: int

    @property
    def received(self) -> int:
        """The records that came."""
        return int(self.figures["received"])

    @property
    def control_bytes(self) -> int:
        """The bytes of setup, hello and all else that is neither claims nor records, both ways."""
        names = "control-bytes-received", "control-bytes-sent"
        return sum(int(self.figures[name]) for name in names)

    @property
    def reconciliation_bytes(self) -> int:
        """The bytes of reconciliation, both ways."""
        names = "reconciliation-bytes-received", "reconciliation-bytes-sent"
        return sum(int(self.figures[name]) for name in names)


def _lace(folder: Path, *arguments: str) -> list[str]:
    return ["-m", "lace", "--lace", str(folder), *arguments]


def make_lace(folder: Path) -> str:
    """Make an empty lace with a key, and return its verifier."""
    shutil.rmtree(folder, ignore_errors=True)
    run_command(_lace(folder, "init", "--quiet"))
    command = [sys.executable, *_lace(folder, "key", "new", "--quiet")]
    return subprocess.check_output(command, env=environment(), text=True).strip()


def import_file(folder: Path, path: Path) -> Run:
    """Import a file of records; returns what that took."""
    return run_command(_lace(folder, "import", "--quiet", str(path)))


def policies(name: str, select: str, expose: str, viewer: str | None = None) -> list[str]:
    """Write the rule files of a side, and return the options that name them."""
    chosen, shown = FOLDER / f"{name}-select.lace", FOLDER / f"{name}-expose.lace"
    chosen.write_text(select, "utf-8")
    shown.write_text(expose, "utf-8")
    to = "" if viewer is None else f"@{viewer}"
    return ["--select", str(chosen), "--expose", f"{shown}{to}"]


def make_sides(here: Path, there: Path) -> Sides:
    """Make two empty laces that expose all they have to each other."""
    verifiers = make_lace(here), make_lace(there)
    return Sides(
        here, there, policies("wire", *ALL, verifiers[1]), policies("wire", *ALL, verifiers[0])
    )


@contextmanager
def serving(folder: Path, options: Sequence[str]) -> Iterator[Server]:
    """Run `lace serve` on a free port until the end of the block, and wait for its end."""
    command = [sys.executable, *_lace(folder, "serve", ANY_PORT, "--quiet", *options)]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), text=True
    ) as process:
        if process.stdout is None:
            raise AssertionError("its standard output is a pipe")
        address = process.stdout.readline().strip()
        ready = time.perf_counter() - start
        try:
            if not address:
                raise RuntimeError(f"the server of {folder} does not start")
            yield Server(address, ready, process)
        finally:
            process.terminate()
            code = process.wait(_END_SECONDS)
    if code not in _ENDED:
        raise RuntimeError(f"the server of {folder} gave exit code {code}")


def sync(folder: Path, address: str, options: Sequence[str]) -> Synced:
    """Run `lace sync` to its end; both sides have to be at a fixed point."""
    log = folder.with_suffix(".log")
    command = _lace(folder, "sync", address, "--log-format", "json", *options)
    settle()
    start = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            text=True,
        ) as process,
    ):
        peak = 0
        while process.poll() is None:  # what it prints is less than a pipe holds
            peak = max(peak, peak_of(process.pid))
            time.sleep(_SAMPLE_SECONDS)
        ended = time.perf_counter() - start
        told = process.communicate()[0]
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    if process.returncode != 0:
        raise RuntimeError(f"a sync gave exit code {process.returncode}: {events[-1:]}")
    log.unlink()
    figures = dict(line.split(" ", 1) for line in told.splitlines())
    (link,) = (event["seconds"] for event in events if event["event"] == "link-ended")
    return Synced(figures, link, ended, peak)
