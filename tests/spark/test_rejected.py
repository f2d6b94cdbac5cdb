"""What was rejected is shown by a command, as an import tells it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from lace.spark.pipeline.tables import rejected_of
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call, call_at_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.requirement("020-06")
def test_what_was_rejected_is_shown(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[Blob | Plex | Seal]
) -> None:
    assert spark is not None  # the command uses the session that is open
    monkeypatch.chdir(tmp_path)
    good = [record.bytes for record in records[:3]]
    (tmp_path / "bad one.records").write_bytes(b"garbage".join(good))
    (tmp_path / "nothing").write_bytes(b"nothing of use")
    asked = ("pipeline", "status", str(tmp_path / "a wh"), "--quarantine")
    ingested = call("pipeline", "ingest", "a wh", "bad one.records")
    assert ingested.code == 1
    hint = ingested.err[ingested.err.index("`lace") + 1 : ingested.err.rindex("`")]
    assert tuple(shlex.split(hint))[1:] == asked, "it can be pasted"
    assert call("pipeline", "ingest", "a wh", "nothing").code == 1

    found = list(rejected_of(WarehouseFolder.open(tmp_path / "a wh")))
    assert [(each.path.rpartition("/")[2], each.offset) for each in found] == [
        ("bad one.records", len(good[0])),
        ("bad one.records", len(good[0]) + 7 + len(good[1])),
        ("nothing", 0),
    ]
    done = call(*asked)
    assert done.code == 0
    assert [line.split("\t") for line in done.lines] == [
        [each.path, str(each.offset), each.rule, each.reason] for each in found
    ]
    assert all(len(line.split("\t")) == 4 for line in done.lines)
    told = call(*asked, "--json").json()
    assert told["quarantine"] == [each.to_json() for each in found]
    assert told["quarantined"] == len(found)
    shown = call_at_terminal(*asked, columns=200)
    assert shown.code == 0
    assert all(each.reason in shown.out for each in found)


def test_nothing_was_rejected(tmp_path: Path) -> None:
    WarehouseFolder.create(tmp_path / "wh")
    asked = ("pipeline", "status", tmp_path / "wh", "--quarantine")
    assert call(*asked).raw == b""
    shown = call_at_terminal(*asked, columns=80)
    assert (shown.code, "nothing was rejected" in shown.out) == (0, True)


def test_a_damaged_file_is_told(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    (tmp_path / "nothing").write_bytes(b"nothing of use")
    folder = tmp_path / "wh"
    assert call("pipeline", "ingest", folder, tmp_path / "nothing").code == 1
    (path,) = WarehouseFolder.open(folder).files("quarantine")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 4] ^= 0xFF
    path.write_bytes(raw)
    done = call("pipeline", "status", folder, "--quarantine")
    assert done.code == 6, done.err
    assert path.name in done.err
