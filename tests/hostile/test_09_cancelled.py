"""Case 9, further: evaluations that take hours end within moments when nobody waits for them.

The rules are a product of a list with itself that has no result; the limits on work are raised,
so that nothing else would end it. Each test is a real process with real signals. An evaluation ends
within a second; that no step of it takes longer is counted in `tests/unit/engine/test_looks.py`.
Here a deadline also allows for the end of the process on a busy machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import open_lace
from lace.transport.duplex import MAX_UNREAD_BYTES
from tests.cli.links import (
    EXPOSE_ALL,
    Party,
    hashes,
    make_parties,
    plex,
    serving,
    wait_until,
)
from tests.cli.policies import ALL
from tests.cli.running import spawn
from tests.hostile.kit import Peer, connect_to
from tests.hostile.test_09_rules_that_blow_up import records

if TYPE_CHECKING:
    from tests.cli.links import Serving

HAVE = "SelectHave(P) :- Have(P).\n"
ENDLESS = (
    HAVE + "SelectAdvertised(P,S) :- Advertised(P,S), Advertised(Q,S), Advertised(R,S), "
    "LexCompare(P,'<',Q), LexCompare(Q,'<',R), LexCompare(R,'<',P).\n"
)
PRODUCT = "Have(P), Have(Q), Have(R), LexCompare(P,'<',Q), LexCompare(Q,'<',R), LexCompare(R,'<',P)"
SETTINGS = {
    "max_work": 2**62,
    "peer_max_work": 2**62,
    "peer_max_cpu_seconds": 86_400,
    "peer_max_memory": 2**62,
    "peer_memory_pool": 2**62,
}
LIMITS = [word for name in SETTINGS for word in ("--set", f"{name}={SETTINGS[name]}")]
CLAIMS = 3_000
SOON = 5.0
"""Seconds that the end of an evaluation and of its process take at most."""

pytestmark = pytest.mark.slow


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def seconds_of_processor(process: int) -> float:
    """The processor time of a process so far."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def wait_for_work(process: int, seconds: float = 1.0) -> None:
    """Wait until a process has computed for a while: it is in the midst of the evaluation."""
    before = seconds_of_processor(process)
    wait_until(lambda: seconds_of_processor(process) > before + seconds)


def attack(server: Serving) -> Peer:
    """Have a server begin the evaluation."""
    peer = Peer(connect_to(server.address))
    source = peer.enter(ENDLESS)
    peer.read_block()
    peer.block([("Advertised", record, source) for record in records(CLAIMS)])
    wait_for_work(server.process.pid)
    return peer


def leave_after(peer: Peer) -> None:
    """Close once the server has: it reads on to the peer's end, for 5 s at most (G47b)."""
    with suppress(OSError):
        while peer.connection.recv(2**16):
            pass
    peer.connection.close()


@pytest.mark.requirement("050-173")
@pytest.mark.parametrize("unread", [0, MAX_UNREAD_BYTES], ids=["left", "left behind unread bytes"])
def test_a_peer_that_has_left(parties: tuple[Party, Party], unread: int) -> None:
    """Its evaluation ends and its slot is free, also where no more bytes are taken from it."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS, "--max-links", "1") as server:
        peer = attack(server)
        if unread:
            peer.send(b"#" * unread)
        refused = left.sync(right, server.address)
        assert "the server is full" in refused.err, "what this side is at work for is not idle"
        peer.connection.close()
        start = time.monotonic()
        server.wait_for("link=1")
        assert time.monotonic() - start < SOON
        assert "peer closed early" in server.errors
        assert left.sync(right, server.address).code == 0
        assert hashes(left) == hashes(right)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_a_server_that_is_stopped(
    parties: tuple[Party, Party], number: signal.Signals, times: int
) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS) as server:
        assert left.sync(right, server.address).code == 0
        peer = attack(server)
        leaving = threading.Thread(target=leave_after, args=(peer,), daemon=True)
        leaving.start()
        start = time.monotonic()
        if times == 2:
            server.process.send_signal(number)
            time.sleep(0.02)
        assert server.end(number) == 128 + number
        assert time.monotonic() - start < SOON
        if times == 1:
            assert "stopped before a fixed point" in server.errors
        leaving.join()
    assert len(hashes(right)) == 10
    with serving(right, left, "tcp:127.0.0.1:0") as server:  # nothing holds the lace
        assert left.sync(right, server.address).code == 0


@pytest.fixture
def bait(tmp_path: Path) -> tuple[Party, Party]:
    """A client, and a server whose selector is endless for a peer that is shown its records."""
    left, right = make_parties(tmp_path)
    endless = tmp_path / "endless.lace"
    endless.write_text(ENDLESS)
    with open_lace(right.folder) as store:
        store.add_all([plex(f"many/{number}") for number in range(CLAIMS)])
    return left, Party(right.folder, right.verifier, endless, right.view)


def end(started: subprocess.Popen[bytes], number: signal.Signals, times: int = 1) -> bytes:
    """Send signals in the midst of an evaluation; returns what was said of it."""
    try:
        wait_for_work(started.pid)
        start = time.monotonic()
        for _ in range(times):
            started.send_signal(number)
            time.sleep(0.02)
        _, errors = started.communicate(timeout=SOON)
        assert time.monotonic() - start < SOON
        assert started.returncode == 128 + number, errors
        return errors
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_client_that_is_stopped(
    bait: tuple[Party, Party], number: signal.Signals, times: int
) -> None:
    left, right = bait
    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS) as server:
        options = left.policy(right)
        end(spawn("sync", server.address, *options, *LIMITS), number, times)
        assert server.process.poll() is None


def test_an_operation_on_a_peer_that_is_stopped(bait: tuple[Party, Party]) -> None:
    left, right = bait
    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS) as server:
        where = ("--lace", str(left.folder), *LIMITS)
        started = spawn("remote", "list", server.address, "//u//", *where)
        end(started, signal.SIGINT)


@pytest.mark.parametrize("command", ["query", "why", "preview", "disclose", "export"])
def test_a_command_that_evaluates(tmp_path: Path, command: str) -> None:
    left, _ = make_parties(tmp_path)
    with open_lace(left.folder) as store:
        store.add_all([plex(f"many/{number}") for number in range(CLAIMS)])
    rules, exposing, everything = (tmp_path / name for name in ("r", "e", "a"))
    rules.write_text(f"Selected(P) :- {PRODUCT}.\n")
    exposing.write_text(f"AllowQueryRecord(V,P) :- _Viewer(V), {PRODUCT}.\n")
    everything.write_text(HAVE + "SelectAdvertised(P,S) :- Advertised(P,S).\n")
    arguments = {
        "query": ["--rules", rules],
        "why": ["--rules", rules, "Selected('x')"],
        "preview": [
            *("--select", everything, "--peer-select", everything),
            *("--expose", exposing, "--viewer", left.verifier),
        ],
        "disclose": ["--expose", exposing, "--viewer", left.verifier],
        "export": ["--rules", rules, "-o", tmp_path / "out"],
    }[command]
    started = spawn(command, *arguments, "--lace", left.folder, *LIMITS)
    end(started, signal.SIGINT)


def evaluating(name: str = "lace-session") -> bool:
    """Tell whether a thread of a link is still there."""
    return any(thread.name.startswith(name) for thread in threading.enumerate())


def test_a_task_that_is_cancelled(bait: tuple[Party, Party]) -> None:
    left, right = bait
    policy = lace.Policy(select=left.select.read_text())

    async def ask(address: str) -> None:
        with lace.open(left.folder, settings=SETTINGS) as store:
            async with lace.connect(address, store, policy) as link:
                await link.result()

    async def give_up(address: str) -> None:
        asking = asyncio.create_task(ask(address))
        await asyncio.to_thread(wait_for_work, os.getpid())
        assert evaluating()
        asking.cancel()
        async with asyncio.timeout(SOON):
            with pytest.raises(asyncio.CancelledError):
                await asking

    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS) as server:
        asyncio.run(give_up(server.address))
        wait_until(lambda: not evaluating())


IN_PROCESS = """
import sys, lace
left, right, address, *settings = sys.argv[1:]
settings = {{name: int(value) for name, _, value in (each.partition("=") for each in settings)}}
every, endless = (
    lace.Policy(select=text, exposures=[{view!r}]) for text in ({every!r}, {endless!r})
)
with lace.open(left, settings=settings) as one, lace.open(right, settings=settings) as other:
    try:
        {run}
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.mark.parametrize(
    "run",
    [
        "lace.interlace(one, other, every, endless)",
        "exec('with lace.connect(address, one, every) as link: link.result()')",
    ],
    ids=["interlace", "connect"],
)
@pytest.mark.exhaustive
def test_a_program_that_is_interrupted(bait: tuple[Party, Party], run: str) -> None:
    left, right = bait
    program = IN_PROCESS.format(view=EXPOSE_ALL, every=ALL, endless=ENDLESS, run=run)
    with serving(right, left, "tcp:127.0.0.1:0", *LIMITS) as server:
        places = [str(left.folder), str(right.folder), server.address]
        limits = [f"{name}={value}" for name, value in SETTINGS.items()]
        started = subprocess.Popen(
            [sys.executable, "-c", program, *places, *limits], stdout=subprocess.PIPE
        )
        try:
            wait_for_work(started.pid, 2.0)
            started.send_signal(signal.SIGINT)
            said, _ = started.communicate(timeout=SOON)
        finally:
            started.kill()
            started.communicate()
        assert said == b"stopped\n"


def test_an_open_exchange_in_this_process(bait: tuple[Party, Party]) -> None:
    left, right = bait
    every = lace.Policy(select=ALL, exposures=[EXPOSE_ALL])
    endless = lace.Policy(select=ENDLESS, exposures=[EXPOSE_ALL])
    with (
        lace.open(left.folder, settings=SETTINGS) as one,
        lace.open(right.folder, settings=SETTINGS) as other,
    ):
        exchange = lace.interlace(one, other, every, endless, open=True)
        wait_for_work(os.getpid())
        start = time.monotonic()
        result = exchange.stop()
        assert time.monotonic() - start < SOON
        assert not result
        wait_until(lambda: not evaluating())
