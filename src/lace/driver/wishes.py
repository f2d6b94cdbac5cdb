"""What the caller wants of a running side: to end, or to go on with another policy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from lace.interlacing import events as happened

if TYPE_CHECKING:
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand

__all__ = ["Wishes"]

ROUND_SECONDS: Final = 5.0
"""How long a round may go on once this side is to end; then it ends with its phase."""
PHASE_SECONDS: Final = 15.0
"""How long that phase may go on: a peer that stretches it does not keep this side running."""
_ROUND: Final = frozenset({"advertise", "request", "transfer"})
"""The phases of a round; one that has begun is finished before this side ends by its own wish."""


class Wishes:
    """The wishes that were not granted yet, and when each may be."""

    def __init__(self) -> None:
        self._stop_after: float | None = None
        self._last_phase: str | None = None
        self._renewal: happened.Renewed | None = None

    def stop(self) -> None:
        """Wish for an end: with the round under way or, if that takes long, with a phase."""
        if self._stop_after is None:
            self._stop_after = time.monotonic() + ROUND_SECONDS

    @property
    def is_stopping(self) -> bool:
        """Whether an end is wished for."""
        return self._stop_after is not None

    def renew(self, operand: Operand, exposures: tuple[Exposure, ...]) -> None:
        """Wish for another policy."""
        self._renewal = happened.Renewed(operand, exposures)

    def take(self, phase: str | None) -> happened.Renewed | happened.Stopped | None:
        """Return what is to happen now, in this phase; None when there is nothing to do yet."""
        if self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            return renewal
        if self._stop_after is None:
            return None
        late = time.monotonic() - self._stop_after
        is_same = self._last_phase in (None, phase)
        if phase in _ROUND and (late < 0 or (is_same and late < PHASE_SECONDS)):
            self._last_phase = phase
            return None
        return happened.Stopped()
