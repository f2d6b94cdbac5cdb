"""What a command writes: data to standard output, everything else to standard error.

On a terminal data is a table, elsewhere lines that a script can cut; `--json` gives
JSON in both places. Every text that came from outside passes `safe_text` on its way
to a person, and cells are plain text, so nothing in a record is markup. JSON carries
true values, escaped to ASCII.
"""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import IO, TYPE_CHECKING, Final, Protocol

from lace.base.text import safe_text
from lace.cli.tables import Column, fit_table
from lace.cli.wrapping import wrap_answer
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.text import Text

    from lace.cli.link_log import JsonLog, Level

__all__ = ["Column", "Output", "OutputError", "OutputWriter", "plural", "size_text"]

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
_PIPE_WIDTH: Final = 100
_TERMINAL_WIDTH: Final = 80
"""Where a terminal does not say how wide it is."""
_GONE: Final = select.POLLERR | select.POLLHUP
_PIECE: Final = 5_000
"""Lines that are written at once."""


class OutputError(LaceError):
    """Standard output cannot take what the command has to say."""

    exit_code = 3


def size_text(count: int) -> str:
    """Return a byte count for people.

    >>> size_text(1536)
    '1.5 KiB'
    """
    value, unit = float(count), "bytes"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


class OutputWriter(Protocol):
    """Takes bytes, as a binary file does."""

    def write(self, data: bytes, /) -> object:
        """Write data."""
        ...


class Output:
    """Where one command writes.

    Args:
        stream: takes the data instead of standard output.
        terminal: write as for a terminal, or not; by default as standard output is.
        width: how wide a table may be that is not written to a terminal.
    """

    def __init__(
        self,
        stream: OutputWriter | None = None,
        terminal: bool | None = None,
        width: int = _PIPE_WIDTH,
    ) -> None:
        self._stream = stream
        self._terminal = terminal
        self._width = width
        self.json = False
        self.quiet = False
        self.progress: bool | None = None
        """Whether progress is shown, where it can be; by default unless quiet is wanted."""
        self.color = True
        self.log: JsonLog | None = None
        """Takes what goes to standard error, where that is to be JSON."""
        self.put_aside: Callable[[str], None] = _write_stderr
        """Writes whole lines to standard error."""
        self.beside: Callable[[], AbstractContextManager[None]] | None = None
        """Takes away for a moment what is shown on the terminal while work goes on."""
        self.is_held = False
        """Whether that stays away: somebody else has begun a line there, and not ended it."""

    @contextmanager
    def redirected(self, stream: OutputWriter) -> Iterator[None]:
        """Write the data to a stream instead, until the end of the block."""
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    @property
    def terminal(self) -> bool:
        """Whether a person reads the data."""
        if self._terminal is not None:
            return self._terminal
        return self._stream is None and sys.stdout is not None and sys.stdout.isatty()

    @property
    def table_wanted(self) -> bool:
        """Whether data is shown as a table."""
        return self.terminal and not self.json

    @property
    def progress_wanted(self) -> bool:
        """Whether a person who looks wants to see progress."""
        return not self.quiet if self.progress is None else self.progress

    def is_abandoned(self) -> bool:
        """Tell whether the reader of standard output has gone, also while nothing is written."""
        if self._stream is not None or sys.stdout is None:
            return False
        try:
            watched = select.poll()
            watched.register(sys.stdout.fileno(), 0)  # errors are told in any case
            return any(state & _GONE for _number, state in watched.poll(0))
        except (OSError, ValueError):  # it is no descriptor of the system
            return False

    def write(self, data: bytes) -> None:
        """Write data as it is."""
        if self._stream is not None:
            self._stream.write(data)
            return
        if sys.stdout is None:
            raise OutputError("standard output is closed", hint="write to a file or a pipe")
        if self.beside is None or not self._is_real:
            sys.stdout.buffer.write(data)
            return
        with self.beside():
            sys.stdout.buffer.write(data)
            sys.stdout.flush()

    def flush(self) -> None:
        """Send on what was written, so that a failure shows while it can be told."""
        if self._stream is None and sys.stdout is not None:
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Write one line for people, on as many lines as it needs at a terminal."""
        if self.width is None:
            self.line(text)
            return
        for line in wrap_answer(safe_text(text), self.width):
            self.line(line)

    def line(self, text: str) -> None:
        """Write one line, as it is but for what is unsafe on a terminal; data is never wrapped."""
        shown = safe_text(text) if self.terminal else text
        self.write(shown.encode("utf-8", "backslashreplace") + b"\n")

    @property
    def _is_real(self) -> bool:
        """Whether data goes to a terminal, and not only as if to one."""
        return self._stream is None and sys.stdout is not None and sys.stdout.isatty()

    @property
    def width(self) -> int | None:
        """How many columns the terminal has to which data goes; None without one."""
        return _columns(sys.stdout) if self._is_real else None

    @property
    def aside_width(self) -> int | None:
        """The same of the terminal to which everything else goes."""
        if sys.stderr is None or self.log is not None or not sys.stderr.isatty():
            return None
        return _columns(sys.stderr)

    def styled_line(self, *pieces: tuple[str, str], is_whole: bool = False) -> None:
        """Write one line of pieces, each a text and the style that it has on a terminal.

        As `say` does, it writes more lines where one has no room, unless it is to stay whole.
        """
        if not (self._is_real and self.color and not self.json):
            (self.line if is_whole else self.say)("".join(text for text, _style in pieces))
            return
        import io  # a piped command loads nothing of this

        from rich.console import Console
        from rich.text import Text

        page = io.StringIO()
        console = Console(file=page, force_terminal=True, color_system="auto", legacy_windows=False)
        whole = Text.assemble(*((safe_text(text), style) for text, style in pieces))
        lines = [whole.plain] if is_whole else wrap_answer(whole.plain, self.width or _PIPE_WIDTH)
        for line in _broken_as(lines, whole):
            console.print(line, soft_wrap=True)
        self.write(page.getvalue().encode("utf-8", "backslashreplace"))

    def row(self, values: Iterable[object]) -> None:
        """Write tab-separated values; no value can hold a tab or a line's end."""
        cells = ("" if value is None else safe_text(str(value)) for value in values)
        self.write("\t".join(cells).encode("utf-8", "backslashreplace") + b"\n")

    def lines(self, lines: Iterable[str]) -> None:
        """Write many lines, as `line` does; in a few large pieces."""
        if self.terminal:
            for line in lines:
                self.line(line)
            return
        waiting = iter(lines)
        while piece := "".join(f"{line}\n" for line in islice(waiting, _PIECE)):
            self.write(piece.encode("utf-8", "backslashreplace"))

    def text(self, text: str) -> None:
        """Write text as it is; on a terminal made safe, and with an end to its last line."""
        if not self.terminal:
            self.write(text.encode("utf-8"))
        elif text:
            for line in text.removesuffix("\n").split("\n"):
                self.line(line)

    def json_line(self, value: object) -> None:
        """Write one JSON value on a line of its own."""
        self.write(json.dumps(value).encode("ascii") + b"\n")

    def json_document(self, value: object) -> None:
        """Write one JSON document; spread over lines on a terminal."""
        text = json.dumps(value, indent=2 if self.terminal else None)
        self.write(text.encode("ascii") + b"\n")

    def table(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[object]],
        *,
        heading: bool = True,
    ) -> list[str]:
        """Write a table for a person; on a terminal too narrow for it, row below row.

        Returns:
            the headings of columns that are left out or cut short for want of room.
        """
        import io  # a piped command loads nothing of this

        from rich.console import Console

        cells = [["" if cell is None else safe_text(str(cell)) for cell in row] for row in rows]
        page = io.StringIO()
        real = self._is_real
        console = Console(
            file=page,
            force_terminal=real,
            color_system="auto" if real and self.color else None,
            width=None if real else self._width,
            legacy_windows=False,
        )
        made, less = fit_table(columns, cells, console.width, heading=heading)
        console.print(made)
        # Cells are padded to the width of their column: nothing shows at the end of a line.
        lines = [line.rstrip(" ") for line in page.getvalue().split("\n")]
        self.write("\n".join(lines).encode("utf-8", "backslashreplace"))
        return less

    def counts(self, values: Mapping[str, int]) -> None:
        """Write counts: a small table, or lines of a name and a number."""
        if self.table_wanted:
            columns = (Column("", style="bold"), Column("", "right"))
            self.table(columns, [(k, f"{v:,}") for k, v in values.items()], heading=False)
            return
        for name, value in values.items():
            self.line(f"{name} {value}")

    def note(self, text: str) -> None:
        """Tell a person something in passing, unless they want quiet."""
        if not self.quiet:
            self._tell("info", text)

    def warn(self, text: str) -> None:
        """Tell a person of something that may be wrong."""
        self._tell("warning", f"lace: warning: {text}")

    def complain(self, text: str) -> None:
        """Write one line to standard error."""
        self._tell("error", text)

    def _tell(self, level: Level, text: str) -> None:
        if self.log is not None:
            self.log.message(level, text)
        elif sys.stderr is not None:
            width = self.aside_width
            lines = [safe_text(text)] if width is None else wrap_answer(safe_text(text), width)
            with nullcontext() if self.beside is None else self.beside():
                self.put_aside("".join(f"{line}\n" for line in lines))


def _write_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns(stream: IO[str]) -> int:
    """Return how wide the terminal is to which a stream goes."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _TERMINAL_WIDTH
    except (OSError, ValueError):  # it is no descriptor of the system
        return _TERMINAL_WIDTH


def _broken_as(lines: Iterable[str], whole: Text) -> Iterator[Text]:
    """Yield a styled text in the lines into which its plain text was broken."""
    at = 0
    for line in lines:
        rest = line.lstrip(" │#") if at else line.lstrip(" ")
        at = whole.plain.index(rest, at)
        yield whole[:0].append(line.removesuffix(rest)).append_text(whole[at : at + len(rest)])
        at += len(rest)
