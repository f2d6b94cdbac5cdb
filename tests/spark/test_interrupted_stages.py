"""Ctrl-C in the middle of each stage of the pipeline, in one Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.interrupting import interrupted
from tests.cli.running import call
from tests.spark.samples import SOURCE, names_of

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STAYS = "what was committed before this stays; run it again to go on from there"
STORED = "what was stored before this stays; run it again to go on"
NOTHING = "nothing was changed"
STAGES = {
    "ingest wh some.records": STAYS,
    "import-lace wh": STAYS,
    "facts wh": STAYS,
    f"advertise wh --source {SOURCE} --name mine": STAYS,
    "diff wh mine mine.facts": NOTHING,
    "export wh --all -o out.records": NOTHING,
    "export-lace wh": STORED,
}
"""In an order in which they work, and what they say; test_interrupts.py has processes."""
MOMENT = 250
"""With which call of a function Ctrl-C comes: every stage makes more of them."""
MOMENTS = {"export-lace": 1200}  # it has the lace open by then


def test_every_stage(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[Blob | Plex | Seal]
) -> None:
    """It commits nothing, says what stays, and run again it does its work."""
    assert spark is not None  # the commands use the session that is open
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.records").write_bytes(b"".join(record.bytes for record in records[:20]))
    (tmp_path / "mine.facts").write_text(f"Advertised('{records[0].id}','Opq_1')\n")
    assert call("init").code == 0
    assert call("put", "-", given=b"of the lace").code == 0
    WarehouseFolder.create(tmp_path / "wh")
    for line, stays in STAGES.items():
        words = ["pipeline", *line.split()]
        before = WarehouseFolder.open(tmp_path / "wh").manifest
        moment = MOMENTS.get(words[1], MOMENT)
        done, calls = interrupted(words, b"", moment)
        assert calls >= moment, f"{line} is over by then"
        assert (done.code, done.err) == (130, f"lace: interrupted; {stays}\n"), line
        after = WarehouseFolder.open(tmp_path / "wh").manifest
        assert after.generation == before.generation, line
        assert {each.path for each in after.all_files()} == {
            f"data/{name}" for name in names_of(tmp_path / "wh" / "data")
        }, line
        assert not (tmp_path / "out.records").exists(), "a file is whole or not there"
        again = call(*words)
        assert again.code == (1 if line.startswith("diff") else 0), (line, again.err)
        renewed = WarehouseFolder.open(tmp_path / "wh").manifest.generation
        assert (renewed > before.generation) == (stays == STAYS), f"{line} had work to do"
        (tmp_path / "out.records").unlink(missing_ok=True)
    assert len(call("list").lines) == 21, "the last stage brought all records"
