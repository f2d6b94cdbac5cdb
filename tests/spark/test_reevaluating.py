"""Derived tables are proven: each is what the embedded engine derives from the records."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lace.api import SigningKey
from lace.rules.syntax import PredicateKey
from lace.spark.pipeline.audit import prove_derived
from lace.spark.pipeline.derived import answer_table, evaluation_table, question_table
from lace.spark.pipeline.evaluate import made_by
from lace.spark.pipeline.facts import make_facts
from lace.spark.pipeline.proof import Proof
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import derive, ingest_files, rewrite, write_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_here")]

COUNT = 60
SELECTED = answer_table("some", PredicateKey("Selected", 1))
MAY_SEND = answer_table("exchange", PredicateKey("MaySend", 1))


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def original(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, records: list[Blob | Plex | Seal]
) -> Path:
    """A warehouse with the answers to rules and to an exchange, and newer records and facts."""
    folder = tmp_path_factory.mktemp("derived")
    wh = folder / "wh"
    write_rules(folder)
    viewer = SigningKey.generate().verifier
    peer = [f"Advertised('{record.id}','{viewer}')\n" for record in records[-5:]]
    peer += [f"AdvertisedField('{records[-1].id}','{viewer}','App','0','ding')\n"]
    (folder / "advertised").write_text("".join(peer))
    for name, part in (("first", records[:COUNT]), ("more", records[COUNT:])):
        (folder / name).write_bytes(b"".join(record.bytes for record in part))
    warehouse = WarehouseFolder.create(wh)
    ingest_files(spark, warehouse, folder / "first")
    with warehouse.writing("a test") as job:
        make_facts(spark, job)
    done = call("pipeline", "evaluate", wh, "--rules", folder / "rules", "--out", "some")
    assert done.code == 0, done.err
    exchange: tuple[object, ...] = ("--select", folder / "mine", "--peer-select", folder / "theirs")
    exchange += ("--expose", f"{folder / 'shown'}@{viewer}", "--viewer", viewer)
    exchange += ("--advertised", folder / "advertised")
    done = call("pipeline", "evaluate", wh, *exchange)
    assert done.code == 0, done.err
    assert all(not line.endswith(" 0") for line in done.lines), done.lines
    ingest_files(spark, warehouse, folder / "more")
    with warehouse.writing("a test") as job:
        make_facts(spark, job)
    return wh


@pytest.fixture
def warehouse(original: Path, tmp_path: Path) -> WarehouseFolder:
    shutil.copytree(original, tmp_path / "wh")
    return WarehouseFolder.open(tmp_path / "wh")


def proven(warehouse: WarehouseFolder, most: int = COUNT) -> Proof:
    proof = Proof()
    prove_derived(warehouse, proof, most)
    return proof


def test_answers_are_proven_also_after_more_records_came(original: Path) -> None:
    warehouse = WarehouseFolder.open(original)
    proof = proven(warehouse)
    assert (proof.wrong, proof.faults, proof.uncompared) == (0, [], [])
    tables = [table for table in warehouse.manifest.tables if table.startswith("derived/")]
    assert len(tables) == 7  # Never has no facts, and no table
    assert proof.derived == sum(warehouse.manifest.rows(table) for table in tables) > COUNT


def test_beyond_the_limit_it_is_said_that_nothing_was_compared(original: Path) -> None:
    proof = proven(WarehouseFolder.open(original), COUNT - 1)
    assert (proof.wrong, proof.derived) == (0, 0)
    assert [what for what, _reason in proof.uncompared] == ["derived exchange", "derived some"]
    assert "60 records are more" in proof.uncompared[0][1]
    limit = ("--set", f"warehouse_embedded_records={COUNT - 1}")
    told = call("pipeline", "verify", original, "--sample", 3, *limit)
    assert (told.code, "derived 0" in told.lines) == (0, True)
    assert told.lines[-1].startswith("not compared: derived some: 60 records are more than ")
    told = call("pipeline", "verify", original, "--sample", 3, "--json", *limit)
    assert [each["what"] for each in told.json()["uncompared"]] == [
        "derived exchange",
        "derived some",
    ]


def other_values(table: pa.Table) -> pa.Table:
    values = table.column("c0").to_pylist()
    return table.set_column(0, "c0", pa.array(["x", *values[1:]], pa.string()))


@pytest.mark.parametrize(
    ("table", "change", "what"),
    [
        (SELECTED, other_values, "derived some: Selected/1"),
        (SELECTED, lambda each: each.slice(1), "derived some: Selected/1"),
        (
            SELECTED,
            lambda each: pa.concat_tables([each.slice(1), each.slice(1, 1)]),
            "derived some: Selected/1",
        ),
        (MAY_SEND, other_values, "derived exchange: MaySend/1"),
    ],
)
def test_another_set_is_found(
    warehouse: WarehouseFolder, table: str, change: Callable[[pa.Table], pa.Table], what: str
) -> None:
    rewrite(warehouse, table, change)
    assert [each for each, _reason in proven(warehouse).faults] == [what]


def test_a_missing_value_is_found(warehouse: WarehouseFolder) -> None:
    def without(table: pa.Table) -> pa.Table:
        values = table.column("c0").to_pylist()
        return table.set_column(0, "c0", pa.array([None, *values[1:]], pa.string()))

    rewrite(warehouse, SELECTED, without)
    assert proven(warehouse).wrong == 1


def test_a_table_that_nobody_tells_of_is_found(warehouse: WarehouseFolder) -> None:
    with warehouse.writing("a test") as job:
        job.commit(warehouse.manifest.with_replaced(evaluation_table("some"), ()))
    assert ("derived/some/Selected~1", "no evaluation describes it") in proven(warehouse).faults


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("'Signed-By'", "'Signed'", "rules and facts that are kept"),
        (" :- ", " ", "is damaged"),
        ("max_work", "max_play", "is damaged"),
    ],
)
def test_other_rules_are_found(warehouse: WarehouseFolder, old: str, new: str, words: str) -> None:
    def change(table: pa.Table) -> pa.Table:
        texts = [text.replace(old, new) for text in table.column("text").to_pylist()]
        return table.set_column(2, "text", pa.array(texts, pa.string()))

    rewrite(warehouse, question_table("some"), change)
    ((what, reason),) = proven(warehouse).faults
    assert what == "derived some"
    assert words in reason


def made_before(table: pa.Table, who: str | None) -> pa.Table:
    """Return what tells of an evaluation as another version wrote it."""
    table = table.drop_columns(["made_by"])
    names = pa.array(["0" * 64] * table.num_rows, pa.string())
    table = table.set_column(table.column_names.index("identity"), "identity", names)
    if who is None:
        return table
    return table.append_column("made_by", pa.array([who] * table.num_rows, pa.string()))


@pytest.mark.parametrize(
    ("who", "told"),
    [(None, "an earlier version of Lace"), ("Lace 9.9 (00000000)", "Lace 9.9 (00000000)")],
)
def test_what_another_version_evaluated_is_no_damage(
    spark: Any, warehouse: WarehouseFolder, original: Path, who: str | None, told: str
) -> None:
    assert spark is not None
    rewrite(warehouse, evaluation_table("some"), lambda table: made_before(table, who))
    proof = proven(warehouse)
    assert (proof.wrong, [what for what, _reason in proof.uncompared]) == (0, ["derived some"])
    shown = call("pipeline", "verify", "wh", "--sample", 3)
    assert (shown.code, "wrong 0" in shown.lines) == (0, True)
    assert shown.lines[-1].startswith(
        f"not compared: derived some: it was evaluated by {told}, and"
    )
    assert shown.lines[-1].endswith("run `lace pipeline evaluate` again with --out some")
    rules = original.parent / "rules"
    assert call("pipeline", "evaluate", "wh", "--rules", rules, "--out", "some").code == 0
    proof = proven(WarehouseFolder.open(warehouse.folder), 2 * COUNT)
    assert (proof.wrong, proof.uncompared) == (0, [])


def test_a_question_that_another_version_kept_in_its_own_form(warehouse: WarehouseFolder) -> None:
    rewrite(warehouse, evaluation_table("some"), lambda table: made_before(table, None))
    with warehouse.writing("a test") as job:
        job.commit(warehouse.manifest.with_replaced(question_table("some"), ()))
    assert [what for what, _reason in proven(warehouse).uncompared] == ["derived some"]


def test_a_wrong_set_of_another_version_says_whose_it_is(
    warehouse: WarehouseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(warehouse, SELECTED, other_values)
    ((_what, reason),) = proven(warehouse).faults
    assert reason.endswith("1 are too many")
    monkeypatch.setattr("lace.spark.pipeline.audit.made_by", lambda: "Lace 9.9")
    ((_what, reason),) = proven(warehouse).faults
    assert reason.endswith(f"1 are too many (it was evaluated by {made_by()})")


def test_a_made_up_set_exits_6(
    spark: Any, warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    assert spark is not None
    derive(warehouse, "made", {"Selected": [str(record.id) for record in records[:9]]})
    told = call("pipeline", "verify", "wh", "--sample", 3)
    assert (told.code, "wrong 1" in told.lines) == (6, True)
    assert told.lines[-1].startswith("damage: derived made: it does not tell by which rules")
