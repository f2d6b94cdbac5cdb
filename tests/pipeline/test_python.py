"""A warehouse from a program: looked at, filled, asked."""

from __future__ import annotations

import io
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.errors import UsageError
from lace.store.interface import NoStoreError
from tests.pipeline.samples import SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

RULES = "Named(P,N) :- Field(P,'Name',_,N)."


@pytest.mark.spark
@pytest.mark.slow
def test_a_warehouse(spark: Any, file: Path, tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    assert warehouse.status()["records"] == 0
    assert warehouse.tables == ()
    done = warehouse.ingest(file, spark=spark)
    assert done.stored > 0
    assert warehouse.ingest(file, spark=None).skipped == 1, "for that, no Spark is started"
    assert repr(warehouse).endswith(f"{done.stored} records>")
    facts = warehouse.make_facts(spark=spark)
    assert facts.records == done.stored
    assert warehouse.make_facts().records == 0
    answer = warehouse.evaluate(RULES, name="names", spark=spark)
    (rows,) = answer.counts.values()
    table = warehouse.to_arrow("derived/names/Named~2")
    assert table.num_rows == rows > 0
    assert not warehouse.evaluate(RULES, name="names").fresh
    again = lace.open_warehouse(warehouse.path)
    assert again.tables == warehouse.tables
    whole = again.to_arrow("records")
    assert whole.num_rows == done.stored
    first = whole.column_names[0]
    assert again.to_arrow("records", [first]).equals(whole.select([first]))
    with pytest.raises(UsageError, match="records has no column 'colour'"):
        again.to_arrow("records", ["colour"])
    assert again.status() == warehouse.status()


@pytest.fixture
def held(spark: Any, file: Path, tmp_path: Path) -> lace.Warehouse:
    """A warehouse of the records, without facts."""
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    warehouse.ingest(file, spark=spark)
    return warehouse


@pytest.mark.spark
@pytest.mark.slow
def test_advertisements_and_what_differs(
    spark: Any, held: lace.Warehouse, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    done = held.advertise(SOURCE, fields=["App"], name="old", spark=spark)
    assert (done.records, done.added) == (len(records), len(records))
    assert held.advertise(SOURCE, fields=["App"], name="old").added == 0, "for that, no Spark"
    more = [lace.Blob(b"one more"), lace.Blob(b"and another")]
    (tmp_path / "more").write_bytes(b"".join(record.bytes for record in more))
    held.ingest(tmp_path / "more", spark=spark)
    assert list(held.diff("old", "old")) == [], "for that, no Spark is started"
    new = held.advertise(SOURCE, fields=["App"], name="new", spark=spark)
    assert new.root != done.root
    found = sorted(("b", record.id) for record in more)
    assert list(held.diff("old", "new", spark=spark)) == found
    everything = held.advertise(SOURCE, all_fields=True, spark=spark)
    assert everything.records == new.records
    assert held.status()["advertised"] == {"all": 122, "new": 122, "old": 120}
    # What a peer listed is compared as well; it has one record alone, and lacks all others.
    peers = lace.Blob(b"of the peer").id
    listed = [("Advertised", peers, "Opq_1"), ("Advertised", more[0].id, "Opq_1")]
    kinds = Counter(kind for kind, _ in held.diff("new", listed, spark=spark))
    assert kinds == {"a": 121, "b": 1}
    assert ("a", peers) in held.diff(listed, "new", spark=spark)


@pytest.mark.spark
@pytest.mark.slow
def test_a_derived_set_is_advertised_and_exported(
    spark: Any, held: lace.Warehouse, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    rules = "Selected(P) :- Field(P,'Signed-By',_,_).\nPair(P,N) :- Field(P,'Name',_,N)."
    seals = {record.id: record for record in records if isinstance(record, lace.Seal)}
    held.make_facts(spark=spark)
    held.evaluate(rules, name="signed", spark=spark)
    assert held.advertise(SOURCE, of="signed", spark=spark).records == len(seals)
    assert held.export(tmp_path / "signed", rules=rules, spark=spark) == len(seals)
    with lace.open(tmp_path / "lace") as store:
        assert store.import_file(tmp_path / "signed").stored == len(seals)
        assert {stored.id for stored in store.records()} == seals.keys()
    chosen = "Chosen(P) :- Field(P,'Group',_,'u/1')."
    number = held.export(tmp_path / "chosen", rules=chosen, predicate="Chosen/1", spark=spark)
    assert 0 < number < len(records)
    with pytest.raises(UsageError, match="Pair/2 has 2 arguments"):
        held.export(tmp_path / "none", rules=rules, predicate="Pair/2", spark=spark)
    with pytest.raises(UsageError, match="no exchange was evaluated as 'signed'"):
        held.advertise(SOURCE, exchange="signed", spark=spark)
    assert not (tmp_path / "none").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_records_are_exported_without_spark(
    held: lace.Warehouse, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    everything = io.BytesIO()
    assert held.export(everything) == len(records)
    assert len(everything.getvalue()) == sum(len(record.bytes) for record in records)
    one = next(record for record in records if isinstance(record, lace.Plex))
    place = f"//{one.group}//{one.app}//{one.name}"
    assert held.export(tmp_path / "two", records[0].id, place) == 2
    assert {len(one.bytes) + len(records[0].bytes)} == {(tmp_path / "two").stat().st_size}
    with pytest.raises(lace.LaceError, match="not in this warehouse"):
        held.export(tmp_path / "none", lace.Blob(b"elsewhere").id)
    with pytest.raises(UsageError, match="target is a path"):
        held.export(io.StringIO())  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError):
        held.export(tmp_path)
    with pytest.raises(UsageError, match="exclude each other"):
        held.export(tmp_path / "none", one.id, rules=RULES)
    assert not (tmp_path / "none").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_warehouse_is_verified(spark: Any, held: lace.Warehouse) -> None:
    held.make_facts(spark=spark)
    seen: list[int] = []
    plain = held.verify(report=lambda checked: seen.append(checked.files))
    assert (plain.is_sound, plain.validated, plain.proof) == (True, 120, None)
    assert seen == list(range(1, plain.files + 1))
    whole = held.verify(everything=True, spark=spark)
    assert whole.proof is not None
    assert (whole.is_sound, whole.proof.records) == (True, 120)
    some = held.verify(sample=7, spark=spark)
    assert some.proof is not None
    assert some.proof.validated == 7
    for wrong in ({"sample": 0}, {"sample": 100_001}, {"sample": 1, "everything": True}):
        with pytest.raises(UsageError):
            held.verify(**wrong)  # type: ignore[arg-type]  # all are what it takes
    path = held.path / held._folder.manifest.files("records")[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = held.verify(everything=True)
    assert (found.is_sound, found.damaged, found.proof) == (False, 1, None)
    assert found.damage[0][1] == "its bytes have changed"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([("Advertised", "x", SOURCE)], "not a record hash"),
        ([("Advertised", "x")], "Advertised/2 with 1 values"),
        ([("Have", "x")], "no Have is in"),
    ],
)
def test_a_listing_that_is_none(tmp_path: Path, listed: list[tuple[str, ...]], said: str) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    with pytest.raises(lace.LaceError, match=said) as caught:
        warehouse.diff(listed, "all")
    assert "the first listing" in str(caught.value)


def test_what_is_no_listing(tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    with pytest.raises(UsageError, match="there are no advertisements called 'all'"):
        warehouse.diff("all", [])
    for wrong in (5, [5], [("Advertised", 5, SOURCE)]):
        with pytest.raises(UsageError):
            warehouse.diff(wrong, "all")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError, match="fields are the names of fields, not str"):
        warehouse.advertise(SOURCE, fields="App")
    with pytest.raises(UsageError, match="says itself"):
        warehouse.advertise(SOURCE, of="x", exchange="y")
    with pytest.raises(UsageError, match="no source of advertisements"):
        warehouse.advertise("me")


def test_what_a_warehouse_refuses(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError):
        lace.open_warehouse(tmp_path / "none")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UsageError):
        lace.open_warehouse(tmp_path / "mine", create=True)
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    with pytest.raises(UsageError, match="there is no table 'records'"):
        warehouse.to_arrow("records")
    with pytest.raises(lace.RuleError):
        warehouse.evaluate("A(P) :- Have(Q).")
    with pytest.raises(UsageError):
        lace.open_warehouse(tmp_path / "wh", settings={"colour": 1})


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with lace.open(tmp_path / "x") as store, pytest.raises(lace.EngineError, match="pyarrow"):
        store.records().to_arrow()
