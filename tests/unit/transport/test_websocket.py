"""WebSockets: frames at any split, what is refused before and after the upgrade, codes."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as raw_connect
from websockets.exceptions import ConnectionClosed

from lace.iltp.address import LinkAddress, parse_address
from lace.transport.duplex import CloseReason, Ending
from lace.transport.faults import StreamClosedError, TransportError
from lace.transport.listening import ListenOptions, connect, listen
from lace.transport.websocket import MAX_FRAME_BYTES
from tests.unit.transport.bindings import eventually, read_all, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lace.transport.connections import Handler
    from lace.transport.duplex import ByteStream, Proven
    from lace.transport.listening import Listener

ADDRESS = parse_address("ws:127.0.0.1:0", for_serving=True)
REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)


def url(address: LinkAddress) -> str:
    return f"ws://{address.host}:{address.port}{address.path}"


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[Listener]:
    async with await listen(ADDRESS, handler) as listener:
        yield listener
        await eventually(lambda: listener.connections == 0)


class Reading:
    """A handler that reads to the end and keeps what it saw."""

    def __init__(self) -> None:
        self.data = b""
        self.error: TransportError | None = None
        self.ending: Ending | None = None
        self.proven: list[Proven] = []
        self.done = asyncio.Event()

    async def __call__(self, stream: ByteStream) -> None:
        self.proven.append(stream.proven)
        try:
            self.data = await read_all(stream, 1000)
        except TransportError as error:
            self.error = error
        self.ending = stream.ending
        self.done.set()


async def send(frames: list[tuple[bytes | str, bool]], reading: Reading) -> None:
    """Send frames one by one, `True` for the last of a message, and close."""
    async with server(reading) as listener:
        connection = await raw_connect(url(listener.address), proxy=None)
        for data, is_last in frames:
            await send_frame(connection, data, is_last)
        await connection.close()
        await reading.done.wait()


async def send_until_refused(frames: list[tuple[bytes | str, bool]], reading: Reading) -> int:
    """Send frames to a server that closes the connection; return its code."""
    async with server(reading) as listener:
        connection = await raw_connect(url(listener.address), proxy=None)
        with suppress(ConnectionClosed):
            for data, is_last in frames:
                await send_frame(connection, data, is_last)
        async with asyncio.timeout(4):
            await connection.wait_closed()
        await reading.done.wait()
        return connection.close_code or 0


async def send_frame(connection: ClientConnection, data: bytes | str, is_last: bool) -> None:
    protocol = connection.protocol
    raw = data.encode() if isinstance(data, str) else data
    async with connection.send_context():
        if protocol.expect_continuation_frame:
            protocol.send_continuation(raw, is_last)
        elif isinstance(data, str):
            protocol.send_text(raw, is_last)
        else:
            protocol.send_binary(raw, is_last)


@pytest.mark.requirement("060-75", "060-77")
def test_any_split_is_the_same_stream() -> None:
    data = random.Random(1).randbytes(3000)

    async def exchange() -> None:
        for frames in (
            [(data[at : at + 1], True) for at in range(len(data))],
            [(data[at : at + 1], at == len(data) - 1) for at in range(len(data))],
            [(data, True), (b"", True)],
            [(b"", False), (data[:10], False), (b"", False), (data[10:], False), (b"", True)],
        ):
            reading = Reading()
            await send(list(frames), reading)
            assert reading.data == data
            assert reading.ending is Ending.CLEAN

    run(exchange())


def test_messages_may_be_larger_than_frames() -> None:
    piece = random.Random(2).randbytes(MAX_FRAME_BYTES)

    async def exchange() -> None:
        reading = Reading()
        await send([(piece, False), (piece, False), (piece, True)], reading)
        assert reading.data == piece * 3
        reading = Reading()
        assert await send_until_refused([(piece + b"x", True)], reading) == 1009
        assert (reading.data, reading.ending) == (b"", Ending.CUT)

    run(exchange())


@pytest.mark.requirement("060-76")
@pytest.mark.parametrize("before", [[], [(b"hello", True)]])
def test_text_messages_are_refused(before: list[tuple[bytes | str, bool]]) -> None:
    async def exchange() -> None:
        reading = Reading()
        assert (
            await send_until_refused([*before, ("Have('x')\n", True), (b"more", True)], reading)
            == 1003
        )
        assert reading.data == b""
        assert "the peer sent a text message [060-76]" in str(reading.error)

    run(exchange())


def test_empty_frames_are_counted() -> None:
    async def exchange() -> None:
        reading = Reading()
        assert await send_until_refused([(b"", True)] * 2000, reading) == 1008
        assert "frames without bytes" in str(reading.error)
        reading = Reading()
        assert await send_until_refused([(b"", False)] * 2000, reading) == 1008
        assert "frames without bytes" in str(reading.error)

    run(exchange())


def handshake(port: int, *, host: str = "", path: str = "/interlace", more: str = "") -> str:
    return REQUEST.format(host=host or f"127.0.0.1:{port}", path=path, more=more)


def open_raw(port: int) -> socket.socket:
    """A WebSocket after its handshake, to send bytes of one's own."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.sendall(handshake(port).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(1000)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in answer.lower()
    assert b"server:" not in answer.lower()
    return raw


def test_pings_without_an_end_fill_no_memory() -> None:
    """Whoever pings and never reads the answers is cut off."""
    ping = b"\x89\xfd" + bytes(4) + bytes(125)

    def flood(port: int) -> bool:
        with open_raw(port) as raw:
            raw.settimeout(10)
            try:
                for _ in range(1000):
                    raw.sendall(ping * 1000)
            except OSError as error:
                return not isinstance(error, TimeoutError)
            return False

    async def exchange() -> None:
        reading = Reading()
        async with server(reading) as listener:
            assert await asyncio.to_thread(flood, listener.address.port or 0)
            await reading.done.wait()

    run(exchange())


def test_a_peer_that_never_closes_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lace.transport.websocket.CLOSE_SECONDS", 0.2)

    async def exchange() -> None:
        reading = Reading()
        async with server(reading) as listener:
            raw = await asyncio.to_thread(open_raw, listener.address.port or 0)
            raw.sendall(b"\xff\xff")  # no frame at all
            await eventually(lambda: listener.connections == 0)
            raw.close()
            await reading.done.wait()
            assert reading.ending is Ending.CUT

    run(exchange())


@pytest.mark.requirement("060-132")
@pytest.mark.parametrize(
    ("reason", "code"),
    [(CloseReason.DONE, 1000), (CloseReason.LEAVING, 1001), (CloseReason.ABORT, 1008)],
)
def test_codes(reason: CloseReason, code: int) -> None:
    async def exchange() -> None:
        async def handle(stream: ByteStream) -> None:
            await stream.write(b"last words")
            await stream.close(reason)
            with pytest.raises(StreamClosedError):
                await stream.write(b"x")

        async with server(handle) as listener:
            async with raw_connect(url(listener.address), proxy=None) as connection:
                assert await connection.recv() == b"last words"
                await connection.wait_closed()
                assert (connection.close_code, connection.close_reason) == (code, "")
            stream = await connect(listener.address)
            assert await read_all(stream) == b"last words"
            aborted = reason is CloseReason.ABORT
            assert stream.ending is (Ending.ABORTED if aborted else Ending.CLEAN)
            with pytest.raises(StreamClosedError):
                await stream.write(b"x")
            await stream.close()

    run(exchange())


@pytest.mark.requirement("060-134", "060-136", "060-137")
def test_what_a_plain_websocket_proves() -> None:
    async def exchange() -> None:
        reading = Reading()
        async with server(reading) as listener:
            stream = await connect(listener.address)
            text = f"ws:127.0.0.1:{listener.address.port}/interlace"
            await stream.close()
            await reading.done.wait()
            for proven in (stream.proven, *reading.proven):
                assert proven.transport == text
                assert not proven.encrypted
                assert (proven.peer, proven.channel) == (None, None)

    run(exchange())


async def ask(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


@pytest.mark.requirement("060-10", "060-132", "060-133")
def test_refused_requests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def refusals() -> None:
        async def handle(stream: ByteStream) -> None:
            raise AssertionError("nobody comes this far")

        async with server(handle) as listener:
            port = listener.address.port or 0
            for request, status, words in (
                (handshake(port, host="evil.example"), 403, "does not have that name"),
                (handshake(port, more="Host: x\r\n"), 403, "does not have that name"),
                (handshake(port, more="Origin: http://evil.example\r\n"), 403, "Web pages"),
                (handshake(port, more=f"Origin: http://127.0.0.1:{port}\r\n"), 403, "Web pages"),
                (handshake(port, path="/"), 404, "its only path is /interlace"),
                (handshake(port, path="/interlace?x"), 404, "its only path"),
                (f"GET /interlace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 426, "lace sync"),
                (f"POST /interlace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 426, "lace sync"),
            ):
                answer = await ask(port, request)
                assert answer.startswith(f"HTTP/1.1 {status} ")
                assert words in answer
            assert "101" not in await ask(port, "\N{KNOT}: iltp/1\n\n")
            assert (await ask(port, "GET /" + "x" * 100_000)).startswith("HTTP/1.1 414 ")

    run(refusals())
    assert not [record for record in caplog.records if "websocket" in record.name]


def test_allowed_pages() -> None:
    async def exchange() -> None:
        async def handle(stream: ByteStream) -> None:
            await stream.write(b"hello")

        options = ListenOptions(
            origins=frozenset({"https://lace.example"}), hosts=frozenset({"lace.example"})
        )
        async with await listen(ADDRESS, handle, options) as listener:
            port = listener.address.port or 0
            page = "Origin: https://lace.example\r\n"
            raw = socket.create_connection(("127.0.0.1", port))
            raw.sendall(handshake(port, host="lace.example", more=page).encode())
            answer = await asyncio.to_thread(raw.recv, 1000)
            assert answer.startswith(b"HTTP/1.1 101 ")
            raw.close()

    run(exchange())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nhello", r"refused the connection \(HTTP 200\); check that"),
        (b"HTTP/1.1 403 No\r\n\r\n", r"\(HTTP 403\); connect by the host name"),
        (b"HTTP/1.1 404 No\r\n\r\n", r"\(HTTP 404\); check host and port"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/interlace\r\n\r\n",
            r"\(HTTP 302\); the server sends clients elsewhere",
        ),
        (b"HTTP/1.1 101 OK\r\n\r\n", "does not answer as a WebSocket server does"),
        ("\N{KNOT}: iltp/1\n".encode(), "does not answer as a WebSocket server does"),
        (b"", "does not answer as a WebSocket server does|closed the connection"),
    ],
)
def test_other_servers(answer: bytes, message: str) -> None:
    async def refusal() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()
            await writer.wait_closed()

        served = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = served.sockets[0].getsockname()[1]
        with pytest.raises(TransportError, match=message) as caught:
            await connect(parse_address(f"ws:127.0.0.1:{port}"))
        assert caught.value.exit_code == 4
        assert str(caught.value).startswith(f"ws:127.0.0.1:{port}/interlace: ")
        served.close()
        await served.wait_closed()

    run(refusal())


def test_a_connection_that_breaks_ends() -> None:
    async def exchange() -> None:
        reading = Reading()
        async with server(reading) as listener:
            raw = await asyncio.to_thread(open_raw, listener.address.port or 0)
            raw.sendall(b"\x82\x83" + bytes(4) + b"abc" + b"\x82\x84" + bytes(4) + b"de")
            raw.close()
            await reading.done.wait()
            assert (reading.data, reading.ending) == (b"abc", Ending.CUT)

    run(exchange())


def test_unread_frames_are_bounded() -> None:
    """A peer that sends the largest frames is stopped after a few."""

    async def exchange() -> None:
        go_on = asyncio.Event()

        async def handle(stream: ByteStream) -> None:
            await go_on.wait()
            await read_all(stream, 1 << 20)

        async with server(handle) as listener:
            connection = await raw_connect(url(listener.address), proxy=None, compression=None)
            sent = 0
            frame = bytes(MAX_FRAME_BYTES)

            async def send_on() -> None:
                nonlocal sent
                while sent < 64:
                    await connection.send(frame)
                    sent += 1

            sending = asyncio.create_task(send_on())
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 24
            go_on.set()
            await sending
            await connection.close()

    run(exchange())
