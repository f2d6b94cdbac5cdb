"""Listeners: handlers, caps, and options that do not belong to an address."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lace.errors import SettingError
from lace.iltp.address import parse_address
from lace.record.ids import Verifier
from lace.transport.accepting import Acceptor, ConnectionLimits, counted_place
from lace.transport.faults import ConnectionOptionError
from lace.transport.listening import ConnectOptions, ListenOptions, connect, listen
from lace.transport.stream import CloseReason, Ending
from lace.transport.tls import load_client_tls
from tests.unit.transport.bindings import Place, eventually, pipes, run

if TYPE_CHECKING:
    from pathlib import Path

    from lace.transport.stream import ByteStream

ALICE = Verifier.from_public_key(bytes(31) + b"\x01")
LISTENERS = ("unix", "tcp", "ws")


async def wait_for_end(stream: ByteStream) -> None:
    await stream.read(1)


@pytest.mark.parametrize("binding", LISTENERS)
def test_closing_a_listener_ends_its_connections(binding: str, tmp_path: Path) -> None:
    async def serve() -> None:
        begun, ended = [], []

        async def handle(stream: ByteStream) -> None:
            begun.append(stream)
            try:
                await stream.read(1)
            except asyncio.CancelledError:
                ended.append(stream)
                raise

        place = Place(tmp_path)
        listener = await place.listen(binding, handle)
        streams = [await place.connect(binding, listener.address) for _ in range(3)]
        await eventually(lambda: len(begun) == 3)
        assert listener.connections == 3
        async with asyncio.timeout(4):
            await listener.close()
        assert ended == begun
        for stream in streams:
            assert await stream.read(1) == b""
            await stream.close()
        await eventually(lambda: listener.connections == 0)

    run(serve())


@pytest.mark.parametrize("binding", LISTENERS)
def test_who_stops_listening_keeps_its_connections(binding: str, tmp_path: Path) -> None:
    async def serve() -> None:
        async def handle(stream: ByteStream) -> None:
            assert await stream.read(10) == b"question"
            await stream.write(b"answer")

        place = Place(tmp_path)
        async with await place.listen(binding, handle) as listener:
            stream = await place.connect(binding, listener.address)
            await eventually(lambda: listener.connections == 1)
            await listener.stop_listening()
            await stream.write(b"question")
            assert await stream.read(10) == b"answer"
            await asyncio.gather(stream.close(), listener.finish())
            assert stream.ending is Ending.CLEAN

    run(serve())


@pytest.mark.parametrize("binding", LISTENERS)
def test_a_handler_that_fails_aborts_its_stream_only(binding: str, tmp_path: Path) -> None:
    async def serve() -> None:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))

        async def handle(stream: ByteStream) -> None:
            if await stream.read(1) == b"x":
                raise ValueError("a fault of the program")
            await stream.write(b"well")

        place = Place(tmp_path)
        async with await place.listen(binding, handle) as listener:
            bad = await place.connect(binding, listener.address)
            good = await place.connect(binding, listener.address)
            await bad.write(b"x")
            assert await bad.read(1) == b""
            assert bad.ending is (Ending.ABORTED if binding == "ws" else Ending.CLEAN)
            await good.write(b"y")
            assert await good.read(10) == b"well"
            await good.close()
            await bad.close()
        assert [str(context["exception"]) for context in told] == ["a fault of the program"]

    run(serve())


@pytest.mark.parametrize("binding", ["tcp", "ws", "wss"])
def test_silent_connections_count(
    binding: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One that has said nothing holds a place; too many are turned away without a word."""
    made = request.getfixturevalue("certificates") if binding == "wss" else None

    async def serve() -> None:
        place = Place(tmp_path, made)
        limits = ConnectionLimits(in_all=3, of_address=2)
        options = replace(place.listen_options(binding), limits=limits)
        async with await listen(place.address(binding), wait_for_end, options) as listener:
            where = ("127.0.0.1", listener.address.port or 0)
            silent = [socket.create_connection(where) for _ in range(3)]
            await eventually(lambda: listener.connections == 2)
            await eventually(lambda: listener.refused == 1)
            other = socket.create_connection(where, source_address=("127.0.0.3", 0))
            await eventually(lambda: listener.connections == 3)
            last = socket.create_connection(where, source_address=("127.0.0.4", 0))
            await eventually(lambda: listener.refused == 2)
            for opened in (*silent, other, last):
                opened.close()
            await eventually(lambda: listener.connections == 0)
            stream = await place.connect(binding, listener.address)
            await eventually(lambda: listener.connections == 1)
            await stream.close()

    run(serve())


@pytest.mark.parametrize("binding", [*LISTENERS, "wss"])
def test_closing_a_listener_ends_silent_connections(
    binding: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue("certificates") if binding == "wss" else None

    async def serve() -> None:
        place = Place(tmp_path, made)
        listener = await place.listen(binding, wait_for_end)
        family = socket.AF_UNIX if binding == "unix" else socket.AF_INET
        with socket.socket(family) as silent:
            where = ("127.0.0.1", listener.address.port or 0)
            silent.connect(listener.address.path if binding == "unix" else where)
            await eventually(lambda: listener.connections == 1)
            async with asyncio.timeout(3):
                await listener.close()
            await eventually(lambda: listener.connections == 0)
            assert silent.recv(1) == b""

    run(serve())


def test_a_handler_that_has_not_begun_is_ended_too() -> None:
    async def serve() -> None:
        here, there = await pipes()
        acceptor = Acceptor(wait_for_end, ConnectionLimits())
        acceptor.start(there)
        await acceptor.stop()
        assert await here.read(1) == b""
        await here.close()
        assert there.ending is Ending.HERE

    run(serve())


def test_an_ipv6_host_counts_once() -> None:
    assert counted_place("2001:db8::1") == counted_place("2001:db8::ffff:0:0:1") == "2001:db8::/64"
    assert counted_place("2001:db8:0:1::1") != counted_place("2001:db8::1")
    assert counted_place("192.0.2.1") == "192.0.2.1"
    assert counted_place("uid 5") == "uid 5"


def test_counting() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=2, of_address=1))
    assert acceptor.admit("a")
    assert not acceptor.admit("a")
    assert acceptor.admit("b")
    assert not acceptor.admit("c")
    acceptor.release("a")
    assert (acceptor.connections, acceptor.refused) == (1, 2)
    assert acceptor.admit("c")
    with pytest.raises(SettingError, match="at least one connection, not 0"):
        ConnectionLimits(in_all=0)


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        ("tcp:127.0.0.1:0", ListenOptions(verifiers={0: ALICE}), "a map of users is for unix"),
        ("ws:127.0.0.1:0", ListenOptions(verifiers={0: ALICE}), "a map of users is for unix"),
        ("tcp:127.0.0.1:0", ListenOptions(channel_certificate=b"x"), "certificate is for ws"),
        ("wss:127.0.0.1:0", ListenOptions(channel_certificate=b"x"), "certificate is for ws"),
        ("wss:127.0.0.1:0", ListenOptions(), "wss needs a certificate and its key; name them"),
    ],
)
def test_options_of_other_servers(address: str, options: ListenOptions, message: str) -> None:
    async def refusal() -> None:
        with pytest.raises(ConnectionOptionError, match=message) as caught:
            await listen(parse_address(address, for_serving=True), wait_for_end, options)
        assert caught.value.exit_code == 2

    run(refusal())


def test_options_of_other_connections() -> None:
    async def refusals() -> None:
        tls = load_client_tls()
        for address, options, message in (
            ("tcp:127.0.0.1:1", ConnectOptions(tls=tls), "TLS is for wss addresses only"),
            ("ws:127.0.0.1:1", ConnectOptions(tls=tls), "TLS is for wss addresses only"),
            ("tcp:127.0.0.1:1", ConnectOptions(command=("x",)), "a command is for stdio"),
            ("stdio", ConnectOptions(verifiers={1: ALICE}), "a map of users is for unix"),
        ):
            with pytest.raises(ConnectionOptionError, match=message):
                await connect(parse_address(address), options)

    run(refusals())


def test_reasons_are_the_codes_of_websockets() -> None:
    assert [reason.value for reason in CloseReason] == [1000, 1001, 1008]
