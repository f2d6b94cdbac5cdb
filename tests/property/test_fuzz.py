"""The fuzz harness runs, finds nothing, and would keep what it finds."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, cast

import pytest

from fuzz import records, streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_five_seconds_of_changed_streams(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashes = tmp_path / "crashes"
    code = streams.main(["--seconds", "5", "--seed", str(seed), "--crashes", str(crashes)])
    assert code == 0, capsys.readouterr().err
    assert not crashes.exists()


def test_every_kept_stream_holds_what_must_hold() -> None:
    for raw in streams.load_seeds():
        streams.check(raw, random.Random(1))


def test_a_finding_in_streams_is_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(raw: bytes, chance: random.Random) -> None:
        raise ValueError(f"a bug for {len(raw)} bytes")

    monkeypatch.setattr(streams, "check", fail)
    arguments = ["--seconds", "0.01", "--seed", "3", "--crashes", str(tmp_path)]
    assert streams.main(arguments) == 1
    assert list(tmp_path.glob("streams-3-*.bin"))
    assert "ValueError" in capsys.readouterr().err


def test_atheris_gets_the_same_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the library, which is used where it is installed."""
    calls: list[object] = []

    class Atheris:
        def instrument_all(self) -> None:
            calls.append("instrument")

        def Setup(self, arguments: list[str], target: Callable[[bytes], None]) -> None:
            calls.append(arguments)
            target(b"x")

        def Fuzz(self) -> None:
            calls.append("fuzz")

    monkeypatch.setitem(sys.modules, "atheris", cast("ModuleType", Atheris()))
    assert streams.main(["--engine", "atheris", "corpus"]) == 0
    assert calls == ["instrument", ["fuzz.streams", "corpus"], "fuzz"]
