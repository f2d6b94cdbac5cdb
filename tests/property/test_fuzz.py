"""The fuzz harness runs, finds nothing, and would keep what it finds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from fuzz import records

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_five_seconds_of_changed_records(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashes = tmp_path / "crashes"
    code = records.main(["--seconds", "5", "--seed", str(seed), "--crashes", str(crashes)])
    assert code == 0, capsys.readouterr().err
    assert not crashes.exists()


def test_a_finding_is_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(raw: bytes, chance: random.Random) -> None:
        raise ValueError(f"a bug for {len(raw)} bytes")

    monkeypatch.setattr(records, "check", fail)
    arguments = ["--seconds", "0.01", "--seed", "3", "--crashes", str(tmp_path)]
    assert records.main(arguments) == 1
    inputs = [records.mutate(chance, records.load_seeds()) for chance in [random.Random(3)]]
    assert (tmp_path / "records-3-1.bin").read_bytes() == inputs[0]
    assert "undocumented ValueError" in capsys.readouterr().err
