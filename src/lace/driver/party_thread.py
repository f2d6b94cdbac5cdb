"""The thread of a party: whatever it does happens there, one step after the other.

A process has one for each of its links; few of them compute at the same time.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from lace.store.slots import at_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.store.slots import Worker

__all__ = ["PartyThread"]

_Made = TypeVar("_Made")

LOOK_SECONDS: Final = 0.1
"""How often is looked whether a step that takes long is still wanted."""


def _nothing() -> None:
    """Do nothing: the called function has ended."""


class PartyThread:
    """A thread for evaluations and the database; the event loop only waits for it.

    Args:
        after: called in the event loop after each step, whatever came of it.
        during: called in the event loop from time to time while a step takes long.
        abandon: called in the event loop when nobody waits for a step any more.
        worker: who computes there.
    """

    def __init__(
        self,
        after: Callable[[], None],
        during: Callable[[], None],
        abandon: Callable[[], None],
        worker: Worker,
    ) -> None:
        self._after, self._during, self._abandon = after, during, abandon
        self._worker = worker
        self._jobs = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lace-session")

    async def do(self, work: Callable[[], _Made], *, is_long: bool = False) -> _Made:
        """Do something there, and return what it returns.

        Args:
            work: what to do.
            is_long: whether it is known to take long, so that others go first.
        """
        loop = asyncio.get_running_loop()
        self._jobs += 1
        try:
            doing = loop.run_in_executor(self._thread, self._at_work, work, is_long)
            try:
                while not (await asyncio.wait((doing,), timeout=LOOK_SECONDS))[0]:
                    self._during()
            except asyncio.CancelledError:
                doing.cancel()  # if it has not begun
                self._abandon()
                raise
            return doing.result()
        finally:
            self._jobs -= 1
            self._after()

    @property
    def is_busy(self) -> bool:
        """Whether something is being done there, or waits to be."""
        return self._jobs > 0

    def _at_work(self, work: Callable[[], _Made], is_long: bool) -> _Made:
        with at_work(self._worker, is_long=is_long):
            return work()

    def close(self) -> None:
        """Take no more work; what is under way is not waited for."""
        self._thread.shutdown(wait=False)
        self._after = self._during = self._abandon = _nothing
