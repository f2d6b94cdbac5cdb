"""Tables and lines of records, as `list` and `remote list` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.cli.output import Column, plural, size_text
from lace.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.cli.output import Output

__all__ = ["HEADER", "TERMINAL_ROWS", "Value", "show_lines", "show_table"]

TERMINAL_ROWS: Final = 1000
"""Rows that a terminal shows unless more are asked for."""
HEADER: Final = "header:"
"""Stands before the name of a header that is called like a column."""
_SHORT_ID: Final = 10
_NUMBERS: Final = frozenset({"stored", "size", "data-length", "Data-Length"})

_GOES: Final = {"signed-by": 2, "size": 1, "data-length": 1}
"""Columns that are left out where room is short, the highest first."""

Value = str | int | list[str] | None


def _short(text: object) -> str:
    return f"{str(text)[:_SHORT_ID]}…" if text else ""


def _cell(name: str, value: Value) -> str:
    """Return a value for a person."""
    match name, value:
        case _, None:
            return ""
        case (("id" | "signed-by"), _):
            return _short(value)
        case "tai", str():
            return time_text(value)
        case "size", int():
            return size_text(value)
        case _, list():
            return ", ".join(value)
    return str(value)


def _column(name: str, is_chosen: bool) -> Column:
    """Return a column; one that nobody has asked for by its name may go where room is short."""
    return Column(
        "time, UTC" if name == "tai" else name.removeprefix(HEADER),
        "right" if name in _NUMBERS else "left",
        {"id": "cyan", "coordinate": "bold"}.get(name, ""),
        no_wrap=name in ("id", "signed-by", "size"),
        goes=0 if is_chosen else _GOES.get(name, 0),
        is_cut=name == "coordinate" and not is_chosen,
    )


def _piped(value: Value) -> object:
    return ", ".join(value) if isinstance(value, list) else value


def show_table(
    output: Output,
    names: Sequence[str],
    rows: Sequence[Sequence[Value]],
    *,
    is_cut: bool,
    total: int | None,
    is_chosen: bool = False,
) -> None:
    """Write a table of records for a person, the first of them where there are many.

    Args:
        output: where it is written.
        names: the columns.
        rows: their values.
        is_cut: show no more rows than a terminal shows.
        total: how many rows there would be, if that is known.
        is_chosen: the columns were asked for by name, so that none is left out.
    """
    shown = rows[:TERMINAL_ROWS] if is_cut else rows
    cells = ([*map(_cell, names, values)] for values in shown)
    less = output.table([_column(name, is_chosen) for name in names], cells)
    if less:
        output.note(f"not shown whole: {', '.join(less)}; a pipe and --json have all")
    if len(shown) < len(rows):
        of = f" of {total:,}" if total else ""
        output.note(f"these are the first {len(shown):,}{of}; --limit N shows more")
    elif rows:
        output.note(plural(len(rows), "record"))


def show_lines(output: Output, keys: Sequence[str], rows: Iterable[list[Value]]) -> int:
    """Write a line for each record, as JSON if that is wanted; returns how many there were."""
    listed = 0
    for values in rows:
        listed += 1
        if output.json:
            output.json_line(dict(zip(keys, values, strict=True)))
        else:
            output.row(map(_piped, values))
    return listed
