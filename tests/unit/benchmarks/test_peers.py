"""The peers' programs say the same as the rules: equal to the reference on small workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("clingo")

from benchmarks.duckdb_sql import RESULTS
from benchmarks.peers_clingo import ClingoPeer
from benchmarks.peers_duckdb import DuckPeer
from benchmarks.workload_facts import candidates, columns_of, edges, text_facts
from benchmarks.workload_records import export_facts, read_facts
from benchmarks.workloads import GOALS, PROGRAMS, describe
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from tests.oracle.naive_engine import evaluate_naively

if TYPE_CHECKING:
    from pathlib import Path

    Fact = tuple[str, ...]

RECORDS = ("W1", "W2", "W3", "W5")


def facts_of(workload: str, size: int) -> list[Fact]:
    if workload == "TC":
        return edges(size)
    if workload == "W4":
        return candidates(size)
    return list(text_facts(columns_of(describe(size))))


def naively(workload: str, facts: list[Fact]) -> frozenset[Fact]:
    profile = QUERY.with_base([("Edge", 2), ("Candidate", 2)])
    program = check_source(PROGRAMS[workload], profile=profile)
    results = evaluate_naively(program, facts)
    return {str(key): rows for key, rows in results.items()}[GOALS[workload]]


def with_duckdb(workload: str, folder: Path, *, interned: bool, loop: bool = False) -> DuckPeer:
    peer = DuckPeer(interned=interned)
    peer.load(folder)
    peer.evaluate("W2 loop" if loop else workload)
    return peer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "size"),
    [("W1", 120), ("W2", 300), ("W3", 120), ("W4", 110), ("W5", 60), ("TC", 30)],
)
def test_small_workloads_against_the_reference(workload: str, size: int, tmp_path: Path) -> None:
    facts = facts_of(workload, size)
    expected = naively(workload, facts)
    assert expected
    assert ClingoPeer(workload, facts).rows() == expected
    folder = export_facts(facts, tmp_path / "facts")
    assert sorted(read_facts(folder)) == sorted(facts)
    kinds = (False,) if workload in {"W4", "W5"} else (True, False)
    for interned in kinds:
        peer = with_duckdb(workload, folder, interned=interned)
        assert peer.rows(RESULTS[workload]) == expected
        if workload == "W2":
            peer = with_duckdb(workload, folder, interned=interned, loop=True)
            assert peer.rows(RESULTS[workload]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("workload", RECORDS)
def test_larger_workloads_against_each_other(workload: str, tmp_path: Path) -> None:
    facts = facts_of(workload, 4_000)
    folder = export_facts(facts, tmp_path / "facts")
    found = ClingoPeer(workload, facts).rows()
    assert found
    for interned in (False,) if workload == "W5" else (True, False):
        assert with_duckdb(workload, folder, interned=interned).rows(RESULTS[workload]) == found
