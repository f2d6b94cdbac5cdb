"""`lace list`: a table of records. A table is only a view; the facts stay authoritative.

A column is one of the store's own (id, coordinate, tai, stored, size, signed-by) or a
field: a header of the record by its exact name. Only fields that the store does not
keep beside the record make the listing read record bytes.
"""

from __future__ import annotations

import heapq
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.failures import nearest
from lace.cli.get import LocalCommand
from lace.cli.output import TableColumn, plural, size_text, time_text
from lace.store.interface import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.record.validate import ValidRecord
    from lace.store.interface import Snapshot, StoredRecord


# -- Tables and lines of records, as `list` and `remote list` show them.

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


def _column(name: str, is_chosen: bool) -> TableColumn:
    """Return a column; one that nobody has asked for by its name may go where room is short."""
    return TableColumn(
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
    """Write a table of records for a person, the first of them where there are many."""
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


_COLUMNS: Final[dict[str, Callable[[StoredRecord], Value]]] = {
    "id": lambda stored: stored.id,
    "coordinate": lambda stored: stored.coordinate or None,
    "tai": lambda stored: stored.tai,
    "stored": lambda stored: stored.store_record_id,
    "size": lambda stored: stored.size,
    "signed-by": lambda stored: stored.signed_by,
}
_KEPT_FIELDS: Final[dict[str, Callable[[StoredRecord], Value]]] = {
    "Type": lambda stored: stored.id.type,
    "Group": lambda stored: stored.group,
    "App": lambda stored: stored.app,
    "Name": lambda stored: stored.name,
    "TAI": lambda stored: stored.tai,
    "Signed-By": lambda stored: stored.signed_by,
}
_READ_FIELDS: Final[dict[str, Callable[[ValidRecord], Value]]] = {
    "Data-Length": lambda record: record.data_length,
    "Signature": lambda record: record.signature,
}
_KNOWN: Final = (*_COLUMNS, *_KEPT_FIELDS, *_READ_FIELDS)
_DEFAULT: Final = ("id", "coordinate", "tai", "size", "signed-by")
_ORDERS: Final = {
    "coordinate": Order.COORDINATE,
    "tai": Order.TAI,
    "TAI": Order.TAI,
    "stored": Order.STORED,
    "id": Order.ID,
}


class _Row:
    """A record in a listing; its bytes are read when a field needs them, and never kept.

    Sorting holds a row of every record: they must stay small.
    """

    __slots__ = ("_snapshot", "stored")

    def __init__(self, snapshot: Snapshot, stored: StoredRecord) -> None:
        self._snapshot = snapshot
        self.stored = stored

    def value(self, name: str) -> Value:
        """Return the value of a column or field; a list for an extra header."""
        return self.values([name])[0]

    def values(self, names: Sequence[str]) -> list[Value]:
        """Return the values of columns and fields; the record is read at most once."""
        is_read = any(self._must_read(name) for name in names)
        record = self._snapshot.load(self.stored.id) if is_read else None
        return [self._value(name, record) for name in names]

    def _must_read(self, name: str) -> bool:
        if name in _COLUMNS or name in _KEPT_FIELDS:
            return False
        return name in _READ_FIELDS or self.stored.group is not None  # a Blob has no headers

    def _value(self, name: str, record: ValidRecord | None) -> Value:
        for known in (_COLUMNS, _KEPT_FIELDS):
            if name in known:
                return known[name](self.stored)
        if record is None:
            return None
        if name in _READ_FIELDS:
            return _READ_FIELDS[name](record)
        wanted = name.removeprefix(HEADER)
        return [value for header, value in record.headers if header == wanted] or None


def _find(
    snapshot: Snapshot, prefix: str, *, sort: str, reverse: bool, limit: int | None
) -> Iterator[_Row]:
    if sort in _ORDERS:
        found = snapshot.listing(prefix, order=_ORDERS[sort], reverse=reverse, limit=limit)
        return (_Row(snapshot, stored) for stored in found)
    rows = (_Row(snapshot, stored) for stored in snapshot.listing(prefix, order=Order.ID))
    return _sort(rows, sort, reverse, limit)


def _sort(rows: Iterable[_Row], name: str, reverse: bool, limit: int | None) -> Iterator[_Row]:
    """Yield rows by a value, then by identifier; those without the value come last."""
    absent: list[_Row] = []

    def present() -> Iterator[tuple[object, str, _Row]]:
        for row in rows:
            value = row.value(name)
            if value is not None:
                yield value, row.stored.id, row
            elif limit is None or len(absent) < limit:
                absent.append(row)

    order = itemgetter(0, 1)
    if limit is None:
        found = sorted(present(), key=order, reverse=reverse)
    else:
        pick = heapq.nlargest if reverse else heapq.nsmallest
        found = pick(limit, present(), key=order)
    return islice(chain((row for _value, _id, row in found), absent), limit)


def _split_names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return _DEFAULT
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise click.UsageError("--fields has an empty name", click.get_current_context())
    return names


def _json_key(name: str, is_default: bool) -> str:
    return name.replace("-", "_") if is_default else name


def _warn_of_typos(session: Session, names: Iterable[str], met: set[str]) -> None:
    for name in dict.fromkeys(names):
        if name in _KNOWN or name in met:
            continue
        near = nearest(name, _KNOWN)
        hint = f"; did you mean {near}?" if near else ""
        session.output.warn(f"no record listed has the field {name}{hint}")


@lace_command(
    "list",
    cls=LocalCommand,
    api="Lace.records",
    piped="One line a record, tab-separated, without a heading: id, coordinate, TAI, size in "
    "bytes and signed-by, or the --fields. Repeated headers are joined by ', '; a missing "
    "value is empty; characters that could trick a terminal are written as \\u{…}.",
    json_keys={
        "id, coordinate, tai, size, signed_by": "one line a record; null where it has none",
        "NAME": "with --fields instead: each by the name given; an extra header is a list",
    },
    examples=[
        ("lace list", "everything, by coordinate"),
        ("lace list //u//notes// --sort tai --reverse --limit 20", "the newest notes"),
        ("lace list --fields id,Name,Data-Length --sort size", "chosen columns, by size"),
    ],
)
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
@click.option(
    "--fields",
    metavar="NAME,…",
    help="Columns: id, coordinate, tai, stored (StoreRecordId), size, signed-by, or fields: "
    "Type, Data-Length, Group, App, Name, TAI, Signed-By, Signature, any header's name "
    "(header:NAME for one that is called like a column).",
)
@click.option(
    "--sort",
    metavar="NAME",
    default="coordinate",
    help="coordinate (default), tai, stored, id, size, signed-by, or any field. "
    "Records without it come last.",
)
@click.option("--reverse", is_flag=True, help="The largest first.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most N rows.")
@click.pass_obj
def command(
    session: Session, prefix: str, fields: str | None, sort: str, reverse: bool, limit: int | None
) -> int:
    """Show a table of records.

    Those whose coordinate starts with PREFIX, or all of them. PREFIX is the beginning of a
    coordinate's text, such as //u//notes//; a leading // may be left out. On a terminal at
    most 1000 rows are shown unless --limit says how many. A narrow terminal leaves out
    signed-by and size, and the middle of long coordinates, unless --fields names the columns.
    """
    names = _split_names(fields)
    if prefix and not prefix.startswith("/"):
        prefix = f"//{prefix}"
    met: set[str] = set()  # the names for which some record had a value

    def rows(snapshot: Snapshot, most: int | None) -> Iterator[list[Value]]:
        for row in _find(snapshot, prefix, sort=sort, reverse=reverse, limit=most):
            values = row.values(names)
            met.update(name for name, v in zip(names, values, strict=True) if v is not None)
            if sort not in _KNOWN and sort not in met and row.value(sort) is not None:
                met.add(sort)
            yield values

    with session.reading("list") as lace, lace.snapshot() as snapshot:
        if session.output.table_wanted:
            # One row more than is shown, to know whether there are more.
            most = TERMINAL_ROWS + 1 if limit is None else limit
            found = list(rows(snapshot, most))
            total = snapshot.totals().records if not prefix else None
            show_table(
                session.output,
                names,
                found,
                is_cut=limit is None,
                total=total,
                is_chosen=fields is not None,
            )
            listed = len(found)
        else:
            keys = [_json_key(name, fields is None) for name in names]
            listed = show_lines(session.output, keys, rows(snapshot, limit))
    if listed:
        _warn_of_typos(session, (*names, sort), met)
    elif session.output.table_wanted:
        session.output.note(f"no records start with {prefix}" if prefix else "no records yet")
    return 0
