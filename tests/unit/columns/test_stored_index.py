"""The index of a stored dictionary: every place is the one that a plain search finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lace.columns.segment_files import BLOCK
from lace.columns.segment_journal import SegmentDamagedError, run_name
from lace.columns.stored_dictionary import SortedRun, candidates, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from lace.columns.stored_dictionary import Hashes

COUNTS = [
    1,
    2,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    5 * BLOCK - 1,
    5 * BLOCK,
    5 * BLOCK + 1,
    40 * BLOCK + 7,
]


def made(folder: Path, count: int, most: int) -> tuple[SortedRun, Hashes]:
    source = np.random.default_rng(count)
    hashes = np.sort(source.integers(1, most, count).astype(np.uint64))
    entry = write_run(folder, 1, count, [(hashes, np.arange(count, dtype=np.int32))])
    return SortedRun(folder, entry), hashes


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("most", [2**63, 1000, 3])
def test_places(tmp_path: Path, count: int, most: int) -> None:
    run, hashes = made(tmp_path, count, most)
    ends = np.array([0, 1, 2**64 - 1], np.uint64)
    there = hashes[:: max(1, count // 50)]
    edges = np.concatenate([hashes[BLOCK - 1 :: BLOCK], hashes[::BLOCK]])
    for wanted in (ends, there, there + np.uint64(1), edges, edges - np.uint64(1), hashes):
        wanted = np.sort(wanted)
        expected = np.searchsorted(hashes, wanted, "left").tolist()
        assert run.places(wanted).tolist() == expected
        for at in range(0, len(wanted), 1 + len(wanted) // 200):
            assert run.places(wanted[at : at + 1]).tolist() == expected[at : at + 1]


def test_every_text_with_a_hash_is_a_candidate(tmp_path: Path) -> None:
    run, hashes = made(tmp_path, 3 * BLOCK + 5, 100)
    wanted = np.arange(0, 120, 7).astype(np.uint64)
    found: list[tuple[int, int]] = []
    for at, ids in candidates([run], wanted):
        found += zip(at.tolist(), ids.tolist(), strict=True)
    assert sorted(found) == [
        (at, number)
        for at, one in enumerate(wanted)
        for number in np.flatnonzero(hashes == one).tolist()
    ]


def test_a_block_that_is_not_asked_for_is_not_believed_either(tmp_path: Path) -> None:
    """Damage in one block is found by whoever looks there, and misleads nobody before."""
    run, hashes = made(tmp_path, 4 * BLOCK, 2**63)
    with (tmp_path / run_name(1)).open("r+b") as file:
        file.seek(2 * BLOCK * 8)
        file.write(bytes(8))
    wanted = hashes[BLOCK : 2 * BLOCK] + np.uint64(1)  # the last of them is behind its block
    for at, one in enumerate(wanted):
        assert run.places(one.reshape(1)).tolist() == [BLOCK + at + 1]
    with pytest.raises(SegmentDamagedError):
        run.places(hashes[2 * BLOCK + 9 : 2 * BLOCK + 10])
