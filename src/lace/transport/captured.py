r"""Captures: both directions of a connection as text that a person reads and a program replays.

Each line of the stream is a line of the capture, behind `> ` for bytes that were sent and
`< ` for bytes that came. A line that is not printable text has its other bytes as `\xNN`, a
backslash too; a line that ends in a backslash has no LF on the wire. `=` begins a connection.
Nothing else is in it: neither times nor addresses nor anything of this side's.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lace.errors import Place, UsageError
from lace.transport.stream import CloseReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from lace.transport.stream import ByteStream, Ending, Proven

__all__ = [
    "LONGEST_LINE",
    "Capture",
    "CaptureError",
    "CapturedStream",
    "Direction",
    "format_piece",
    "parse_line",
    "read_capture",
    "unreadable",
]

Direction: TypeAlias = Literal["<", ">"]

LONGEST_LINE: Final = 64 * 1024
"""Bytes of the stream that are kept for a line of the capture; a longer one is broken up."""
_BEGIN: Final = "="
_UNSHOWN: Final = re.compile(r"[^ -\[\]-~]")
_SHOWN: Final = re.compile(r"(?:[^\\\ud800-\udfff]|\\x[0-9a-f]{2})*\\?")
_ESCAPE: Final = re.compile(r"\\x([0-9a-f]{2})")


class CaptureError(UsageError):
    """A capture that cannot be written, or a file that is not a capture."""


class Capture:
    """A file that takes what is sent and received.

    Args:
        path: the file, which is overwritten; one that was not there only its owner can read.

    Raises:
        CaptureError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[Direction, bytearray] = {"<": bytearray(), ">": bytearray()}
        self.problem: str | None = None
        """Why the file has less than went over the wire, if it has."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            raise CaptureError(
                f"the capture cannot be written: {said}", place=Place(str(path)), hint="check it"
            ) from None

    def stream(self, stream: ByteStream) -> CapturedStream:
        """Return a stream that is captured; one connection at a time."""
        self._flush()
        self._write(_BEGIN)
        return CapturedStream(stream, self)

    def add(self, direction: Direction, data: bytes | memoryview) -> None:
        """Take bytes of one direction."""
        line = self._lines[direction]
        line += data
        while (end := line.find(b"\n")) >= 0 or len(line) >= LONGEST_LINE:
            is_whole = 0 <= end < LONGEST_LINE
            piece = bytes(line[: end if is_whole else LONGEST_LINE])
            del line[: len(piece) + is_whole]
            self._write(format_piece(direction, piece, is_whole=is_whole))

    def close(self) -> None:
        """End it."""
        self._flush()
        try:
            self._file.close()
        except OSError as error:
            self.problem = self.problem or error.strerror

    def _flush(self) -> None:
        """Write lines that have no end yet."""
        for direction, line in self._lines.items():
            if line:
                self._write(format_piece(direction, bytes(line), is_whole=False))
                line.clear()

    def _write(self, text: str) -> None:
        """Write a line; a disk that is full ends the capture, not the exchange."""
        if self.problem is None:
            try:
                self._file.write(f"{text}\n")
            except OSError as error:
                self.problem = error.strerror


def format_piece(direction: Direction, piece: bytes, *, is_whole: bool) -> str:
    """Return the line of a capture for a line of the stream, without its LF or not whole."""
    text = piece.decode("utf-8", "surrogateescape")
    if not text.isprintable() or "\\" in text:
        text = _UNSHOWN.sub(_escape, text)
    return f"{direction} {text}" if is_whole else f"{direction} {text}\\"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))


def parse_line(line: str, number: int, name: str) -> tuple[Direction, bytes] | None:
    """Return which way the bytes of a line went, and the bytes; None where a connection begins.

    Args:
        line: the line, without its LF.
        number: which one it is, from 1.
        name: what to call the file.

    Raises:
        CaptureError: the line is not legal.
    """
    if line == _BEGIN:
        return None
    direction, text = line[:1], line[2:]
    if line[1:2] != " " or not _SHOWN.fullmatch(text):
        raise unreadable("this is no line of a capture", Place(name, line=number))
    piece = _unescape(text.removesuffix("\\")) + (b"" if text.endswith("\\") else b"\n")
    if direction == "<":
        return "<", piece
    if direction == ">":
        return ">", piece
    raise unreadable(f"a line goes > or <, not {direction!r}", Place(name, line=number))


def unreadable(message: str, place: Place) -> CaptureError:
    """Return the error of a file that is no capture."""
    error = CaptureError(
        message, place=place, hint="choose a file that `lace sync --capture` wrote"
    )
    error.exit_code = 1
    return error


def read_capture(lines: Iterable[str], name: str) -> Iterator[list[tuple[Direction, bytes]]]:
    """Yield the connections of a capture: what went in each direction, in its order.

    Args:
        lines: the lines of the file, with or without their LF.
        name: what to call it.

    Raises:
        CaptureError: a line is not legal.
    """
    made: list[tuple[Direction, bytes]] | None = None
    for number, raw in enumerate(lines, start=1):
        found = parse_line(raw.removesuffix("\n"), number, name)
        if found is None:
            if made is not None:
                yield made
            made = []
        elif made is None:
            raise unreadable("a capture begins with =", Place(name, line=number))
        else:
            made.append(found)
    if made is not None:
        yield made


def _unescape(text: str) -> bytes:
    """Return the bytes of a line: every second piece is the digits of an escaped one."""
    if "\\" not in text:
        return text.encode("utf-8")
    return b"".join(
        bytes.fromhex(piece) if number % 2 else piece.encode("utf-8")
        for number, piece in enumerate(_ESCAPE.split(text))
    )


class CapturedStream:
    """A stream whose bytes are captured as they pass."""

    def __init__(self, stream: ByteStream, capture: Capture) -> None:
        self._stream, self._capture = stream, capture

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        return self._stream.proven

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come."""
        return self._stream.ending

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        return self._stream.peer_has_left

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        data = await self._stream.read(most)
        self._capture.add("<", data)
        return data

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them."""
        await self._stream.write(data)
        self._capture.add(">", data)

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side."""
        await self._stream.end_writing()

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream."""
        await self._stream.close(reason)
