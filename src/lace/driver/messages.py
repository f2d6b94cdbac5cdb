"""What a party says to its peer, in order; who moves it is not said here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lace.interlacing.effects import SendBlock

__all__ = [
    "BatchEnd",
    "Block",
    "End",
    "Message",
    "NotAvailable",
    "Records",
    "beside_records",
]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of facts, with the modules that go before it."""

    effect: SendBlock


@dataclass(frozen=True, slots=True)
class Records:
    """The bytes of records of a batch, in their order."""

    records: list[bytes]


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A requested record that is not sent."""

    record: str


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the stream."""


Message: TypeAlias = Block | Records | NotAvailable | BatchEnd | End


def beside_records(message: Message, size: int) -> tuple[int, bool]:
    """Return the bytes of a message that are not of records, and whether it is to reconcile."""
    if isinstance(message, Records):
        return size - sum(map(len, message.records)), False
    return size, isinstance(message, Block) and message.effect.is_reconciling
