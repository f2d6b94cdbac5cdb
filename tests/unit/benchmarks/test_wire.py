"""The wire benchmarks, tiny: real processes converge, and each figure is there."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks import corpus, wire, wire_others, wire_sides
from benchmarks.wire_clients import Together

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Row


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (corpus, wire, wire_sides):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(wire, "_FROM", tmp_path / "from.lace")
    monkeypatch.setattr(wire, "_TO", tmp_path / "to.lace")
    monkeypatch.setattr(wire_others, "_PLACE", tmp_path / "others")
    for name in ("ROUNDS", "STARTS", "AGAIN"):
        monkeypatch.setattr(wire, name, 1)


def measured(rows: list[Row], name: str) -> str:
    (found,) = (row.measured for row in rows if name in row.name)
    return found


def number(text: str) -> float:
    found = re.match(r"[\d,.]+", text)
    assert found is not None, text
    return float(found[0].replace(",", ""))


@pytest.mark.slow
def test_records_go_over_the_wire_beside_others() -> None:
    rows = wire.benchmark_wire_records(30)
    for name in ("first contact", "whole command", "import` of the same", "git fetch"):
        assert number(measured(rows, name)) > 0
    assert number(measured(rows, "first contact")) > number(measured(rows, "whole command"))
    assert number(measured(rows, "its CPU")) > 0
    assert number(measured(rows, "peak memory")) > 10
    assert (measured(rows, "rsync") == "not installed") == (shutil.which("rsync") is None)


@pytest.mark.slow
def test_blobs_go_over_the_wire() -> None:
    rows = wire.benchmark_wire_blobs(2, 1000)
    assert number(measured(rows, "rate over the wire")) > 0
    assert number(measured(rows, "CPU of both")) > 0


@pytest.mark.slow
def test_clients_converge_at_once() -> None:
    rows = wire.benchmark_wire_links(4)
    assert rows[0].met
    assert measured(rows, "failed") == "0; 50 records stored"
    assert int(measured(rows, "fullest moment")) > 1


@pytest.mark.slow
def test_a_server_starts() -> None:
    (row,) = wire.benchmark_wire_start()
    assert number(row.measured) > 0


@pytest.mark.slow
def test_an_unchanged_pair_is_kept_and_says_little(tmp_path: Path) -> None:
    rows = wire.benchmark_wire_again(30)
    assert rows[0].met, rows[0]
    assert number(measured(rows, "connected to ended")) < number(measured(rows, "whole command"))
    assert (tmp_path / "wire-again-30" / "here.lace").exists()


def test_the_percentile_and_the_fullest_moment_of_links() -> None:
    together = Together([(float(at), float(at + 1 + at)) for at in range(100)], [])
    assert together.slow == 99
    assert together.median == 50.5
    assert together.most_at_once == 50
    apart = Together([(0.0, 1.0), (1.0, 2.0)], [])
    assert apart.most_at_once == 1
