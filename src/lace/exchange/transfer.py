"""The transfers of one epoch: what is requested, sent, received and stored (050).

Records that arrive are validated, compared with what was claimed of them, and stored;
whatever was asked for is accounted for. Byte limits count each direction, round by round.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from lace.base.limits import DEFAULT_SETTINGS, STORED_FORMATS
from lace.exchange.advertisement import advertised_fields_of, digest_of
from lace.exchange.effects import Admit, Effect, SendBatch, Validate
from lace.exchange.failures import Failure, InterlaceFailure, limit_failure
from lace.facts.extract import facts_of_records
from lace.record.hash_rows import HashList
from lace.record.validate import ValidRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.exchange.advertise import States
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.exchange.events import Admitted, BatchSent, RecordLost, RecordsReceived, Validated
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact


_NOT_AVAILABLE_BYTES: Final = len("NotAvailable('')")
"""Bytes of the line that a record is not available, beside the record."""


class Transfer:
    """The transfers of one epoch, seen from one side."""

    def __init__(
        self,
        terms: Terms,
        ledger: Ledger,
        states: States,
        *,
        store_differing: bool = False,
        max_line_bytes: int | None = None,
    ) -> None:
        self._terms = terms
        self._ledger = ledger
        self._states = states
        self._store_differing = store_differing
        self._max_line_bytes = max_line_bytes
        self._asked: tuple[str, ...] = ()
        self._strange: tuple[str, ...] = ()
        """Requests for what was not advertised in this loop: answered without a look anywhere."""
        self._told_unavailable: set[str] = set()
        self._validating: deque[tuple[str, ...]] = deque()
        self._admitting: deque[list[str]] = deque()
        self._round_received = self._round_sent = 0
        self._sent_something = self.is_sent = self.is_received = False
        self.is_begun = False
        """Whether something of the peer's batch has arrived."""
        self.pending_there = 0
        self.bytes_received = self.bytes_sent = self.stored = 0
        self.receipts = self.receipts_omitted = 0
        self.failure: InterlaceFailure | None = None
        """What ends the exchange, once the records that came with or before it are stored."""

    def begin_round(self) -> None:
        """Begin to count bytes again."""
        self._told_unavailable.clear()
        self._round_received = self._round_sent = 0

    @property
    def is_busy(self) -> bool:
        """Whether records that arrived are being validated or stored."""
        return bool(self._validating or self._admitting)

    @property
    def is_over(self) -> bool:
        """Whether both batches are done with."""
        return self.is_sent and self.is_received and not self.is_busy

    @property
    def is_asked(self) -> bool:
        """Whether the peer's request list has anything."""
        return bool(self._asked or self._strange)

    @property
    def is_asked_for_advertised(self) -> bool:
        """Whether it has anything that was advertised in this loop."""
        return bool(self._asked)

    @property
    def moved(self) -> bool:
        """Whether a batch had a record, or a `NotAvailable` that was new in this round.

        One for what was not advertised in this loop is not progress.
        """
        return self._sent_something or self._ledger.brought

    # -- sending -------------------------------------------------------------------------------

    def take_requests(self, asked: Sequence[str]) -> None:
        """Take the peer's request list.

        What was not advertised in this loop is answered `NotAvailable`, from the frozen send
        set alone: whether it is hidden or not here at all makes no difference (G54).
        """
        known = self._states.own.has(asked)
        self._asked = tuple(itertools.compress(asked, known.tolist()))
        strange = itertools.compress(asked, (~known).tolist())
        # The line of an answer is longer than that of a request: one that has no line is deferred.
        self._strange = tuple(each for each in strange if self._is_sayable(each))
        self._ledger.noted[Failure.UNADVERTISED_REQUEST] += len(self._strange)
        self.is_sent = self.is_received = self.is_begun = self._sent_something = False

    def _is_sayable(self, record: str) -> bool:
        """Tell whether a line of the binding can hold `NotAvailable` of a record."""
        most = self._max_line_bytes
        return most is None or len(record) + _NOT_AVAILABLE_BYTES <= most

    def send(self) -> SendBatch:
        """Return the batch that answers the list, by what may be sent at this moment."""
        states = self._states
        may_send = list(self._asked)
        refused: list[str] = []
        if states.next_own is not states.own:  # else all of it was found in there already
            allowed = states.next_own.has(self._asked)
            may_send = list(itertools.compress(self._asked, allowed.tolist()))
            refused = list(itertools.compress(self._asked, (~allowed).tolist()))
        limits = self._terms.limits
        left = max(0, limits.max_total_transferred_bytes - self._counted(self._round_sent))
        return SendBatch(
            tuple(may_send),
            (*refused, *self._strange),
            min(limits.service_budget_bytes, left),
            limits.service_budget_seconds,
        )

    def batch_sent(self, event: BatchSent) -> None:
        """Take what was sent."""
        self.bytes_sent += event.size
        self._round_sent += event.size
        unavailable = set(event.unavailable).difference(self._strange)
        left = self._terms.limits.max_not_available_records - len(self._told_unavailable)
        fresh = sorted(unavailable - self._told_unavailable)[: max(0, left)]
        self._told_unavailable.update(fresh)
        self._sent_something = bool(event.sent) or bool(fresh)
        self.pending_there = len(self._asked) - len(event.sent) - len(unavailable)
        noted = self._ledger.noted
        noted[Failure.NOT_AVAILABLE] += len(unavailable)
        noted[Failure.SERVICE_BUDGET] += self.pending_there > 0
        self.is_sent = True
        self._states.expect(event.sent)
        self._check_bytes(self._round_sent, "were sent")

    # -- receiving -----------------------------------------------------------------------------

    def records(self, event: RecordsReceived) -> list[Effect]:
        """Take records that arrived."""
        asked: list[str] = []
        try:
            for raw in event.records:
                asked.append(self._receive(raw.claimed, len(raw.data)))  # noqa: PERF401  see below
        except InterlaceFailure as failure:  # those before it were asked for, and are here
            self._end_with(failure)
        self._check_bytes(self._round_received, "came")
        if not asked:
            return []
        self._validating.append(tuple(asked))
        return [Validate(event.records[: len(asked)])]

    def _end_with(self, failure: InterlaceFailure) -> None:
        """Have the exchange end; the first reason counts."""
        self.failure = self.failure or failure

    def lost(self, event: RecordLost) -> None:
        """Take note of a record that was too large to be read."""
        self._receive(event.record, event.size)
        self._check_bytes(self._round_received, "came")
        self._reject(event.record, Failure.OVERSIZED_RECORD)

    def missed(self, record: str) -> None:
        """Take note of a record that the peer cannot send any more."""
        self.is_begun = True
        self._ledger.miss(record, self._terms.limits.max_not_available_records)

    def _receive(self, record: str, size: int) -> str:
        self.is_begun = True
        self.bytes_received += size
        self._round_received += size
        return self._ledger.take(record)

    def _counted(self, count: int) -> int:
        """Return the bytes that count toward the limit, from the bytes that one direction moved."""
        is_literal = self._terms.limits.literal_limits
        return self._round_sent + self._round_received if is_literal else count

    def _check_bytes(self, count: int, what: str) -> None:
        most = self._terms.limits.max_total_transferred_bytes
        if self._counted(count) > most:
            self._end_with(
                limit_failure(
                    Failure.TRANSFER_LIMIT,
                    f"more than {most:,} record bytes {what} in this round",
                    limit="max_total_transferred_bytes",
                    allowed=most,
                    agreed=True,
                )
            )

    def _reject(self, record: str, row: Failure, reason: str | None = None) -> None:
        self._ledger.reject(record, self._states.theirs.digest(record), row, reason)
        most = self._terms.limits.max_rejected_records
        if self._ledger.rejections > most:
            self._end_with(
                limit_failure(
                    Failure.REJECT_BUDGET,
                    f"more than {most:,} records were rejected",
                    limit="max_rejected_records",
                    allowed=most,
                )
            )

    def validated(self, event: Validated) -> list[Effect]:
        """Take records that are valid, and those that are not."""
        records = self._validating.popleft()
        valid = [each for each in event.outcomes if isinstance(each, ValidRecord)]
        differing = self._differing(valid)
        good: list[ValidRecord] = []
        names: list[str] = []
        for record, outcome in zip(records, event.outcomes, strict=True):
            if not isinstance(outcome, ValidRecord):
                known = record.rpartition(".")[2] in STORED_FORMATS
                row = Failure.INVALID_RECORD if known else Failure.UNSUPPORTED_RECORD
                self._reject(record, row, outcome)
            elif record in differing:
                self._reject(record, Failure.CLAIMS_DIFFER)
            else:
                good.append(outcome)
                names.append(record)
        if not good:
            return []
        self._admitting.append(names)
        return [Admit(tuple(good))]

    def _differing(self, records: Sequence[ValidRecord]) -> frozenset[str]:
        """Return the records of which something else was advertised (X1)."""
        if self._store_differing or self._states.is_bare or not records:
            return frozenset()
        schema, source = self._terms.schema, self._terms.peer_source
        fields: dict[str, list[Fact]] = {record.hash_text: [] for record in records}
        for fact in facts_of_records(
            records, reads={"Field": None if schema.all else schema.names}
        ):
            fields[fact[1]].append(fact)
        claims = self._states.theirs.digests_of(list(fields))
        found: set[str] = set()
        for (record, facts), claim in zip(fields.items(), claims, strict=True):
            made = advertised_fields_of(
                record, source, facts, schema, max_line_bytes=self._max_line_bytes
            )
            if digest_of(record, source, made) != claim:
                found.add(record)
        return frozenset(found)

    def admitted(self, event: Admitted) -> None:
        """Count what is stored against what was to be stored."""
        admitted = self._admitting.popleft()
        if event.stored != len(admitted):
            raise AssertionError(
                f"{len(admitted):,} records were to be stored, and {event.stored:,} are"
            )
        for record in admitted:
            self._ledger.accept(record)
        self.stored += event.stored
        self.receipts += event.receipts
        self.receipts_omitted += event.omitted

    def batch_ended(self) -> None:
        """Take the end of the peer's batch."""
        self._ledger.end_batch()
        self.is_received = True


# -- The ledger of requests: their outcomes, and what is not requested again (G47).
#
# A hash that was answered `NotAvailable` is not asked for again in this round, unless its
# advertisement was absent from one loop; a rejected one not in this epoch while its
# advertisement is the one that it was rejected under. Every request is accounted for.


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
        """Note that the peer cannot send a record."""
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
