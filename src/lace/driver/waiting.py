"""Waiting: the clock that times it, the peer's bytes while records are validated, and ticks."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lace.base.tai import Tai, TaiError
from lace.interlacing.capabilities import SECOND
from lace.interlacing.transitions import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from lace.interlacing.machine import Machine
    from lace.interlacing.negotiation import Terms
    from lace.interlacing.result import Outcome


__all__ = ["Gathering", "TickWait", "comes_first", "steady_now"]

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


_LAST: Final = Tai("9999999999:999999999")
_ENDED: Final = "the peer ended the exchange"
_NOT_READY: Final = "the peer was not ready for the tick in time"


class TickWait:
    """Ends the machine of an open side at a tick: a close condition around it (050-143).

    The machine does not know of it.

    The tick is the one that is `count` intervals after the start of the first epoch. Where
    rules depend on ticks, both sides have to be ready for it, and a round with it is awaited;
    a peer that is not ready for it within ClockSkewSeconds and the phase timeout is not waited
    for. Otherwise this side's clock decides alone.

    Args:
        machine: the machine, of an open side.
        count: how many ticks to wait for.
    """

    def __init__(self, machine: Machine, count: int) -> None:
        if count < 1 or not machine.config.is_open:
            raise ValueError(f"the machine of an open side waits for at least 1 tick, not {count}")
        self._machine, self._count = machine, count
        self._goal: Tai | None = None
        self._deadline = _LAST
        self._is_over = False
        self._missing: str | None = _ENDED
        """Why the ticks did not come; None if they came, or were not waited for to the end."""

    def agree(self, terms: Terms) -> None:
        """Take what both sides have agreed on; the first start counts."""
        if self._goal is None:
            limits = self._machine.config.capabilities.limits
            patience = terms.clock_skew_seconds + limits.phase_timeout_seconds
            self._goal = _later(terms.start_tai, self._count * terms.tick_interval)
            self._deadline = _later(self._goal, patience * SECOND)

    @property
    def due(self) -> Tai | None:
        """When to look at the clock again; None while the machine is at work."""
        if self._goal is None or self._is_over or self._machine.state is not State.WAITING:
            return None
        return self._goal if self._machine.tick is None else self._deadline

    def is_over(self, now: Tai) -> bool:
        """Tell, once, whether the machine is to be stopped now."""
        due, tick = self.due, self._machine.tick
        if due is None or self._goal is None:
            return False
        if now >= self._goal if tick is None else tick >= self._goal:
            self._missing = None
        elif now >= due:
            self._missing = _NOT_READY
        else:
            return False
        self._is_over = True
        return True

    def give_up(self) -> None:
        """Take note that this side itself wants to end before the tick."""
        if not self._is_over:
            self._missing = None

    def outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the machine, with what is to be said of the ticks."""
        if self._missing is None or outcome.failure is not None:
            return outcome
        reason = f"{outcome.reason}; {self._missing}, before the ticks that were waited for"
        return replace(outcome, reason=reason, ticks_missed=True)


def _later(tai: Tai, nanoseconds: int) -> Tai:
    """Return a later instant; the last that a text can say, if it lies beyond that."""
    try:
        return tai.shift(nanoseconds)
    except TaiError:
        return _LAST
