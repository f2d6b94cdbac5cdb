"""What a command writes: data to standard output, all else to standard error; tables, times.

On a terminal data is a table, elsewhere lines that a script can cut; `--json` gives
JSON in both places. Every text that came from outside passes `safe_text` on its way
to a person, and cells are plain text, so nothing in a record is markup. JSON carries
true values, escaped to ASCII.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import textwrap
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Protocol

import click

from lace.api.system import Tai, TaiError
from lace.base.text import is_wide, safe_text, shorten
from lace.base.text import plural as plural
from lace.base.text import size_text as size_text
from lace.errors import LaceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.table import Table as RichTable
    from rich.text import Text

    from lace.cli.link_options import JsonLog, Level
    from lace.errors import Finding


# -- Tables for people: as many columns as the terminal has room for, else row below row.
#
# A column may say that it goes where room is short, or that its texts are cut in the middle
# then: so a row stays a line. Where even that is too wide, nothing is left out: the values
# of a row stand one below the other, each beside its heading.

_GAP: Final = 3
_LEAST_COLUMN: Final = 10
"""How narrow a column may get whose text is folded."""
_LEAST_CUT: Final = 16
"""How narrow a column may get whose text is cut."""
_ELLIPSIS: Final = "…"


def _itself(value: object) -> object:
    return value


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table: its heading, how its cells stand, and what it gives way to.

    `goes` is its turn to be left out where room is short, the highest first; 0 is never.
    `is_cut` is for texts that lose their middle then, rather than be folded.
    """

    heading: str
    align: Literal["left", "right"] = "left"
    style: str = ""
    no_wrap: bool = False
    goes: int = 0
    is_cut: bool = False
    key: str = ""
    """The name of the value in JSON; else the heading."""
    shown: Callable[[Any], object] = _itself
    """Makes the cell of a value, for a person."""
    piped: Callable[[Any], object] | None = None
    """Makes the field of a value in a line; else it is text, a number, or JSON."""
    is_piped_only: bool = False
    """Whether a table does without the column."""


def fit_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int, *, heading: bool
) -> tuple[RichTable, list[str]]:
    """Return a table that fits a width, and the headings of what it leaves out or cuts."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(text) for text in (column.heading, *(row[at] for row in rows)))
        for at, column in enumerate(columns)
    ]
    kept, less = list(range(len(columns))), []
    for at in sorted((at for at in kept if columns[at].goes), key=lambda at: -columns[at].goes):
        if rows and _total(widths[each] for each in kept) > width:
            kept.remove(at)
            less.append(columns[at].heading)
    cut = sorted((at for at in kept if columns[at].is_cut), key=widths.__getitem__)
    left = width - _total(0 if at in cut else widths[at] for at in kept)
    if rows and left >= sum(min(widths[at], _LEAST_CUT) for at in cut):
        if left < sum(widths[at] for at in cut):
            less += [columns[at].heading for at in sorted(cut)]
        for number, at in enumerate(cut):  # who needs less than its part leaves more to the others
            widths[at] = min(widths[at], left // (len(cut) - number))
            left -= widths[at]
        cells = [[cut_middle(row[at], widths[at]) for at in kept] for row in rows]
        return _side_by_side([columns[at] for at in kept], cells, heading=heading), less
    least = _total(
        wide if column.no_wrap else min(wide, _LEAST_COLUMN)
        for column, wide in zip(columns, widths, strict=True)
    )
    if heading and rows and least > width:
        return _stacked(columns, rows), []
    return _side_by_side(columns, rows, heading=heading), []


def cut_middle(text: str, room: int) -> str:
    """Return a text that takes no more columns than there is room for: its two ends, if any.

    >>> cut_middle("//u//notes//a long name", 15)
    '//u//no…ng name'
    """
    from rich.cells import cell_len

    if cell_len(text) <= room:
        return text
    head, tail, used = 0, len(text), cell_len(_ELLIPSIS)
    if used > room:
        return ""
    for turn in range(len(text)):
        taken = text[head] if turn % 2 == 0 else text[tail - 1]
        used += cell_len(taken)
        if used > room:
            break
        head, tail = (head + 1, tail) if turn % 2 == 0 else (head, tail - 1)
    return f"{text[:head]}{_ELLIPSIS}{text[tail:]}"


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + _GAP * (len(found) - 1)


def _side_by_side(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, heading: bool
) -> RichTable:
    """Return rows side by side under their headings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_header=heading, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            Text(column.heading),
            justify=column.align,
            style=column.style,
            overflow="fold",
            no_wrap=column.no_wrap,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _stacked(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> RichTable:
    """Return rows one below the other, each value beside its heading, for a narrow terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            table.add_row("", "")
        for column, cell in zip(columns, row, strict=True):
            if cell:
                table.add_row(Text(column.heading), Text(cell, style=column.style))
    return table


# -- Lines that fit a terminal: prose, command lines that still work, and findings.

LEAST_WIDTH: Final = 20
"""No terminal is taken to be narrower."""
_LEAST_TEXT: Final = 12
"""Columns that a text gets beside the bars of a tree, however deep it stands."""
_GOES_ON: Final = " \\"
_SHELL_WORD: Final = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+""")
"""A word of a command line, with what is quoted in it."""
_BEGUN: Final = re.compile(r"((?:│  | )*)([├└]─ |# )? *")
"""What stands before the text of a line: the bars of a tree and its branch, or a comment's sign."""
_BELOW: Final = {"├─ ": "│    ", "└─ ": "     ", "# ": "# ", None: "  "}
"""What stands below that where the line goes on."""

_COMMAND: Final = re.compile(r"`[^`]+`")
_WORD: Final = re.compile(r"[^ ]+")
_BETWEEN: Final = re.compile(r"(?<=[,(])(?=['A-Z_])")
"""Before each value of a fact, or of an atom that is written tight."""
_CARETS: Final = re.compile(r" *\^+")
_KEPT: Final = "\0"
"""Stands for a space at which no line ends."""
_MAY_END: Final = "\v"
"""Stands where a line may end, and for nothing else."""
_WIDE: Final = "\1"
"""Follows a character that takes two columns, for the second one."""


def wrap_prose(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return the lines of a text; a word that is wider than a line is broken."""
    return _wrapped(
        text, max(width, LEAST_WIDTH), first, first if rest is None else rest, breaks=True
    )


def wrap_answer(line: str, width: int, margin: str = "") -> list[str]:
    """Return a line of what a command says, or of a file, on as many lines as it needs.

    The bars of a tree go on, and a comment stays a comment. A command in backticks stays whole
    if it can. A fact that is wider than a line is broken between its values; hashes, identifiers
    and paths never are: a copy has all of it.

    >>> wrap_answer("├─ Field('a','b')   base fact", 24)
    ["├─ Field('a','b')   base", '│    fact']
    """
    columns = _one_each(line)
    if len(margin) + len(columns) <= width:
        return [f"{margin}{line}"]
    found = _BEGUN.match(columns)
    if found is None:
        raise AssertionError("it matches nothing at all, too")
    first, rest = f"{margin}{found[0]}", f"{margin}{found[1]}{_BELOW[found[2]]}"
    if len(rest) > width // 2:  # far from the edge there is no room
        rest = f"{margin}  "
    width = max(width, len(rest) + _LEAST_TEXT)
    room = width - len(rest)

    def kept(command: re.Match[str]) -> str:
        return command[0].replace(" ", _KEPT) if len(command[0]) <= room else command[0]

    def spread(word: re.Match[str]) -> str:
        return word[0] if len(word[0]) <= room else _BETWEEN.sub(_MAY_END, word[0])

    text = _WORD.sub(spread, _COMMAND.sub(kept, columns[found.end() :]))
    lines = _wrapped(text, width, first, rest, breaks=False) or [first.rstrip(" ")]
    return [each.replace(_KEPT, " ").replace(_MAY_END, "").replace(_WIDE, "") for each in lines]


def _one_each(line: str) -> str:
    """Return a line with as many characters as it takes columns."""
    if line.isascii():
        return line
    wide = {each for each in {*line} if is_wide(each)}
    return "".join([f"{each}{_WIDE}" if each in wide else each for each in line])


def wrap_findings(text: str, width: int | None) -> list[str]:
    r"""Return the lines of findings, where carets stay below what they are about.

    >>> excerpt = ["    Some(P) :- Thing(P), Other(Q).", " " * 31 + "^"]
    >>> wrap_findings("\n".join(["a.lace:1:28: no", *excerpt]), 20)
    ['a.lace:1:28: no', '    …g(P), Other(Q).', '                 ^']
    """
    lines = text.split("\n")
    if width is None:
        return lines
    made: list[str] = []
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if _CARETS.fullmatch(line) and number:
            continue  # it came with the line above
        if _CARETS.fullmatch(below):
            made += _cut_excerpt(line, below, width)
        else:
            made += wrap_answer(line, width)
    return made


def _cut_excerpt(line: str, carets: str, width: int) -> list[str]:
    """Return a line of source and the carets below it, cut to what is around the carets."""
    indent = len(line) - len(line.lstrip(" "))
    room = max(width - indent, _LEAST_TEXT)
    at, end = carets.index("^"), len(carets)
    line = line.ljust(at + 1)  # a finding at the end is one column after the line
    if len(line) - indent <= room:
        return [line.rstrip(" "), carets[: indent + room]]
    middle = (at + min(end, at + room)) // 2
    begin = min(max(middle - room // 2, indent), len(line) - room)
    piece, below = line[begin : begin + room], carets[begin : begin + room]
    if begin > indent:
        piece = f"…{piece[1:]}"
    if begin + room < len(line):
        piece = f"{piece[:-1]}…"
    return [" " * indent + piece.rstrip(" "), " " * indent + below]


def _wrapped(text: str, width: int, first: str, rest: str, *, breaks: bool) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=breaks,
        break_on_hyphens=False,
        replace_whitespace=breaks,
    )


def wrap_command(line: str, width: int, first: str = "", rest: str = "") -> list[str]:
    r"""Return a command line on as many lines as it needs; a shell takes them as one.

    It is broken between words alone: a word that is too long stands out.

    >>> wrap_command("lace get //u//n//x -o 'my file'", 22, rest="  ")
    ['lace get //u//n//x \\', "  -o 'my file'"]
    """
    room = max(width, LEAST_WIDTH)
    lines, now = [], first
    units = _units(line, room - len(rest) - len(_GOES_ON))
    for number, unit in enumerate(units):
        is_begun = now not in (first, rest)
        joined = f"{now} {unit}" if is_begun else f"{now}{unit}"
        end = "" if number == len(units) - 1 else _GOES_ON
        if is_begun and len(joined) + len(end) > room:
            lines.append(f"{now}{_GOES_ON}")
            joined = f"{rest}{unit}"
        now = joined
    return [*lines, now]


def _units(line: str, room: int) -> list[str]:
    """Return the words of a command line, an option with its value where there is room."""
    units: list[str] = []
    for word in _SHELL_WORD.findall(line):
        joined = f"{units[-1]} {word}" if units else word
        is_option = bool(units) and units[-1].startswith("-") and units[-1] != "--"
        if is_option and " " not in units[-1] and word[0] not in "-|&" and len(joined) <= room:
            units[-1] = joined
        else:
            units.append(word)
    return units


# -- Where a command writes.

_PIPE_WIDTH: Final = 100
_TERMINAL_WIDTH: Final = 80
"""Where a terminal does not say how wide it is."""
_GONE: Final = select.POLLERR | select.POLLHUP
_PIECE: Final = 5_000
"""Lines that are written at once."""


class OutputError(LaceError):
    """Standard output cannot take what the command has to say."""

    exit_code = 3


class OutputWriter(Protocol):
    """Takes bytes, as a binary file does."""

    def write(self, data: bytes, /) -> object:
        """Write data."""
        ...


class Output:
    """Where one command writes."""

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
        self._cited: str | None = None
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
            watched.register(sys.stdout.fileno(), 0)  # errors are reported in any case
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
            sys.stdout.buffer.flush()  # the stream is that of the line that moves, which keeps it

    def flush(self) -> None:
        """Send on what was written, so that a failure shows while it can be reported."""
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
        """Write tab-separated values; no value can hold a tab or a line's end.

        None is empty; `...` is left out.
        """
        cells = (
            "" if value is None else safe_text(str(value)) for value in values if value is not ...
        )
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
        """Write one JSON value on a line."""
        self.write(json.dumps(value).encode("ascii") + b"\n")

    def json_document(self, value: object) -> None:
        """Write one JSON document; spread over lines on a terminal."""
        text = json.dumps(value, indent=2 if self.terminal else None)
        self.write(text.encode("ascii") + b"\n")

    def answer(self, document: object, *lines: str, is_wrapped: bool = False) -> None:
        """Write an answer as one JSON document, or else as lines."""
        if self.json:
            self.json_document(document)
            return
        for line in lines:
            (self.say if is_wrapped else self.line)(line)

    def show(
        self,
        rows: Iterable[Sequence[Any]],
        columns: Sequence[TableColumn],
        *,
        document: Callable[[list[dict[str, Any]]], object] | None = None,
    ) -> list[str]:
        """Write rows: a table on a terminal, tab-separated values elsewhere, or JSON.

        Args:
            rows: their values, one for each column.
            columns: what the values are called, and how they look.
            document: makes one JSON document of all rows, which are objects by the keys of the
                columns; without it, JSON is a line for each row.

        Returns:
            the headings of columns that are left out or cut short for want of room.
        """
        if self.json:
            keys = [column.key or column.heading for column in columns]
            objects = (dict(zip(keys, row, strict=True)) for row in rows)
            if document is not None:
                self.json_document(document(list(objects)))
                return []
            for each in objects:
                self.json_line(each)
        elif self.terminal:
            kept = [at for at, column in enumerate(columns) if not column.is_piped_only]
            cells = ([columns[at].shown(row[at]) for at in kept] for row in rows)
            return self.table([columns[at] for at in kept], cells)
        else:
            fields = [column.piped or _field for column in columns]
            for row in rows:
                self.row(field(value) for field, value in zip(fields, row, strict=True))
        return []

    def table(
        self,
        columns: Sequence[TableColumn],
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

    def counts(self, values: Mapping[str, int], document: object = None) -> None:
        """Write counts: JSON, a small table, or lines of a name and a number."""
        if self.json:
            self.json_document(dict(values) if document is None else document)
        elif self.terminal:
            columns = (TableColumn("", style="bold"), TableColumn("", "right"))
            self.table(columns, [(k, f"{v:,}") for k, v in values.items()], heading=False)
        else:
            self.lines(f"{name} {value}" for name, value in values.items())

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

    def cite(self, errors: Iterable[LaceError | Finding]) -> None:
        """Remember the id that the first of the errors shows, unless one is remembered."""
        for each in errors:
            if each.rule and each.rule[0].isdigit():  # those of decisions are not shown
                self._cited = self._cited or each.rule

    def offer_explanation(self) -> None:
        """Name the command that explains the id, as the last line on a terminal."""
        if self._cited and not self.json and not self.quiet and self.aside_width is not None:
            text = f"lace explain {self._cited} says more"
            self.put_aside(f"\x1b[2m{text}\x1b[0m\n" if self.color else f"{text}\n")

    def _tell(self, level: Level, text: str) -> None:
        if self.log is not None:
            self.log.message(level, text)
        elif sys.stderr is not None:
            if self._is_real:
                self.flush()  # data that a person has before them stays above what is said of it
            width = self.aside_width
            lines = [safe_text(text)] if width is None else wrap_answer(safe_text(text), width)
            with nullcontext() if self.beside is None else self.beside():
                self.put_aside("".join(f"{line}\n" for line in lines))


def _field(value: object) -> object:
    """Return a value as a line has it: what is no text and no number is JSON."""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False)
    return value


def _write_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns(stream: IO[str]) -> int:
    """Return how wide the terminal is to which a stream goes."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
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


# -- Identifiers that are cut short.

_SHORT_ID: Final = 10
_IDENTIFIER: Final = re.compile(r"[A-Z]\.[0-9A-Z_a-z~]{40,}(\.H3)?")


def short_identifiers(values: Iterable[str]) -> dict[str, str]:
    """Return the short forms of identifiers, as short as they differ and can be read."""
    found = sorted({value for value in values if _IDENTIFIER.fullmatch(value)})
    length = _SHORT_ID
    for before, after in pairwise(found):
        while before[:length] == after[:length]:
            length += 1
    return {value: f"{value[:length]}…" for value in found if len(value) > length + 1}


# -- TAI instants as people read and write them.


def time_text(tai: str) -> str:
    """Return a TAI instant as UTC, to the second; return any other text unchanged.

    >>> time_text("1640995237:000000000")
    '2022-01-01 00:00:00'
    """
    try:
        nanoseconds = Tai(tai).unix_nanoseconds
    except TaiError:
        return tai
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanoseconds // 10**9)
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def parse_time(text: str, option: str) -> Tai:
    """Return the instant of a TAI text, or of a date and time with its offset from UTC.

    >>> parse_time("2022-01-01T00:00:00Z", "--at")
    Tai('1640995237:000000000')
    """
    try:
        return Tai(text)
    except TaiError:
        pass
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            passed = instant - datetime(1970, 1, 1, tzinfo=UTC)
            return Tai.from_unix_nanoseconds(passed // timedelta(microseconds=1) * 1000)
    except (ValueError, OverflowError, TaiError):
        pass
    raise UsageError(
        f"{option} must be an instant, got {shorten(text)!r}",
        hint="write 2026-11-20T00:00:00Z, or a TAI instant: ten digits, a colon and nine digits",
    )


# -- Questions to a person at a terminal.


class DeclinedError(LaceError):
    """A person said no."""


def is_attended() -> bool:
    """Tell whether somebody can be asked."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def ask(question: str) -> None:
    """Ask whether to go on."""
    try:
        agreed = click.confirm(safe_text(question), err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        agreed = False
    if not agreed:
        raise DeclinedError("nothing was done")
