"""How long phases take, how long a peer may take for a turn, and when to be woken (G47b).

The timeout holds for a turn and starts again with every mebibyte that arrives. What this
side needs to validate and store what has arrived does not count. All instants here are
readings of a steady clock, which nobody sets: a wall clock that jumps ends no turn early, and
keeps none waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.interlacing.effects import Effect, Wake

if TYPE_CHECKING:
    from lace.base.tai import Tai
    from lace.interlacing.transitions import State

__all__ = ["PhaseTimes", "Timing"]

_SECOND: Final = 1_000_000_000


class PhaseTimes:
    """How long each phase took, this side's work and the peer's together."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._since: Tai | None = None
        self._passed: dict[str, int] = {}

    def note(self, state: State, now: Tai) -> None:
        """Say what the machine is at from now on."""
        if self._phase is not None and self._since is not None:
            passed = max(0, now.nanoseconds - self._since.nanoseconds)
            self._passed[self._phase] = self._passed.get(self._phase, 0) + passed
        self._phase, self._since = state.phase, now

    @property
    def seconds(self) -> tuple[tuple[str, float], ...]:
        """The seconds of each phase that there was, in their order."""
        return tuple((phase, passed / _SECOND) for phase, passed in self._passed.items())


class Timing:
    """The deadline of the present turn, and the alarm that is set.

    Args:
        seconds: the phase timeout.
    """

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
        return now.shift(self.seconds * _SECOND)

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
