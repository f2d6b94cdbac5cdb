"""The thread of a party: whatever it does happens there, one step after the other.

A process has one for each of its links; few of them compute at the same time.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lace.store.slots import at_work

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PartyThread"]

_Made = TypeVar("_Made")


class PartyThread:
    """A thread for evaluations and the database; the event loop only waits for it.

    Args:
        after: called in the event loop after each step, whatever came of it.
    """

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after
        self._jobs = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lace-session")

    async def do(self, work: Callable[[], _Made]) -> _Made:
        """Do something there, and return what it returns."""
        loop = asyncio.get_running_loop()
        self._jobs += 1
        try:
            return await loop.run_in_executor(self._thread, _at_work, work)
        finally:
            self._jobs -= 1
            self._after()

    @property
    def is_busy(self) -> bool:
        """Whether something is being done there, or waits to be."""
        return self._jobs > 0

    def close(self) -> None:
        """Take no more work; what is under way is not waited for."""
        self._thread.shutdown(wait=False)


def _at_work(work: Callable[[], _Made]) -> _Made:
    with at_work():
        return work()
