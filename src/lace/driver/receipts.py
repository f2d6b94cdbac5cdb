"""Receipts that a side publishes for what it stores: signed, bounded, stored together (050).

A receipt is an ordinary record of this lace, and moves by the ordinary rules. A receipt gets no
receipt: two sides that both publish them would never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.errors import RecordError, UsageError
from lace.record.paths import Address, Coordinate
from lace.record.receipt import RECEIPT_APP, RECEIPT_GROUP, STORED_FROM, make_receipt, receipt_name
from lace.record.validate import frame_record, validate_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.base.tai import Tai
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey
    from lace.record.validate import ValidRecord
    from lace.store.interface import RecordStore, Snapshot
    from lace.store.keys import KeyRing

__all__ = ["Receipts", "choose_receipt_key"]


def choose_receipt_key(
    keys: KeyRing, key: SigningKey | None, claim: Verifier | None = None
) -> SigningKey:
    """Return the key that signs receipts.

    It is the key of the exchange. A side that proves nothing by a key, because its transport does
    or because it is plain, signs with the key of the verifier that it claims if the lace has it,
    else with the default key of the lace.

    Args:
        keys: the keys of the lace.
        key: the key of the exchange, if it uses one.
        claim: the verifier that this side claims without a key, if it does.

    Raises:
        UsageError: the lace has no such key.
        StoreError: the key cannot be read.
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
    """Makes the receipts of one side of one exchange.

    Args:
        store: where records and receipts go.
        key: this side's.
        most: how many receipts there may be in one round.
        clock: gives the time.
        random_bytes: randomness for checking signatures together.
    """

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
