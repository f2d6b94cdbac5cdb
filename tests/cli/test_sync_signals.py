"""Links that are ended, cut, kept waiting or found busy; each leaves whole records only."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.cli.failures import Terminated
from lace.cli.signals import Signals
from lace.store.lock import WriteLock
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.running import on_terminal, spawn

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


@pytest.fixture
def silent() -> str:
    """The address of a peer that accepts and says nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def accept() -> None:
        try:
            while True:
                kept.append(server.accept()[0])
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    return f"tcp:127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_peer(parties: tuple[Party, Party], silent: str) -> None:
    left, right = parties
    patient = ("--set", "phase_timeout_seconds=2")
    shown = on_terminal("sync", silent, *left.policy(right), *patient)
    assert shown.code == 4
    assert "s of 2 s for the peer's setup" in shown.out
    assert "phase timeout: 2 s while waiting for the peer's setup" in shown.out


def test_a_signal_while_a_peer_is_silent(parties: tuple[Party, Party], silent: str) -> None:
    left, right = parties
    started = spawn("sync", silent, *left.policy(right))
    assert started.stderr is not None
    started.stderr.readline()  # the warning: it is about to connect
    try:
        time.sleep(0.2)
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 130, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_the_first_does_not(number: signal.Signals) -> None:
    heard: list[str] = []

    def stop() -> bool:
        heard.append("stop")
        os.kill(os.getpid(), number)
        return True

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        while "renew" not in heard:
            await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    before = signal.getsignal(number)
    signals = Signals(
        stop, lambda: heard.append("renew"), lambda found: heard.append(f"at once {found}")
    )
    assert signals.run(work()) is None
    assert heard == ["renew", "stop", f"at once {number}"]
    assert signal.getsignal(number) is before
    with pytest.raises(KeyboardInterrupt if number is signal.SIGINT else Terminated):
        signals.check()


def test_work_that_cannot_end_by_itself_is_ended() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    signals = Signals(lambda: False)
    assert signals.run(work()) is None
    assert isinstance(signals.caught, Terminated)


def test_work_that_nobody_disturbs() -> None:
    async def work() -> int:
        return 5

    signals = Signals(lambda: True)
    assert signals.run(work()) == 5
    signals.check()


def test_a_busy_lace(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        with WriteLock(left.folder, "a test").held(0):
            done = left.sync(right, server.address, "--wait", "1")
        assert done.code == 5, done.err
        assert "a test" in done.err
        with WriteLock(right.folder, "a test").held(0):
            pass
        assert left.sync(right, server.address).code == 0


def test_an_open_sync_comes_back(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    address = f"unix:{tmp_path}/s"
    started = None
    try:
        with serving(right, left, address, "--open"):
            started = spawn("sync", address, *left.policy(right), "--open")
            wait_until(lambda: hashes(left) == hashes(right))
        with open_lace(right.folder) as lace:
            lace.add(plex("later"))
        with serving(right, left, address, "--open"):
            wait_until(lambda: len(hashes(left)) == 11)
            started.send_signal(signal.SIGTERM)
            out, err = started.communicate(timeout=60)
    finally:
        if started is not None:
            started.kill()
    assert started.returncode == 143, err
    # A server that is stopped where both are done has ended the exchange as it should.
    assert b"the link has ended" in err or b"is asked again" in err
    assert out.startswith(b"at-fixed-point yes")
