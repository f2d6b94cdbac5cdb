"""What every binding does alike: bytes come through whole, in order, and with bounded memory."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from lace.transport.duplex import MAX_UNREAD_BYTES, PIECE_BYTES, CloseReason, Ending
from lace.transport.faults import StreamClosedError
from tests.unit.transport.bindings import BINDINGS, Place, eventually, read_all, run

if TYPE_CHECKING:
    from pathlib import Path

    from lace.transport.duplex import ByteStream

MEBIBYTE = 1 << 20
CAN_HALF_CLOSE = ("memory", "pipes", "unix", "tcp")


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(binding: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    made = request.getfixturevalue("certificates") if binding == "wss" else None
    return Place(tmp_path, made)


async def write_in_pieces(stream: ByteStream, data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    start = 0
    while start < len(data):
        size = chance.choice((1, 2, 7, 1000, 65_535, 65_536, 65_537, 300_000))
        await stream.write(memoryview(data)[start : start + size])
        start += size


async def read_in_pieces(stream: ByteStream, size: int, seed: int) -> bytes:
    chance = random.Random(seed)
    found = bytearray()
    while len(found) < size:
        most = chance.choice((1, 3, 4096, 65_536, 1_000_000))
        piece = await stream.read(most)
        assert 1 <= len(piece) <= most
        found += piece
    return bytes(found)


@pytest.mark.requirement("060-21", "060-75", "060-77", "060-98")
def test_both_directions_carry_many_bytes_at_once(binding: str, place: Place) -> None:
    data = random.Random(1).randbytes(6 * MEBIBYTE)
    back = random.Random(2).randbytes(6 * MEBIBYTE + 1)

    async def exchange() -> None:
        async with place.pair(binding) as (here, there), asyncio.TaskGroup() as tasks:
            tasks.create_task(write_in_pieces(here, data, 3))
            tasks.create_task(write_in_pieces(there, back, 4))
            forth = tasks.create_task(read_in_pieces(there, len(data), 5))
            assert await read_in_pieces(here, len(back), 6) == back
            assert await forth == data

    run(exchange())


def test_echo_of_small_turns(binding: str, place: Place) -> None:
    """A turn must not wait for more bytes to come."""

    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            for number in range(200):
                text = b"turn %d\n" % number
                await here.write(text)
                assert await read_in_pieces(there, len(text), number) == text
                await there.write(text)
                assert await read_in_pieces(here, len(text), number) == text

    run(exchange(), seconds=10)


@pytest.mark.requirement("060-102", "060-103")
def test_the_end_comes_behind_all_bytes(binding: str, place: Place) -> None:
    data = random.Random(7).randbytes(3 * MEBIBYTE)

    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            reading = asyncio.create_task(read_all(there))
            await here.write(data)
            await here.end_writing()
            assert await reading == data
            assert there.ending is Ending.CLEAN
            assert await there.read(10) == b""
            with pytest.raises(StreamClosedError, match="closed"):
                await here.write(b"more")

    run(exchange())


@pytest.mark.parametrize("binding", CAN_HALF_CLOSE)
def test_an_answer_behind_the_peers_end(binding: str, tmp_path: Path) -> None:
    data = random.Random(8).randbytes(3 * MEBIBYTE)

    async def exchange() -> None:
        async with Place(tmp_path).pair(binding) as (here, there):
            await here.write(b"question")
            await here.end_writing()
            assert await read_all(there) == b"question"
            writing = asyncio.create_task(there.write(data))
            assert await read_in_pieces(here, len(data), 9) == data
            await writing
            await there.end_writing()
            assert await here.read(1) == b""
            assert here.ending is Ending.CLEAN

    run(exchange())


def test_what_was_sent_before_the_end_is_read_behind_it(binding: str, place: Place) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            await there.write(b"a" * 1000)
            await here.end_writing()
            await there.end_writing()
            assert await read_all(here) == b"a" * 1000

    run(exchange())


@pytest.mark.requirement("060-98")
def test_a_writer_waits_for_a_reader(binding: str, place: Place) -> None:
    """Whoever does not read is sent what buffers hold, and no more is held here."""

    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            sent = 0
            piece = bytes(PIECE_BYTES)

            async def write_on() -> None:
                nonlocal sent
                while True:
                    await here.write(piece)
                    sent += len(piece)

            writing = asyncio.create_task(write_on())
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.2)
            assert not writing.done()
            assert sent < 32 * MEBIBYTE
            unread = getattr(there, "unread", 0)
            assert unread <= MAX_UNREAD_BYTES
            got = len(await read_in_pieces(there, sent, 1))
            await eventually(lambda: sent > before)
            writing.cancel()
            await asyncio.wait({writing})
            assert got >= before

    run(exchange())


@pytest.mark.requirement("060-102")
@pytest.mark.parametrize("reason", [CloseReason.ABORT, CloseReason.LEAVING])
def test_an_abort_is_an_end_for_the_other_side(
    binding: str, place: Place, reason: CloseReason
) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            await here.write(b"abc")
            assert await there.read(3) == b"abc"
            await there.close(reason)
            assert await there.read(1) == b""
            assert there.ending is Ending.HERE
            assert await read_all(here) == b""
            assert here.ending is not None
            with pytest.raises(StreamClosedError):
                await here.write(bytes(64 * MEBIBYTE))
            await there.close(reason)

    run(exchange())


def test_an_abort_does_not_wait_for_a_peer_that_reads_nothing(binding: str, place: Place) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, _):
            writing = asyncio.create_task(here.write(bytes(64 * MEBIBYTE)))
            await asyncio.wait({writing}, timeout=0.3)
            assert not writing.done()
            async with asyncio.timeout(4):
                await here.close(CloseReason.ABORT)
            with pytest.raises(StreamClosedError):
                await writing

    run(exchange())


def test_close_gives_the_peer_all_bytes(binding: str, place: Place) -> None:
    data = random.Random(10).randbytes(2 * MEBIBYTE)

    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            await there.write(b"not read")

            async def write_and_close() -> None:
                await here.write(data)
                await here.close()

            closing = asyncio.create_task(write_and_close())
            assert await read_all(there) == data
            await there.end_writing()
            await closing

    run(exchange())


def test_a_cancelled_reader_loses_nothing(binding: str, place: Place) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            sent = got = b""
            for number in range(40):
                reading = asyncio.create_task(there.read(100))
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                sent += b"%d," % number
                await here.write(b"%d," % number)
                for _ in range(number % 3):
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait({reading})
                got += b"" if reading.cancelled() else reading.result()
            assert got + await read_in_pieces(there, len(sent) - len(got), 1) == sent

    run(exchange())


def test_a_cancelled_writer_leaves_a_stream_that_can_be_aborted(binding: str, place: Place) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            writing = asyncio.create_task(here.write(bytes(64 * MEBIBYTE)))
            await asyncio.wait({writing}, timeout=0.2)
            writing.cancel()
            await asyncio.wait({writing})
            assert writing.cancelled()
            reading = asyncio.create_task(read_all(there))
            await here.close(CloseReason.ABORT)
            assert len(await reading) < 64 * MEBIBYTE

    run(exchange())


def test_one_reader_and_one_writer_at_a_time(binding: str, place: Place) -> None:
    async def exchange() -> None:
        async with place.pair(binding) as (here, there):
            reading = asyncio.create_task(there.read(1))
            writing = asyncio.create_task(here.write(bytes(64 * MEBIBYTE)))
            await asyncio.wait({writing}, timeout=0.1)
            await reading
            reading = asyncio.create_task(here.read(1))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task reads"):
                await here.read(1)
            with pytest.raises(RuntimeError, match="another task writes"):
                await here.write(b"x")
            with pytest.raises(ValueError, match="at least one byte"):
                await there.read(0)
            for task in (reading, writing):
                task.cancel()
            await asyncio.wait({reading, writing})

    run(exchange())
