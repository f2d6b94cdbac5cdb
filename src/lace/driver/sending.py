"""A batch: requested records, loaded and given out as far as its budget goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.driver.messages import BatchEnd, NotAvailable, Records
from lace.interlacing.events import BatchSent

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lace.base.tai import Tai
    from lace.driver.messages import Message
    from lace.interlacing.effects import SendBatch
    from lace.store.exchange_store import ExchangeStore

__all__ = ["RECORDS_AT_ONCE", "send_batch"]

RECORDS_AT_ONCE: Final = 8_000
"""Records that are moved, validated and stored together."""
_LOOK_BYTES: Final = 256 * 1024
"""Record bytes that are loaded between two looks at the clock, about."""
_LOOK_RECORDS: Final = 256
"""It has at most this many records."""
_SECOND: Final = 1_000_000_000


def send_batch(
    store: ExchangeStore, effect: SendBatch, clock: Callable[[], Tai], bytes_at_once: int
) -> Generator[Message, None, BatchSent]:
    """Yield the messages of a batch, as many as its budget allows; returns what was sent."""
    until = clock().shift(effect.most_seconds * _SECOND)
    sent: list[str] = []
    missing = list(effect.unavailable)
    size = looked = 0
    piece: list[bytes] = []
    piece_bytes = 0
    with store.snapshot() as snapshot:
        for record, raw in snapshot.bytes_of(effect.records):
            piece.append(raw)
            sent.append(record)
            size += len(raw)
            piece_bytes += len(raw)
            is_full = len(piece) == RECORDS_AT_ONCE or piece_bytes >= bytes_at_once
            if is_full:
                yield Records(piece)
                piece, piece_bytes = [], 0
            if is_full or size - looked >= _LOOK_BYTES or not len(sent) % _LOOK_RECORDS:
                looked = size
                if clock() >= until:
                    break
            if size >= effect.most_bytes:
                break
        else:
            missing += sorted(set(effect.records).difference(sent))
    if piece:
        yield Records(piece)
    yield from map(NotAvailable, missing)
    yield BatchEnd()
    return BatchSent(tuple(sent), tuple(missing), size)
