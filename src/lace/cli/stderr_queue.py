"""Lines for standard error that a thread writes: a server does not wait for who reads them."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.cli.output import Output

__all__ = ["StderrQueue", "stderr_queued"]

MOST_BYTES: Final = 1 << 20
"""What waits to be written at most; lines beyond are counted and left out."""
_END_SECONDS: Final = 1.0
"""How long the end waits for what is not written yet."""


class StderrQueue:
    """Takes lines without waiting, and writes them in a thread.

    Args:
        descriptor: where they are written. It is not written through a file object, whose lock a
            thread that waits for a reader would still hold when the process ends.
        output: writes here, also that lines were left out.
    """

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor, self._output = descriptor, output
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._bytes = self._left_out = 0
        self._is_ending = False
        self._thread = threading.Thread(target=self._write_all, name="lace-stderr", daemon=True)
        self._thread.start()

    def put(self, text: str) -> None:
        """Take lines to be written, unless too much waits already."""
        line = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._bytes + len(line) > MOST_BYTES:
                self._left_out += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify()

    def end(self) -> None:
        """Wait for a moment until all is written; what nobody reads by then is left out."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(_END_SECONDS)

    def _write_all(self) -> None:
        try:
            while (line := self._next()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._write(rest) :]
                with self._changed:
                    self._bytes -= len(line)
        except OSError:  # nobody can read it any more: all that follows is left out
            return

    def _write(self, data: memoryview) -> int:
        """Write some of the data; returns how many bytes."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # who shares the pipe has made it so
            watched = select.poll()
            watched.register(self._descriptor, select.POLLOUT)
            watched.poll()
            return 0

    def _next(self) -> bytes | None:
        """Wait for a line; None at the end."""
        with self._changed:
            if not self._lines and self._left_out:
                count, self._left_out = self._left_out, 0
                self._output.warn(f"standard error was not read: {count:,} messages are left out")
            while not (self._lines or self._is_ending):
                self._changed.wait()
            return self._lines.popleft() if self._lines else None


@contextmanager
def stderr_queued(output: Output) -> Iterator[None]:
    """Write what goes to standard error through a queue, where a reader could keep it waiting."""
    descriptor = _pipe_of_stderr()
    if descriptor is None:
        yield
        return
    queue = StderrQueue(descriptor, output)
    before = output.put_aside
    output.put_aside = queue.put
    try:
        yield
    finally:
        queue.end()
        output.put_aside = before


def _pipe_of_stderr() -> int | None:
    """Return the descriptor of standard error if it is a pipe or a socket."""
    try:
        if sys.stderr is None:
            return None
        sys.stderr.flush()
        descriptor = sys.stderr.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # it is no descriptor of the system
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
