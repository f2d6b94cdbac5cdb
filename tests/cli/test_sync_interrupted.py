"""Sides of a real exchange that are killed, stopped or told to end while records are moving.

A relay holds the bytes of the exchange back at a seeded place, so that what happens to a side
happens in the middle, however fast or slow the machine is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from lace.api import open_lace
from lace.link.events import ROUND_SECONDS
from lace.link.messages import GROUP_BYTES
from lace.store.sqlite.store import DATABASE_NAME
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.relays import Relay
from tests.cli.running import call, spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.links import Serving

pytestmark = pytest.mark.slow

RECORDS, RECORD_BYTES = 60, 300_000
"""What each side has that the other lacks, beside a few small ones: more than is stored at once."""
TOTAL = 2 * (RECORDS + 5)
FEW = ("--set", "import_batch_records=20")
SOON = ("--set", "phase_timeout_seconds=5")
SIDES = ["server", "client"]
MOST = 2 * RECORDS * RECORD_BYTES
"""Fewer bytes than an exchange takes."""
MIDDLE = MOST // 2
assert MIDDLE > 2 * GROUP_BYTES, "then one side has some to store"


def make_large(folder: Path, seed: int) -> tuple[Party, Party]:
    """Two laces, each with much to send; data that nothing could make smaller."""
    folder.mkdir(exist_ok=True)
    rnd = random.Random(seed)
    parties = make_parties(folder)
    for party in parties:
        with open_lace(party.folder) as lace:
            name = party.folder.name
            lace.add_all(
                [plex(f"{name}/large/{n}", rnd.randbytes(RECORD_BYTES)) for n in range(RECORDS)]
            )
    return parties


def rows(party: Party) -> int:
    """The rows that the database has, however many records they are."""
    connection = apsw.Connection(str(party.folder / DATABASE_NAME))
    connection.set_busy_timeout(60_000)
    try:
        count, distinct = next(
            iter(connection.execute("SELECT count(*), count(DISTINCT id) FROM record"))
        )
    finally:
        connection.close()
    assert count == distinct, "a record is there twice"
    return int(count)


class Underway:
    """A `lace serve` and a `lace sync`, held in the middle."""

    def __init__(
        self, server: Serving, client: subprocess.Popen[bytes], relay: Relay, ended: str
    ) -> None:
        self.server, self.client, self.relay = server, client, relay
        self.hit = server.process if ended == "server" else client

    def client_ends(self) -> tuple[dict[str, Any], str]:
        """Wait for the end of the client; returns its result and what it said."""
        out, err = self.client.communicate(timeout=60)
        assert b"Traceback" not in err
        return json.loads(out.splitlines()[0]) if out else {}, err.decode()


@contextmanager
def underway(parties: tuple[Party, Party], side: str, at: int, *more: object) -> Iterator[Underway]:
    """Run an exchange up to a byte of it; the block begins when the rest is held back."""
    left, right = parties
    with (
        serving(right, left, "tcp:127.0.0.1:0", *FEW, *more) as server,
        Relay(server.address, at) as relay,
    ):
        options = (*left.policy(right), *FEW, *more, "--json")
        client = spawn("sync", relay.address, *options)
        try:
            relay.wait()
            assert client.poll() is None
            assert server.process.poll() is None
            yield Underway(server, client, relay, side)
        finally:
            client.kill()
            client.wait(60)
            for pipe in (client.stdout, client.stderr):
                assert pipe is not None
                pipe.close()


def check_completed(parties: tuple[Party, Party]) -> None:
    """A second run reaches the whole set: nothing is lost, doubled or damaged."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(right, server.address)
        assert done.code == 0, done.err
    assert hashes(left) == hashes(right)
    for party in parties:
        assert rows(party) == len(hashes(party)) == TOTAL
        verified = call("--lace", party.folder, "verify")
        assert verified.code == 0, verified.err


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_side_loses_nothing(tmp_path: Path, side: str, seed: int) -> None:
    """[interrupted/cut] kill -9 at a seeded moment: a second run completes the set.

    Every other time, that is soon after the first records were stored.
    """
    rnd = random.Random(f"{side} {seed}")
    parties = make_large(tmp_path, seed)
    before = [rows(party) for party in parties]
    is_storing = seed % 2 == 1
    first = MIDDLE if is_storing else 2_000
    with underway(parties, side, rnd.randrange(first, MOST)) as run:
        if is_storing:
            wait_until(lambda: [rows(party) for party in parties] != before)
        time.sleep(rnd.choice((0.0, 0.001, 0.01, 0.1)))
        run.hit.kill()
        assert run.hit.wait(60) == -signal.SIGKILL
        after = [rows(party) for party in parties]
        assert sum(before) + is_storing <= sum(after) < 2 * TOTAL, "it is in the middle"
        run.relay.close()  # a connection whose one end is gone
        if side == "server":
            result, err = run.client_ends()
            assert run.client.returncode == 4, err
            assert "peer closed early" in err
            assert not result["at-fixed-point"]
        else:
            run.server.wait_for('why="peer closed early"')
    check_completed(parties)


@pytest.mark.requirement("050-221")
@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_stands_still(tmp_path: Path, side: str) -> None:
    """SIGSTOP in the middle: the other gives it up in time and says why; it finds out later."""
    parties = make_large(tmp_path, 1)
    with underway(parties, side, MIDDLE, *SOON) as run:
        os.kill(run.hit.pid, signal.SIGSTOP)
        run.relay.go_on()
        try:
            if side == "server":
                result, err = run.client_ends()
                assert run.client.returncode == 4, err
                assert "phase timeout: " in err
                assert not result["at-fixed-point"]
                assert result["failure"] == "PHASE_TIMEOUT"
            else:
                run.server.wait_for("phase timeout")
                run.server.wait_for("outcome=failed")
        finally:
            os.kill(run.hit.pid, signal.SIGCONT)
        if side == "client":
            result, err = run.client_ends()
            assert run.client.returncode == 4, err
            assert not result["at-fixed-point"]
        else:
            run.server.wait_for("outcome=failed")
            assert run.server.end() == 143
    check_completed(parties)


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_is_told_to_end_finishes_its_round(tmp_path: Path, side: str) -> None:
    """SIGTERM in the middle of a transfer: all of it is finished, and both close cleanly."""
    parties = make_large(tmp_path, 2)
    with underway(parties, side, MIDDLE) as run:
        assert sum(rows(party) for party in parties) < 2 * TOTAL
        run.hit.terminate()
        time.sleep(0.2)  # so that the signal comes first; if it does not, the same holds
        assert run.hit.poll() is None, "it waits for what is under way"
        run.relay.go_on()
        result, err = run.client_ends()
        run.server.wait_for("outcome=fixed-point")
        assert run.client.returncode == (143 if side == "client" else 0), err
        if side == "server":
            assert run.server.process.wait(60) == 143
        assert result["at-fixed-point"]
        assert result["failure"] is None
        assert "closed early" not in err + run.server.errors
        assert "Traceback" not in run.server.errors
        assert [rows(party) for party in parties] == [TOTAL, TOTAL], "it is stored"
    check_completed(parties)


@pytest.mark.parametrize("side", SIDES)
def test_a_round_that_takes_long_ends_with_its_phase(tmp_path: Path, side: str) -> None:
    """Told to end while the peer's batch does not come for longer than a round may go on."""
    parties = make_large(tmp_path, 3)
    with underway(parties, side, MIDDLE) as run:
        run.hit.terminate()
        time.sleep(ROUND_SECONDS + 1)
        assert run.hit.poll() is None, "the phase is not over"
        run.relay.go_on()
        result, err = run.client_ends()
        if side == "server":
            assert run.server.process.wait(60) == 143
            run.server.wait_for("outcome=unfinished")
            run.server.wait_for('why="stopped before a fixed point"')
            assert run.client.returncode == 4, err
            assert "peer closed early: while waiting for the peer's advertisements" in err
        else:
            assert run.client.returncode == 143, err
            assert f"{RECORDS + 5} records came and are stored; run it again to go on" in err
            assert result["reason"] == "stopped before a fixed point"
            assert result["failure"] is None
            run.server.wait_for('why="peer closed early"')
        assert not result["at-fixed-point"]
        assert [rows(party) for party in parties] == [TOTAL, TOTAL], "the transfer was finished"
    check_completed(parties)
