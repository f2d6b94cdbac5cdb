"""The workloads: the same every time, in the proportions that were asked for, and real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import workload_records
from benchmarks.workload_facts import columns_of, edges, occurrences, text_facts
from benchmarks.workload_records import further_records, record_facts_of, records
from benchmarks.workloads import APPS, NO, describe, describe_further
from lace.api import open_lace
from lace.facts.extract import record_facts

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 40_000


def test_a_description_is_the_same_every_time() -> None:
    one, two = describe(500), describe(500)
    assert list(text_facts(columns_of(one))) == list(text_facts(columns_of(two)))


def test_the_proportions() -> None:
    found = describe(SIZE)
    columns = columns_of(found)
    assert columns.count("Have") == SIZE
    assert columns.count("Field") == pytest.approx(8 * SIZE, rel=0.01)
    assert columns.count("RecordLink") == pytest.approx(0.69 * SIZE, rel=0.03)
    selected = (found.group == 0) & (found.app == 0) & (found.root == 0)
    assert selected.sum() == pytest.approx(0.0168 * SIZE, rel=0.15)
    members = np.zeros(found.verifiers, bool)
    members[found.named[found.app == APPS.index("member")]] = True
    members[found.named[found.app == APPS.index("blocked")]] = False
    assert members[found.signer].sum() == pytest.approx(0.757 * SIZE, rel=0.05)
    assert (found.link_target < found.link_source).all()


def test_further_records_follow() -> None:
    before = describe(500)
    first, second = describe_further(before), describe_further(before, 1)
    assert (first.first, second.first) == (500, 600)
    assert (first.named != NO).sum() == 2
    assert (second.link_target < second.link_source).all()


def test_edges_reach_ahead() -> None:
    assert all(0 < int(b[1:]) - int(a[1:]) <= 50 for _, a, b in edges(200))


def test_occurrences() -> None:
    assert occurrences(np.array([3, 3, 5, 9, 9, 9])).tolist() == [0, 1, 0, 0, 1, 2]


@pytest.mark.slow
def test_the_records_have_the_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_records, "FOLDER", tmp_path)
    before = records(4_000)
    later = further_records(before, 2)
    expected = set(record_facts_of(before))
    expected |= set(record_facts_of(later[0], before))
    expected |= set(record_facts_of(later[1], before, later[0]))
    facts: set[tuple[str, ...]] = set()
    with open_lace(tmp_path / "lace", create=True) as lace:
        for files in (before, *later):
            lace.import_file(files.path)
        assert len(lace) == 4_200
        with lace.snapshot() as snapshot:
            for record in snapshot.records():
                facts.update(record_facts(record))
    assert facts == expected
