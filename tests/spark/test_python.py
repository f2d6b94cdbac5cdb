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
from tests.cli.running import call
from tests.spark.samples import SOURCE, write_rules

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal
    from lace.spark.pipeline.evaluate import Question

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
    typo = "Selected(P) :- Have(P), not Blokced(P)."
    with pytest.raises(lace.RuleError, match="nobody defines Blokced/1"):
        held.export(tmp_path / "none", rules=typo, spark=spark)
    assert not (tmp_path / "none").exists()
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


@pytest.mark.spark
@pytest.mark.slow
def test_records_go_between_a_lace_and_a_warehouse(
    spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    seen: list[tuple[int, int]] = []
    with lace.open(tmp_path / "one") as store:
        store.add_all(records)
        done = warehouse.import_lace(
            store, report=lambda number, total: seen.append((number, total)), spark=spark
        )
        assert (done.files, done.stored, done.rejected) == (1, len(records), 0)
        assert seen == [(number, len(records)) for number in range(1, len(records) + 1)]
        assert warehouse.import_lace(store).skipped == 1, "for that, no Spark is started"
        store.remove(records[3].id)
        more = store.add(lace.Blob(b"one more"))
        again = warehouse.import_lace(store, spark=spark)
        assert (again.stored, again.known) == (1, len(records) - 1)
    (label,) = set(warehouse.to_arrow("sources", ["path"]).column(0).to_pylist())
    assert label == f"lace:{(tmp_path / 'one').resolve()}"
    told: list[int] = []
    with lace.open(tmp_path / "two") as store:
        store.add(records[5])
        counts = warehouse.export_lace(store, report=lambda counts, _: told.append(counts.stored))
        assert (counts.stored, counts.known, counts.rejected) == (len(records), 1, 0)
        assert told[-1] == len(records)
        assert {row.id for row in store.records()} == {more, *(record.id for record in records)}
    with lace.open(tmp_path / "small", settings={"max_data_bytes": 20}) as store:
        small = warehouse.export_lace(store)
        assert (small.stored, small.known) == (len(store), 0)
        assert small.rejected >= len(records) + 1 - len(store) > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.requirement("040-71", "040-72", "040-74")
@pytest.mark.parametrize("index", [0, 1])
def test_an_exchange_means_what_a_preview_tells(
    spark: Any,
    held: lace.Warehouse,
    tmp_path: Path,
    records: list[Blob | Plex | Seal],
    index: int,
) -> None:
    write_rules(tmp_path)
    mine, theirs, shown = ((tmp_path / name).read_text() for name in ("mine", "theirs", "shown"))
    policy = lace.Policy(select=mine, exposures=[(shown, SOURCE)])
    wanted = lace.Blob(b"of the peer").id
    public = [
        ("Advertised", wanted, SOURCE),
        ("AdvertisedField", wanted, SOURCE, "App", "0", "ding"),
    ]
    held.make_facts(spark=spark)
    with lace.open(tmp_path / "lace") as store:
        store.add_all(records)
        told = store.preview(policy, theirs, index=index, viewer=SOURCE, public=public).result
    for viewer, sent in ((SOURCE, told["MaySend/1"]), (None, frozenset())):
        done = held.evaluate_exchange(
            policy, theirs, index=index, viewer=viewer, public=public, spark=spark
        )
        counts = {str(key): count for key, count in done.counts.items()}
        assert counts == {"MaySend/1": len(sent), "MayRequest/1": 1}
        rows = held.to_arrow("derived/exchange/MayRequest~1").to_pylist()
        assert {(row["c0"],) for row in rows} == told["MayRequest/1"] == {(wanted,)}
        if sent:
            rows = held.to_arrow("derived/exchange/MaySend~1").to_pylist()
            assert {(row["c0"],) for row in rows} == sent
            assert held.advertise(SOURCE, exchange="exchange", spark=spark).records == len(sent)
    assert told["MaySend/1"], "else nothing is compared"
    again = held.evaluate_exchange(policy, theirs, index=index, public=public)
    assert not again.fresh, "for that, no Spark is started"


@pytest.mark.requirement("040-71")
def test_exposures_of_an_exchange_read_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that hides records from an instant on would else hide none of them."""
    asked: list[Question] = []
    monkeypatch.setattr(
        lace.Warehouse, "_evaluated", lambda _self, question, *_rest: asked.append(question)
    )
    select = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    until = (
        "Over() :- _LocalTAI(T), LexCompare(T,'>','1763683237:000000000').\n"
        "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Over().\n"
    )
    policy = lace.Policy(select=select, exposures=[(until, SOURCE)])
    held = lace.open_warehouse(tmp_path / "wh", create=True, settings={"tick_interval_seconds": 60})

    def clock(viewer: str | None = SOURCE, **given: Any) -> list[str]:
        held.evaluate_exchange(policy, select, viewer=viewer, **given)
        return [fact[1] for fact in asked.pop().public if fact[0] == "_LocalTAI"]

    instant = "1763683237:000000000"
    assert clock(at=instant) == [instant]
    assert clock(public=[("_LocalTAI", instant)]) == [instant]
    (now,) = clock()
    assert lace.Tai(now).nanoseconds % 60_000_000_000 == 0
    assert lace.Tai(now) > instant
    assert clock(viewer=None) == [], "no exposure in force reads it"
    with pytest.raises(lace.LaceError):
        clock(at="noon")


def test_what_is_no_exchange(tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    select = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    policy, record = lace.Policy(select=select), lace.Blob(b"").id
    for refused, said in (
        ([("Have", record)], "'Have' with 1 values is no public fact"),
        ([("Advertised", record)], "'Advertised' with 1 values is no public fact"),
        ([("Peer", "x" * 10_000)], "a fact value has 10000 bytes"),
        ([("Peer", 5)], "a public fact is a tuple of texts"),
    ):
        with pytest.raises(lace.LaceError, match=said):
            warehouse.evaluate_exchange(policy, select, public=refused)  # type: ignore[arg-type]
    with pytest.raises(lace.PolicyError, match="index 0 or 1"):
        warehouse.evaluate_exchange(policy, select, index=2)
    with pytest.raises(lace.PolicyError):
        warehouse.evaluate_exchange(policy, select, viewer="me")
    with pytest.raises(lace.RuleError):
        warehouse.evaluate_exchange(policy, "SelectHave(P) :- Have(Q).")
    with pytest.raises(UsageError, match="policy is a Policy, not str"):
        warehouse.evaluate_exchange(select, select)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError):
        warehouse.evaluate_exchange(policy, select, name="a/b")
    for taking in (warehouse.import_lace, warehouse.export_lace):
        with pytest.raises(UsageError, match="store is an open lace, not PosixPath"):
            taking(tmp_path)  # type: ignore[arg-type]  # what is refused
    assert warehouse.tables == ()


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_is_all_stages_and_what_the_command_does(
    spark: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark is not None  # the command uses the session that is open, and so does a run
    write_rules(tmp_path)
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    rules = (tmp_path / "rules").read_text()
    asked: dict[str, Any] = {"rules": rules, "name": "all", "source": SOURCE, "fields": ["App"]}
    ran = warehouse.run(file, **asked)
    assert (ran.ingested.files, ran.extracted.records) == (1, ran.ingested.stored)
    assert ran.advertised is not None
    assert ran.advertised.records == ran.ingested.stored
    options = ("--rules", tmp_path / "rules", "--out", "all", "--source", SOURCE, "--field", "App")
    told = call("pipeline", "run", tmp_path / "second", file, *options, "--json").json()
    assert told["evaluate"] == {str(key): count for key, count in ran.evaluated.counts.items()}
    other = lace.open_warehouse(tmp_path / "second")
    assert other.tables == warehouse.tables
    root = other.to_arrow("partitions/all").sort_by("prefix").to_pylist()[0]["root"]
    assert root == warehouse.to_arrow("partitions/all").sort_by("prefix").to_pylist()[0]["root"]
    for table in (each for each in other.tables if each.startswith("derived/")):
        rows = [each.to_arrow(table).to_pylist() for each in (warehouse, other)]
        assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("lace.spark.engine.session.open_session", refuse)
    again = warehouse.run(file, **asked)
    assert (again.ingested.skipped, again.extracted.records) == (1, 0)
    assert (again.evaluated.fresh, again.evaluated.counts) == (False, ran.evaluated.counts)
    assert again.advertised is not None
    assert (again.advertised.added, again.advertised.root) == (0, ran.advertised.root)
    (tmp_path / "more").write_bytes(lace.Blob(b"more").bytes)
    before = warehouse.status()
    for refused, kind in (
        ({"rules": "A(P) :- Have(Q)."}, lace.RuleError),
        ({"source": "me"}, UsageError),
        ({"source": None}, UsageError),
        ({"name": "a/b"}, UsageError),
        ({"predicates": ["Other/1"]}, UsageError),
        ({"fields": "App"}, UsageError),
    ):
        with pytest.raises(kind):
            warehouse.run(tmp_path / "more", **{**asked, **refused})
    assert warehouse.status() == before


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


def test_arguments_of_other_kinds(tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    rules = "A(P) :- Have(P).\n"
    select = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    wrong: Any = 5
    for asking, said in (
        (lambda: warehouse.evaluate(rules, name=wrong), "name is a text, not int"),
        (
            lambda: warehouse.evaluate_exchange(lace.Policy(select=select), select, name=wrong),
            "name is a text, not int",
        ),
        (lambda: warehouse.advertise(wrong), "source is a text, not int"),
        (lambda: warehouse.advertise(SOURCE, of=wrong), "of is a text, not int"),
        (lambda: warehouse.advertise(SOURCE, exchange=wrong), "exchange is a text, not int"),
        (lambda: warehouse.advertise(SOURCE, name=wrong), "name is a text, not int"),
        (lambda: warehouse.advertise(SOURCE, fields=[wrong]), "a field is given by its name, not"),
        (lambda: warehouse.run(rules=rules, name=wrong), "name is a text, not int"),
        (lambda: warehouse.run(rules=rules, source=wrong), "source is a text, not int"),
        (
            lambda: warehouse.run(rules=rules, source=SOURCE, fields=[wrong]),
            "a field is given by its name, not",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            asking()
    assert warehouse.tables == ()


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
