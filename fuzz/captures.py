"""Captures: the reader takes any text; what it accepts is written again as it was."""

from __future__ import annotations

from fuzz.harness import ROOT, Target
from lace.transport.capture import CaptureError, format_piece, read_capture

__all__ = ["TARGET"]

_PIECES = (b"=\n", b"> ", b"< ", b"\\x0a", b"\\", b"\\\n", b"\n", b"\\x", b"\xff", b"\xe2\x80\xa8")
_VECTORS = ROOT / "tests" / "vectors" / "iltp"


def _seeds() -> list[bytes]:
    streams = sorted(_VECTORS.glob("*/*.stream"))
    lines = [
        format_piece("<" if number % 2 else ">", line.removesuffix(b"\n"), is_whole=line != b"")
        for number, path in enumerate(streams[:8])
        for line in path.read_bytes()[:400].split(b"\n")
    ]
    return ["\n".join(["=", *lines, ""]).encode("utf-8", "surrogateescape")]


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        connections = list(read_capture(text.split("\n")[:-1], "a capture"))
    except CaptureError as error:
        assert error.place is not None
        assert error.place.line is not None
        return
    lines: list[str] = []
    for connection in connections:
        lines.append("=")
        for direction, piece in connection:
            is_whole = piece.endswith(b"\n")
            lines.append(format_piece(direction, piece.removesuffix(b"\n"), is_whole=is_whole))
    again = list(read_capture(lines, "the same"))
    assert again == connections, "not the same when written again"


TARGET = Target(name="captures", check=check, seeds=_seeds, pieces=_PIECES)
