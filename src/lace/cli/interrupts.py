"""Signals during long work in batches: the batch in hand is finished first.

A first SIGINT or SIGTERM is kept until `check` is called. Input that the work is waiting
for, or asks for later, ends there: so what was read before is still stored. A second
signal ends the work at once; a batch in hand is then undone.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from lace.cli.failures import Terminated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Interrupts"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Signals that wait for a good moment."""

    def __init__(self) -> None:
        self._pending: BaseException | None = None
        self._waiting = False
        self.ended_input = False
        """Whether a reader has ended its file because of a signal."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep signals inside the `with` block; what was kept is raised at its end."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number in _SIGNALS:
                signal.signal(number, before[number])

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else Terminated()
        if self._waiting or self._pending:
            raise error
        self._pending = error

    def check(self) -> None:
        """Raise what was kept."""
        if self._pending:
            raise self._pending

    def reader(self, file: IO[bytes], name: str) -> IO[bytes]:
        """Return a file that ends at a signal, as if no more came; `check` raises it later."""
        return _Reader(self, file, name)  # type: ignore[return-value]  # all that intake uses

    def end_input(self, error: BaseException) -> None:
        """Keep what a signal raised while input was waited for, and note that it ended there."""
        self._pending = self._pending or error
        self.ended_input = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal end what is done inside the `with` block."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False


class _Reader:
    """A file for the intake. Records that were read before a signal are then in its hands."""

    def __init__(self, interrupts: Interrupts, file: IO[bytes], name: str) -> None:
        self._interrupts = interrupts
        self._file = file
        self.name = name

    def read(self, size: int = -1) -> bytes:
        """Return that many bytes, or fewer at the end."""
        return self._until_signal(self._file.read, size)

    def read1(self, size: int = -1) -> bytes:
        """Return what is there now; waits only while there is nothing."""
        return self._until_signal(getattr(self._file, "read1", self._file.read), size)

    def _until_signal(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            with self._interrupts.waiting():
                return read(size)
        except (KeyboardInterrupt, Terminated) as error:
            self._interrupts.end_input(error)
            return b""
