"""`verify` proves what tables say, and finds tables that lie though their files are whole."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import compute

from lace.api import SigningKey
from lace.errors import LimitExceeded
from lace.policy.schema import Schema
from lace.record.model import Blob, Plex, Seal, seal_payload, write_record
from lace.record.validate import trust_stored
from lace.rules.syntax import PredicateKey
from lace.spark.pipeline import audit as proving
from lace.spark.pipeline.advertise import Asked, read_partitions, read_state
from lace.spark.pipeline.audit import prove
from lace.spark.pipeline.derived import answer_table
from lace.spark.pipeline.facts import make_facts
from lace.spark.pipeline.tables import (
    ADVERTISEMENTS,
    DICTIONARY,
    PARTITIONS,
    RECORDS,
    columns_of,
    facts_table,
    record_row,
)
from lace.spark.pipeline.warehouse import WarehouseDamagedError, WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import SOURCE, advertise_as, derive, ingest_files, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.record.validate import ValidRecord

pytestmark = pytest.mark.spark

SCHEMA = Schema(names=frozenset({"App", "Tag"}))


@pytest.fixture(scope="module")
def original(
    spark: Any,
    tmp_path_factory: pytest.TempPathFactory,
    records: list[Blob | Plex | Seal],
) -> Path:
    """A warehouse with facts and a state."""
    folder = tmp_path_factory.mktemp("proving")
    (folder / "file").write_bytes(b"".join(record.bytes for record in records[:50]))
    warehouse = WarehouseFolder.create(folder / "wh")
    ingest_files(spark, warehouse, folder / "file")
    with warehouse.writing("a test") as job:
        make_facts(spark, job)
    advertise_as(spark, warehouse, Asked(name="all", source=SOURCE, schema=SCHEMA))
    return folder / "wh"


@pytest.fixture
def warehouse(original: Path, tmp_path: Path) -> WarehouseFolder:
    shutil.copytree(original, tmp_path / "wh")
    return WarehouseFolder.open(tmp_path / "wh")


def test_an_untouched_warehouse_is_proven(
    spark: Any, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = WarehouseFolder.open(original)
    manifest = warehouse.manifest
    proof = prove(spark, warehouse)
    facts = sum(manifest.rows(table) for table in manifest.tables if table.startswith("facts/"))
    assert (proof.validated, proof.records, proof.facts) == (50, 50, facts)
    assert proof.advertisements == 50
    assert proof.roots == len(read_partitions(warehouse, "all"))
    assert (proof.wrong, proof.faults) == (0, [])
    some = prove(spark, warehouse, 7)
    assert (some.validated, some.records, some.advertisements, some.wrong) == (7, 7, 7, 0)
    assert 0 < some.facts < facts
    assert 0 < some.roots <= 7
    monkeypatch.chdir(original.parent)
    result = call("pipeline", "verify", "wh", "--all", "--json")
    assert (result.code, result.err) == (0, "")
    counts = {name: result.json()[name] for name in ("records", "facts", "wrong", "faults")}
    assert counts == {"records": 50, "facts": facts, "wrong": 0, "faults": []}
    assert "records 5" in call("pipeline", "verify", "wh", "--sample", 5).lines
    assert call("pipeline", "verify", "wh", "--sample", 5, "--all").code == 2
    assert call("pipeline", "verify", "wh", "--sample", 0).code == 2
    monkeypatch.setattr(proving, "MAX_PROVEN_DIGESTS", 49)
    with pytest.raises(LimitExceeded, match="50 digests are more"):
        prove(spark, warehouse)


def test_a_tampered_facts_table_is_found(
    spark: Any, warehouse: WarehouseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark is not None

    def swap(table: pa.Table) -> pa.Table:
        values = table.column("c3").to_pylist()
        values[0] = values[0] + 1
        return table.set_column(3, "c3", pa.array(values, pa.int64()))

    rewrite(warehouse, facts_table("Field", 2), swap)  # Group
    monkeypatch.chdir(warehouse.folder.parent)
    assert call("pipeline", "verify", "wh").code == 0  # every file is what the manifest says
    result = call("pipeline", "verify", "wh", "--all")
    assert result.code == 6
    (line,) = [line for line in result.lines if line.startswith("damage: ")]
    assert line.startswith("damage: the facts of ")
    assert line.endswith(": they are not those of its bytes")
    assert "wrong 1" in result.lines
    assert "1 fault found" in result.err


def forged(record: Seal) -> ValidRecord:
    """Return the record with a signature of another, and hashes that are right."""
    other = Plex(group="u", app="x", name="other", data=b"").seal(SigningKey.generate())
    payload = seal_payload(record.signed_by, other.signature, record.plex.bytes)
    identifier, raw = write_record("S", payload)
    return trust_stored(raw, identifier)  # which does not look at signatures


@pytest.mark.requirement("050-184")
def test_a_false_signature_under_a_right_hash_is_found(
    spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are validated again also where no facts were made of them yet."""
    (tmp_path / "file").write_bytes(b"".join(record.bytes for record in records[:20]))
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "file")
    false = forged(next(each for each in records if isinstance(each, Seal)))
    kinds = [name for name, _kind in columns_of(RECORDS)]

    def replace_last(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[-1] = dict(zip(kinds, (*record_row(false), 0, 0), strict=True))
        return pa.Table.from_pylist(rows, table.schema)

    rewrite(warehouse, RECORDS, replace_last)
    monkeypatch.chdir(tmp_path)
    result = call("pipeline", "verify", "wh", "--all")
    assert result.code == 6
    (line,) = [line for line in result.lines if line.startswith("damage: ")]
    assert line.startswith(f"damage: the record {false.hash_text}: ")
    assert "signature" in line
    assert {"validated 20", "records 0", "wrong 1"} <= {*result.lines}
    assert prove(spark, warehouse, 20).wrong == 1
    plain = call("pipeline", "verify", "wh")  # 20 are few enough for all to be chosen
    assert (plain.code, plain.lines[-1]) == (6, line)
    assert {"damaged 0", "validated 20", "wrong 1"} <= {*plain.lines}
    assert "records that are not valid: 1 fault found" in plain.err


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("app", "other", "its row says something else than its bytes"),
        ("data", b"other bytes", "010-"),
        ("hash", None, "its bytes are "),
    ],
)
def test_a_row_that_is_not_that_of_its_record_is_found(
    spark: Any, warehouse: WarehouseFolder, column: str, value: object, words: str
) -> None:
    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[7][column] = str(Blob(b"another").id) if value is None else value
        return pa.Table.from_pylist(rows, table.schema)

    rewrite(warehouse, RECORDS, change)
    faults = [why for what, why in prove(spark, warehouse).faults if what.startswith("the record")]
    assert len(faults) == 1
    assert words in faults[0]


@pytest.mark.parametrize("predicate", ["Have", "PlexHash", "RecordLink"])
def test_a_missing_fact_is_found(spark: Any, warehouse: WarehouseFolder, predicate: str) -> None:
    rewrite(warehouse, facts_table(predicate), lambda table: table.slice(1))
    assert prove(spark, warehouse).wrong == 1


def test_a_fact_too_many_is_found(spark: Any, warehouse: WarehouseFolder) -> None:
    def repeat(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table, table.slice(0, 1)])

    rewrite(warehouse, facts_table("Have"), repeat)
    assert prove(spark, warehouse).wrong == 1


def test_a_text_that_is_gone_is_found(spark: Any, warehouse: WarehouseFolder) -> None:
    def without(table: pa.Table) -> pa.Table:
        return table.filter(compute.not_equal(table.column("text"), "ding"))

    rewrite(warehouse, DICTIONARY, without)
    proof = prove(spark, warehouse)
    assert proof.wrong > 10  # every record of that App


def test_changed_bytes_are_found(spark: Any, warehouse: WarehouseFolder) -> None:
    def change(table: pa.Table) -> pa.Table:
        data = [(each or b"") + b"!" for each in table.column("data").to_pylist()]
        return table.set_column(table.column_names.index("data"), "data", pa.array(data))

    rewrite(warehouse, RECORDS, change)
    assert prove(spark, warehouse, 5).wrong >= 5


def test_wrong_advertisements_and_roots_are_found(spark: Any, warehouse: WarehouseFolder) -> None:
    def change(table: pa.Table) -> pa.Table:
        digests = table.column("digest").to_pylist()
        digests[0] = bytes(32)
        return table.set_column(2, "digest", pa.array(digests, pa.binary()))

    rewrite(warehouse, f"{ADVERTISEMENTS}/all", change)
    whats = [what for what, _reason in prove(spark, warehouse).faults]
    assert len(whats) == 3
    assert whats[0].startswith("advertisements all: the fields of ")
    assert whats[1] == "advertisements all: the whole"
    assert whats[2].startswith("advertisements all: partition ")


def test_a_wrong_root_alone_is_found(spark: Any, warehouse: WarehouseFolder) -> None:
    def change(table: pa.Table) -> pa.Table:
        roots = table.column("root").to_pylist()
        roots[0], roots[1] = roots[1], roots[0]
        return table.set_column(2, "root", pa.array(roots))

    rewrite(warehouse, f"{PARTITIONS}/all", change)
    proof = prove(spark, warehouse)
    assert (proof.wrong, proof.faults[0][1]) == (2, "count or root is another")


def test_rows_that_nobody_wrote_are_damage(spark: Any, warehouse: WarehouseFolder) -> None:
    assert spark is not None

    def renamed(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
        def change(table: pa.Table) -> pa.Table:
            at = table.column_names.index(column)
            return table.set_column(at, column, pa.array([value] * len(table)))

        return change

    original = warehouse.manifest
    for table, change in (
        ("advertised/all", renamed("fields", "[")),
        ("advertised/all", renamed("fields", None)),
        ("advertised/all", renamed("source", "nobody")),
        ("advertised/all", lambda each: pa.concat_tables([each, each])),
        ("advertised/all", lambda each: each.drop_columns(["of"])),
    ):
        rewrite(warehouse, table, change)
        with pytest.raises(WarehouseDamagedError, match="the table advertised/all is damaged"):
            read_state(warehouse, "all")
        warehouse.manifest = original
    for change in (renamed("root", "?"), renamed("root", None), renamed("prefix", "00")):
        rewrite(warehouse, "partitions/all", change)
        with pytest.raises(WarehouseDamagedError, match="the table partitions/all is damaged"):
            read_partitions(warehouse, "all")
        warehouse.manifest = original


def test_what_a_made_up_set_advertises_is_compared_and_the_set_is_wrong(
    spark: Any, warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    table = answer_table("some", PredicateKey("Selected", 1))
    made_up = "it does not tell by which rules it was made; run `lace pipeline evaluate` again"

    texts = [str(record.id) for record in records]
    derive(warehouse, "some", {"Selected": texts[:9]})
    advertise_as(spark, warehouse, Asked(name="some", source=SOURCE, of=table))
    proof = prove(spark, warehouse)
    assert (proof.advertisements, proof.faults) == (50 + 9, [("derived some", made_up)])
    rewrite(warehouse, f"{ADVERTISEMENTS}/some", lambda each: each.slice(1))
    faults = prove(spark, warehouse).faults
    assert faults[0][0].startswith("advertisements some: the fields of ")
    # After the set has changed, what is advertised is still compared, and its roots are.
    derive(warehouse, "some", {"Selected": texts[:3]})
    reasons = [reason for _what, reason in prove(spark, warehouse).faults]
    assert reasons == ["count or root is another"] * 2 + [made_up]
