"""The result of a round or an exchange: what came, what did not, and whether all is said (050)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.exchange.failures import Failure, InterlaceFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What was counted on the way."""

    loops: int = 0
    turns: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    reconciliation_received: int = 0
    """Bytes of reconciliation that came; those above are of records."""
    reconciliation_sent: int = 0
    control_received: int = 0
    """Bytes that came beside records and reconciliation."""
    control_sent: int = 0
    requested: int = 0
    answered: int = 0
    stored: int = 0
    receipts: int = 0
    """Receipts that were published for records that came."""
    receipts_omitted: int = 0
    """Receipts that were not, because of the limit or a peer that has proven nothing."""
    pending_here: int = 0
    """Records that could still be requested."""
    pending_there: int = 0
    """Records that the peer asked for and has not got yet."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcome:
    """Interlace-Result, and what else is worth knowing.

    `at_fixed_point` is False when a limit or a failure ended it; `reason` says which.
    """

    plan_id: str | None = None
    link_id: str | None = None
    peer_verifier: str | None = None
    received: Sequence[str] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    not_available: tuple[str, ...] = ()
    cursor_updated: bool = False
    at_fixed_point: bool = False
    ticks_missed: bool = False
    """Whether ticks were to be waited for and did not come; `reason` says why."""
    reason: str = ""
    failure: InterlaceFailure | None = None
    noted: tuple[tuple[Failure, int], ...] = ()
    """How often each failure came up that did not end the exchange at once."""
    counters: Counters = Counters()
    seconds: tuple[tuple[str, float], ...] = ()
    """How long each phase took."""

    def __repr__(self) -> str:
        counts = [f"{len(self.received):,} received"]
        counts += [f"{len(self.rejected):,} rejected"] if self.rejected else []
        counts += [f"{len(self.not_available):,} not available"] if self.not_available else []
        return f"<Outcome: {self.reason or 'no end'}, {', '.join(counts)}>"

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, named as 050 names them."""
        return {
            "link-id": self.link_id,
            "exchange-plan-id": self.plan_id,
            "peer-verifier": self.peer_verifier,
            "received-hashes": list(self.received),
            "rejected-hashes": [{"hash": each, "reason": why} for each, why in self.rejected],
            "not-available-hashes": list(self.not_available),
            "bytes-received": self.counters.bytes_received,
            "bytes-sent": self.counters.bytes_sent,
            "reconciliation-bytes-received": self.counters.reconciliation_received,
            "reconciliation-bytes-sent": self.counters.reconciliation_sent,
            "control-bytes-received": self.counters.control_received,
            "control-bytes-sent": self.counters.control_sent,
            "cursor-updated": self.cursor_updated,
            "at-fixed-point": self.at_fixed_point,
            "ticks-missed": self.ticks_missed,
            "reason": self.reason,
            "noted": {row.name: count for row, count in self.noted},
            "failure": None if self.failure is None else self.failure.failure.name,
            "loops": self.counters.loops,
            "turns": self.counters.turns,
            "requested": self.counters.requested,
            "stored": self.counters.stored,
            "receipts": self.counters.receipts,
            "receipts-omitted": self.counters.receipts_omitted,
            "pending-here": self.counters.pending_here,
            "pending-there": self.counters.pending_there,
            "seconds": dict(self.seconds),
        }


# -- What moves beside records: the bytes of reconciliation and of all other control.
#
# A machine sees facts, not bytes: the driver says how many bytes came and went.


@dataclass(slots=True)
class Traffic:
    """Bytes beside those of records, in both directions.

    Reconciliation is whatever is said to find out what the other side advertises. Control
    is all the rest: setup, hello, requests, ticks, `NotAvailable`, and what frames records.
    """

    reconciliation_received: int = 0
    reconciliation_sent: int = 0
    control_received: int = 0
    control_sent: int = 0

    def received(self, size: int, is_reconciling: bool) -> None:
        """Count what came."""
        if is_reconciling:
            self.reconciliation_received += size
        else:
            self.control_received += size

    def sent(self, size: int, is_reconciling: bool) -> None:
        """Count what was sent."""
        if is_reconciling:
            self.reconciliation_sent += size
        else:
            self.control_sent += size
