"""More connections than a server takes: idle ones go, named peers get in, others are told."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import open_lace
from lace.iltp.items import PREFACE
from lace.transport.connections import MAX_REFUSALS
from tests.cli.links import hashes, make_parties, plex, serving, wait_until
from tests.cli.running import process, spawn
from tests.hostile.kit import Peer, attacked, connect_to, memory_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from tests.cli.links import Party, Serving

CONNECTIONS = 500
LINKS = 32
WIDE = ("--max-links", str(LINKS), "--max-links-of-address", "1000")
FULL = PREFACE + b"# server full\n"
PATIENT = ("--set", "idle_link_seconds=86400")


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def connections_of(server: Serving) -> int:
    """How many sockets a server has; its log is read, so that it need not wait for that."""
    assert "Traceback" not in server.errors
    count = 0
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(OSError):
            count += str(each.readlink()).startswith("socket:")
    return count


@contextmanager
def staying(party: Party, peer: Party, address: str) -> Iterator[None]:
    """Have an honest peer stay on a link inside the block."""
    options = party.policy(peer)
    started = spawn("sync", address, *options, "--open", "--log-format", "json")
    try:
        assert started.stderr is not None
        for line in started.stderr:
            if json.loads(line)["event"] == "link-agreed":
                break
        yield
        assert started.poll() is None, "it is still there"
    finally:
        started.kill()
        started.communicate()


def test_five_hundred_connections(tmp_path: Path) -> None:
    """They are taken, told or closed; sockets and memory stay bounded, an honest peer gets in."""
    with attacked(tmp_path, *WIDE, growth=512 * 2**20) as target:
        server = target.server
        before = most = connections_of(server)
        held: list[socket.socket] = []
        for count in range(CONNECTIONS):
            held.append(connect_to(server.address))
            if count % 3 == 0:
                with suppress(OSError):  # it may be closed already
                    held[-1].sendall(PREFACE + b"ExchangeOperand('0'")
            if count % 50 == 49:
                most = max(most, connections_of(server))
        options = target.honest.policy(target.host)
        done = process("sync", server.address, *options)
        while done.code == 4 and "the server is full; try again later" in done.err:
            done = process("sync", server.address, *options)
        assert done.code == 0, done.err
        most = max(most, connections_of(server))
        # As many are on their way out as are taken at most, and as many are told.
        assert most - before <= 2 * LINKS + MAX_REFUSALS
        assert memory_of(server.process.pid) < 2**30
        for each in held:
            each.close()
        wait_until(lambda: connections_of(server) <= before)
        target.still_serves()


@pytest.mark.parametrize("scheme", ["tcp", "unix", "ws"])
def test_who_is_turned_away_is_told(
    parties: tuple[Party, Party], tmp_path: Path, scheme: str
) -> None:
    left, right = parties
    address = f"unix:{tmp_path}/s" if scheme == "unix" else f"{scheme}:127.0.0.1:0"
    with serving(right, left, address, "--max-links", "1", "--open", *PATIENT) as server:
        with staying(left, right, server.address):
            done = left.sync(right, server.address)
            assert done.code == 4, done.err
            assert "the server is full; try again later" in done.err
            watched = left.sync(right, server.address, "--json")
            assert json.loads(watched.err.splitlines()[-1])["error"]["hint"] == "try again later"
            rules = lace.Policy(select=left.select.read_text())
            with (
                open_lace(left.folder) as store,
                pytest.raises(lace.ServerFullError),
                lace.connect(server.address, store, rules) as link,
            ):
                link.result()

            async def ask() -> None:
                with open_lace(left.folder) as store:
                    async with lace.connect(server.address, store, rules) as link:
                        await link.result()

            with pytest.raises(lace.ServerFullError):
                asyncio.run(ask())
        wait_until(lambda: left.sync(right, server.address).code == 0)


def test_an_idle_link_goes_for_a_new_one(parties: tuple[Party, Party]) -> None:
    """A server that is kept open is not filled by peers that wait for ever."""
    left, right = parties
    options = ("--max-links", "2", "--open", "--set", "idle_link_seconds=1")
    with serving(right, left, "tcp:127.0.0.1:0", *options) as server:
        peers = [Peer(connect_to(server.address)) for _ in range(2)]
        for peer in peers:
            peer.enter()
        wait_until(lambda: left.sync(right, server.address).code == 0)
        assert hashes(left) == hashes(right)
        server.wait_for("idle, and closed for a new link: the server was full")
        for peer in peers:
            peer.connection.close()


@pytest.mark.requirement("050-98")
def test_named_peers_have_slots_that_claims_do_not_take(parties: tuple[Party, Party]) -> None:
    """Connections that claim to be the named peer, and never stop talking, do not keep it out."""
    left, right = parties
    options = ("--max-links", "4", "--max-links-of-address", "4", "--open", *PATIENT)
    address = "tcp:127.0.0.1:0"
    with serving(right, left, address, *options, "--peer", left.verifier) as server:
        done = threading.Event()

        def claim() -> None:
            """Claim to be the named peer again and again, and trickle until it is closed."""
            while not done.is_set():
                with suppress(OSError), connect_to(server.address) as opened:
                    peer = Peer(opened)
                    peer.send_setup(claim=left.verifier)
                    while not done.wait(0.1) and peer.send(b"A"):
                        pass

        threads = [threading.Thread(target=claim) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: left.sync(right, server.address).code == 0)
            assert hashes(left) == hashes(right)
            with staying(left, right, server.address):
                held = [connect_to(server.address) for _ in range(20)]
                with open_lace(right.folder) as store:
                    store.add(plex("later"))
                wait_until(lambda: hashes(left) == hashes(right))
                for each in held:
                    each.close()
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert server.process.poll() is None
