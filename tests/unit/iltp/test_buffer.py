"""The buffer: what comes out is what went in, and nothing is looked at twice."""

from __future__ import annotations

import time

from lace.iltp.buffer import Buffer


def test_offsets_and_taking() -> None:
    buffer = Buffer()
    assert (len(buffer), buffer.offset) == (0, 0)
    buffer.append(b"hello world")
    assert buffer.peek(5) == b"hello"
    assert buffer.take(6) == b"hello "
    assert (len(buffer), buffer.offset, buffer.base) == (5, 6, 0)
    buffer.append(bytearray(b"!"))
    assert (buffer.peek(99), buffer.offset, buffer.base) == (b"world!", 6, 6)
    buffer.skip(6)
    buffer.pass_by(100)
    assert (len(buffer), buffer.offset) == (0, 112)
    buffer.append(memoryview(b"abc"))
    buffer.clear()
    assert (len(buffer), buffer.offset, len(buffer.data)) == (0, 115, 0)


def test_lines() -> None:
    buffer = Buffer()
    buffer.append(b"12345")
    assert buffer.line_length(5) is None
    assert buffer.line_length(5) is None
    assert buffer.line_length(4) == 5
    buffer.append(b"\n\n")
    assert buffer.line_length(5) == 5
    buffer.skip(6)
    assert buffer.line_length(0) == 0


def test_find_sees_what_lies_across_two_pieces() -> None:
    buffer = Buffer()
    buffer.append(b"ab\n")
    assert buffer.find(b"\n\n", 0, 100) == -1
    buffer.append(b"\n")
    assert buffer.find(b"\n\n", 0, 100) == 2
    assert buffer.find(b"\n\n", 0, 3) == -1


def test_single_bytes_cost_no_more_than_pieces() -> None:
    def seconds(count: int) -> float:
        buffer = Buffer()
        start = time.perf_counter()
        for _ in range(count):
            buffer.append(b"x")
            assert buffer.find(b"\n\n", 0, 1 << 30) == -1
        return time.perf_counter() - start

    seconds(1000)
    assert seconds(80_000) < 30 * seconds(8_000)
