"""An event loop in a thread of its own, for programs that do not have one."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["LoopThread"]

Made = TypeVar("Made")


class LoopThread:
    """Runs asynchronous work for a thread that waits for it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Made], seconds: float | None = None) -> Made:
        """Run work in the loop, and wait for its end.

        Raises:
            TimeoutError: it takes longer; it is cancelled then.
        """
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(seconds)
        except BaseException:  # a Ctrl-C while waiting, as well
            running.cancel()
            raise

    def tell(self, what: Callable[[], object]) -> bool:
        """Call something in the loop, soon; tells whether there is a loop still."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # it is closed
            return False
        return True

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        if self._loop.is_closed():
            return
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
