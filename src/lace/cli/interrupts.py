"""Signals during long work in batches: the batch in hand is finished first.

A first SIGINT or SIGTERM is kept until `check` is called, unless the work is waiting
for input; a second one ends it at once. A batch in hand is then undone.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from lace.cli.failures import Terminated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["Interrupts"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Signals that wait for a good moment."""

    def __init__(self) -> None:
        self._pending: BaseException | None = None
        self._waiting = False

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
        """Return a file whose reading ends at a signal; no batch is in hand then."""
        return _Reader(self, file, name)  # type: ignore[return-value]  # all that intake uses

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
    def __init__(self, interrupts: Interrupts, file: IO[bytes], name: str) -> None:
        self._interrupts = interrupts
        self._file = file
        self.name = name

    def read(self, size: int = -1) -> bytes:
        with self._interrupts.waiting():
            return self._file.read(size)
