"""Waiting: the clock that it is timed by, and the peer's bytes while records are validated."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

from lace.base.tai import Tai

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Gathering", "comes_first", "steady_now"]

GATHER_SECONDS: Final = 0.5
"""How long records that are valid wait for others, which are stored with them."""


def steady_now() -> Tai:
    """Return the reading of a clock that is never set: only differences mean anything."""
    return Tai.from_nanoseconds(time.monotonic_ns())


class Gathering:
    """How long valid records may still wait for others: many take less time than few and few.

    The time is counted from the first moment in which nothing else is to do, whatever comes
    meanwhile: a peer that sends a byte now and then does not keep them from being stored.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    @property
    def seconds_left(self) -> float:
        """For how many seconds they wait from now on; it begins with being asked."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + GATHER_SECONDS
        return max(0.0, self._until - now)

    def end(self) -> None:
        """Begin again the next time: they are stored, or something else is to do."""
        self._until = None


async def comes_first(
    waited: Collection[asyncio.Future[Any]], descriptor: int | None, seconds: float
) -> bool:
    """Wait for one of several, or for a validation; tells whether a validation is done.

    Args:
        waited: what else to wait for.
        descriptor: a duplicate of what can be read from when a validation is done, which is
            closed here; None without any. A process that ends meanwhile closes its own,
            and the number of that may soon be somebody else's.
        seconds: for how long at most.
    """
    loop = asyncio.get_running_loop()
    validated: asyncio.Future[None] = loop.create_future()
    if descriptor is not None:
        loop.add_reader(descriptor, _settle, validated)
    try:
        await asyncio.wait(
            [*waited, validated], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        return validated.done()
    finally:
        validated.cancel()
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
