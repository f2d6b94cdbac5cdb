"""Time in an exchange: ticks, this side's own clock, and the deadlines of the peer's turns.

Aligned ticks are the start and whole multiples of the interval after it. Each side says
with TickReady how far its clock has come; the smaller of the two is the time that both
evaluate with (050, G40, G54d). Exposures read the clock of their own side instead, which no
peer can hold back (G05b). No clock is read here: instants are arguments.

Apart from `machine`: nothing here knows the state of an exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lace.base.tai import Tai, TaiError
from lace.exchange.capabilities import SECOND
from lace.exchange.effects import Wake
from lace.exchange.failures import Failure, InterlaceFailure
from lace.policy.exposure import local_time
from lace.rules.findings import show

if TYPE_CHECKING:
    from lace.exchange.effects import Effect

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


# -- How long a peer may take for a turn, and when to be woken (G47b).
#
# The timeout holds for a turn and starts again with every mebibyte that arrives. What this
# side needs to validate and store what has arrived does not count. All instants here are
# readings of a steady clock, which nobody sets: a wall clock that jumps ends no turn early, and
# keeps none waiting.


class Timing:
    """The deadline of the present turn, and the alarm that is set."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._turn: object = None
        self._deadline: Tai | None = None
        self._busy_since: Tai | None = None
        self._alarm = Wake(None)

    def watch(self, turn: object, now: Tai, *, is_busy: bool) -> Tai | None:
        """Return when to be woken if the peer has not sent its part of a turn by then.

        `turn` says which one it is, None for none: another one starts the time again.
        """
        if turn != self._turn:
            self._turn, self._busy_since = turn, None
            self._deadline = None if turn is None else self._from(now)
        if self._deadline is None:
            return None
        if is_busy:
            self._busy_since = self._busy_since or now
            return None
        if self._busy_since is not None:
            passed = now.nanoseconds - self._busy_since.nanoseconds
            self._deadline = self._deadline.shift(max(0, passed))
            self._busy_since = None
        return self._deadline

    def progress(self, now: Tai) -> None:
        """Start the time again: something has arrived."""
        if self._deadline is not None:
            self._deadline = self._from(now)
            self._busy_since = None if self._busy_since is None else now

    def is_late(self, now: Tai) -> bool:
        """Tell whether the peer has taken too long."""
        return self._deadline is not None and self._busy_since is None and now >= self._deadline

    def _from(self, now: Tai) -> Tai:
        return now.shift(self.seconds * SECOND)

    def woken(self) -> None:
        """Take note that the alarm went off."""
        self._alarm = Wake(None)

    def set_alarm(self, wanted: Tai | None, *, is_deadline: bool = False) -> list[Effect]:
        """Return when to be woken, if that has changed."""
        made = Wake(wanted, is_deadline=is_deadline and wanted is not None)
        if made == self._alarm:
            return []
        self._alarm = made
        return [made]
