"""A warehouse as the store of one side of an exchange: its records are sent, and it takes none."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lace.errors import StoreError
from lace.store.sqlite.counters import Counters
from lace.store.sqlite.fact_state import FactState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.pipeline.served import ServedWarehouse
    from lace.record.ids import RecordId
    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission

__all__ = ["WarehouseStore"]


class WarehouseStore:
    """A warehouse behind one link; what it shows stays the same within an epoch.

    Args:
        newest: gives the state that new epochs begin with.
    """

    def __init__(self, newest: Callable[[], ServedWarehouse]) -> None:
        self._newest = newest
        self._served = newest()

    @property
    def folder(self) -> Path:
        """Where the warehouse is."""
        return self._served.warehouse.folder

    @property
    def read_only(self) -> bool:
        """Nothing is ever written to it."""
        return True

    def renew(self) -> ServedWarehouse:
        """Go on with the newest state that is open, and return it."""
        self._served = self._newest()
        return self._served

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a view of the state."""
        yield _Snapshot(self._served)

    @contextmanager
    def fact_snapshot(self) -> Iterator[tuple[_Snapshot, FactState]]:
        """Open a view of the state together with its facts."""
        yield _Snapshot(self._served), _facts(self._served)

    def discard_segments(self) -> None:
        """Nothing is kept beside the records."""

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Refuse records: none was asked for.

        Raises:
            StoreError: always.
        """
        raise StoreError(
            f"{len(records):,} records are to be stored in a warehouse, which is only read",
            hint="take records with a lace, and `lace pipeline import-lace WAREHOUSE`",
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One state of a warehouse."""

    served: ServedWarehouse

    def counters(self) -> Counters:
        """Return counters by which states are told apart; they are none of a lace."""
        served = self.served
        return Counters(len(served.index), served.record_bytes, served.generation)

    def removals(self, after: int) -> list[tuple[int, RecordId]]:
        """Nothing is ever removed."""
        return []

    def has(self, identifier: str) -> bool:
        """Tell whether the record is here."""
        return not self.served.index.missing([identifier])

    def new_records(self, after: int) -> list[ValidRecord]:
        """Nothing comes within a state."""
        return []

    def bytes_of(self, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes."""
        return self.served.bytes_of(identifiers)


@dataclass(frozen=True, slots=True)
class _HeadFacts(FactState):
    """The facts of a warehouse: there are no segments, and no records are held."""

    served: ServedWarehouse

    def tail_facts(self, max_value_bytes: int) -> Iterator[Fact]:
        """Yield the facts of all records; the caller checks their length."""
        return self.served.facts()


def _facts(served: ServedWarehouse) -> FactState:
    nothing = np.empty(0, np.int32)
    return _HeadFacts(None, nothing, [], served.generation, 0, len(served.index), served)
