"""A command that runs at a terminal, and what a person sees there at any moment."""

from __future__ import annotations

import os
import re
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.cli.links import SECONDS, wait_until
from tests.cli.running import start_on_terminal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

__all__ = ["Screen", "at_terminal", "visible_lines"]

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


def visible_lines(written: str) -> list[str]:
    """The lines that stand on a terminal after this was written, however often it was erased."""
    lines, row, column = [""], 0, 0
    for token in _TOKEN.finditer(written):
        text, number, control = token[0], token[1], token[2]
        if control == "A":
            row = max(row - int(number or 1), 0)
        elif control == "K":
            assert number == "2", "whole lines are erased"
            lines[row] = ""
        elif control is not None:
            assert control in "mlh", f"this screen does not know {text!r}"
        elif text == "\r":
            column = 0
        elif text == "\n":
            row, column = row + 1, 0
            lines += [""] if row == len(lines) else []
        else:
            lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in lines]


class Screen:
    """A command at a terminal."""

    def __init__(self, started: subprocess.Popen[bytes], master: int) -> None:
        self.process = started
        self._master = master
        self._written = b""

    def read(self) -> str:
        """Everything that was written so far."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            self._written += piece
        return self._written.decode("utf-8", "replace")

    def lines(self) -> list[str]:
        """What stands there now."""
        return visible_lines(self.read())

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until a text was written so often."""
        wait_until(lambda: self.read().count(text) >= count)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def end(self) -> int:
        """Wait for the end of the command, and read what it writes meanwhile."""

        def is_over() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until(is_over)
        self.read()
        return self.process.returncode


@contextmanager
def at_terminal(*arguments: object, columns: int = 80) -> Iterator[Screen]:
    """Run a command at a terminal while the block lasts."""
    started, master = start_on_terminal(*arguments, columns=columns, env={"NO_COLOR": "1"})
    try:
        yield Screen(started, master)
    finally:
        started.kill()
        started.wait(SECONDS)
        os.close(master)
