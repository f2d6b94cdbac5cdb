"""Records out of a warehouse, one after another, without Spark.

Bytes are checked against their hash whenever they are read, so that damage is an error and never
a wrong record.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.exchange.advertisement_set import Keys, keys_of, order_of_keys
from lace.spark.pipeline.tables import RECORDS, batches_of, check_row
from lace.spark.pipeline.warehouse import WarehouseDamagedError, translate_damage
from lace.store.intake import import_stream
from lace.store.validation import batches_alone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike

    from lace.base.limits import Settings
    from lace.record.paths import Address
    from lace.record.validate import ValidRecord
    from lace.spark.pipeline.warehouse import WarehouseFolder
    from lace.store.intake import Intake, Report
    from lace.store.interface import RecordStore


_KEY_COLUMNS: Final = ("hash", "type", "group_path", "app", "name", "tai", "signed_by")


def iterate_records(
    warehouse: WarehouseFolder, wanted: Collection[str] | None = None
) -> Iterator[ValidRecord]:
    """Yield every record, or those of some hashes, in the order of the warehouse."""
    for path in warehouse.files(RECORDS):
        rows = _rows(path, ("hash", "head", "data"), wanted)
        while True:
            with translate_damage(path):
                row = next(rows, None)
                record = check_row(row) if row is not None else None
            if record is None:
                break
            yield record


def store_records(
    warehouse: WarehouseFolder,
    store: RecordStore,
    *,
    settings: Settings,
    workers: int,
    report: Report | None = None,
) -> Intake:
    """Store the records of a warehouse, each validated as an import does it; returns the counts."""
    return import_stream(
        store,
        (record.bytes for record in iterate_records(warehouse)),
        settings=settings,
        random_bytes=os.urandom,
        workers=workers,
        alone=batches_alone(settings),
        source=str(warehouse.folder),
        report=report,
    )


def find_hashes(warehouse: WarehouseFolder, addresses: Sequence[Address]) -> list[str | None]:
    """Return the hash of the record that each address names, the newest of a coordinate."""
    found: list[tuple[str, str] | None] = [None] * len(addresses)
    for path in warehouse.files(RECORDS):
        with translate_damage(path):
            for row in _rows(path, _KEY_COLUMNS, None):
                _note(found, addresses, row)
    return [each[1] if each else None for each in found]


def held_hashes(warehouse: WarehouseFolder, hashes: Collection[str]) -> frozenset[str]:
    """Return those of some hashes that records here have."""
    found: set[str] = set()
    for path in warehouse.files(RECORDS):
        with translate_damage(path):
            found.update(row["hash"] for row in _rows(path, ("hash",), hashes))
    return frozenset(found)


def _note(
    found: list[tuple[str, str] | None], addresses: Sequence[Address], row: dict[str, Any]
) -> None:
    for number, address in enumerate(addresses):
        if _is_named(address, row):
            key = (row["tai"] or "", row["hash"])
            found[number] = max(found[number] or key, key)


def _is_named(address: Address, row: dict[str, Any]) -> bool:
    place = address.coordinate
    if place is not None and (place.group, place.app, place.name) != (
        row["group_path"],
        row["app"],
        row["name"],
    ):
        return False
    asked = (
        (address.hash, row["hash"]),
        (address.type, row["type"]),
        (address.tai, row["tai"]),
        (address.signed_by, row["signed_by"]),
    )
    return all(want is None or want == have for want, have in asked)


def _rows(
    path: Path, columns: Sequence[str], wanted: Collection[str] | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; row groups that have none of the wanted hashes are left out."""
    from pyarrow import parquet

    for number in range(parquet.read_metadata(path).num_row_groups):
        if wanted is not None:
            hashes = (batch.column(0).to_pylist() for batch in batches_of(path, ["hash"], number))
            if not any(each in wanted for each in chain.from_iterable(hashes)):
                continue
        for batch in batches_of(path, columns, number):
            for row in batch.to_pylist():
                if wanted is None or row["hash"] in wanted:
                    yield row


# -- Finding records of a warehouse by their hashes: an index in memory, and the rows that it names.
#
# The index has for each record its key and where its row is: 41 bytes of memory, and 74 while it is
# made. A look-up reads only row groups that have something of what is wanted. Files that an earlier
# index has read are not read again.

_Places: TypeAlias = "npt.NDArray[np.int64]"
_Name: TypeAlias = "tuple[str, str, int]"
_BYTES: Final = ("hash", "head", "data")
_AT_ONCE: Final = 1 << 18
"""Keys of an earlier index that are put into their places together."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of records; `name` tells files apart, also those that are no longer the same."""

    name: _Name
    path: Path
    rows: int


class RecordIndex:
    """Where the records of one state of a warehouse are."""

    def __init__(self, warehouse: WarehouseFolder, before: RecordIndex | None = None) -> None:
        files = zip(warehouse.manifest.files(RECORDS), warehouse.files(RECORDS), strict=True)
        self._parts: list[_Part] = [
            _Part((file.path, file.digest, file.rows), path, file.rows) for file, path in files
        ]
        self._first = np.cumsum([0, *(part.rows for part in self._parts)])
        keys: Keys = np.zeros(int(self._first[-1]), "S33")
        known = before._hand_over(self._starts(), keys) if before is not None else frozenset()
        for part, first in zip(self._parts, self._first.tolist(), strict=False):
            if part.name not in known:
                _read_keys(part.path, keys[first : first + part.rows])
        self._places: _Places = order_of_keys(keys).astype(np.int64, copy=False)
        self._keys: Keys = keys[self._places]

    def _starts(self) -> dict[_Name, int]:
        """Return where the rows of each file begin."""
        return {
            part.name: first for part, first in zip(self._parts, self._first.tolist(), strict=False)
        }

    def _hand_over(self, starts: dict[_Name, int], keys: Keys) -> frozenset[_Name]:
        """Put keys into their places in an array by rows, where files begin elsewhere.

        Returns:
            The files whose keys are there now.
        """
        begins = np.array([starts.get(part.name, -1) for part in self._parts], np.int64)
        for start in range(0, len(self._keys), _AT_ONCE):
            places = self._places[start : start + _AT_ONCE]
            number = np.searchsorted(self._first, places, side="right") - 1
            stays = begins[number] >= 0
            moved = (places - self._first[number] + begins[number])[stays]
            keys[moved] = self._keys[start : start + _AT_ONCE][stays]
        return frozenset(part.name for part in self._parts if part.name in starts)

    def __len__(self) -> int:
        return len(self._keys)

    def missing(self, records: Sequence[str]) -> list[str]:
        """Return those of some records that are not here."""
        keys, is_usual = keys_of(records)
        is_here = np.zeros(len(records), np.bool_)
        is_here[is_usual] = self._find(keys)[1]
        return [records[at] for at in np.flatnonzero(~is_here).tolist()]

    def _find(self, keys: Keys) -> tuple[_Places, npt.NDArray[np.bool_]]:
        """Return where keys are, and which of them are anywhere."""
        if not len(self._keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return self._places[at], self._keys[at] == keys

    def bytes_of(self, records: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes.

        They come in the order of their rows.
        """
        for path, batch in self.rows_of(records, _BYTES):
            for row in batch.to_pylist():
                with translate_damage(path):
                    record = check_row(row)
                yield record.hash_text, record.bytes

    def rows_of(self, records: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Path, Any]]:
        """Yield the rows of those records that are here as Arrow batches, with their files."""
        places, is_here = self._find(keys_of(records)[0])
        wanted = np.unique(places[is_here])
        bounds = np.searchsorted(wanted, self._first)
        for number, part in enumerate(self._parts):
            rows = wanted[bounds[number] : bounds[number + 1]] - self._first[number]
            if len(rows):
                for batch in rows_at(part.path, part.rows, rows, columns):
                    yield part.path, batch

    def all_rows(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of all records as Arrow batches, file by file."""
        for part in self._parts:
            yield from rows_at(part.path, part.rows, np.arange(part.rows), columns)


def _read_keys(path: Path, into: Keys) -> None:
    """Read the keys of a file in the order of its rows, of which there are just this many."""
    at = 0
    with translate_damage(path):
        for batch in batches_of(path, ("hash",)):
            keys, is_usual = keys_of([each or "" for each in batch.column(0).to_pylist()])
            if not is_usual.all():
                raise _no_hash(path)
            if at + len(keys) > len(into):
                raise _other_rows(path)
            into[at : at + len(keys)] = keys
            at += len(keys)
    if at != len(into):
        raise _other_rows(path)


def _other_rows(path: Path) -> WarehouseDamagedError:
    return WarehouseDamagedError(f"the file {path.name} has other rows than before")


def _no_hash(path: Path) -> WarehouseDamagedError:
    return WarehouseDamagedError(f"the file {path.name} has a record without a hash")


def rows_at(path: Path, count: int, places: ArrayLike, columns: Sequence[str]) -> Iterator[Any]:
    """Yield some rows of a file of this many as Arrow batches, by their numbers in order."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = np.asarray(places, np.int64)
    with translate_damage(path):
        metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if sum(groups) != count:
        raise _other_rows(path)
    ends = np.cumsum(groups)
    chosen = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
    for number in chosen:
        first = int(ends[number]) - groups[number]
        mine = rows[(rows >= first) & (rows < ends[number])] - first
        batches = batches_of(path, columns, number)
        while len(mine):
            with translate_damage(path):
                batch = next(batches, None)
                if batch is None:
                    raise _other_rows(path)
                inside = mine < batch.num_rows
                found = batch.take(pa.array(mine[inside]))
            mine = mine[~inside] - batch.num_rows
            if found.num_rows:
                yield found
