"""The status of an exchange, for observers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lace.interlacing.result import Counters
    from lace.interlacing.transitions import State

__all__ = ["Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The status of an exchange at a moment, for observers.

    Attributes:
        state: what it is at.
        waited: for how many seconds the peer has been waited for; None when it is not.
        timeout: for how many it is.
        received: the bytes that have come.
        sent: the bytes that were sent.
        counters: what was counted.
        records_received: the records that have come, valid or not.
        records_sent: the records that were sent.
        rejected: those that were rejected, up to the end of the last round.
        validating: how many groups of records wait for their validation.
    """

    state: State
    waited: float | None
    timeout: int
    received: int
    sent: int
    counters: Counters
    records_received: int
    records_sent: int
    rejected: int
    validating: int
