"""Lines that fit a terminal: prose, command lines that still work, and pages of help."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TYPE_CHECKING, Final

import click

from lace.base.text import is_wide

if TYPE_CHECKING:
    from collections.abc import Iterable


_NARROW: Final = 60
"""Pages narrower than this have what a word means below the word, not beside it."""
_LEAST: Final = 20
"""No terminal is taken to be narrower."""
_LEAST_TEXT: Final = 12
"""Columns that a text gets beside the bars of a tree, however deep it stands."""
_GOES_ON: Final = " \\"
_PIECE: Final = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+""")
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
"""Stands behind a character that takes two columns, for the second one."""


def wrap_prose(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return the lines of a text; a word that is wider than a line is broken."""
    return _wrapped(text, max(width, _LEAST), first, first if rest is None else rest, breaks=True)


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
    line = line.ljust(at + 1)  # what lacks at the end is told of behind it
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
    room = max(width, _LEAST)
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
    for word in _PIECE.findall(line):
        joined = f"{units[-1]} {word}" if units else word
        is_option = bool(units) and units[-1].startswith("-") and units[-1] != "--"
        if is_option and " " not in units[-1] and word[0] not in "-|&" and len(joined) <= room:
            units[-1] = joined
        else:
            units.append(word)
    return units


class HelpPage(click.HelpFormatter):
    """A page of help that fits the terminal, also a narrow one."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        if width is None:
            width = max(min(shutil.get_terminal_size().columns, max_width or 80), _LEAST)
        super().__init__(indent_increment, width, max_width)

    @property
    def is_narrow(self) -> bool:
        """Whether there is no room for two columns."""
        return self.width < _NARROW

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        for line in wrap_prose(f"{heading}:", self.width, " " * self.current_indent):
            self.write(f"{line}\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write words and what they mean, beside or below them."""
        if not self.is_narrow:
            super().write_dl(rows, col_max, col_spacing)
            return
        near, far = (" " * (self.current_indent + each) for each in (0, 4))
        for word, meaning in rows:
            spread = wrap_prose(word.replace("|", "| "), self.width, near, far)
            lines = [line.replace("| ", "|") for line in spread]
            lines += wrap_prose(meaning, self.width, far)
            self.write("".join(f"{line}\n" for line in lines))

    def write_example(self, line: str, meaning: str) -> None:
        """Write a command line, below what it is for."""
        near, far = (" " * (self.current_indent + each) for each in (0, 4))
        lines = [
            *wrap_prose(meaning, self.width, f"{near}# "),
            *wrap_command(line, self.width, near, far),
        ]
        self.write("".join(f"{each}\n" for each in lines))


class HelpContext(click.Context):
    """The context of a command of Lace, whose help fits the terminal."""

    formatter_class = HelpPage
