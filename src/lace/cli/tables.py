"""Tables for people: as many columns as the terminal has room for, else row below row.

A column may say that it goes where room is short, or that its texts are cut in the middle
then: so a row stays a line. Where even that is too wide, nothing is left out: the values
of a row stand one below the other, each beside its heading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table as RichTable

__all__ = ["Column", "cut_middle", "fit_table"]

_GAP: Final = 3
_LEAST_COLUMN: Final = 10
"""How narrow a column may get whose text is folded."""
_LEAST_CUT: Final = 16
"""How narrow a column may get whose text is cut."""
_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Column:
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


def fit_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, heading: bool
) -> tuple[RichTable, list[str]]:
    """Return a table that fits a width, and the headings of what it leaves out or cuts."""
    kept, less = _room_for(columns, rows, width)
    if kept is not None:
        shown = [columns[at] for at in kept]
        cells = [[row[at] for at in kept] for row in rows]
        room = _rooms(shown, cells, width)
        cut = [[cut_middle(cell, room[at]) for at, cell in enumerate(row)] for row in cells]
        return _side_by_side(shown, cut, heading=heading), less
    if heading and rows and _least_width(columns, rows) > width:
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


def _room_for(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int] | None, list[str]]:
    """Return the positions of the columns that are shown, each row on one line, if that goes.

    With them the headings of those that are not shown whole.
    """
    if not rows or not any(column.goes or column.is_cut for column in columns):
        return None, []
    widths = [_widest(column, rows, at) for at, column in enumerate(columns)]
    kept, less = list(range(len(columns))), []
    leaving = sorted((at for at in kept if columns[at].goes), key=lambda at: -columns[at].goes)
    while _total(widths[at] for at in kept) > width and leaving:
        at = leaving.pop(0)
        kept.remove(at)
        less.append(columns[at].heading)
    if _total(widths[at] for at in kept) <= width:
        return kept, less
    narrow = [min(widths[at], _LEAST_CUT) if columns[at].is_cut else widths[at] for at in kept]
    if _total(narrow) > width:
        return None, []
    return kept, [*less, *(columns[at].heading for at in kept if columns[at].is_cut)]


def _rooms(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return how wide columns may be: those that are cut share what the others leave."""
    rooms = [_widest(column, rows, at) for at, column in enumerate(columns)]
    cut = sorted((at for at, column in enumerate(columns) if column.is_cut), key=rooms.__getitem__)
    left = width - _total(0 if at in cut else wide for at, wide in enumerate(rooms))
    for number, at in enumerate(cut):  # who needs less than its part leaves more to the others
        rooms[at] = min(rooms[at], left // (len(cut) - number))
        left -= rooms[at]
    return rooms


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + _GAP * (len(found) - 1)


def _widest(column: Column, rows: Sequence[Sequence[str]], at: int) -> int:
    from rich.cells import cell_len

    return max(cell_len(column.heading), *(cell_len(row[at]) for row in rows))


def _side_by_side(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, heading: bool
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


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return how wide a terminal has to be for rows side by side: below, columns would vanish."""
    widths = [_widest(column, rows, at) for at, column in enumerate(columns)]
    return _total(
        wide if column.no_wrap else min(wide, _LEAST_COLUMN)
        for column, wide in zip(columns, widths, strict=True)
    )


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> RichTable:
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
