"""Signals while links run: the first ends them at a good moment, a second the process at once.

A reader of the output that has gone counts as a signal, where the work is done for a reader.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lace.cli.endings import end_at_once
from lace.cli.failures import Terminated

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = ["Signals"]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS: Final = 0.5
"""How often is looked whether somebody still reads."""
_Made = TypeVar("_Made")


class Signals:
    """Runs asynchronous work and heeds signals meanwhile.

    Args:
        stop: called at the first SIGINT or SIGTERM; tells whether the work then ends by
            itself, else it is cancelled.
        renew: called at SIGHUP.
        at_once: called with the number of a second SIGINT or SIGTERM; ends the process.
    """

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
        return asyncio.run(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, _Made]) -> _Made | None:
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
        loop = asyncio.get_running_loop()
        wanted: dict[signal.Signals, Callable[[], None]] = {
            number: self._end(number) for number in _ENDING
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
        """Have the work end by itself, or cancel it where it cannot."""
        is_first = self.caught is None
        if is_first or not isinstance(what, BrokenPipeError):
            self.caught = what
        if not (is_first and self._stop()) and self._task is not None:
            self._task.cancel()
