"""Lines for a pipe that a thread writes: a server does not wait for a reader."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections import deque
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.cli.output import Output

__all__ = ["PipeQueue", "stderr_queued", "stdout_queued"]

MAX_STDERR_BYTES: Final = 1 << 20
"""What waits to be written to standard error at most; lines beyond are counted and dropped."""
MAX_STDOUT_BYTES: Final = 1 << 26
"""The same for standard output, where one line names all records that a link has brought."""
_PIECE_BYTES: Final = 1 << 16
"""What is written at once: a whole line would not show whether a reader takes some of it."""
_END_SECONDS: Final = 1.0
"""How long the end waits for a reader that takes nothing."""


class PipeQueue:
    """Takes lines without waiting, and writes them in a thread.

    A line is dropped if it would make what waits longer than the limit; one that finds nothing
    waiting is never dropped.

    Args:
        descriptor: where they are written. It is not written through a file object, whose lock a
            thread that waits for a reader would still hold when the process ends.
        max_bytes: what waits at most.
        dropped: called in the thread with the number of lines that were dropped, once all that
            came before them is written.
        failed: called in the thread when nobody can read any more.
    """

    def __init__(
        self,
        descriptor: int,
        max_bytes: int,
        dropped: Callable[[int], None],
        failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._descriptor, self._max_bytes = descriptor, max_bytes
        self._dropped_call, self._failed_call = dropped, failed
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._waiting = self._dropped = self._written = 0
        self._is_ending = False
        self._thread = threading.Thread(target=self._write_all, name="lace-pipe", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> int:
        """Take a line to be written, unless too much waits already."""
        with self._changed:
            if self._waiting and self._waiting + len(line) > self._max_bytes:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._waiting += len(line)
                self._changed.notify()
        return len(line)

    def end(self) -> None:
        """Wait until all is written, or until nobody has read for a moment: the rest is dropped."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        before = -1
        while self._thread.is_alive() and self._written != before:
            before = self._written
            self._thread.join(_END_SECONDS)

    def _write_all(self) -> None:
        try:
            while (line := self._next()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._write(rest) :]
                with self._changed:
                    self._waiting -= len(line)
        except OSError as error:  # nobody can read it any more: all that follows is dropped
            if self._failed_call is not None:
                self._failed_call(error)

    def _write(self, data: memoryview) -> int:
        """Write some of the data; returns how many bytes."""
        try:
            count = os.write(self._descriptor, data[:_PIECE_BYTES])
        except BlockingIOError:  # who shares the pipe has made it so
            watched = select.poll()
            watched.register(self._descriptor, select.POLLOUT)
            watched.poll()
            return 0
        self._written += count
        return count

    def _next(self) -> bytes | None:
        """Wait for a line; None at the end."""
        with self._changed:
            if not self._lines and self._dropped:
                count, self._dropped = self._dropped, 0
                self._dropped_call(count)
            while not (self._lines or self._is_ending):
                self._changed.wait()
            return self._lines.popleft() if self._lines else None


@contextmanager
def stderr_queued(output: Output) -> Iterator[None]:
    """Write what goes to standard error through a queue, where a reader could keep it waiting."""
    descriptor = _pipe_of(sys.stderr)
    if descriptor is None:
        yield
        return
    queue = PipeQueue(
        descriptor,
        MAX_STDERR_BYTES,
        lambda count: output.warn(f"standard error was not read: {count:,} messages are left out"),
    )
    before = output.put_aside
    output.put_aside = lambda text: _put_text(queue, text)
    try:
        yield
    finally:
        queue.end()
        output.put_aside = before


def _put_text(queue: PipeQueue, text: str) -> None:
    queue.write(text.encode("utf-8", "backslashreplace"))


@contextmanager
def stdout_queued(output: Output, failed: Callable[[OSError], None]) -> Iterator[None]:
    """Write JSON lines through a queue, where a reader could keep them waiting.

    Where lines were dropped, a line `{"left_out": N}` takes their place.

    Args:
        output: what is written to.
        failed: called in another thread when nobody can read any more.
    """
    descriptor = _pipe_of(sys.stdout) if output.json else None
    if descriptor is None:
        yield
        return

    def tell(count: int) -> None:
        output.json_line({"left_out": count})
        output.warn(f"standard output was not read: {count:,} lines are left out")

    queue = PipeQueue(descriptor, MAX_STDOUT_BYTES, tell, failed)
    with output.redirected(queue):
        try:
            yield
        finally:
            queue.end()


def _pipe_of(stream: IO[str] | None) -> int | None:
    """Return the descriptor of a stream if it is a pipe or a socket."""
    try:
        if stream is None:
            return None
        stream.flush()
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # it is no descriptor of the system
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
