"""The result of a round or an exchange, and the account that it is made of (050)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lace.exchange.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.base.tai import Tai
    from lace.exchange.failures import InterlaceFailure
    from lace.exchange.machine import Loops
    from lace.exchange.negotiation import Terms
    from lace.exchange.transfer import Ledger
    from lace.exchange.transitions import State


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


# -- The account of an exchange: what is counted over all its epochs, and how it comes out.

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


class Account:
    """What one side counts; the loops of the epoch that is under way count for themselves."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.traffic = Traffic()
        self.times = PhaseTimes()
        self.has_saved = False
        """Whether a cursor was kept."""
        self._before = Counters()

    def counters(self, loops: Loops | None) -> Counters:
        """Return what was counted so far."""
        before, traffic = self._before, asdict(self.traffic)
        if loops is None:
            return replace(before, **traffic)
        transfer = loops.transfer
        return Counters(
            **traffic,
            loops=before.loops + loops.loops,
            turns=before.turns + loops.turns,
            bytes_received=before.bytes_received + transfer.bytes_received,
            bytes_sent=before.bytes_sent + transfer.bytes_sent,
            requested=self.ledger.requested,
            answered=self.ledger.answered,
            stored=before.stored + transfer.stored,
            receipts=before.receipts + transfer.receipts,
            receipts_omitted=before.receipts_omitted + transfer.receipts_omitted,
            pending_here=loops.pending,
            pending_there=transfer.pending_there,
        )

    def end_epoch(self, loops: Loops | None) -> None:
        """Take over what the loops of an epoch have counted."""
        self._before = self.counters(loops)

    def outcome(
        self,
        reason: str,
        failure: InterlaceFailure | None,
        *,
        plan_id: str | None,
        terms: Terms | None,
        loops: Loops | None,
    ) -> Outcome:
        """Return the outcome so far, or at the end."""
        ledger = self.ledger
        is_settled = loops is not None and loops.is_at_fixed_point
        return Outcome(
            plan_id=plan_id,
            link_id=terms.link_id if terms is not None else None,
            peer_verifier=terms.peer.verifier if terms is not None else None,
            received=ledger.received.as_of_now(),
            rejected=tuple(ledger.rejected.items()),
            not_available=tuple(ledger.not_available),
            noted=tuple((row, ledger.noted[row]) for row in Failure if ledger.noted[row]),
            cursor_updated=self.has_saved,
            at_fixed_point=is_settled and failure is None,
            reason=reason,
            failure=failure,
            counters=self.counters(loops),
            seconds=self.times.seconds,
        )
