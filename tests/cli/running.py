"""Running the command: in this process, as a process of its own, and at a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lace.cli.main import run
from lace.cli.session import Session
from tests.fork_server import Forked, can_fork

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "LIMITED",
    "Result",
    "call",
    "call_at_terminal",
    "clean_environment",
    "on_terminal",
    "process",
    "spawn",
    "start_on_terminal",
]

# Run in the child, before the command, where it is not forked.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
LACE = (sys.executable, "-m", "lace")
LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        return self.out.split("\n")[:-1] if self.raw else []

    def json(self) -> Any:
        return json.loads(self.raw)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


def call(*arguments: object, given: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(given))
    sys.stdout = io.TextIOWrapper(out, "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", write_through=True)
    try:
        code = run([str(part) for part in arguments], Session(env or {}))
        sys.stdout.flush()
        return Result(code, out.getvalue(), err.getvalue().decode("utf-8"))
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def call_at_terminal(
    *arguments: object, columns: int, given: bytes = b"", env: Mapping[str, str] | None = None
) -> Result:
    """Run a command in this process as if at a terminal; `raw` is all that is shown there."""
    before = sys.stdin, sys.stdout, sys.stderr
    shown = io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(given))
    sys.stdout = sys.stderr = _Terminal(shown, "utf-8", "backslashreplace", write_through=True)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm-256color")
            code = run([str(part) for part in arguments], Session(env or {"NO_COLOR": "1"}))
        sys.stdout.flush()
        return Result(code, shown.getvalue(), "")
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def clean_environment(**more: str) -> dict[str, str]:
    drop = ("NO_COLOR", "COLUMNS", "LINES", "PYTHONUNBUFFERED")  # a test runner may have set them
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LACE_") and k not in drop}
    return {**kept, "TERM": "xterm-256color", **more}


def spawn(
    *arguments: object,
    prefix: tuple[str, ...] = (),
    program: tuple[str, ...] = LACE,
    terminal: bool = False,
    fresh: bool = False,
    **rest: Any,
) -> subprocess.Popen[bytes]:
    """Start the command as a process, forked from one that has imported it if that is the same.

    Args:
        arguments: of the command.
        prefix: what starts it in its turn.
        program: what is started in place of `python -m lace`.
        terminal: whether its standard input becomes the terminal of its session.
        fresh: whether Python is to start as it does for a user.
        rest: as for Popen.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = {"env": clean_environment(), **pipes, **rest}
    plain = program[:2] == LACE[:2] and not (prefix or fresh or "pass_fds" in rest)
    if plain and can_fork(options["env"]):
        words = [*program[2:], *map(str, arguments)]
        return Forked(words, terminal=terminal, **options)
    first = (sys.executable, "-c", _AT_TERMINAL) if terminal else ()
    return subprocess.Popen([*first, *prefix, *program, *map(str, arguments)], **options)


def process(
    *arguments: object,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    cwd: Path | None = None,
    seconds: float = 60,
) -> Result:
    """Run the command as a process, which is gone afterwards whatever happens."""
    environment = clean_environment(**(env or {}))
    with spawn(
        *arguments, prefix=prefix, stdin=subprocess.PIPE, env=environment, cwd=cwd
    ) as started:
        try:
            out, err = started.communicate(given, timeout=seconds)
        except BaseException:
            started.kill()
            raise
    return Result(started.returncode, out, err.decode("utf-8"))


def start_on_terminal(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    columns: int = 120,
    program: tuple[str, ...] = LACE,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the command at a terminal; returns it, and the descriptor of who sits there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    started = spawn(
        *arguments,
        program=program,
        terminal=True,
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=clean_environment(**(env or {})),
        start_new_session=True,
    )
    os.close(slave)
    return started, master


def on_terminal(
    *arguments: object,
    typed: bytes = b"",
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    columns: int = 120,
    program: tuple[str, ...] = LACE,
) -> Result:
    """Run the command at a terminal; `raw` is all that the terminal shows, without CR."""
    started, master = start_on_terminal(
        *arguments, env=env, stdout=stdout, columns=columns, program=program
    )
    shown = b""
    if typed:  # a question that hides what is typed clears what came before it
        shown = os.read(master, 65536)
        os.write(master, typed)
    shown += _read_all(master)
    os.close(master)
    return Result(started.wait(60), shown.replace(b"\r\n", b"\n"), "")


def _read_all(descriptor: int) -> bytes:
    shown = bytearray()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], 1)[0]:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    return bytes(shown)
