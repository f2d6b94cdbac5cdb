"""What a store of records is: admission, removal, snapshots, and who is told of a change.

A store admits `ValidRecord`s only, whole batches or nothing. A snapshot is one
state of the store, whatever writers do meanwhile, and is a `FactSource`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from lace.errors import StoreError
from lace.facts.source import FactSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.record.ids import RecordId
    from lace.record.paths import Address
    from lace.record.validate import ValidRecord


class NoStoreError(StoreError):
    """There is no lace at the place named, or it is something else."""

    exit_code = 2


class StoreUnavailableError(StoreError):
    """The environment does not let the store work: disk full, no permission, I/O error."""


class StoreVersionError(StoreError):
    """The store was written by a newer version of Lace."""


class StoreBusyError(StoreError):
    """Another process is writing, and went on for longer than this one would wait."""

    exit_code = 5


class StoreDamagedError(StoreError):
    """The store does not hold what it once stored."""

    exit_code = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """What a store knows of a record without looking at its bytes."""

    store_record_id: int
    id: RecordId
    size: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None
    signed_by: str | None = None

    @property
    def coordinate(self) -> str:
        """The coordinate's text; empty for a Blob."""
        return f"//{self.group}//{self.app}//{self.name}" if self.group is not None else ""


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a batch: the new StoreRecordIds, and how many were known already."""

    stored: tuple[int, ...]
    known: int


@dataclass(frozen=True, slots=True)
class Totals:
    """How much a store holds, and the highest StoreRecordId it has ever given."""

    records: int
    record_bytes: int
    high_water: int


class Order(StrEnum):
    """How a listing is sorted; ties are broken by identifier."""

    COORDINATE = "coordinate"
    TAI = "tai"
    STORED = "stored"
    ID = "id"


class Snapshot(FactSource, Protocol):
    """One consistent state of a store."""

    def totals(self) -> Totals:
        """Return the counts of this state."""
        ...

    def has(self, identifier: str) -> bool:
        """Tell whether the record is stored here in its own right."""
        ...

    def describe(self, identifier: str) -> StoredRecord | None:
        """Return what is known of a record, or None."""
        ...

    def read(self, identifier: str) -> bytes | None:
        """Return a record's bytes, checked against its digest, or None."""
        ...

    def load(self, identifier: str) -> ValidRecord | None:
        """Return a record with its parts, or None."""
        ...

    def records(self, *, order: Order = Order.STORED, after: int = 0) -> Iterator[ValidRecord]:
        """Yield every record with a StoreRecordId above `after`."""
        ...

    def find(self, address: Address, *, limit: int | None = None) -> list[StoredRecord]:
        """Return the records that an address names, the tip first, at most this many."""
        ...

    def listing(
        self,
        prefix: str = "",
        *,
        order: Order = Order.COORDINATE,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield the records whose coordinate text starts with prefix, Blobs last."""
        ...


class RecordStore(Protocol):
    """A place that keeps records."""

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Store every record that is not there yet: all of them, or on any failure none."""
        ...

    def remove(self, identifiers: Iterable[RecordId]) -> int:
        """Take records out; returns how many were there. Their StoreRecordIds stay used."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent view that no writer changes or blocks."""
        ...

    def close(self) -> None:
        """Release what the store holds open."""
        ...


# -- Who wants to know that a store has changed: watchers in this process, by folder.
#
# Several handles of one lace may be open here, and threads of their own may wait for records
# that another adds. What another process stores shows in the database's own counters.

_lock = threading.Lock()
_watchers: dict[Path, list[Callable[[], None]]] = {}


def announce_change(folder: Path) -> None:
    """Tell the watchers of a store that its records have changed."""
    if not _watchers:
        return
    with _lock:
        told = list(_watchers.get(folder.absolute(), ()))
    for tell in told:
        tell()


@contextmanager
def watching(folder: Path, tell: Callable[[], None]) -> Iterator[None]:
    """Have a function called, in whichever thread, when records of a store change."""
    key = folder.absolute()
    with _lock:
        _watchers.setdefault(key, []).append(tell)
    try:
        yield
    finally:
        with _lock:
            _watchers[key].remove(tell)
            if not _watchers[key]:
                del _watchers[key]
