"""What the pages say about reading a warehouse with other tools is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lace
from tests.docs.examples import Block, matches, read_blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
TAI = "1700000000:000000000"


def python_blocks(*names: str) -> list[Block]:
    """Return the programs of pages."""
    blocks = [block for name in names for block in read_blocks(DOCS / f"{name}.md")]
    return [block for block in blocks if block.language == "python"]


def fill(place: Path) -> None:
    """Write what the examples begin with: rules, and five records with something behind them."""
    plex = lace.Plex(group="u", app="notes", name="a", tai=TAI, data=b"hello")
    link = [("+Link", f"see {plex.id}")]
    made = [
        lace.Blob(b"of no group"),
        plex,
        lace.Plex(group="u", app="notes", name="today", tai=TAI, data=b"third", headers=link),
        lace.Plex(group="u", app="letters", name="z", tai=TAI, data=b"dear"),
        lace.Plex(group="u", app="notes", name="y", tai=TAI, data=b"x").seal(
            lace.SigningKey.generate()
        ),
    ]
    (place / "incoming").mkdir()
    raw = b"".join(record.bytes for record in made)
    (place / "incoming" / "some").write_bytes(raw + b"no record")
    (place / "policy.lace").write_text("Selected(P) :- RecordLink(P,_,_,'see',_).\n")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.exhaustive
def test_a_program_fills_a_warehouse_and_other_tools_read_it(
    spark_session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark_session is not None  # the first program takes the session that is open
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    quarantined, filling = python_blocks("how-to/run-the-pipeline")
    exec(filling.text, {})  # noqa: S102 - it is ours
    page = (DOCS / "how-to" / "run-the-pipeline.md").read_text("utf-8")
    assert f"```\n{capsys.readouterr().out}```" in page
    for block in (*python_blocks("reference/warehouse"), quarantined):
        command = [sys.executable, "-c", block.text]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        if block is quarantined:
            assert "010-markline" in done.stdout
        else:
            assert matches(block.shown or "", done.stdout), done.stdout
