"""The buffer: what comes out is what went in, and nothing is looked at twice."""

from __future__ import annotations

import pytest

from lace.iltp.reader import Buffer


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


class Counting(bytearray):
    """Bytes that count how many of them searches look at."""

    looked_at = 0

    def find(self, sub: bytes, start: int = 0, end: int = 0) -> int:  # type: ignore[override]
        self.looked_at += min(end, len(self)) - start
        return super().find(sub, start, end)


@pytest.mark.parametrize("wanted", [b"\n", b"\n\n"])
def test_nothing_is_looked_at_twice(wanted: bytes) -> None:
    """But the bytes that may be the beginning of what is wanted."""
    buffer = Buffer()
    data = buffer.data = Counting()
    for _ in range(1000):
        buffer.append(b"x")
        assert buffer.find(wanted, 0, 1 << 30) == -1
    assert buffer.data is data
    assert data.looked_at == 1000 + 999 * (len(wanted) - 1)
