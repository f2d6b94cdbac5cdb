"""Captures: whatever went over the wire comes out of the text again, and nothing else is in it."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.iltp.address import parse_address
from lace.transport.capture import LONGEST_LINE, Capture, CaptureError, read_capture
from lace.transport.listening import connect, listen

if TYPE_CHECKING:
    from pathlib import Path

    from lace.transport.capture import Direction
    from lace.transport.duplex import ByteStream

PIECES = st.lists(
    st.tuples(
        st.sampled_from(["<", ">"]),
        st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8")),
    ),
    max_size=12,
)


def written(path: Path, pieces: list[tuple[Direction, bytes]]) -> list[str]:
    capture = Capture(path)
    capture.stream(cast("ByteStream", None))
    for direction, data in pieces:
        capture.add(direction, data)
    capture.close()
    assert capture.problem is None
    with path.open(encoding="utf-8", newline="\n") as file:
        return list(file)


def directions(pieces: list[tuple[Direction, bytes]]) -> dict[str, bytes]:
    return {each: b"".join(data for way, data in pieces if way == each) for each in "<>"}


@pytest.mark.property
@given(pieces=PIECES)
def test_what_passed_comes_out_again(
    pieces: list[tuple[Direction, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = written(tmp_path_factory.getbasetemp() / "capture", pieces)
    assert all(line.endswith("\n") and line[:-1].isprintable() for line in lines)
    (found,) = read_capture(lines, "capture")
    assert directions(found) == directions(pieces)


def test_text_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    lines = written(
        path, [(">", "🪢: iltp/1\nHave('P".encode()), ("<", b"a\\b\x00\n"), (">", b"')\n")]
    )
    assert lines == ["=\n", "> 🪢: iltp/1\n", "< a\\x5cb\\x00\n", "> Have('P')\n"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_long_lines_are_broken_up(tmp_path: Path) -> None:
    data = b"x" * (LONGEST_LINE + 5) + b"\n" + b"y"
    lines = written(tmp_path / "capture", [(">", data)])
    assert [len(line) for line in lines] == [2, LONGEST_LINE + 4, 8, 5]
    (found,) = read_capture(lines, "capture")
    assert directions(found)[">"] == data


@pytest.mark.parametrize("line", ["> x", "=\nx", "=\n! x", "=\n>x", "=\n> \\y", "=\n> a\\x0g"])
def test_what_is_no_capture(line: str) -> None:
    with pytest.raises(CaptureError):
        list(read_capture(line.split("\n"), "capture"))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be written"):
        Capture(tmp_path / "none" / "capture")


def test_a_stream_and_its_capture(tmp_path: Path) -> None:
    async def echo(stream: ByteStream) -> None:
        while data := await stream.read(100):
            await stream.write(data)

    async def run() -> None:
        capture = Capture(tmp_path / "capture")
        address = parse_address("tcp:127.0.0.1:0", for_serving=True)
        async with await listen(address, echo) as listener:
            for _ in range(2):
                stream = capture.stream(await connect(listener.address))
                await stream.write(b"hello\nyou")
                assert await stream.read(9) == b"hello\nyou"
                assert stream.proven.transport == str(listener.address)
                assert stream.ending is None
                await stream.end_writing()
                assert await stream.read(9) == b""
                await stream.close()
        capture.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    lines = (tmp_path / "capture").read_text("utf-8").split("\n")[:-1]
    assert lines == ["=", "> hello", "< hello", "< you\\", "> you\\"] * 2
    assert len(list(read_capture(lines, "capture"))) == 2
