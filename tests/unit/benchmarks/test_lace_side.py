"""Lace's side of the engine benchmarks: both engines count the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from benchmarks import workload_records
from benchmarks.lace_side import ENGINES
from benchmarks.workload_facts import edges
from benchmarks.workload_records import further_records, record_facts_of, records

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ENGINES)
def test_facts_in_memory(name: str) -> None:
    engine = ENGINES[name]()
    facts = edges(20)
    prepared = engine.prepare("TC", facts)
    assert prepared.evaluate() == prepared.evaluate() == engine.evaluate("TC", facts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_facts_of_a_lace(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_records, "FOLDER", tmp_path)
    before = records(60)
    (later,) = further_records(before)
    with lace.open(tmp_path / "store") as store:
        store.import_file(before.path)
    engine = ENGINES[name]()
    opened = engine.open(tmp_path / "store")
    opened.follow("W1")
    facts = list(record_facts_of(before))
    assert opened.update() == {"W1": engine.evaluate("W1", facts)}
    opened.add(later.path)
    facts += record_facts_of(later, before)
    assert opened.update() == {"W1": engine.evaluate("W1", facts)}
