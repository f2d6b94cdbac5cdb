"""An open sync whose server is away: the pauses before it tries again; and its progress line."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from socket import AF_UNIX
from typing import TYPE_CHECKING

import pytest

from lace.api.links import Link
from lace.cli.link_runs import LinkLine
from lace.exchange.result import Counters
from lace.exchange.transitions import State
from lace.link.events import LinkStatus
from tests.cli.links import SECONDS, hashes, make_parties, serving, wait_until
from tests.cli.running import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_pauses_grow_up_to_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes and does not come back; nobody waits for the pauses here."""
    left, right = make_parties(tmp_path)
    pauses: list[float] = []

    async def pause(_link: Link, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    monkeypatch.setattr(Link, "_pause", pause)
    with serving(right, left, f"unix:{tmp_path}/s", "--open") as server:

        def end() -> None:
            wait_until(lambda: hashes(left) == hashes(right))
            server.process.kill()

        ending = threading.Thread(target=end)
        ending.start()
        done = call("sync", f"unix:{tmp_path}/s", *left.policy(right), "--open")
        ending.join()
    assert done.code == 143, done.err
    failed = pauses[pauses.index(1) :]  # before that, the link that worked
    assert failed[:6] == [1, 2, 4, 8, 15, 30]
    assert len(failed) >= 10
    assert set(failed[6:]) == {60}
    for seconds in (1, 2, 4, 8, 15, 30, 60):
        assert f"; again in {seconds} s" in done.err


@pytest.mark.slow
def test_a_server_that_says_nothing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ends takes connections for a moment more, and closes them."""
    left, right = make_parties(tmp_path)
    path, is_there = tmp_path / "s", threading.Event()
    taken = 0

    async def pause(_link: Link, _seconds: float) -> None:
        assert is_there.wait(SECONDS)
        if taken == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(SECONDS)

    monkeypatch.setattr(Link, "_pause", pause)
    with serving(right, left, f"unix:{path}", "--open") as server, socket.socket(AF_UNIX) as silent:

        def replace() -> None:
            nonlocal taken
            wait_until(lambda: hashes(left) == hashes(right))
            server.process.kill()
            server.process.wait()
            path.unlink()
            silent.bind(str(path))
            silent.listen()
            is_there.set()
            for number in range(1, 4):
                connection = silent.accept()[0]
                taken = number
                connection.close()

        replacing = threading.Thread(target=replace, daemon=True)
        replacing.start()
        done = call("sync", f"unix:{path}", *left.policy(right), "--open")
        replacing.join(SECONDS)
    assert done.code == 143, done.err
    assert taken == 3


def line_of(**counted: int) -> str:
    """The progress line of a link that has counted so much."""
    standing = LinkStatus(
        state=State.TRANSFERRING,
        waited=None,
        timeout=30,
        received=2048,
        sent=1024,
        counters=Counters(**counted),
        records_received=0,
        records_sent=0,
        rejected=0,
        validating=0,
    )
    return LinkLine(lambda: standing)()


def test_what_is_pending_is_told_both_ways() -> None:
    asked = {"requested": 10, "stored": 4, "answered": 4}
    assert "pending" not in line_of(**asked)
    both = line_of(**asked, pending_here=1234, pending_there=56)
    assert "4 of 10 records stored" in both
    assert both.endswith(", pending 1,234 here, 56 there")
    assert line_of(pending_here=7).endswith(", pending 7 here, 0 there")
    assert line_of(pending_there=8).endswith(", pending 0 here, 8 there")
