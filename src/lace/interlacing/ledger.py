"""The ledger of requests: their outcomes, and what is not requested again (G47).

A hash that was answered `NotAvailable` is not asked for again in this round, unless its
advertisement was absent from one loop; a rejected one not in this epoch while its
advertisement is the one that it was rejected under. Every request is accounted for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lace.base.limits import DEFAULT_SETTINGS
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.record.hash_list import HashList

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.interlacing.partitions import AdvertisementSet

__all__ = ["Ledger"]


class Ledger:
    """Requests and their answers, for one side."""

    def __init__(self) -> None:
        self.received = HashList()
        self.rejected: dict[str, str] = {}
        self._rejected_claims: dict[str, bytes | None] = {}
        self.not_available: dict[str, None] = {}
        self._current_claims: dict[str, bytes | None] = {}
        self._outstanding: dict[str, str] = {}
        self._unavailable: set[str] = set()
        self._missed: set[str] = set()
        self.requested = self.answered = self.rejections = 0
        self._answered_before = 0
        self.noted: Counter[Failure] = Counter()
        """How often each row came up that did not abort; a row is noted where it takes place."""
        self.brought = False
        """Whether the present list brought a record, or a `NotAvailable` that is new."""

    # -- rounds and loops ----------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Forget what was rejected: another plan may select otherwise."""
        self._rejected_claims.clear()
        self._current_claims.clear()

    def begin_round(self) -> None:
        """Forget what was not available."""
        self._unavailable.clear()
        self._missed.clear()

    def see(self, advertised: AdvertisementSet) -> None:
        """Take note of what the peer advertises in a loop."""
        asked = sorted(self._unavailable)
        there = advertised.has(asked).tolist()
        self._unavailable = {
            record for record, is_there in zip(asked, there, strict=True) if is_there
        }
        rejected = list(self._rejected_claims)
        self._current_claims = dict(zip(rejected, advertised.digests_of(rejected), strict=True))

    @property
    def excluded(self) -> frozenset[str]:
        """The records that are not to be asked for."""
        refused = (
            record
            for record, claim in self._rejected_claims.items()
            if self._current_claims.get(record, claim) == claim
        )
        return frozenset(self._unavailable).union(refused)

    # -- requests ------------------------------------------------------------------------------

    def ask(self, records: Iterable[str]) -> None:
        """Note a request list; what the one before left open was deferred."""
        self._outstanding = {record: record for record in records}
        self.requested += len(self._outstanding)
        self._answered_before = self.answered
        self.brought = False

    @property
    def outstanding(self) -> int:
        """How many requests have no answer."""
        return len(self._outstanding)

    def _answer(self, record: str) -> str:
        asked = self._outstanding.pop(record, None)
        if asked is None:
            raise InterlaceFailure(
                Failure.UNREQUESTED_RECORD, f"{record} was not asked for, or was answered before"
            )
        self.answered += 1
        return asked

    def take(self, record: str) -> str:
        """Note that record bytes came for a request; returns the text that asked for it.

        The one that keeps it holds no second copy.
        """
        self.brought = True
        return self._answer(record)

    def accept(self, record: str) -> None:
        """Note that a record is stored."""
        self.received.append(record)
        self.rejected.pop(record, None)
        self.not_available.pop(record, None)

    def reject(
        self, record: str, claim: bytes | None, row: Failure, reason: str | None = None
    ) -> None:
        """Note that a record was refused; `claim` is the digest of its advertisement."""
        self.noted[row] += 1
        self.rejected[record] = reason or row.condition
        self.rejections += 1
        self._rejected_claims[record] = claim
        self._current_claims.pop(record, None)

    def miss(self, record: str, most: int = DEFAULT_SETTINGS.max_not_available_records) -> None:
        """Note that the peer cannot send a record.

        Args:
            record: the record.
            most: this many of a round are remembered, and are progress. A peer that advertises
                others in every loop, and has none of them, would go on for ever.
        """
        self._answer(record)
        self.noted[Failure.NOT_AVAILABLE] += 1
        if record not in self._missed and len(self._missed) < most:
            self.brought = True
            self._missed.add(record)
        self._unavailable.add(record)
        if len(self.not_available) < most:
            self.not_available[record] = None

    def end_batch(self) -> None:
        """Note a request list that was not empty and got no answer: it was deferred whole."""
        if self._outstanding and self.answered == self._answered_before:
            self.noted[Failure.UNANSWERED_REQUEST] += 1
