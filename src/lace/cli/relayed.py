"""What a command that was started says, beside a line that moves on the same terminal."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from lace.cli.wrapping import wrap_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from lace.cli.output import Output

__all__ = ["end_line", "relayed_errors"]

_PIECE_BYTES: Final = 65536
_LAST_SECONDS: Final = 1.0
"""How long its last words are waited for: something that it started may hold the pipe open."""


@contextmanager
def relayed_errors(output: Output, command: Sequence[str]) -> Iterator[int | None]:
    """Give a descriptor for a command's standard error, where a line on the terminal moves.

    Where none does, that is None: the command has the standard error of this process.
    """
    if not command or output.beside is None:
        yield None
        return
    reading, writing = os.pipe()
    relay = threading.Thread(target=_relay, args=(output, reading), name="relay", daemon=True)
    relay.start()
    try:
        yield writing
    finally:
        os.close(writing)
        relay.join(_LAST_SECONDS)
        end_line(output)


def _relay(output: Output, reading: int) -> None:
    with os.fdopen(reading, "rb", buffering=0) as source:
        while piece := source.read(_PIECE_BYTES):
            with _beside(output):
                sys.stderr.buffer.write(_fitting(piece, output.aside_width))
                sys.stderr.flush()
                # A question that waits for its answer in the same line is not drawn over.
                output.is_held = not piece.endswith(b"\n")
    end_line(output)


def end_line(output: Output) -> None:
    """Have the line that moves go on, below what a command has said without ending its line."""
    with _beside(output):
        if output.is_held:
            sys.stderr.buffer.write(b"\n")
            sys.stderr.flush()
            output.is_held = False


def _beside(output: Output) -> AbstractContextManager[None]:
    beside = output.beside
    return nullcontext() if beside is None else beside()


def _fitting(piece: bytes, width: int | None) -> bytes:
    """Break whole lines of plain text to the terminal, which the command cannot see."""
    if width is None:
        return piece
    return b"".join(_broken(line, width) for line in piece.splitlines(keepends=True))


def _broken(line: bytes, width: int) -> bytes:
    text = line[:-1].decode("utf-8", "replace")
    if not line.endswith(b"\n") or len(text) <= width or not text.isprintable():
        return line
    return "".join(f"{each}\n" for each in wrap_answer(text, width)).encode()
