"""The account of an exchange: what was counted over all its epochs, and how it came out (050)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from lace.interlacing.failures import Failure
from lace.interlacing.ledger import Ledger
from lace.interlacing.loops import End
from lace.interlacing.result import Counters, Outcome
from lace.interlacing.timing import PhaseTimes
from lace.interlacing.traffic import Traffic

if TYPE_CHECKING:
    from lace.interlacing.failures import InterlaceFailure
    from lace.interlacing.loops import Loops
    from lace.interlacing.negotiation import Terms

__all__ = ["Account"]


class Account:
    """What one side counts; the loops of the epoch that is under way count for themselves."""

    def __init__(self) -> None:
        self.ledger = Ledger()
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
        """Return how it stands, or has ended."""
        ledger = self.ledger
        is_settled = loops is not None and loops.ended is End.FIXED_POINT
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
