"""Facts of the pipeline are those of a lace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact
from lace.pipeline.facts import make_facts
from lace.pipeline.records import iterate_records
from lace.pipeline.tables import (
    REST_SLOT,
    dictionary_size,
    facts_table,
    field_files,
    read_dictionary,
    read_facts,
)
from lace.pipeline.warehouse import Warehouse
from tests.cli.running import call
from tests.pipeline.samples import ingest_files, make_records, names_of

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

pytestmark = pytest.mark.spark


def texts_of(spark: Any, warehouse: Warehouse) -> dict[int, str]:
    rows = read_dictionary(spark, warehouse).collect()
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows) == len(set(found.values())) == dictionary_size(warehouse)
    assert sorted(found) == list(range(len(found)))
    return found


def facts_of(
    spark: Any, warehouse: Warehouse, predicate: str, **rest: Any
) -> list[tuple[str, ...]]:
    texts = texts_of(spark, warehouse)
    rows = read_facts(spark, warehouse, predicate, **rest)
    assert rows.columns == [f"c{n}" for n in range(RECORD_PREDICATES[predicate].arity)]
    return [(predicate, *(texts[number] for number in row)) for row in rows.collect()]


def run(spark: Any, warehouse: Warehouse, frequent: int = 1000) -> Any:
    with warehouse.writing("a test") as job:
        return make_facts(spark, job, frequent=frequent)


@pytest.mark.requirement("020-07", "020-08", "020-09", "020-10", "020-11", "020-27", "020-36")
def test_facts_equal_those_of_a_lace(
    spark: Any, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    done = run(spark, warehouse)
    assert call("init").code == 0
    assert call("import", str(file)).code == 0
    expected = call("facts").lines
    found = [
        format_fact(fact)
        for predicate in RECORD_PREDICATES
        for fact in facts_of(spark, warehouse, predicate)
    ]
    assert sorted(found, key=str.encode) == expected
    assert done.facts == len(expected)
    assert done.texts == dictionary_size(warehouse)
    before = names_of(warehouse.folder)
    again = run(spark, warehouse)
    assert (again.records, again.facts, again.texts) == (0, 0, 0)
    assert names_of(warehouse.folder) == before


def test_facts_are_added_and_frequent_names_move(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = Warehouse.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    run(spark, warehouse, frequent=10_000)
    assert not warehouse.manifest.slots
    old = texts_of(spark, warehouse)
    more = make_records(SigningKey.generate(), 60, seed=3)[2:]
    second = tmp_path / "second"
    second.write_bytes(b"".join(record.bytes for record in more))
    ingest_files(spark, warehouse, second)
    done = run(spark, warehouse, frequent=5)
    assert done.records == len(more)
    assert set(warehouse.manifest.slots) == {"Tag", "+Link"}
    assert all(slot.slot > REST_SLOT for slot in warehouse.manifest.slots.values())
    new = texts_of(spark, warehouse)
    assert {number: new[number] for number in old} == old
    expected: list[tuple[str, ...]] = []
    for record in iterate_records(warehouse):
        expected += record_facts(record)
    for predicate in RECORD_PREDICATES:
        wanted = sorted(fact for fact in expected if fact[0] == predicate)
        assert sorted(facts_of(spark, warehouse, predicate)) == wanted
    # Some Names only: a standard one, one that moved, one in the rest, and one that is nowhere.
    fields = [fact for fact in expected if fact[0] == "Field"]
    for names in (["App"], ["Tag"], ["Tag", "Type"], ["Nothing"], []):
        wanted = sorted(fact for fact in fields if fact[2] in names)
        assert sorted(facts_of(spark, warehouse, "Field", names=names)) == wanted
    (rest,) = warehouse.files(facts_table("Field", REST_SLOT))
    assert rest in field_files(warehouse, ["Tag"])  # from before it had its own
    assert rest not in field_files(warehouse, ["App"])


def test_paths_hold_nothing_of_a_record(spark: Any, tmp_path: Path) -> None:
    from lace.record.model import Plex

    name = "Evil~Name"
    plex = Plex(group="u", app="a", name="n", headers=[(name, str(n)) for n in range(30)], data=b"")
    (tmp_path / "file").write_bytes(plex.bytes)
    warehouse = Warehouse.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "file")
    run(spark, warehouse, frequent=3)
    assert set(warehouse.manifest.slots) == {name}
    assert not [path for path in names_of(warehouse.folder) if "Evil" in path]
    assert len(facts_of(spark, warehouse, "Field", names=[name])) == 30


def test_any_parquet_tool_reads_the_tables(spark: Any, tmp_path: Path, file: Path) -> None:
    from pyarrow import parquet

    warehouse = Warehouse.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    run(spark, warehouse)
    links = [parquet.read_table(path) for path in warehouse.files(facts_table("RecordLink"))]
    assert sum(len(table) for table in links) == warehouse.manifest.rows(facts_table("RecordLink"))
    assert links[0].column_names == ["c0", "c1", "c2", "c3", "c4"]
