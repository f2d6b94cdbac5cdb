"""Ingest: what is kept, what is quarantined, what is skipped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey, open_lace
from lace.errors import EngineError
from lace.spark.pipeline.ingest import file_ranges
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.tables import QUARANTINE, RECORDS, SOURCES, read_table
from lace.spark.pipeline.warehouse import WarehouseDamagedError, WarehouseFolder
from tests.spark.samples import ingest_files, make_records, names_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lace.errors import RecordError
    from lace.record.model import Blob, Plex, Seal
    from lace.spark.pipeline.ingest import Ingested
    from lace.store.intake import Intake

pytestmark = pytest.mark.spark


def counts(done: Ingested) -> tuple[int, int, int, int, int]:
    return (done.files, done.skipped, done.stored, done.known, done.rejected)


def test_records_are_kept_once(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    assert counts(ingest_files(spark, warehouse, file)) == (1, 0, len(records), 0, 0)
    before = names_of(warehouse.folder)
    # Again: nothing to do, and nothing changes.
    assert counts(ingest_files(spark, warehouse, file)) == (0, 1, 0, 0, 0)
    assert names_of(warehouse.folder) == before
    # A second file with old, new and repeated records: only the new ones, once.
    more = make_records(SigningKey.generate(), 30, seed=2)[2:]
    second = tmp_path / "second.records"
    mixed = [*records[:40], *more, *more[:5]]
    second.write_bytes(b"".join(record.bytes for record in mixed))
    assert counts(ingest_files(spark, warehouse, file, second)) == (1, 1, 28, 45, 0)
    rows = (
        read_table(spark, warehouse, RECORDS)
        .select("hash", "head", "data", "type", "size")
        .collect()
    )
    expected = {record.id: record.bytes for record in [*records, *more]}
    assert {row["hash"]: bytes(row["head"] + row["data"]) for row in rows} == expected
    assert len(rows) == len(expected)
    assert all(row["size"] == len(expected[row["hash"]]) for row in rows)
    assert {record.hash_text: record.bytes for record in iterate_records(warehouse)} == expected
    assert warehouse.manifest.rows(SOURCES) == 2


def note(
    errors: list[tuple[str, int | None, str | None, str]],
    path: Path,
    _counts: Intake,
    found: Sequence[RecordError],
) -> None:
    """Take down what an import rejects."""
    for error in found:
        offset = error.place.offset if error.place else None
        errors.append((str(path), offset, error.rule, error.message))


@pytest.mark.requirement("020-06")
def test_bad_records_are_quarantined_as_an_import_rejects_them(
    spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    seal = next(record for record in records if record.id.startswith("S."))
    forged = seal.bytes.replace(b"Signature: ", b"Signature: 0", 1)
    pieces = [
        b"garbage",
        records[3].bytes,
        bytes([*records[4].bytes[:-1], 7]) if records[4].bytes[-1] != 7 else records[4].bytes[:-1],
        records[5].bytes,
        forged,
        b"\x00" * 100,
        records[6].bytes,
        records[7].bytes[:-3],
    ]
    file = tmp_path / "bad.records"
    file.write_bytes(b"".join(pieces))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "only-garbage").write_bytes(b"nothing of use")
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    paths = [file, tmp_path / "empty", tmp_path / "only-garbage"]
    done = ingest_files(spark, warehouse, *paths)
    errors: list[tuple[str, int | None, str | None, str]] = []
    with open_lace(tmp_path / "lace") as lace:
        stored = 0
        for path in paths:
            stored += lace.import_file(path, report=partial(note, errors, path)).stored
    rows = read_table(spark, warehouse, QUARANTINE).collect()
    found = [(row["path"], row["source_offset"], row["rule"], row["reason"]) for row in rows]
    assert sorted(found) == sorted(errors)
    assert counts(done) == (3, 0, stored, 0, len(errors))
    assert stored >= 3


def test_large_data_is_a_fault(spark: Any, tmp_path: Path, file: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    done = ingest_files(spark, warehouse, file, limit=100)
    assert done.rejected > 0
    assert done.stored > 0
    rules = {row["rule"] for row in read_table(spark, warehouse, QUARANTINE).collect()}
    assert rules == {"010-size-limit"}


def test_a_changed_file_is_read_again_and_groups_commit_apart(
    spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    paths = [tmp_path / "1", tmp_path / "2"]
    for number, path in enumerate(paths):
        path.write_bytes(records[number].bytes)
    done = ingest_files(spark, warehouse, *paths, group_bytes=1)
    assert counts(done) == (2, 0, 2, 0, 0)
    assert warehouse.manifest.generation == 2
    paths[0].write_bytes(records[0].bytes + records[2].bytes)
    assert counts(ingest_files(spark, warehouse, *paths)) == (1, 1, 1, 1, 0)


def test_a_failing_task_commits_nothing(
    spark: Any, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file goes away between the look at it and the tasks that read it."""
    warehouse = WarehouseFolder.create(tmp_path / "wh")

    def look(path: Path, limit: int) -> Any:
        found = file_ranges(path, limit)
        path.unlink()
        return found

    monkeypatch.setattr("lace.spark.pipeline.ingest.file_ranges", look)
    with pytest.raises(EngineError, match="ingest: the Spark job failed: FileNotFoundError"):
        ingest_files(spark, warehouse, file)
    assert WarehouseFolder.open(warehouse.folder).manifest.generation == 0
    assert names_of(warehouse.folder / "data") == set()


def test_damage_in_the_warehouse_stops_an_ingest(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    (path,) = warehouse.files(RECORDS)[:1]
    whole = path.read_bytes()
    # A changed byte inside a page, with the size and both ends as they were.
    path.write_bytes(whole[:60] + bytes([whole[60] ^ 0xFF]) + whole[61:])
    with pytest.raises(WarehouseDamagedError, match=path.name):
        list(iterate_records(warehouse))
    other = tmp_path / "other"
    other.write_bytes(records[0].bytes + b"x")
    with pytest.raises(WarehouseDamagedError) as caught:
        ingest_files(spark, warehouse, other)
    assert caught.value.exit_code == 6
    assert path.name in str(caught.value)
    path.unlink()
    with pytest.raises(WarehouseDamagedError, match="it is missing"):
        ingest_files(spark, warehouse, other)
    path.write_bytes(whole)
    assert counts(ingest_files(spark, warehouse, other)) == (1, 0, 0, 1, 1)
