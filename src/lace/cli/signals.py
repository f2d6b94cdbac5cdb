"""Signals: how a first one ends work at a good moment, and a second one ends the process.

A reader of the output that has gone counts as a signal, where the work is done for a reader.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from lace.cli.failures import Terminated

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType


# -- How signals end the process: none is lost, and the exit code says which it was.
#
# The first one ends a command in order. A second one ends the process at once: records that were
# said to be stored are, and locks go with the process.

_AGAIN_SECONDS: Final = 0.01
"""How long after it was lost a signal comes again."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BY_SIGNAL: Final = 128
"""What an exit code adds to the number of a signal."""


def end_at_once(number: int) -> NoReturn:
    """End the process with the exit code of a signal, whatever its threads do."""
    os._exit(_BY_SIGNAL + number)


def heed_signals() -> None:
    """Raise `Terminated` on SIGTERM, as KeyboardInterrupt on SIGINT, and lose neither.

    Python drops what is raised while it calls back for an object that is gone, as it does for
    the lock of every module that it loads. The signal of which that came is then sent again.
    A second signal ends the process at once.
    """
    raised: list[int] = []
    lost: list[signal.Signals] = []
    tell = sys.unraisablehook

    def end(number: int, _frame: FrameType | None) -> None:
        if raised:
            end_at_once(number)
        raised.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def note(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            lost.append(signal.SIGINT)
        elif isinstance(dropped.exc_value, Terminated):
            lost.append(signal.SIGTERM)
        else:
            tell(dropped)
            return
        raised.clear()
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def send_again(_number: int, _frame: FrameType | None) -> None:
        while lost:
            signal.raise_signal(lost.pop())

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGALRM, send_again)
    sys.unraisablehook = note
    # At the very end handlers in Python cannot be called any more.
    atexit.register(_ignore_signals)


def end_by_next_signal() -> None:
    """Let a signal end the process at once: its work is done, and its exit code known."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda found, _frame: end_at_once(found))


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def forget_interrupt() -> None:
    """Make `python -m lace` end with the exit code that it was given.

    Python notes every KeyboardInterrupt that leaves the code of a string, such as the one from
    which `dataclass` makes methods, and ends by SIGINT after all, though it was caught further
    out. Running another string takes the note back.
    """
    exec("")  # noqa: S102 - empty


# -- Signals during asynchronous work.

_LOOK_SECONDS: Final = 0.5
"""How often to check whether the output still has a reader."""
_Made = TypeVar("_Made")


class Signals:
    """Runs asynchronous work and heeds signals meanwhile."""

    def __init__(
        self,
        stop: Callable[[], bool],
        renew: Callable[[], None] | None = None,
        at_once: Callable[[int], object] = end_at_once,
    ) -> None:
        self._stop, self._renew, self._at_once = stop, renew, at_once
        self._task: asyncio.Task[Any] | None = None
        self.caught: BaseException | None = None
        """What the first signal means to the caller of the command."""
        self.is_abandoned: Callable[[], bool] | None = None
        """Tells whether nobody reads any more what the work writes: that ends it as a signal."""

    def run(self, work: Coroutine[Any, Any, _Made]) -> _Made | None:
        """Run work to its end; returns None when a signal has cut it off."""
        import asyncio  # most commands do without

        return asyncio.run(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, _Made]) -> _Made | None:
        import asyncio

        self._task = task = asyncio.create_task(work)
        watching = asyncio.create_task(self._watch_reader())
        with self._heeded():
            try:
                return await task
            except asyncio.CancelledError:
                if self.caught is None:
                    raise
                return None
            finally:
                watching.cancel()

    async def _watch_reader(self) -> None:
        """End the work when its reader has gone; nothing else would tell while it is silent."""
        import asyncio

        if self.is_abandoned is None:
            return
        while not self.is_abandoned():
            await asyncio.sleep(_LOOK_SECONDS)
        self._catch(BrokenPipeError())

    def check(self) -> None:
        """Raise what the first signal is, if there was one."""
        if self.caught is not None:
            raise self.caught

    @contextmanager
    def _heeded(self) -> Iterator[None]:
        import asyncio

        loop = asyncio.get_running_loop()
        wanted: dict[signal.Signals, Callable[[], None]] = {
            number: self._end(number) for number in _SIGNALS
        }
        if self._renew is not None:
            wanted[signal.SIGHUP] = self._renew
        before = {}
        for number, heed in wanted.items():
            found = signal.getsignal(number)
            if found is not signal.SIG_IGN or number is signal.SIGHUP:
                before[number] = found
                loop.add_signal_handler(number, heed)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _end(self, number: signal.Signals) -> Callable[[], None]:
        def end() -> None:
            if isinstance(self.caught, (KeyboardInterrupt, Terminated)):
                self._at_once(number)
            self._catch(KeyboardInterrupt() if number is signal.SIGINT else Terminated())

        return end

    def _catch(self, what: BaseException) -> None:
        """Stop the work, or cancel it where it cannot be stopped."""
        is_first = self.caught is None
        if is_first or not isinstance(what, BrokenPipeError):
            self.caught = what
        if not (is_first and self._stop()) and self._task is not None:
            self._task.cancel()


# -- Signals during long work in batches: the batch in hand is finished first.
#
# A first SIGINT or SIGTERM is kept until `check` is called. Input that the work is waiting
# for, or asks for later, ends there: so what was read before is still stored. A second
# signal ends the work at once; a batch in hand is then undone.


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
