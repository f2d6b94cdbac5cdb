"""The fuzz targets run, find nothing, and would keep what they find."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fuzz.__main__ import TARGETS, load, main
from fuzz.harness import CORPUS, LARGEST, ROOT, kept, loop

if TYPE_CHECKING:
    from pathlib import Path

MOST_FILES, MOST_BYTES = 300, 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_holds_what_must_hold(name: str) -> None:
    target = load(name)
    inputs = [*kept(target), *target.seeds()]
    assert kept(target)
    for raw in inputs:
        target.check(raw)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.exhaustive
def test_a_second_of_changed_inputs(name: str, tmp_path: Path) -> None:
    """Steered by coverage where that is possible; a library ends its process, so in another."""
    command = [sys.executable, "-m", "fuzz", name, "--seconds", "1", "--seed", "1"]
    crashes = tmp_path / "crashes"
    before = sorted((CORPUS / name).iterdir())
    done = subprocess.run(
        [*command, "--crashes", str(crashes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not [path for path in crashes.glob("*") if path.is_file()]
    assert sorted((CORPUS / name).iterdir()) == before, "what is kept changes only on purpose"


@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_without_the_library(name: str, tmp_path: Path) -> None:
    run = loop(load(name), 0.1, 1, tmp_path)
    assert run.inputs > len(kept(load(name)))
    assert not run.failed
    assert not list(tmp_path.iterdir())


def test_a_finding_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(raw: bytes) -> None:
        if len(raw) > 100:
            raise ValueError(f"a bug for {len(raw)} bytes")

    run = loop(replace(load("streams"), check=fail), 0.01, 3, tmp_path)
    assert run.failed
    found = list(tmp_path.glob("streams-*"))
    assert found
    assert all(len(path.read_bytes()) > 100 for path in found)
    assert "undocumented ValueError" in capsys.readouterr().err


def test_the_command_without_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--engine", "loop", "--seconds", "0.05", "--crashes", str(tmp_path)]
    assert main(["upgrades", *arguments]) == 0
    assert "0 findings" in capsys.readouterr().out


def test_a_file_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kept"
    file.write_bytes(kept(load("streams"))[0])
    assert main(["streams", str(file)]) == 0
    assert "nothing is wrong with it" in capsys.readouterr().out


def test_what_is_kept_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert len(files) <= MOST_FILES
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert all(path.stat().st_size <= LARGEST for path in files)
    assert {path.parent.name for path in files} == set(TARGETS)
