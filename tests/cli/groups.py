"""A command with all that it starts, as a terminal sees them: Ctrl-C goes to every one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cli.running import Result, clean_environment, spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Group", "started_group"]

SECONDS = 180
"""A Java that starts on a busy machine takes its time."""


class Group:
    """A command that leads a session of processes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def members(self) -> dict[int, str]:
        """The processes of the session that still run, with their command lines."""
        found: dict[int, str] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                after = (path / "stat").read_text().rpartition(")")[2].split()
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8")
            except OSError:  # it has ended meanwhile
                continue
            state, _parent, _group, session = after[:4]
            if int(session) == self._process.pid and state != "Z":
                found[int(path.name)] = line
        return found

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait for something that the command does."""
        deadline = time.monotonic() + SECONDS
        while not is_there():
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < deadline, self.members()
            time.sleep(0.01)

    def wait_for_member(self, word: str) -> None:
        """Wait for a process that has a word in its command line."""
        self.wait_for(lambda: any(word in line for line in self.members().values()))

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Do what Ctrl-C does."""
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End the command itself as nothing can prevent; what it started hears nothing of it."""
        self._process.kill()

    def end(self) -> Result:
        """Wait for its end, and for that of all that it started."""
        out, err = self._process.communicate(timeout=SECONDS)
        deadline = time.monotonic() + SECONDS
        while left := self.members():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        return Result(self._process.returncode, out, err.decode("utf-8"))


@contextmanager
def started_group(
    *arguments: object, temporary: Path, env: Mapping[str, str] | None = None, **rest: Any
) -> Iterator[Group]:
    """Start a command in a session of its own, with a folder for what is temporary."""
    temporary.mkdir(exist_ok=True)
    environment = clean_environment(TMPDIR=str(temporary), **(env or {}))
    started = spawn(*arguments, env=environment, start_new_session=True, **rest)
    group = Group(started)
    try:
        yield group
    finally:
        for pid in group.members():
            os.kill(pid, signal.SIGKILL)
        started.communicate(timeout=SECONDS)
