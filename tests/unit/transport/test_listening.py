"""Listeners: handlers, caps, and options that do not belong to an address."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lace.errors import SettingError
from lace.iltp.address import parse_address
from lace.iltp.items import PREFACE
from lace.record.ids import Verifier
from lace.transport import connections as counted
from lace.transport.connections import (
    HANDSHAKE_IDLE_SECONDS,
    HANDSHAKE_SECONDS,
    MAX_PROVING,
    MAX_PROVING_OF_ADDRESS,
    MAX_REFUSALS,
    Acceptor,
    ConnectionLimits,
    ConnectionSlot,
    counted_place,
)
from lace.transport.duplex import CloseReason, Ending
from lace.transport.faults import ConnectionOptionError, ServerFullError
from lace.transport.listening import ConnectOptions, ListenOptions, connect, listen
from lace.transport.tls import load_client_tls
from tests.unit.transport.bindings import Place, eventually, pipes, run

if TYPE_CHECKING:
    from pathlib import Path

    from lace.transport.duplex import ByteStream

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
    """One that has said nothing holds a place, as long as it is not idle for others."""
    made = request.getfixturevalue("certificates") if binding == "wss" else None

    async def serve() -> None:
        place = Place(tmp_path, made)
        limits = ConnectionLimits(in_all=3, of_address=2)
        options = replace(place.listen_options(binding), limits=limits)
        async with await listen(place.address(binding), wait_for_end, options) as listener:
            where = ("127.0.0.1", listener.address.port or 0)
            silent = [socket.create_connection(where) for _ in range(3)]
            await eventually(lambda: listener.refused == 1)
            assert (listener.connections, listener.displaced) == (2, 0)
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
    assert counted_place("192.0.2.1") == counted_place("::ffff:192.0.2.1") == "192.0.2.1"
    assert counted_place("::ffff:192.0.2.2") == counted_place("::ffff:c000:202") == "192.0.2.2"
    assert counted_place("::1:c000:202") == "::/64"
    assert counted_place("fe80::1%eth0") == counted_place("fe80::2%eth0")
    assert counted_place("uid 5") == "uid 5"


def admitted(acceptor: Acceptor, place: str) -> ConnectionSlot:
    made = acceptor.admit(place)
    assert made is not None
    return made


def idle(admission: ConnectionSlot, seconds: float = 60.0) -> ConnectionSlot:
    """Make it look as if the peer had been waited for."""
    admission.heard -= seconds
    return admission


def test_counting() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=2, of_address=1))
    first = admitted(acceptor, "a")
    assert admitted(acceptor, "a").is_refused
    assert not admitted(acceptor, "b").is_refused
    assert admitted(acceptor, "c").is_refused
    acceptor.release(first)
    assert (acceptor.connections, acceptor.refused) == (1, 2)
    assert not admitted(acceptor, "c").is_refused
    acceptor.refuse()
    assert acceptor.admit("d") is None
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


def test_the_longest_idle_connection_goes_for_a_new_one() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=3, of_address=9))
    ended: list[int] = []
    made = [admitted(acceptor, f"{number}") for number in range(3)]
    for number, each in enumerate(made):
        idle(each, (20, 30, 10)[number])
        each.end = lambda number=number: ended.append(number)  # type: ignore[misc]
    for expected in ([1], [1, 0], [1, 0, 2]):
        assert not admitted(acceptor, "new").is_refused
        assert ended == expected
    assert acceptor.displaced == 3
    assert admitted(acceptor, "new").is_refused, "the others have only just come"
    for each in made:
        assert each.is_displaced
        acceptor.release(each)
    assert (acceptor.connections, acceptor.refused) == (3, 1)


def test_who_is_served_is_not_idle() -> None:
    """Neither while this side is at work for it, nor before it was waited for long enough."""
    limits = ConnectionLimits(in_all=1, of_address=1, idle_seconds=5)
    acceptor = Acceptor(wait_for_end, limits)
    first = idle(admitted(acceptor, "a"))
    first.user = SimpleNamespace(is_at_work=True)
    assert admitted(acceptor, "b").is_refused
    first.user = SimpleNamespace(is_at_work=False)
    first.has_agreed, first.heard = True, time.monotonic() - 4
    assert admitted(acceptor, "b").is_refused
    first.has_agreed, first.heard = False, time.monotonic() - HANDSHAKE_IDLE_SECONDS / 2
    assert admitted(acceptor, "b").is_refused
    idle(first, HANDSHAKE_IDLE_SECONDS)
    assert not admitted(acceptor, "b").is_refused
    assert first.is_displaced


def test_an_address_that_is_full_ends_its_own_connections_only() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=3, of_address=2))
    other = idle(admitted(acceptor, "other"), 100)
    first, second = idle(admitted(acceptor, "a"), 10), idle(admitted(acceptor, "a"), 20)
    assert not admitted(acceptor, "a").is_refused
    assert [each.is_displaced for each in (other, first, second)] == [False, False, True]


def test_a_reserved_slot_is_taken_at_proof_and_kept() -> None:
    limits = ConnectionLimits(in_all=2, of_address=2, reserved=frozenset({"V.a"}))
    acceptor = Acceptor(wait_for_end, limits)
    named = admitted(acceptor, "a")
    acceptor.reserve(named, "V.a")
    idle(named, 100)
    made = [idle(admitted(acceptor, "a"), seconds) for seconds in (30, 20)]
    assert not admitted(acceptor, "a").is_refused, "the named one is not counted"
    assert made[0].is_displaced
    acceptor.reserve(made[1], "V.someone else")
    idle(admitted(acceptor, "c"))
    assert made[1].is_displaced, "only named verifiers have a slot"
    for each in made:
        acceptor.release(each)
    again = admitted(acceptor, "d")
    acceptor.reserve(again, "V.a")
    idle(again, 100)
    assert not admitted(acceptor, "e").is_refused
    found = [named.is_displaced, again.is_displaced]
    assert found == [True, False], "a verifier has one slot, that of its last proof"
    before = acceptor.connections
    acceptor.release(again)
    assert acceptor.connections == before - 1


def test_who_is_named_can_prove_it_though_others_are_busy() -> None:
    """None of those that hold slots is idle: a few more come in, and the oldest of them go."""
    limits = ConnectionLimits(in_all=2, of_address=2, reserved=frozenset({"V.a"}))
    acceptor = Acceptor(wait_for_end, limits)
    for place in ("a", "b"):
        assert not admitted(acceptor, place).is_refused
    from_there = [admitted(acceptor, "c") for _ in range(MAX_PROVING_OF_ADDRESS)]
    assert not any(each.is_refused for each in from_there)
    assert admitted(acceptor, "c").is_refused
    from_there[1].since -= HANDSHAKE_IDLE_SECONDS
    assert not admitted(acceptor, "c").is_refused
    assert [each.is_displaced for each in from_there] == [False, True, False, False]
    made = [admitted(acceptor, f"{number}") for number in range(MAX_PROVING)]
    assert sum(each.is_refused for each in made) == MAX_PROVING_OF_ADDRESS
    acceptor.reserve(made[0], "V.a")
    assert admitted(acceptor, "d").is_refused, "the verifier is there"
    acceptor.release(made[0])
    assert not admitted(acceptor, "d").is_refused


def test_a_handshake_that_is_stretched_is_idle() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=1, of_address=1))
    first = admitted(acceptor, "a")
    first.since -= HANDSHAKE_SECONDS
    assert not admitted(acceptor, "b").is_refused
    assert first.is_displaced


def test_few_are_told_at_once_that_a_server_is_full() -> None:
    acceptor = Acceptor(wait_for_end, ConnectionLimits(in_all=1, of_address=1))
    assert not admitted(acceptor, "a").is_refused
    told = [admitted(acceptor, "a") for _ in range(MAX_REFUSALS)]
    assert all(each.is_refused for each in told)
    assert acceptor.admit("a") is None
    acceptor.release(told[0])
    assert admitted(acceptor, "a").is_refused


@pytest.mark.requirement("060-82")
@pytest.mark.parametrize("binding", ["unix", "tcp", "ws", "wss"])
def test_a_full_server_says_so(
    binding: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue("certificates") if binding == "wss" else None

    async def serve() -> None:
        place = Place(tmp_path, made)
        limits = ConnectionLimits(in_all=1, of_address=1)
        options = replace(place.listen_options(binding), limits=limits)
        async with await listen(place.address(binding), wait_for_end, options) as listener:
            first = await place.connect(binding, listener.address)
            await eventually(lambda: listener.connections == 1)
            if binding in ("ws", "wss"):
                with pytest.raises(ServerFullError, match="the server is full; try again later"):
                    await place.connect(binding, listener.address)
            else:
                second = await place.connect(binding, listener.address)
                await second.write(PREFACE + b"# what a peer says meanwhile\n")
                said = b""
                while piece := await second.read(100):
                    said += piece
                assert said == PREFACE + b"# server full\n"
                await second.close()
            assert (listener.refused, listener.connections) == (1, 1)
            await asyncio.sleep(HANDSHAKE_IDLE_SECONDS)
            third = await place.connect(binding, listener.address)
            assert await first.read(1) == b"", "it was idle, and went for another"
            await eventually(lambda: listener.connections == 1)
            assert listener.displaced == 1
            for stream in (first, third):
                await stream.close()

    run(serve())


def test_who_does_not_read_that_a_server_is_full_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "REFUSAL_SECONDS", 0.05)

    async def serve() -> None:
        place = Place(tmp_path)
        limits = ConnectionLimits(in_all=1, of_address=1)
        options = replace(place.listen_options("ws"), limits=limits)
        async with await listen(place.address("ws"), wait_for_end, options) as listener:
            where = ("127.0.0.1", listener.address.port or 0)
            with socket.create_connection(where), socket.create_connection(where) as second:
                await eventually(lambda: listener.refused == 1)
                second.setblocking(False)
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(3):
                    assert await loop.sock_recv(second, 1) == b""

    run(serve())
