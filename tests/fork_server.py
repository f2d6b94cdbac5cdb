"""A process that has imported Lace, and forks what tests run as `python -m lace …`.

To start Python and import Lace takes a third of a second, which is most of what a command takes in
a test. A forked command is a real process all the same: it has its own arguments, environment,
folder, streams, session and terminal, hears signals, and ends as any Python does. What differs is
its command line in /proc, its parent, and that modules are there before they are needed. Tests that
look at these start Python as usual (`fresh=True`), and so does every call that asks for something
that the server does not do, or for another environment of Python.

The server imports what commands import, and nothing of PySpark; it runs no thread.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import inspect
import io
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["Forked", "can_fork"]

SERVER: Final = Path(__file__).resolve()
PRELOADED: Final = (
    "lace.api",
    "lace.cli",
    "lace.link",
    "lace.policytests",
    "lace.query",
    "lace.trace",
    "lace.transport",
)
"""Packages whose modules the server imports, with all that these import."""
_MAX_REQUEST: Final = 1 << 17
_STATUS: Final = struct.Struct("=i")
_OF_PYTHON: Final = ("PYTHON", "LC_", "LANG", "COV", "LD_", "OMP_", "OPENBLAS_", "MALLOC_")
"""How variables begin that Python, or a library, reads when it starts."""


# -- In the process of the tests


def can_fork(environment: dict[str, str]) -> bool:
    """Tell whether a forked process would start as a fresh one with that environment does."""
    if not hasattr(os, "pidfd_open") or any(name.startswith("COV") for name in os.environ):
        return False  # another system, or coverage, which has to start with the process
    searched = environment.get("PYTHONPATH", "").split(os.pathsep)
    if any(Path(folder, "sitecustomize.py").exists() for folder in searched if folder):
        return False
    return _of_python(environment) == _of_python(_environment())


def _environment() -> dict[str, str]:
    """Return the environment of the server: commands buffer what they write, as a user's do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def _of_python(environment: dict[str, str]) -> dict[str, str]:
    chosen = {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}
    chosen.pop("PYTHONPATH", None)  # the child heeds it
    return chosen


class Forked(subprocess.Popen[bytes]):
    """`python -m MODULE …`, forked by the server.

    Args:
        args: the name of the module, and the arguments.
        terminal: whether standard input becomes the terminal of the session.
        rest: as for Popen, of which `cwd`, `env`, `start_new_session` and streams are heeded.
    """

    def __init__(self, args: list[str], *, terminal: bool = False, **rest: Any) -> None:
        self._is_at_terminal = terminal
        self._status: socket.socket | None = None
        super().__init__(args, **rest)

    def _execute_child(self, *given: Any) -> None:
        wanted = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        pipes = [wanted[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        request = {
            "words": wanted["args"],
            "cwd": str(wanted["cwd"] or Path.cwd()),
            "env": dict(os.environ if wanted["env"] is None else wanted["env"]),
            "umask": _umask(),
            "session": wanted["start_new_session"],
            "terminal": self._is_at_terminal,
        }
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        mine, theirs = socket.socketpair()
        with theirs:
            _send(_server(), request, [*streams, theirs.fileno()])
        (self.pid,) = _STATUS.unpack(mine.recv(_STATUS.size, socket.MSG_WAITALL))
        self._status, self._child_created = mine, True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(wanted[name] for name in ends))  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        status = self._status
        if status is None or (flags & os.WNOHANG and not select.select([status], [], [], 0)[0]):
            return 0, 0
        received = status.recv(_STATUS.size, socket.MSG_WAITALL)
        status.close()
        self._status = None
        return self.pid, _STATUS.unpack(received)[0]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _send(server: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    server.sendmsg([pickle.dumps(request)], [rights])


@cache
def _server() -> socket.socket:
    """Start the server; it ends with the last process that has the socket."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = _environment() | {"OPENBLAS_NUM_THREADS": "1"}  # no thread of numpy
    with theirs:
        words = [sys.executable, str(SERVER), str(theirs.fileno())]
        os.set_inheritable(theirs.fileno(), True)
        nowhere = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        os.posix_spawn(sys.executable, words, environment, file_actions=[nowhere])
    return mine


# -- In the server


def preload() -> None:
    """Import what commands need."""
    for name in PRELOADED:
        package = importlib.import_module(name)
        for folder in package.__path__:
            for path in sorted(Path(folder).rglob("[!_]*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                importlib.import_module(".".join((name, *parts)))
    assert "pyspark" not in sys.modules


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns in a child only, with what it was asked for."""
    waiting: dict[int, tuple[int, int]] = {}
    """By the descriptor that tells of its end, the pid of a child, and where to report it."""
    watched = select.poll()
    watched.register(control, select.POLLIN)
    while True:
        for descriptor, _ in watched.poll():
            if descriptor in waiting:
                watched.unregister(descriptor)
                pid, report = waiting.pop(descriptor)
                _report(report, os.waitpid(pid, 0)[1])
                os.close(report)
                os.close(descriptor)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, 4)
            if not message:
                os._exit(0)
            *streams, report = descriptors
            pid = os.fork()
            if not pid:
                control.close()
                for number, (_, other) in waiting.items():
                    os.close(number)
                    os.close(other)
                os.close(report)
                return {**pickle.loads(message), "streams": streams}  # noqa: S301 - by the tests
            for stream in streams:
                os.close(stream)
            _report(report, pid)
            ended = os.pidfd_open(pid)
            waiting[ended] = pid, report
            watched.register(ended, select.POLLIN)


def _report(descriptor: int, number: int) -> None:
    with contextlib.suppress(OSError):  # the test does not wait
        os.write(descriptor, _STATUS.pack(number))


def become(request: dict[str, Any], paths: list[str]) -> list[str]:
    """Make this child what a fresh process would be; returns its words."""
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
    for stream in request["streams"]:
        os.close(stream)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    searched = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [str(Path.cwd()), *searched, *paths]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    words: list[str] = request["words"]
    return words


def _stream(number: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return the text stream that Python makes of a descriptor when it starts."""
    binary = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - until the end
    return io.TextIOWrapper(
        binary,
        like.encoding,
        like.errors,
        newline="\n" if number else None,
        line_buffering=number == 2 or binary.isatty(),
    )


def end(code: Any) -> None:
    """End as Python does, without clearing modules, which would copy most of the server's memory.

    Returns where that end would not be a quiet one.
    """
    if not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # meant for the tests, not for this
    control = int(sys.argv[1])
    os.closerange(3, control)
    os.closerange(control + 1, os.sysconf("SC_OPEN_MAX"))
    inherited = len(list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
    usual = sys.path[1 + inherited :]
    preload()
    gc.collect()
    gc.freeze()
    wanted = serve(socket.socket(fileno=control))
    module, *arguments = become(wanted, usual)
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        end(ending.code)
        raise
