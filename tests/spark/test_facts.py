"""Facts of the pipeline are those of a lace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.api import SigningKey
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact
from lace.record.model import Plex
from lace.spark.pipeline.facts import make_facts
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.tables import (
    FIRST_FREE_SLOT,
    MOST_SLOTS,
    REST_SLOT,
    dictionary_size,
    facts_table,
    field_files,
    read_dictionary,
    read_facts,
)
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import ingest_files, make_records, names_of

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Seal

pytestmark = pytest.mark.spark


def texts_of(spark: Any, warehouse: WarehouseFolder) -> dict[int, str]:
    rows = read_dictionary(spark, warehouse).collect()
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows) == len(set(found.values())) == dictionary_size(warehouse)
    assert sorted(found) == list(range(len(found)))
    return found


def facts_of(
    spark: Any, warehouse: WarehouseFolder, predicate: str, **rest: Any
) -> list[tuple[str, ...]]:
    texts = texts_of(spark, warehouse)
    rows = read_facts(spark, warehouse, predicate, **rest)
    assert rows.columns == [f"c{n}" for n in range(RECORD_PREDICATES[predicate].arity)]
    return [(predicate, *(texts[number] for number in row)) for row in rows.collect()]


def run(spark: Any, warehouse: WarehouseFolder, frequent: int = 1000) -> Any:
    with warehouse.writing("a test") as job:
        return make_facts(spark, job, frequent=frequent)


@pytest.mark.requirement("020-07", "020-08", "020-09", "020-10", "020-11", "020-27", "020-36")
def test_facts_equal_those_of_a_lace(
    spark: Any, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = WarehouseFolder.create(tmp_path / "wh")
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
    warehouse = WarehouseFolder.create(tmp_path / "wh")
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
    name = "Evil~Name"
    plex = Plex(group="u", app="a", name="n", headers=[(name, str(n)) for n in range(30)], data=b"")
    (tmp_path / "file").write_bytes(plex.bytes)
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "file")
    run(spark, warehouse, frequent=3)
    assert set(warehouse.manifest.slots) == {name}
    assert not [path for path in names_of(warehouse.folder) if "Evil" in path]
    assert len(facts_of(spark, warehouse, "Field", names=[name])) == 30


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_257th_frequent_name_stays_with_the_rest(spark: Any, tmp_path: Path) -> None:
    """When all slots are taken, at once or in a later run, answers are the same."""
    names = [f"N{number:03d}" for number in range(MOST_SLOTS)]
    evil = "Zz~..~etc"
    headers = [(name, f"{name} {at}") for name in names for at in range(2)]
    first = [
        Plex(group="u", app="a", name="many", headers=headers, data=b""),
        Plex(
            group="u", app="a", name="few", headers=[(names[7], "again"), (evil, "once")], data=b""
        ),
    ]
    later = [
        Plex(
            group="u",
            app="a",
            name=f"later/{at}",
            headers=[(names[7], "x"), ("New", f"{at}")],
            data=b"",
        )
        for at in range(8)
    ]
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    folder = warehouse._folder
    slots: dict[str, int] = {}
    for number, made in enumerate((first, later)):
        (tmp_path / str(number)).write_bytes(b"".join(plex.bytes for plex in made))
        ingest_files(spark, folder, tmp_path / str(number))
        before = slots
        run(spark, folder, frequent=1)
        slots = {name: each.slot for name, each in folder.manifest.slots.items()}
        assert before in ({}, slots), "a later run gives no others, and moves none"
    # Of names that are as frequent the first ones; one that came once had less than these.
    assert set(slots) == set(names)
    free = range(FIRST_FREE_SLOT, FIRST_FREE_SLOT + MOST_SLOTS)
    assert sorted(slots.values()) == list(free)
    tables = {table for table in warehouse.tables if table.startswith("facts/Field/")}
    assert tables <= {facts_table("Field", slot) for slot in range(FIRST_FREE_SLOT + MOST_SLOTS)}
    paths = names_of(folder.folder)
    assert not [path for path in paths if "N0" in path or "New" in path or "Zz" in path]
    rest = {path for path in folder.files(facts_table("Field", REST_SLOT))}
    for name in (evil, "New"):
        assert set(field_files(folder, [name])) == rest
    assert not rest & set(field_files(folder, [names[7]])), "none of its facts are there"
    rules = f"""\
Evil(P,V) :- Field(P,'{evil}',_,V).
New(P,V) :- Field(P,'New',_,V).
Slot(P,I,V) :- Field(P,'{names[7]}',I,V).
"""
    warehouse.evaluate(rules, name="some", spark=spark)
    with lace.open(tmp_path / "lace") as store:
        store.add_all([*first, *later])
        expected = store.query(rules)
        for key in expected:
            assert expected[key]
            rows = warehouse.to_arrow(f"derived/some/{key.replace('/', '~')}").to_pylist()
            assert len(rows) == len(expected[key])
            assert {tuple(row.values()) for row in rows} == expected[key]
    fields = [fact for record in iterate_records(folder) for fact in record_facts(record)]
    wanted = sorted(fact for fact in fields if fact[0] == "Field")
    assert sorted(facts_of(spark, folder, "Field")) == wanted


def test_any_parquet_tool_reads_the_tables(spark: Any, tmp_path: Path, file: Path) -> None:
    from pyarrow import parquet

    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    run(spark, warehouse)
    links = [parquet.read_table(path) for path in warehouse.files(facts_table("RecordLink"))]
    assert sum(len(table) for table in links) == warehouse.manifest.rows(facts_table("RecordLink"))
    assert links[0].column_names == ["c0", "c1", "c2", "c3", "c4"]
