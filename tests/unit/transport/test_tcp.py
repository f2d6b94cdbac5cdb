"""TCP: addresses, ports, and what cannot be connected to or listened on."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from lace.iltp.address import LinkAddress, parse_address
from lace.transport.duplex import CloseReason, Ending, SocketProtocol
from lace.transport.faults import ListenError, TransportError
from lace.transport.listening import ConnectOptions, connect, listen
from tests.unit.transport.bindings import eventually, read_all, run

if TYPE_CHECKING:
    from lace.transport.duplex import ByteStream, DuplexStream, Proven


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def wait_for_end(stream: ByteStream) -> None:
    await stream.read(1)


def serving(text: str) -> LinkAddress:
    return parse_address(text, for_serving=True)


@pytest.mark.requirement("060-116", "060-130", "060-131")
@pytest.mark.parametrize(
    ("listened", "host", "peer"),
    [
        ("tcp:127.0.0.1:0", "127.0.0.1", "tcp:127.0.0.1:"),
        ("tcp:localhost:0", "localhost", "tcp:127.0.0.1:|tcp:[::1]:"),
        ("tcp:0.0.0.0:0", "127.0.0.1", "tcp:127.0.0.1:"),
        ("tcp:[::1]:0", "::1", "tcp:[::1]:"),
        ("tcp:[::]:0", "::1", "tcp:[::1]:"),
        ("tcp:[::]:0", "127.0.0.1", "tcp:127.0.0.1:"),
    ],
)
def test_addresses(listened: str, host: str, peer: str) -> None:
    if "[" in listened and not has_ipv6():  # then it is refused, and said so
        with pytest.raises(ListenError):
            run(listen(serving(listened), wait_for_end))
        return

    async def meet() -> tuple[Proven, Proven, int | None]:
        met: list[Proven] = []

        async def handle(stream: ByteStream) -> None:
            met.append(stream.proven)

        async with await listen(serving(listened), handle) as listener:
            port = listener.address.port
            assert listener.address.host == serving(listened).host
            stream = await connect(LinkAddress(scheme="tcp", host=host, port=port))
            assert await stream.read(1) == b""
            await stream.close()
            return stream.proven, met[0], port

    here, there, port = run(meet())
    assert port
    assert here.transport == str(LinkAddress(scheme="tcp", host=host, port=port))
    assert there.transport.startswith(tuple(peer.split("|")))
    assert parse_address(there.transport).port != port
    for proven in (here, there):
        assert not proven.encrypted
        assert (proven.peer, proven.channel, proven.peer_uid) == (None, None, None)


def test_options_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are not delayed, and a peer that is gone is noticed."""
    found: list[tuple[int, int]] = []
    make = SocketProtocol.stream

    def watched(self: SocketProtocol, transport: asyncio.Transport, proven: Proven) -> DuplexStream:
        raw = transport.get_extra_info("socket")
        delay_off = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        found.append((delay_off, raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))
        return make(self, transport, proven)

    monkeypatch.setattr(SocketProtocol, "stream", watched)

    async def meet() -> None:
        async with await listen(serving("tcp:127.0.0.1:0"), wait_for_end) as listener:
            stream = await connect(listener.address)
            await eventually(lambda: len(found) == 2)
            await stream.close()

    run(meet())
    assert all(map(all, found))


@pytest.mark.requirement("060-102")
def test_a_reset_is_an_end_behind_what_came() -> None:
    """Bytes that came before the reset are read; the standard library would lose them."""

    async def exchange() -> None:
        got: asyncio.Future[tuple[bytes, Ending | None]] = asyncio.Future()
        reset = asyncio.Event()

        async def handle(stream: ByteStream) -> None:
            await reset.wait()
            await eventually(lambda: getattr(stream, "unread", 0) == 5)
            await asyncio.sleep(0.05)
            first = await stream.read(3)
            got.set_result((first + await read_all(stream), stream.ending))

        async with await listen(serving("tcp:127.0.0.1:0"), handle) as listener:
            with socket.create_connection(("127.0.0.1", listener.address.port or 0)) as raw:
                raw.sendall(b"hello")
                await eventually(lambda: listener.connections == 1)
                await asyncio.sleep(0.05)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            reset.set()
            assert await got == (b"hello", Ending.CUT)

    run(exchange())


@pytest.mark.requirement("060-102")
@pytest.mark.parametrize("reason", CloseReason)
def test_a_reset_that_nobody_has_seen_yet(reason: CloseReason) -> None:
    """It comes while this side computes, and then the side ends: that is no fault of its own."""

    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = parse_address(f"tcp:127.0.0.1:{server.getsockname()[1]}")
            stream = await connect(address, ConnectOptions())
            peer, _ = server.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            time.sleep(0.05)  # the loop must not look meanwhile
            await stream.end_writing()
            await stream.close(reason)
            assert await stream.read(1) == b""

    run(check())


def test_places_without_a_server() -> None:
    async def refusals() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            busy = parse_address(f"tcp:127.0.0.1:{port}")
            with pytest.raises(ListenError, match=f"port {port} is in use; end") as caught:
                await listen(busy, wait_for_end)
            assert caught.value.exit_code == 3
            assert str(caught.value).startswith(f"tcp:127.0.0.1:{port}: ")
        with pytest.raises(TransportError, match=r"nobody listens there .*; check host") as refused:
            await connect(busy)
        assert refused.value.exit_code == 4
        with pytest.raises(TransportError, match=r"no host of that name|cannot be looked up"):
            await connect(parse_address("tcp:no-such-host.invalid:1"))
        with pytest.raises(ListenError, match=r"no host of that name|cannot be looked up"):
            await listen(parse_address("tcp:no-such-host.invalid:1"), wait_for_end)
        with pytest.raises(ListenError, match="does not have that address; choose one of its own"):
            await listen(serving("tcp:192.0.2.1:0"), wait_for_end)

    run(refusals())


def test_no_answer() -> None:
    """A listener whose queue is full does not answer."""

    async def refusal() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            address = parse_address(f"tcp:127.0.0.1:{silent.getsockname()[1]}")
            waiting, told = [], ""
            soon = ConnectOptions(seconds=0.2)
            for _ in range(8):
                try:
                    waiting.append(await connect(address, soon))
                except TransportError as error:
                    told = str(error)
                    break
            for stream in waiting:
                await stream.close(CloseReason.ABORT)
            assert "no answer within 0.2 s; check the address" in told

    run(refusal())


def test_a_cancelled_connect_leaves_nothing_open() -> None:
    async def cancel() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = parse_address(f"tcp:127.0.0.1:{server.getsockname()[1]}")
            for turns in range(6):
                opening = asyncio.create_task(connect(address))
                for _ in range(turns):
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.wait({opening})
                if not opening.cancelled():
                    await opening.result().close()

    run(cancel())
