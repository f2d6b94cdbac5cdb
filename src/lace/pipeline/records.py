"""Records out of a warehouse, one after another, without Spark.

Bytes are checked against their hash whenever they are read, so that damage is an error and never
a wrong record.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from lace.pipeline.failures import damage_told
from lace.pipeline.tables import RECORDS
from lace.record.ids import RecordId
from lace.record.validate import ValidRecord, trust_stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from lace.pipeline.warehouse import Warehouse
    from lace.record.paths import Address

__all__ = ["batches_of", "check_row", "find_hashes", "held_hashes", "iterate_records"]

_BATCH_BYTES: Final = 16 * 1024 * 1024
_MOST_ROWS: Final = 4096
_KEY_COLUMNS: Final = ("hash", "type", "group_path", "app", "name", "tai", "signed_by")


def iterate_records(
    warehouse: Warehouse, wanted: Collection[str] | None = None
) -> Iterator[ValidRecord]:
    """Yield every record, or those of some hashes, in the order of the warehouse.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    for path in warehouse.files(RECORDS):
        rows = _rows(path, ("hash", "head", "data"), wanted)
        while True:
            with damage_told(path):
                row = next(rows, None)
                record = check_row(row) if row is not None else None
            if record is None:
                break
            yield record


def find_hashes(warehouse: Warehouse, addresses: Sequence[Address]) -> list[str | None]:
    """Return the hash of the record that each address names, the newest of a coordinate.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    found: list[tuple[str, str] | None] = [None] * len(addresses)
    for path in warehouse.files(RECORDS):
        with damage_told(path):
            for row in _rows(path, _KEY_COLUMNS, None):
                _note(found, addresses, row)
    return [each[1] if each else None for each in found]


def held_hashes(warehouse: Warehouse, hashes: Collection[str]) -> frozenset[str]:
    """Return those of some hashes that records here have.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    found: set[str] = set()
    for path in warehouse.files(RECORDS):
        with damage_told(path):
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


def batches_of(path: Path, columns: Sequence[str], group: int | None = None) -> Iterator[Any]:
    """Yield the rows of a file, or of one of its row groups, as Arrow batches of a bounded size."""
    from pyarrow import parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups) if group is None else (group,):
            found = file.metadata.row_group(number)
            average = max(1, found.total_byte_size // max(1, found.num_rows))
            rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // average))
            yield from file.iter_batches(rows, row_groups=[number], columns=list(columns))


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


def check_row(row: dict[str, Any]) -> ValidRecord:
    """Return the record of a row whose bytes have the hash that they should.

    Raises:
        RecordError: they have not.
    """
    return trust_stored((row["head"] or b"") + (row["data"] or b""), RecordId(row["hash"] or ""))
