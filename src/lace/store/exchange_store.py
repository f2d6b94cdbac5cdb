"""What an exchange needs of a store: its records' bytes and facts, and a place for new ones.

A lace is one; so is a warehouse, which takes no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.record.ids import RecordId
    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission
    from lace.store.sqlite.counters import Counters
    from lace.store.sqlite.fact_state import FactState

__all__ = ["ExchangeSnapshot", "ExchangeStore"]


class ExchangeSnapshot(Protocol):
    """One consistent state of a store, as an exchange reads it."""

    def counters(self) -> Counters:
        """Return all counters of this state."""
        ...

    def removals(self, after: int) -> list[tuple[int, RecordId]]:
        """Return the removals with a sequence above `after`: it, and which record."""
        ...

    def has(self, identifier: str) -> bool:
        """Tell whether the record is stored here in its own right."""
        ...

    def new_records(self, after: int) -> list[ValidRecord]:
        """Return the records with a StoreRecordId above `after`."""
        ...

    def bytes_of(self, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes."""
        ...


class ExchangeStore(Protocol):
    """A store as one side of an exchange."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether nothing is ever written to it."""
        ...

    def snapshot(self) -> AbstractContextManager[ExchangeSnapshot]:
        """Open a consistent view."""
        ...

    def fact_snapshot(self) -> AbstractContextManager[tuple[ExchangeSnapshot, FactState]]:
        """Open a consistent view together with its facts."""
        ...

    def discard_segments(self) -> None:
        """Give up stored facts in which damage was found."""
        ...

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Store every record that is not there yet: all of them, or on any failure none."""
        ...
