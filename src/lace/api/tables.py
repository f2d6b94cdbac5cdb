"""Records and coordinates of a lace as tables: read lazily, as Arrow, or in a notebook.

Each time that one is read, it is read from the state of the lace at that moment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lace.base.arguments import check_argument, check_count
from lace.base.arrow import arrow_table
from lace.errors import UsageError
from lace.record.paths import Coordinate
from lace.store.interface import Order
from lace.why.explanation import count_text, table_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow

    from lace.store.interface import StoredRecord
    from lace.store.sqlite.snapshot import SqliteSnapshot
    from lace.store.sqlite.store import SqliteStore

__all__ = ["SHOWN_ROWS", "Table", "Versions", "list_coordinates", "list_records"]

SHOWN_ROWS: Final = 20
"""Rows that a notebook shows."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Versions:
    """A coordinate: how many records it has, and the newest of them."""

    coordinate: Coordinate
    count: int
    tip: StoredRecord


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table: its name, what Arrow calls its type, and what a row has there."""

    name: str
    kind: str
    value: Callable[[Row], object]


class Table(Generic[Row]):
    """Rows of a lace, read when they are asked for; as often as you like.

    Args:
        store: the store.
        read: reads the rows from one state of it.
        columns: what a row shows.
        noun: what the rows are, in the plural.
        limit: at most this many rows.
    """

    def __init__(
        self,
        store: SqliteStore,
        read: Callable[[SqliteSnapshot], Iterator[Row]],
        columns: tuple[Column[Row], ...],
        noun: str,
        limit: int | None = None,
    ) -> None:
        check_count(limit, "a limit")
        self._store, self._read, self._columns = store, read, columns
        self._noun, self._limit = noun, limit

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self._columns)

    def __iter__(self) -> Iterator[Row]:
        with self._store.snapshot() as snapshot:
            yield from islice(self._read(snapshot), self._limit)

    def __len__(self) -> int:
        return sum(1 for _row in self)

    def __repr__(self) -> str:
        return f"<Table: {count_text(len(self), self._noun)}>"

    def to_arrow(self) -> pyarrow.Table:
        """Return all rows as a pyarrow table.

        Raises:
            EngineError: pyarrow is not installed.
        """
        rows = list(self)
        return arrow_table(
            {each.name: (each.kind, [each.value(row) for row in rows]) for each in self._columns}
        )

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook, and how many there are."""
        first: list[tuple[object, ...]] = []
        count = 0
        for row in self:
            count += 1
            if count <= SHOWN_ROWS:
                first.append(tuple(column.value(row) for column in self._columns))
        return table_html(self.columns, first, count, self._noun)


_RECORD_COLUMNS: Final[tuple[Column[StoredRecord], ...]] = (
    Column("id", "string", lambda row: str(row.id)),
    Column("group", "string", lambda row: row.group),
    Column("app", "string", lambda row: row.app),
    Column("name", "string", lambda row: row.name),
    Column("tai", "string", lambda row: row.tai),
    Column("size", "int64", lambda row: row.size),
    Column("signed_by", "string", lambda row: row.signed_by),
    Column("store_record_id", "int64", lambda row: row.store_record_id),
)
_VERSION_COLUMNS: Final[tuple[Column[Versions], ...]] = (
    Column("group", "string", lambda row: row.coordinate.group),
    Column("app", "string", lambda row: row.coordinate.app),
    Column("name", "string", lambda row: row.coordinate.name),
    Column("count", "int64", lambda row: row.count),
    Column("tip", "string", lambda row: str(row.tip.id)),
    Column("tai", "string", lambda row: row.tip.tai),
)


def list_records(
    store: SqliteStore,
    prefix: str = "",
    *,
    sort: str = "coordinate",
    reverse: bool = False,
    limit: int | None = None,
) -> Table[StoredRecord]:
    """Return the records whose coordinate starts with a text.

    Raises:
        UsageError: there is no such order, or an argument is of another type.
    """
    start = _start(prefix)
    try:
        order = Order(sort)
    except ValueError as error:
        names = ", ".join(Order)
        raise UsageError(f"records are not sorted by {sort!r}", hint=f"one of {names}") from error

    def read(snapshot: SqliteSnapshot) -> Iterator[StoredRecord]:
        return snapshot.listing(start, order=order, reverse=reverse, limit=limit)

    return Table(store, read, _RECORD_COLUMNS, "records", limit)


def list_coordinates(
    store: SqliteStore, prefix: str = "", *, limit: int | None = None
) -> Table[Versions]:
    """Return the coordinates that start with a text, each with its newest record."""
    start = _start(prefix) or "/"  # what begins so has a coordinate

    def read(snapshot: SqliteSnapshot) -> Iterator[Versions]:
        for _, rows in groupby(snapshot.listing(start), key=lambda row: row.coordinate):
            # The newest comes last; of many versions one is held.
            ((count, tip),) = deque(enumerate(rows, 1), maxlen=1)
            yield Versions(Coordinate(str(tip.group), str(tip.app), str(tip.name)), count, tip)

    return Table(store, read, _VERSION_COLUMNS, "coordinates", limit)


def _start(prefix: str) -> str:
    check_argument(prefix, str, "prefix is the beginning of a coordinate's text")
    return prefix if not prefix or prefix.startswith("/") else f"//{prefix}"
