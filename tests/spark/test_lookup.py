"""Records of a warehouse by their hashes: over files and row groups, and damage on the way."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lace.api import parse_record
from lace.exchange.advertisement_set import records_of
from lace.record.ids import RecordId
from lace.record.model import Blob
from lace.record.validate import trust_stored
from lace.spark.pipeline.records import RecordIndex
from lace.spark.pipeline.tables import RECORDS, columns_of, record_row
from lace.spark.pipeline.warehouse import WarehouseDamagedError, WarehouseFolder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lace.record.model import Plex, Seal

GROUP = 7
KINDS = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
SCHEMA = pa.schema([(name, KINDS[kind]) for name, kind in columns_of(RECORDS)])


def add(
    warehouse: WarehouseFolder, records: Sequence[Blob | Plex | Seal], hashes: bool = True
) -> None:
    """Put a file of records into a warehouse, in small row groups."""
    rows = []
    for record in records:
        valid = trust_stored(record.bytes, RecordId(str(record.id)))
        row = dict(zip(SCHEMA.names, (*record_row(valid), 0, 0), strict=True))
        rows.append(row if hashes else {**row, "hash": "no hash"})
    add_table(warehouse, pa.Table.from_pylist(rows, SCHEMA), GROUP)


def add_table(warehouse: WarehouseFolder, table: pa.Table, group: int) -> None:
    """Put a file of rows into a warehouse."""
    with warehouse.writing("a test") as job:
        target = job.folder("records")
        target.mkdir(parents=True)
        path = target / "part-0.parquet"
        parquet.write_table(table, path, row_group_size=group, write_page_checksum=True)
        job.commit(warehouse.manifest.with_added({RECORDS: job.adopt(target)}))


@pytest.fixture
def warehouse(tmp_path: Path, records: list[Blob | Plex | Seal]) -> WarehouseFolder:
    """Two files, of 50 and of 30 records."""
    made = WarehouseFolder.create(tmp_path / "wh")
    add(made, records[:50])
    add(made, records[50:80])
    return made


def test_bytes_of_some_all_and_none(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    index = RecordIndex(warehouse)
    whole = {str(record.id): record.bytes for record in records[:80]}
    assert len(index) == 80
    assert dict(index.bytes_of(list(whole))) == whole
    strangers = [str(records[90].id), "B.short.H3", "S.other-format.H9", ""]
    for chosen in (records[48:52], records[6:8], records[::13], records[79:80], []):
        wanted = [str(record.id) for record in chosen if str(record.id) in whole]
        found = dict(index.bytes_of([*strangers, *reversed(wanted), *wanted]))
        assert found == {each: whole[each] for each in wanted}
    assert index.missing([*whole, *strangers]) == strangers
    assert [parse_record(raw).id for _, raw in index.bytes_of([str(records[3].id)])] == [
        records[3].id
    ]
    empty = RecordIndex(
        WarehouseFolder(warehouse.folder, warehouse.manifest.with_replaced(RECORDS, ()))
    )
    assert (len(empty), empty.missing(strangers), list(empty.bytes_of(list(whole)))) == (
        0,
        strangers,
        [],
    )


def test_only_what_is_wanted_is_read(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    """Damage in one row group is met by whoever wants something of it, and by nobody else."""
    index = RecordIndex(warehouse)
    path = warehouse.files(RECORDS)[0]
    place = parquet.ParquetFile(path).metadata.row_group(2).column(SCHEMA.names.index("data"))
    raw = path.read_bytes()
    at = (place.dictionary_page_offset or place.data_page_offset) + 60
    assert place.total_compressed_size > 200
    path.write_bytes(raw[:at] + bytes(each ^ 0xFF for each in raw[at : at + 8]) + raw[at + 8 :])
    others = [*records[: 2 * GROUP], *records[3 * GROUP : 80]]
    assert len(list(index.bytes_of([str(each.id) for each in others]))) == 80 - GROUP
    with pytest.raises(WarehouseDamagedError, match="a file of the warehouse is damaged"):
        list(index.bytes_of([str(records[2 * GROUP].id)]))


def test_an_index_is_built_upon_the_one_before(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    """Files that were read are not read again: one that is gone since does not matter."""
    before = RecordIndex(warehouse)
    first = warehouse.files(RECORDS)[0]
    add(warehouse, records[80:90])
    hidden = first.read_bytes()
    column = parquet.ParquetFile(first).metadata.row_group(0).column(0)
    at = column.data_page_offset
    first.write_bytes(hidden[:at] + bytes(12) + hidden[at + 12 :])
    index = RecordIndex(warehouse, before)
    assert index.missing([str(record.id) for record in records[:90]]) == []
    with pytest.raises(WarehouseDamagedError):
        RecordIndex(warehouse)


def test_keys_are_handed_over_to_where_files_are_now(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    """Files may come, go and stand elsewhere; each record is found in the row that it has."""
    before = RecordIndex(warehouse)
    add(warehouse, records[80:95])
    first, second, third = warehouse.manifest.files(RECORDS)
    whole = {str(record.id): record.bytes for record in records[:95]}
    for files, there in (
        ((third, second, first), records[:95]),
        ((second, third), records[50:95]),
        ((third,), records[80:95]),
        ((), []),
    ):
        state = WarehouseFolder(warehouse.folder, warehouse.manifest.with_replaced(RECORDS, files))
        index = RecordIndex(state, before)
        wanted = {str(record.id): record.bytes for record in there}
        assert len(index) == len(wanted)
        assert dict(index.bytes_of(list(whole))) == wanted
        assert sum(batch.num_rows for batch in index.all_rows(("hash",))) == len(wanted)
        before = index if there else before


def test_an_index_takes_the_memory_that_it_is_said_to_take(tmp_path: Path) -> None:
    """41 bytes a record, also where it was built upon another."""
    count = 40_000
    keys = np.random.default_rng(7).integers(0, 256, (count, 33), np.uint8)
    keys[:, 32] = ord("P")
    hashes = records_of(keys.reshape(-1).view("S33"))
    empty = [pa.nulls(count, field.type) for field in SCHEMA][1:]
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    add_table(warehouse, pa.Table.from_arrays([pa.array(hashes), *empty], schema=SCHEMA), count)
    tracemalloc.start()
    try:
        first = RecordIndex(warehouse)
        alone, _ = tracemalloc.get_traced_memory()
        second = RecordIndex(warehouse, first)
        both, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first.missing(hashes) == second.missing(hashes) == []
    assert alone / count < 45  # what is loaded at the first time counts as well
    assert (both - alone) / count < 42


def test_rows_that_are_not_as_they_should_be(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    index = RecordIndex(warehouse)
    path = warehouse.files(RECORDS)[1]
    rows = parquet.read_table(path)
    parquet.write_table(rows.slice(1), path)
    with pytest.raises(WarehouseDamagedError, match="has other rows than before"):
        list(index.bytes_of([str(records[60].id)]))
    swapped = [*rows.column("hash").to_pylist()[1:], str(Blob(b"another").id)]
    parquet.write_table(rows.set_column(0, "hash", pa.array(swapped)), path)
    with pytest.raises(WarehouseDamagedError, match="the bytes stored as"):
        list(index.bytes_of([str(records[60].id)]))
    add(warehouse, records[90:95], hashes=False)
    parquet.write_table(rows, path)
    with pytest.raises(WarehouseDamagedError):
        RecordIndex(warehouse)


def test_a_file_with_another_number_of_rows_than_was_committed(
    warehouse: WarehouseFolder,
) -> None:
    (first, second) = warehouse.manifest.files(RECORDS)
    for rows in (first.rows - 1, first.rows + 1):
        files = (replace(first, rows=rows), second)
        state = WarehouseFolder(warehouse.folder, warehouse.manifest.with_replaced(RECORDS, files))
        with pytest.raises(WarehouseDamagedError, match="has other rows"):
            RecordIndex(state)
        with pytest.raises(WarehouseDamagedError, match="has other rows"):
            RecordIndex(state, RecordIndex(warehouse))
