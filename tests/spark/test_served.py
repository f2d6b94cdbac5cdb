"""States of a warehouse behind a server: too many records, and files that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from lace.errors import LimitExceeded
from lace.policy.schema import Schema
from lace.spark.pipeline.tables import RECORDS
from lace.spark.pipeline.warehouse import (
    WarehouseDamagedError,
    WarehouseFolder,
    WarehouseOutdatedError,
)
from lace.spark.served import open_served
from tests.spark.test_lookup import add

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal


@pytest.fixture
def warehouse(tmp_path: Path, records: list[Blob | Plex | Seal]) -> WarehouseFolder:
    made = WarehouseFolder.create(tmp_path / "wh")
    add(made, records[:20])
    return made


def rewrite_records(warehouse: WarehouseFolder) -> None:
    """Commit the same records in another file."""
    with warehouse.writing("a test") as job:
        target = job.folder("records")
        target.mkdir(parents=True)
        parquet.write_table(
            parquet.read_table(warehouse.files(RECORDS)), target / "0.parquet", row_group_size=7
        )
        job.commit(warehouse.manifest.with_replaced(RECORDS, job.adopt(target)))


def test_more_records_than_are_served(warehouse: WarehouseFolder) -> None:
    assert len(open_served(warehouse.folder, most=20).index) == 20
    with pytest.raises(LimitExceeded, match="has 20 records, more than are served") as caught:
        open_served(warehouse.folder, most=19)
    assert (caught.value.limit, caught.value.allowed) == ("warehouse_served_records", 19)
    assert "--set warehouse_served_records=N" in str(caught.value)


def test_files_that_were_removed_since_are_no_damage(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    """The states of before are removed some day; whoever serves one of them is told what to do."""
    served = open_served(warehouse.folder)
    hashes = [str(record.id) for record in records[:20]]
    for _ in range(4):
        rewrite_records(warehouse)
        assert len(dict(served.bytes_of(hashes))) == 20, "readers of a state before can end"
    for _ in range(3):
        rewrite_records(warehouse)
    for read in (
        lambda: list(served.bytes_of(hashes)),
        lambda: list(served.describe(hashes, "V", Schema(names=frozenset({"App"})))),
        lambda: list(served.facts()),
    ):
        with pytest.raises(WarehouseOutdatedError, match="generation 1 of the warehouse") as caught:
            read()
        assert "generation 8 is the newest" in str(caught.value)
        assert "SIGHUP" in str(caught.value)
    newest = open_served(warehouse.folder, served)
    assert len(dict(newest.bytes_of(hashes))) == 20


def test_files_of_the_newest_state_that_are_gone_are_damage(
    warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    served = open_served(warehouse.folder)
    hashes = [str(record.id) for record in records[:20]]
    (path,) = warehouse.files(RECORDS)
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(WarehouseDamagedError):
        list(served.bytes_of(hashes))
    add(warehouse, records[20:30])
    with pytest.raises(WarehouseDamagedError):  # the newer state has that file as well
        list(served.bytes_of(hashes))
    path.write_bytes(whole[: len(whole) // 2])
    others = warehouse.manifest.files(RECORDS)[1:]
    with warehouse.writing("a test") as job:
        job.commit(warehouse.manifest.with_replaced(RECORDS, others))
    with pytest.raises(WarehouseDamagedError):  # it is of an old state, but there, and not whole
        list(served.bytes_of(hashes))
    (warehouse.folder / "manifest.json").unlink()
    path.unlink()
    with pytest.raises(WarehouseDamagedError):  # there is no newer state to be had
        list(served.bytes_of(hashes))
