"""`lace.connect`: an exchange with a server beside the program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import now
from lace.errors import UsageError
from lace.exchange.failures import Failure, InterlaceFailure
from lace.iltp.address import LinkAddress, parse_address
from lace.link.client import LinkOptions
from lace.link.server import Served, Server
from lace.store.interface import NoStoreError
from lace.transport.faults import ListenError, TransportError
from tests.link.test_pairing import hashes, plex, policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SECONDS = 60.0


@asynccontextmanager
async def served(
    here: lace.Lace, peer: lace.Lace, *, is_open: bool = False, once: bool = False
) -> AsyncIterator[tuple[str, Server, list[Served]]]:
    """Serve a lace in this process."""
    reports: list[Served] = []
    key = here.signing_key()
    server = Server(
        policy(peer),
        lambda chosen: here.side(chosen, key),
        LinkOptions(is_open=is_open),
        now,
        report=reports.append,
        once=once,
    )
    bound: asyncio.Future[LinkAddress] = asyncio.get_running_loop().create_future()
    address = parse_address("tcp:127.0.0.1:0", for_serving=True)
    running = asyncio.create_task(server.run(address, bound=bound.set_result))
    try:
        yield str(await bound), server, reports
    finally:
        server.stop()
        await running


def run(work: Callable[[], object]) -> None:
    """Run asynchronous work, within a time."""

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await work()  # type: ignore[misc]  # a coroutine function

    asyncio.run(limited())


def test_one_exchange(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    left.add(plex("left"))
    right.add(plex("right"))

    async def work() -> None:
        async with served(right, left) as (address, server, reports):
            who = right.keys.default()
            assert who is not None
            async with lace.connect(address, left, policy(right), peer=str(who)) as link:
                left.add(plex("meanwhile"))  # the lace is free to use
                result = await link.result()
            assert result is await link.result() is link.outcome
            assert result.at_fixed_point
            assert result.peer_verifier == str(who)
            assert len(result.received) == 1
            while not reports:
                await asyncio.sleep(0.01)
            assert server.links == 0
            assert reports[0].outcome is not None
            assert reports[0].received > 0
            async with lace.connect(address, left, policy(right)):
                pass  # the end of the block waits for the exchange

    run(work)
    assert hashes(left) == hashes(right)
    assert len(left) == 3


def test_an_open_link(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides

    async def work() -> None:
        async with served(right, left, is_open=True) as (address, _, reports):
            async with lace.connect(address, left, policy(right), open=True) as link:
                for number in range(2):
                    left.add(plex(f"left/{number}"))
                    while len(right) <= number:
                        await asyncio.sleep(0.01)
                link.stop()
                assert (await link.result()).at_fixed_point
            async with lace.connect(address, left, policy(right), open=True):
                pass  # the end of the block ends the exchange
            while len(reports) < 2:
                await asyncio.sleep(0.01)

    run(work)


def test_failures_are_raised(sides: tuple[lace.Lace, lace.Lace], tmp_path: Path) -> None:
    left, right = sides

    async def work() -> None:
        async with served(right, left) as (address, _, _):
            strict = lace.Policy(select=policy(right).select, lowering="encrypted-v1")
            with pytest.raises(InterlaceFailure) as caught:
                async with lace.connect(address, left, strict) as link:
                    await link.result()
            assert caught.value.failure is Failure.PLAN_MISMATCH
            assert caught.value.result is link.outcome
            with pytest.raises(InterlaceFailure):  # also where nobody has asked
                async with lace.connect(address, left, strict):
                    pass
            with pytest.raises(ZeroDivisionError):
                async with lace.connect(address, left, policy(right), open=True):
                    raise ZeroDivisionError
            anyone = lace.connect(address, left, policy(right), plain=True)
            with pytest.raises(InterlaceFailure):  # the server's claim cannot be proven
                async with anyone:
                    pass
            gone = lace.open(tmp_path / "gone")
            gone.close()
            (tmp_path / "gone" / "store.sqlite3").unlink()
            with pytest.raises(NoStoreError):
                async with lace.connect(address, gone, policy(right)) as link:
                    await link.result()
        with pytest.raises(TransportError):
            async with lace.connect(address, left, policy(right)):
                pass
        with pytest.raises(UsageError):
            lace.connect("http://example.org", left, policy(right))
        with pytest.raises(lace.RecordError):
            lace.connect(address, left, policy(right), peer="me")
        with pytest.raises(UsageError):
            lace.connect("wss:localhost", left, policy(right), ca=tmp_path / "none.pem")

    run(work)


def test_a_server_for_one_link(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides

    async def work() -> None:
        async with served(right, left, once=True) as (address, _, reports):
            async with lace.connect(address, left, policy(right)) as link:
                assert (await link.result()).at_fixed_point
            while not reports:
                await asyncio.sleep(0.01)
            with pytest.raises((TransportError, InterlaceFailure)):
                async with lace.connect(address, left, policy(right)) as link:
                    await link.result()

    run(work)


def test_a_server_that_cannot_open_its_lace_goes_on(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path
) -> None:
    left, right = sides

    async def work() -> None:
        async with served(right, left) as (address, _, reports):
            right.store.path.rename(tmp_path / "away")
            with pytest.raises(InterlaceFailure):
                async with lace.connect(address, left, policy(right)) as link:
                    await link.result()
            while not reports:
                await asyncio.sleep(0.01)
            assert isinstance(reports[0].error, lace.StoreError)
            (tmp_path / "away").rename(right.store.path)
            async with lace.connect(address, left, policy(right)) as link:
                assert (await link.result()).at_fixed_point

    run(work)


def test_a_port_in_use(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides

    async def work() -> None:
        async with served(right, left) as (address, server, _):
            with pytest.raises(ListenError):
                await server.run(parse_address(address, for_serving=True), bound=lambda _: None)

    run(work)


def test_connecting_loads_nothing_before_it_is_asked_for() -> None:
    code = "import sys, lace; lace.connect; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
