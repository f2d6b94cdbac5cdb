"""Ticks: the shared time of an open exchange (050, G40, G54d), and this side's own (G05b).

Aligned ticks are the start and whole multiples of the interval after it. Each side says
with TickReady how far its clock has come; the smaller of the two is the time that both
evaluate with. Exposures read the clock of their own side instead, which no peer can hold
back. No clock is read here: instants are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lace.base.tai import Tai, TaiError
from lace.exchange.failures import Failure, InterlaceFailure
from lace.policy.public_facts import local_time
from lace.rules.findings import show

_BEGINNING: Final = Tai.from_nanoseconds(0)


def aligned_tick(start: Tai, interval: int, now: Tai) -> Tai:
    """Return the last aligned tick that a clock showing `now` has reached, at least the start.

    >>> start = Tai("1640995200:000000000")
    >>> aligned_tick(start, 10_000_000_000, start.shift(25_000_000_000))
    Tai('1640995220:000000000')
    """
    passed = max(0, now.nanoseconds - start.nanoseconds)
    return start.shift(passed - passed % interval)


def is_aligned(start: Tai, interval: int, tai: Tai) -> bool:
    """Tell whether an instant is the start or a whole number of intervals after it."""
    passed = tai.nanoseconds - start.nanoseconds
    return passed >= 0 and passed % interval == 0


@dataclass(frozen=True, slots=True)
class LocalTime:
    """This side's clock as exposures read it: floored to its own tick interval, never going back.

    `interval` is what this side has configured, in nanoseconds; what was negotiated with the
    peer has no influence. A clock that is set back leaves what was reached.
    """

    interval: int
    tai: Tai = _BEGINNING

    def at(self, now: Tai) -> LocalTime:
        """Return the time at this reading of the clock."""
        return replace(self, tai=max(self.tai, local_time(now, self.interval)))

    def is_due(self, now: Tai) -> bool:
        """Tell whether a clock showing `now` has gone on since the last reading."""
        return local_time(now, self.interval) > self.tai

    @property
    def next_due(self) -> Tai | None:
        """When it goes on; None when no TAI text can say it."""
        try:
            return self.tai.shift(self.interval)
        except TaiError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickState:
    """How far both sides are, and the tick of the current loop.

    `local_ready` and `peer_ready` are the last valid TickReady of each side;
    `local_asked` and `peer_asked` what they were when that side sent its last request
    block, which decides the tick of the next loop. None of them ever decreases.
    """

    start: Tai
    interval: int
    local_ready: Tai
    peer_ready: Tai
    local_asked: Tai
    peer_asked: Tai
    tick: Tai

    def due(self, now: Tai) -> Tai | None:
        """Return the tick to announce at this instant, or None if nothing new is reached."""
        reached = aligned_tick(self.start, self.interval, now)
        return reached if reached > self.local_ready else None

    @property
    def next_due(self) -> Tai | None:
        """When the local clock reaches the next tick; None when no TAI text can say it."""
        try:
            return self.local_ready.shift(self.interval)
        except TaiError:
            return None

    def announce(self, tai: Tai) -> TickState:
        """Return the state after this side sent TickReady."""
        if tai < self.local_ready or not is_aligned(self.start, self.interval, tai):
            raise ValueError(f"{tai} is no tick to announce after {self.local_ready}")
        return replace(self, local_ready=tai)

    def hear(self, text: str) -> TickState:
        """Return the state after the peer's TickReady; one that is not valid changes nothing."""
        try:
            tai = Tai(text)
        except TaiError:
            raise InterlaceFailure(
                Failure.MALFORMED_BLOCK, f"TickReady with '{show(text)}'", rule="G40"
            ) from None
        if tai < self.peer_ready or not is_aligned(self.start, self.interval, tai):
            return self
        return replace(self, peer_ready=tai)

    def ask(self) -> TickState:
        """Return the state after this side sent its request block."""
        return replace(self, local_asked=self.local_ready)

    def hear_request(self) -> TickState:
        """Return the state after the peer's request block and the TickReady in it."""
        return replace(self, peer_asked=self.peer_ready)

    @property
    def next_tick(self) -> Tai:
        """The tick that the next loop would have."""
        return min(self.local_asked, self.peer_asked)

    @property
    def rises(self) -> bool:
        """Whether the next loop would have a later tick than the current one."""
        return self.next_tick > self.tick

    @property
    def both_ready(self) -> bool:
        """Whether both sides are ready for a later tick, so that a waiting side may start."""
        return min(self.local_ready, self.peer_ready) > self.tick

    def begin_loop(self) -> TickState:
        """Return the state of the next loop, with its tick."""
        return replace(self, tick=self.next_tick)


def start_ticks(start: Tai, interval: int) -> TickState:
    """Return the state at the start of an epoch: everything is at its start."""
    if interval <= 0:
        raise ValueError(f"a tick interval is positive, not {interval}")
    return TickState(
        start=start,
        interval=interval,
        local_ready=start,
        peer_ready=start,
        local_asked=start,
        peer_asked=start,
        tick=start,
    )
