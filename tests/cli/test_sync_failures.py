"""`lace sync` where the lace itself fails: the exit code says what, the result what came before."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.store.lock import WriteLock
from tests.cli.links import Party, hashes, make_parties, plex, serving
from tests.cli.running import LIMITED, process
from tests.store.samples import flip
from tests.store.test_damage import change

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("050-173", "050-227")


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def test_a_disk_that_is_full(parties: tuple[Party, Party]) -> None:
    """Files may not grow any more, as on a full disk; the server sees a close and goes on."""
    left, right = parties
    with open_lace(right.folder) as there:
        there.add_all([plex(f"large/{number}", bytes(200_000)) for number in range(20)])
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        prefix = (sys.executable, "-c", LIMITED, str(1_000_000))
        done = process("sync", server.address, *left.policy(right), "--json", prefix=prefix)
        assert done.code == 3, done.err
        assert "this side's lace: " in done.err
        assert str(left.folder) in done.err
        result = done.json_lines()[0]
        assert result["failure"] == "STORE_FAILED"
        assert not result["at-fixed-point"]
        assert result["exchange-plan-id"]
        server.wait_for('why="peer closed early"')
        assert "space" not in server.errors
        again = left.sync(right, server.address)
        assert again.code == 0, again.err
    assert hashes(left) == hashes(right)


def test_a_lace_that_another_program_holds(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with (
        serving(right, left, "tcp:127.0.0.1:0") as server,
        WriteLock(left.folder, "a long import").held(1),
    ):
        done = left.sync(right, server.address, "--set", "wait_seconds=0", "--json")
    assert done.code == 5, done.err
    assert "this side's lace: " in done.err
    assert "a long import" in done.err
    assert done.json_lines()[0]["failure"] == "STORE_FAILED"


def test_a_lace_that_is_damaged(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with open_lace(left.folder) as here:
        record = plex("rotten")
        number = len(here) + 1
        here.add(record)
    raw = flip(record.bytes, len(record.bytes) - 1)
    change(left.folder, "UPDATE record SET bytes = ? WHERE store_record_id = ?", raw, number)
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(right, server.address)
        assert done.code == 6, done.err
        assert "this side's lace: " in done.err
        server.wait_for('why="peer closed early"')
        assert "rotten" not in server.errors
