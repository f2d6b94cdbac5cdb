"""Rules over a warehouse: the same answers as over a lace, kept, and not made twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey, open_lace
from lace.errors import LimitExceeded
from lace.facts.lines import format_fact
from lace.record.model import Plex
from lace.rules.limits import RuleLimits
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.spark.engine.session import Options
from lace.spark.pipeline.derived import read_derived, read_evaluated
from lace.spark.pipeline.evaluate import Question, evaluate, field_names, select_values
from lace.spark.pipeline.facts import make_facts
from lace.spark.pipeline.tables import RECORDS
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import Result, call
from tests.spark.samples import RULES, ingest_files, make_records, names_of, write_rules

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.record.model import Blob, Seal

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("_here")]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rules(tmp_path)


@pytest.fixture(scope="module")
def filled(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, records: list[Blob | Plex | Seal]
) -> Path:
    """A folder with a lace and a warehouse of the same records."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "file").write_bytes(b"".join(record.bytes for record in records))
    warehouse = WarehouseFolder.create(folder / "wh")
    ingest_files(spark, warehouse, folder / "file")
    with warehouse.writing("a test") as job:
        make_facts(spark, job)
    with open_lace(folder / "lace") as lace:
        lace.add_all(record.bytes for record in records)
    return folder


@pytest.fixture
def broadcast(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The tables that are sent to every executor."""
    from pyspark.sql import functions

    sent: list[object] = []
    send = functions.broadcast

    def noting(frame: Any) -> Any:
        sent.append(frame)
        return send(frame)

    monkeypatch.setattr(functions, "broadcast", noting)
    return sent


@pytest.mark.parametrize("allowed", [0, 2**20])
def test_answers_are_broadcast_as_the_setting_says(
    spark: Any, filled: Path, broadcast: list[object], allowed: int
) -> None:
    """Rows of an answer meet the texts of their numbers in a join of their own."""
    warehouse = WarehouseFolder.open(filled / "wh")
    program = check_source("All(P) :- Have(P).", profile=QUERY)
    question = Question((program,), program.derived)
    options = Options(broadcast_rows=allowed)
    found = select_values(spark, warehouse, question, options=options)
    assert len(found) == warehouse.manifest.rows(RECORDS)
    assert bool(broadcast) is (allowed > 0)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("allowed", [0, 2**20])
def test_a_query_over_given_facts_takes_the_setting(
    tmp_path: Path, broadcast: list[object], allowed: int
) -> None:
    """`lace query --facts --engine spark` has no lace, and takes the settings all the same."""
    facts = tmp_path / "some.facts"
    facts.write_text("A('1')\nA('2')\nB('2')\nB('3')\n")
    given = ("--facts", facts, "--engine", "spark", "-e", "C(X) :- A(X), B(X).")
    everything_on_spark = ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")
    done = call("query", *given, *everything_on_spark, "--set", f"spark_broadcast_rows={allowed}")
    assert (done.code, done.lines) == (0, ["C('2')"]), done.err
    assert bool(broadcast) is (allowed > 0)


def derived_lines(warehouse: WarehouseFolder, name: str) -> list[str]:
    """Return all facts of an answer as lines, sorted; each stands there once."""
    found = read_evaluated(warehouse, name)
    assert found is not None
    lines: list[str] = []
    for key, count in found.counts.items():
        rows = list(read_derived(warehouse, name, key))
        assert len(rows) == len(set(rows)) == count
        lines += [format_fact((key.name, *row)) for row in rows]
    return sorted(lines)


def evaluated(folder: Path, *arguments: object) -> Result:
    return call("pipeline", "evaluate", folder / "wh", *arguments)


@pytest.mark.requirement("030-34", "030-35", "030-57")
@pytest.mark.parametrize("where", ["handed", "cluster"])
def test_the_same_facts_as_over_a_lace(filled: Path, where: str) -> None:
    small = ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")
    more = small if where == "cluster" else ()
    result = evaluated(filled, "--rules", "rules", "--out", where, *more)
    assert result.code == 0, result.err
    over_lace = call("query", "--lace", filled / "lace", "--rules", "rules")
    warehouse = WarehouseFolder.open(filled / "wh")
    assert derived_lines(warehouse, where) == sorted(over_lace.lines)
    assert over_lace.lines
    counts = dict(line.split(" ") for line in result.lines)
    assert counts["Here/0"] == "1"
    assert counts["Never/2"] == "0"
    status = call("pipeline", "status", filled / "wh", "--json").json()
    assert status["derived"][f"{where} Reach/2"] == int(counts["Reach/2"])
    assert f"derived {where} Here/0 1" in call("pipeline", "status", filled / "wh").lines
    assert call("pipeline", "verify", filled / "wh").code == 0


def test_the_same_again_is_nothing_to_do(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluated(filled, "--rules", "rules", "--out", "again", "--json")
    assert first.json()["fresh"]
    generation = WarehouseFolder.open(filled / "wh").manifest.generation
    with monkeypatch.context() as patched:

        def refuse(*_arguments: object, **_options: object) -> None:
            raise AssertionError("Spark was started")

        patched.setattr("lace.spark.engine.session.open_session", refuse)
        again = evaluated(filled, "--rules", "rules", "--out", "again", "--json")
    assert again.json() == {**first.json(), "fresh": False}
    assert WarehouseFolder.open(filled / "wh").manifest.generation == generation
    one = evaluated(filled, "--rules", "rules", "--out", "again", "--predicate", "Reach/2")
    assert one.lines == [f"Reach/2 {first.json()['derived']['Reach/2']}"]
    tables = WarehouseFolder.open(filled / "wh").manifest.tables
    assert [name for name in tables if name.startswith("derived/again/")] == [
        "derived/again/Reach~2"
    ]


def test_more_facts_are_another_question(spark: Any, tmp_path: Path) -> None:
    key = SigningKey.generate()
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    seen: list[int] = []
    for number in (1, 2):
        (tmp_path / f"file{number}").write_bytes(
            b"".join(record.bytes for record in make_records(key, 30, number))
        )
        ingest_files(spark, warehouse, tmp_path / f"file{number}")
        before = evaluated(tmp_path, "--rules", "rules", "--predicate", "Linked/2")
        assert "no facts yet" in before.err
        with warehouse.writing("a test") as job:
            make_facts(spark, job)
        result = evaluated(tmp_path, "--rules", "rules", "--predicate", "Linked/2", "--json")
        assert result.json()["fresh"]
        seen.append(result.json()["derived"]["Linked/2"])
    assert 0 < seen[0] < seen[1]
    assert len(derived_lines(WarehouseFolder.open(tmp_path / "wh"), "result")) == seen[1]


@pytest.mark.requirement("040-74", "020-73", "040-71", "040-72")
@pytest.mark.parametrize("index", ["0", "1"])
@pytest.mark.parametrize("where", ["handed", "cluster"])
def test_an_exchange_as_in_a_preview(
    filled: Path, records: list[Blob | Plex | Seal], index: str, where: str, tmp_path: Path
) -> None:
    viewer = SigningKey.generate().verifier
    strange = [Plex(group="u", app="ding", name=f"far/{n}", data=b"").id for n in range(3)]
    facts: list[Fact] = [("Advertised", each, viewer) for each in (*strange, records[3].id)]
    facts += [("AdvertisedField", each, viewer, "App", "0", "ding") for each in strange[:2]]
    (tmp_path / "advertised").write_text("".join(format_fact(fact) + "\n" for fact in facts))
    asked: tuple[str, ...] = (
        "--select",
        "mine",
        "--peer-select",
        "theirs",
        "--expose",
        f"shown@{viewer}",
    )
    asked += ("--viewer", str(viewer), "--index", index, "--advertised", "advertised")
    small = ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")
    result = evaluated(filled, *asked, *(small if where == "cluster" else ()))
    assert result.code == 0, result.err
    preview = call("preview", "--lace", filled / "lace", *asked)
    assert derived_lines(WarehouseFolder.open(filled / "wh"), "exchange") == sorted(preview.lines)
    assert {line.partition("(")[0] for line in preview.lines} == {"MaySend", "MayRequest"}
    # Another viewer is shown nothing.
    other = (*asked[:5], f"shown@{SigningKey.generate().verifier}", *asked[6:])
    nothing = evaluated(filled, *other)
    assert nothing.lines[0] == "MaySend/1 0"
    assert "nothing is exposed to this peer" in nothing.err


def test_what_is_refused(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("lace.spark.engine.session.open_session", refuse)
    before = names_of(filled / "wh")
    (tmp_path / "wrong").write_text("A(X) :- not B(X).\n")
    (tmp_path / "none").write_text("")
    wrong = evaluated(filled, "--rules", "wrong")
    assert wrong.code == 1
    assert "wrong:1" in wrong.err
    run = call("pipeline", "run", "new", filled / "file", "--rules", "wrong")
    assert (run.code, (tmp_path / "new").exists()) == (1, False)
    assert evaluated(filled, "--select", "wrong", "--peer-select", "theirs").code == 1
    refused: list[tuple[str, ...]] = [
        (),
        ("--rules", "rules", "--select", "mine"),
        ("--select", "mine"),
        ("--select", "mine", "--peer-select", "theirs", "--predicate", "MaySend/1"),
        ("--rules", "rules", "--out", "../out"),
        ("--rules", "rules", "--predicate", "Nothing/1"),
        ("--rules", "none"),
    ]
    for arguments in refused:
        assert evaluated(filled, *arguments).code == 2, arguments
    refused = [
        ("--rules", "rules", "--all"),
        ("--predicate", "Selected/1", "--all"),
        ("--rules", "rules", "--predicate", "Reach/2"),
        ("--rules", "mine"),
    ]
    for arguments in refused:
        assert call("pipeline", "export", filled / "wh", *arguments).code == 2, arguments
    assert names_of(filled / "wh") == before


@pytest.mark.requirement("030-57")
@pytest.mark.parametrize(
    "limit", ["max_derived_facts=3", "max_base_facts=5", "max_work=2", "max_iterations=1"]
)
def test_a_limit_commits_nothing(filled: Path, limit: str) -> None:
    before = (filled / "wh" / "manifest.json").read_bytes()
    for more in ((), ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")):
        result = evaluated(filled, "--rules", "rules", "--out", "limited", "--set", limit, *more)
        assert result.code == 1, result.err
        assert limit.partition("=")[0] in result.err
    assert (filled / "wh" / "manifest.json").read_bytes() == before


def test_values_above_the_limit_are_refused(filled: Path) -> None:
    result = evaluated(filled, "--rules", "rules", "--set", "max_value_bytes=20")
    over_lace = call(
        "query", "--lace", filled / "lace", "--rules", "rules", "--set", "max_value_bytes=20"
    )
    assert result.code == over_lace.code != 0


def test_a_whole_run_and_an_export(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_bytes((filled / "file").read_bytes())
    first = call("pipeline", "run", "wh", "in", "--rules", "rules", "--out", "chosen", "--json")
    assert first.code == 0, first.err
    found = first.json()
    assert (found["ingest"]["rejected"], found["facts"]["facts"] > 0) == (0, True)
    lines = derived_lines(WarehouseFolder.open(tmp_path / "wh"), "chosen")
    over_lace = call("query", "--lace", filled / "lace", "--rules", "rules")
    assert lines == sorted(over_lace.lines)
    generation = WarehouseFolder.open(tmp_path / "wh").manifest.generation
    again = call("pipeline", "run", "wh", "in", "--rules", "rules", "--out", "chosen")
    assert f"evaluate Selected/1 {found['evaluate']['Selected/1']}" in again.lines
    assert "ingest stored 0" in again.lines
    assert WarehouseFolder.open(tmp_path / "wh").manifest.generation == generation
    telling = ("--source", "Opq_0", "--field", "App")
    told = call("pipeline", "run", "wh", "in", "--rules", "rules", "--out", "chosen", *telling)
    assert f"advertise records {first.json()['ingest']['stored']}" in told.lines
    assert call("pipeline", "run", "wh", "in", "--rules", "rules", "--field", "App").code == 2
    (tmp_path / "in" / "bad").write_bytes(b"no record")
    refused = call("pipeline", "run", "wh", "in", "--rules", "rules", "--out", "chosen")
    assert refused.code == 1
    assert "what was rejected, and why, is in the table quarantine of " in refused.err
    # What rules choose, as records that a lace takes.
    exported = call("pipeline", "export", "wh", "--rules", "rules", "-o", "out", "--json")
    assert exported.code == 0, exported.err
    assert "1 value of Selected/1 is no record of this warehouse" in exported.err
    chosen = {line["id"] for line in exported.json_lines()}
    wanted = {line[len("Selected('") : -2] for line in lines if line.startswith("Selected(")}
    assert chosen == wanted - {"it\\'s no record"} != set()
    assert call("init").code == 0
    taken = call("import", "out", "--json")
    assert (taken.code, json.loads(taken.raw.splitlines()[-1])["stored"]) == (0, len(chosen))


def test_a_derived_set_can_be_advertised(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "few").write_text("Few(P) :- Field(P,'Group',_,'u/1'), Have(P).\n")
    made = evaluated(filled, "--rules", "few", "--out", "few").lines
    told = call("pipeline", "advertise", filled / "wh", "--source", "Opq_0", "--of", "few")
    assert told.code == 0, told.err
    assert made == [told.lines[0].replace("records", "Few/1")]
    assert made != ["Few/1 0"]


def test_intermediate_tables_in_files_are_removed(spark: Any, filled: Path) -> None:
    warehouse = WarehouseFolder.open(filled / "wh")
    checked = check_source(RULES, profile=QUERY)
    how = Options(handover_rows=0, small_rows=0, cuts="reliable")
    with warehouse.writing("a test") as job:
        scratch = job.scratch("checkpoints")
        evaluate(spark, job, "files", Question((checked,), checked.derived), options=how)
        assert not scratch.exists()
    listed = {file.path for file in warehouse.manifest.all_files()}
    assert {name for name in names_of(filled / "wh") if "scratch" in name} == set()
    assert all((filled / "wh" / path).is_file() for path in listed)
    over_lace = call("query", "--lace", filled / "lace", "--rules", "rules")
    assert derived_lines(warehouse, "files") == sorted(over_lace.lines)
    strict = check_source(RULES, profile=QUERY, limits=RuleLimits(max_derived_facts=3))
    with warehouse.writing("a test") as job, pytest.raises(LimitExceeded):
        evaluate(spark, job, "files", Question((strict,), strict.derived), options=how)
    assert {name for name in names_of(filled / "wh") if "scratch" in name} == set()


def test_only_the_names_that_rules_ask_for_are_read() -> None:
    asked = check_source(RULES, profile=QUERY)
    assert field_names([asked]) == frozenset({"Tag", "App", "Signed-By"})
    counted = check_source("A(P) :- Have(P), Cardinality(Field(P,_,_,_),'>','1').\n")
    assert field_names([asked, counted]) is None
    negated = check_source("A(P) :- Have(P), not Field(P,'TAI','0','1').\n")
    assert field_names([negated]) == frozenset({"TAI"})
