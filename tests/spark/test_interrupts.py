"""Signals in the middle of the pipeline: what stays is said, and a rerun goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from lace.record.model import Blob, Plex
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.groups import started_group
from tests.cli.running import call
from tests.spark.samples import hook_workers, ingest_files, names_of, records_digest

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Seal
    from tests.cli.groups import Group
    from tests.cli.running import Result

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MANY = 40_000
DAEMON = "pyspark.daemon"
"""The process that Spark starts when the first records go through Python."""
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
"""The Java process."""
STAYS = "what was committed before this stays; run it again to go on from there"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of so many records that going through them takes a while."""
    path = tmp_path_factory.mktemp("many") / "many.records"
    made = (
        Blob(b"%d" % number)
        if number % 4
        else Plex(group="u", app="many", name=str(number), tai="1700000000:000000001", data=b"x")
        for number in range(MANY)
    )
    path.write_bytes(b"".join(record.bytes for record in made))
    return path


def check_ended(ended: Result, stays: str = STAYS, word: str = "interrupted") -> None:
    assert ended.code == {"interrupted": 130, "terminated": 143}[word]
    assert (ended.raw, ended.err) == (b"", f"lace: {word}; {stays}\n")


def check_nothing_half_done(tmp_path: Path, generation: int) -> None:
    """The folder has what the manifest lists, and what Spark had for a while is gone."""
    found = WarehouseFolder.open(tmp_path / "wh").manifest
    assert found.generation == generation
    assert {each.path for each in found.all_files()} == {
        f"data/{name}" for name in names_of(tmp_path / "wh" / "data")
    }
    assert list((tmp_path / "temporary").iterdir()) == []


def writes(group: Group, tmp_path: Path, generation: int) -> None:
    """Wait until a job writes its files."""
    group.wait_for(lambda: any((tmp_path / "wh" / "data").glob(f"g{generation:08d}-*/*")))


@pytest.mark.parametrize(
    ("number", "word"),
    [
        pytest.param(signal.SIGINT, "interrupted", id="INT"),
        pytest.param(signal.SIGTERM, "terminated", id="TERM", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("member", [SUBMIT, DAEMON], ids=["starting", "validating"])
def test_an_ingest(
    spark: Any, tmp_path: Path, many: Path, member: str, number: signal.Signals, word: str
) -> None:
    """While Java starts, and while records are validated."""
    assert spark is not None
    command = ("pipeline", "ingest", tmp_path / "wh", many)
    with started_group(*command, temporary=tmp_path / "temporary") as group:
        group.wait_for_member(member)
        group.interrupt(number)
        check_ended(group.end(), word=word)
    check_nothing_half_done(tmp_path, 0)
    again = call(*command, "--json")
    assert (again.code, again.json()["stored"]) == (0, MANY)


HOLDING = """
validating.SIGNATURE_BATCH = 10
whole = validating._File.write

def write(self, rows):
    whole(self, rows)
    (Path({marks!r}) / str(os.getpid())).touch()
    time.sleep(600)

validating._File.write = write
"""
"""Each task writes some of its rows, says so, and hangs."""


def test_a_driver_is_killed_while_workers_write(
    spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    """Nothing of it counts or stays running, and the next run makes what one run makes."""
    marks, parts = tmp_path / "marks", [tmp_path / "1.records", tmp_path / "2.records"]
    marks.mkdir()
    for number, part in enumerate(parts):
        part.write_bytes(b"".join(record.bytes for record in records[number::2]))
    undisturbed = WarehouseFolder.create(tmp_path / "undisturbed")
    ingest_files(spark, undisturbed, *parts)
    path = hook_workers(tmp_path / "hook", HOLDING.format(marks=str(marks)))
    command = ("pipeline", "ingest", tmp_path / "wh", *parts, "--master", "local[2]")
    temporary = tmp_path / "temporary"
    with started_group(*command, temporary=temporary, env={"PYTHONPATH": path}) as group:
        group.wait_for(lambda: len(list(marks.iterdir())) == 2)
        written = list((tmp_path / "wh" / "data").glob("*/scratch-validated/record-*"))
        assert len(written) == 2
        for part in written:
            assert part.stat().st_size > 4
            assert not part.read_bytes().endswith(b"PAR1"), "it is being written"
        group.kill()
        assert group.end().code == -signal.SIGKILL
    assert all(part.exists() for part in written)
    warehouse = WarehouseFolder.open(tmp_path / "wh")
    assert warehouse.manifest.generation == 0
    done = ingest_files(spark, warehouse, *parts)
    assert (done.stored, done.known) == (len(records), 0)
    assert records_digest(warehouse) == records_digest(undisturbed)


@pytest.mark.exhaustive
def test_an_evaluation(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(b"".join(Blob(b"%d" % number).bytes for number in range(1500)))
    ingest_files(spark, WarehouseFolder.create(tmp_path / "wh"), tmp_path / "some")
    assert call("pipeline", "facts", tmp_path / "wh").code == 0
    rules = "Pair(P,Q) :- Field(P,'Type',_,T), Field(Q,'Type',_,T).\n"
    (tmp_path / "rules").write_text(rules)
    command = ("pipeline", "evaluate", tmp_path / "wh", "--rules", tmp_path / "rules")
    with started_group(*command, temporary=tmp_path / "temporary") as group:
        writes(group, tmp_path, 3)
        group.interrupt()
        check_ended(group.end())
    check_nothing_half_done(tmp_path, 2)
    again = call(*command, "--json")
    assert (again.code, again.json()["derived"]) == (0, {"Pair/2": 1500 * 1500})


@pytest.mark.exhaustive
def test_a_run_goes_on_behind_the_stages_that_are_done(
    spark: Any, tmp_path: Path, many: Path
) -> None:
    assert spark is not None
    (tmp_path / "rules").write_text("Named(P,N) :- Field(P,'Name',_,N).\n")
    command = ("pipeline", "run", tmp_path / "wh", many, "--rules", tmp_path / "rules")
    with started_group(*command, temporary=tmp_path / "temporary") as group:
        writes(group, tmp_path, 2)  # the facts: records are committed by then
        group.interrupt()
        check_ended(group.end())
    check_nothing_half_done(tmp_path, 1)
    again = call(*command, "--json")
    assert again.code == 0
    told = again.json()
    assert (told["ingest"]["files"], told["ingest"]["skipped"]) == (0, 1)
    assert told["evaluate"] == {"Named/2": MANY // 4}


@pytest.mark.exhaustive
def test_a_verification(spark: Any, tmp_path: Path, many: Path) -> None:
    ingest_files(spark, WarehouseFolder.create(tmp_path / "wh"), many)
    command = ("pipeline", "verify", tmp_path / "wh", "--all")
    with started_group(*command, temporary=tmp_path / "temporary") as group:
        group.wait_for_member(DAEMON)
        group.interrupt()
        check_ended(group.end(), stays="nothing was changed")
    check_nothing_half_done(tmp_path, 1)
    again = call(*command, "--json")
    assert (again.code, again.json()["validated"]) == (0, MANY)
