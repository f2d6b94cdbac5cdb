"""Intake of received records: validated in other processes, stored in large transactions.

Records arrive while others are validated. Valid ones are collected and stored in few large
transactions, which write each page of the tables once; none is reported as stored before its
transaction is. In a large store a transaction reaches most pages of the tables that locate records,
and the next one writes them again: transactions are larger there, unless several links collect
records at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from lace.errors import RecordError, UsageError
from lace.exchange.events import Admitted, Validated
from lace.link.events import PartyObserver
from lace.record.model import RECEIPT_APP, RECEIPT_GROUP, STORED_FROM, make_receipt, receipt_name
from lace.record.paths import Address, Coordinate
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.store.validation import (
    ALONE_BATCHES,
    SIGNATURE_BATCH,
    Batch,
    ValidationPool,
    batches_alone,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.exchange.events import Event
    from lace.record.ids import Verifier
    from lace.record.reader import RawRecord
    from lace.record.seal import SigningKey
    from lace.store.interface import RecordStore, Snapshot
    from lace.store.keys import KeyRing
    from lace.store.store_view import ExchangeStore
    from lace.store.validation import ValidationResults


FEW_RECORDS: Final = 1_000
"""Smaller batches are validated in this process: an open exchange has many."""
_LARGE_TIMES: Final = 4
"""The factor by which transactions into a large store may be larger."""
_LARGE_SHARE: Final = 4
"""A store is large if it has more than this many times the records of a transaction."""
_LAST_SHARE: Final = 8
"""The last records join a transaction if they are at most one in this many of it."""


class IntakeLoad:
    """Counts the intakes that hold records to be stored, of the links that share it.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._holding: set[int] = set()

    def note(self, intake: LinkIntake, *, holds: bool) -> None:
        """Note whether an intake holds records now."""
        with self._guard:
            if holds:
                self._holding.add(id(intake))
            else:
                self._holding.discard(id(intake))

    def has_others(self, intake: LinkIntake) -> bool:
        """Tell whether an intake other than this one holds records."""
        with self._guard:
            return bool(self._holding - {id(intake)})


class LinkIntake:
    """Validates and stores the records that a peer sends."""

    def __init__(
        self,
        store: ExchangeStore,
        settings: Settings,
        random_bytes: Callable[[int], bytes],
        workers: int = 0,
        load: IntakeLoad | None = None,
        receipts: Receipts | None = None,
        observer: PartyObserver | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._observer = observer or PartyObserver()
        self._receipts = receipts
        alone = batches_alone(settings)
        self._pool = ValidationPool(random_bytes, workers, alone)
        self._admitting: deque[Sequence[ValidRecord]] = deque()
        self._records = self._bytes = 0
        self._further = 0
        """The number of records that are known to follow."""
        self._last = 0
        """The StoreRecordId of the last stored record: about the size of the store."""
        self._load = load or IntakeLoad()

    @property
    def is_busy(self) -> bool:
        """Whether records wait to be validated or stored."""
        return bool(self._pool.batches or self._admitting)

    @property
    def validating(self) -> int:
        """The number of batches that wait for their validation."""
        return self._pool.batches

    def watch(self) -> int | None:
        """Return a descriptor that is readable once the next validation is done.

        The caller closes it. None when no process validates.
        """
        found = self._pool.descriptor
        return None if found is None else os.dup(found)

    @property
    def is_full(self) -> bool:
        """Whether work has to be done before more records are taken."""
        return self._pool.is_full or self._is_due

    @property
    def _is_due(self) -> bool:
        records, size = self._settings.import_batch_records, self._settings.import_batch_bytes
        if self._records < records and self._bytes < size:
            return False
        if not self._is_large or self._load.has_others(self):
            return True
        is_full = self._records >= _LARGE_TIMES * records or self._bytes >= _LARGE_TIMES * size
        return is_full and not self._awaits_last

    @property
    def _is_large(self) -> bool:
        """Whether the store is large compared with the next transaction."""
        return self._records * _LARGE_SHARE < self._last

    @property
    def _awaits_last(self) -> bool:
        """Whether the few records that are left should join the transaction."""
        if not self._is_large or self._records < self._settings.import_batch_records:
            return False
        left = self._further + self._pool.records
        return 0 < left * _LAST_SHARE <= self._records

    def expect(self, count: int) -> None:
        """Prepare for this many requested records."""
        if count > ALONE_BATCHES * SIGNATURE_BATCH:
            self._pool.expect_many()

    def validate(self, records: Sequence[RawRecord], *, further: int = 0) -> None:
        """Submit records for validation; `further` more are known to follow."""
        self._further = further
        is_small = len(records) + further < FEW_RECORDS and not self._settings.import_workers
        self._pool.submit(Batch(list(records), []), here=is_small)

    def admit(self, records: Sequence[ValidRecord]) -> None:
        """Collect valid records for the next transaction."""
        self._admitting.append(records)
        self._records += len(records)
        self._bytes += sum(len(record.bytes) for record in records)
        self._load.note(self, holds=self._records > 0)

    def work(self, *, wait: bool = False) -> list[Event]:
        """Do the work that can be done now, and return its answers."""
        if self._is_due or (self._admitting and self._is_worth_storing(wait=wait)):
            return self._store_all()
        if self._pool.batches and (wait or self._pool.is_full or self._pool.is_ready):
            return [_validated(self._pool.collect())]
        return []

    def _is_worth_storing(self, *, wait: bool) -> bool:
        """Return whether to store the collected records, although there is room for more."""
        if not self._pool.batches:
            return wait or not self._further
        # Half of a transaction, when all have come and there is nothing else to do: less is left
        # for the end. Earlier it would make more transactions, which take more time.
        is_much = 2 * self._records >= self._settings.import_batch_records
        is_idle = wait and not self._further and not self._pool.is_ready
        return is_much and is_idle and not self._awaits_last

    def _store_all(self) -> list[Event]:
        """Store the collected records in one transaction."""
        groups = list(self._admitting)
        self._forget_records()
        records = [record for group in groups for record in group]
        receipts: list[ValidRecord] = []
        omitted = 0
        if self._receipts is not None:
            receipts, omitted = self._receipts.receipts_for(records)
        admission = self._store.admit([*records, *receipts])
        if admission.stored:
            self._last = admission.stored[-1]
        done = len(admission.stored) + admission.known - len(receipts)
        if done != len(records):
            raise AssertionError(f"{len(records):,} records were to be stored, and {done:,} are")
        self._observer.stored(records)
        last = Admitted(len(groups[-1]), len(receipts), omitted)
        return [*(Admitted(len(group)) for group in groups[:-1]), last]

    def close(self) -> None:
        """End the processes, and drop records that are not stored."""
        self._pool.close()
        self._forget_records()

    def _forget_records(self) -> None:
        self._admitting.clear()
        self._records = self._bytes = 0
        self._load.note(self, holds=False)


def _validated(verdicts: ValidationResults) -> Validated:
    made: list[ValidRecord | str] = []
    for raw, outcome in zip(verdicts.batch.records, verdicts.outcomes, strict=True):
        if not isinstance(outcome, ValidRecord):
            made.append(outcome.message)
        elif outcome.hash_text != raw.claimed:
            made.append("the record is not the one that its markline names")
        else:
            made.append(outcome)
    return Validated(tuple(made))


# -- Receipts that a side publishes for what it stores: signed, bounded, stored together (050).
#
# A receipt is an ordinary record of this lace, and moves by the ordinary rules. A receipt gets no
# receipt: two sides that both publish them would never end.


def choose_receipt_key(
    keys: KeyRing, key: SigningKey | None, claim: Verifier | None = None
) -> SigningKey:
    """Return the key that signs receipts.

    It is the key of the exchange. A side that proves nothing by a key, because its transport does
    or because it is plain, signs with the key of the verifier that it claims if the lace has it,
    else with the default key of the lace.
    """
    if key is not None:
        return key
    chosen = claim if claim in keys.verifiers() else keys.default()
    if chosen is None:
        raise UsageError(
            "a receipt must be signed, and this lace has no default key",
            rule="050-209",
            hint="make a key with `lace key new`, or choose one with `lace key default V`",
        )
    return keys.load(chosen)


class Receipts:
    """Makes the receipts of one side of one exchange."""

    def __init__(
        self,
        store: RecordStore,
        key: SigningKey,
        most: int,
        clock: Callable[[], Tai],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._store, self._key, self._most = store, key, most
        self._clock, self._random_bytes = clock, random_bytes
        self._left = most
        self.sender: str | None = None
        """The verifier that the peer has proven; without one no receipt can name it."""

    def begin_round(self) -> None:
        """Count receipts from zero again."""
        self._left = self._most

    def receipts_for(self, records: Sequence[ValidRecord]) -> tuple[list[ValidRecord], int]:
        """Return the receipts for records that are about to be stored, and how many are omitted.

        Omitted are those of a peer that has proven nothing, and those above the limit. A
        record whose receipt for this sender is here already needs none.
        """
        wanted = [each.hash_text for each in records if not _is_receipt(each)]
        sender = self.sender
        if sender is None or not wanted:
            return [], len(wanted)
        chosen: list[str] = []
        omitted = 0
        with self._store.snapshot() as snapshot:
            for each in wanted:
                if len(chosen) == self._left:  # no look-ups above the limit
                    omitted += 1
                elif not self._is_published(snapshot, each, sender):
                    chosen.append(each)
        self._left -= len(chosen)
        tai = self._clock()
        frames = [
            frame_record(make_receipt(each, sender, self._key, tai=tai).bytes) for each in chosen
        ]
        made: list[ValidRecord] = []
        for outcome in validate_many(frames, self._random_bytes):
            if isinstance(outcome, RecordError):
                raise outcome
            made.append(outcome)
        return made, omitted

    def _is_published(self, snapshot: Snapshot, record: str, sender: str) -> bool:
        """Tell whether this side has published one; receipts of others are not read."""
        at = Coordinate(RECEIPT_GROUP, RECEIPT_APP, receipt_name(record))
        own = Address(coordinate=at, type="S", signed_by=self._key.verifier)
        receipts = (snapshot.load(found.id) for found in snapshot.find(own))
        return any(each is not None and (STORED_FROM, sender) in each.headers for each in receipts)


def _is_receipt(record: ValidRecord) -> bool:
    return record.group == RECEIPT_GROUP and record.app == RECEIPT_APP
