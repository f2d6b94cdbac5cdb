"""A consistent view of the SQLite store: one read transaction.

Bytes are checked against their digest whenever they are read, so that damage on the
disk is an error and never a wrong answer.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import RecordError
from lace.facts.source import RecordFacts, Values
from lace.record.ids import IdError, RecordId, record_id
from lace.record.model import MARKLINE_BYTES
from lace.record.validate import ValidRecord, trust_stored
from lace.store.interface import Order, StoreDamagedError, StoredRecord, Totals
from lace.store.sqlite.connection import StoreCounters, read_counters, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import apsw

    from lace.record.paths import Address
    from lace.store.sqlite.insert import RecentRecords


_COLUMNS: Final = (
    "record.store_record_id, record.id, length(record.bytes), "
    "record.group_path, record.app, record.name, record.tai, record.signed_by"
)
_OF_RECORD: Final = f"SELECT {_COLUMNS}, TRUE FROM record"
# Entries come with whether their record says the same. The first table is gone through in its
# order: without CROSS, SQLite may choose.
_OF_COORDINATE: Final = (
    f"SELECT {_COLUMNS}, (record.group_path, record.app, record.name, record.tai) IS "
    "(coordinate.group_path, coordinate.app, coordinate.name, coordinate.tai) "
    "FROM {entries} CROSS JOIN record USING (store_record_id)"
)
_BY_COORDINATE: Final = _OF_COORDINATE.format(entries="coordinate")
_BY_TAI: Final = (
    f"SELECT {_COLUMNS}, record.tai IS moment.tai "
    "FROM moment CROSS JOIN record USING (store_record_id)"
)
_EVERY: Final = ("/", "//")
"""What the text of every coordinate starts with."""
_COORDINATE: Final = ("group_path", "app", "name")
_ORDER: Final = {
    Order.COORDINATE: (*_COORDINATE, "tai", "id"),
    Order.TAI: ("tai", "id"),
    Order.STORED: ("store_record_id",),
    Order.ID: ("id",),
}
_AT_ONCE: Final = 500
"""Records that one query reads by their hashes."""
_LAST_CHARACTER: Final = "\U0010ffff"
_PAST_ALL_TEXT: Final = b""  # SQLite sorts every BLOB behind every TEXT

_Row = tuple[int, bytes, int, str | None, str | None, str | None, str | None, str | None]


def key_of_id(identifier: str) -> bytes | None:
    """Return the database key of an identifier; None if no stored record can have it."""
    try:
        found = RecordId(identifier)
    except IdError:
        return None
    return found[0].encode("ascii") + b64a.decode(found[2:45])


def id_from_key(key: bytes) -> RecordId:
    """Return the identifier of a database key."""
    return record_id(key[:1].decode("latin-1"), key[1:])


class SqliteSnapshot:
    """One state of the store, as a read transaction of its own connection."""

    def __init__(self, connection: apsw.Connection, path: Path, recent: RecentRecords) -> None:
        self._connection = connection
        self._path = path
        self._recent = recent
        self._facts = RecordFacts(self.records, self.load)

    def totals(self) -> Totals:
        """Return the counts of this state."""
        counters = self.counters()
        return Totals(counters.records, counters.record_bytes, counters.high_water)

    def counters(self) -> StoreCounters:
        """Return all counters of this state."""
        return read_counters(self.select("SELECT name, value FROM counter", ()), self._path)

    def removals(self, after: int) -> list[tuple[int, RecordId]]:
        """Return the removals with a sequence above `after`: it, and which record."""
        sql = "SELECT sequence, id FROM removal WHERE sequence > ? ORDER BY sequence"
        return [(number, _stored_id(number, key)) for number, key in self.select(sql, (after,))]

    def keys(self, after: int) -> list[bytes]:
        """Return the keys of the records with a StoreRecordId above `after`."""
        sql = "SELECT id FROM record WHERE store_record_id > ? ORDER BY store_record_id"
        return [key for (key,) in self.select(sql, (after,))]

    def has(self, identifier: str) -> bool:
        """Tell whether the record is stored here in its own right."""
        return any(self.select("SELECT 1 FROM record WHERE id = ?", (key_of_id(identifier),)))

    def describe(self, identifier: str) -> StoredRecord | None:
        """Return what is known of a record."""
        sql = f"{_OF_RECORD} WHERE id = ?"
        for row in self.select(sql, (key_of_id(identifier),)):
            return _describe(row)
        return None

    def read(self, identifier: str) -> bytes | None:
        """Return a record's bytes, checked against its digest."""
        record = self.load(identifier)
        return record.bytes if record else None

    def load(self, identifier: str) -> ValidRecord | None:
        """Return a record with its parts."""
        for number, key, raw in self.select(
            "SELECT store_record_id, id, bytes FROM record WHERE id = ?", (key_of_id(identifier),)
        ):
            return _load(number, key, raw)
        return None

    def bytes_of(self, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes.

        They come by hundreds, each of these in the order of the hashes; only the outermost
        hash of each record is checked.
        """
        from lace.record.hash_rows import HASH_BYTES, keys_of_hashes

        for start in range(0, len(identifiers), _AT_ONCE):
            chunk = identifiers[start : start + _AT_ONCE]
            rows, is_hash = keys_of_hashes(chunk)
            raw_keys = rows.tobytes()
            keys = [raw_keys[at : at + HASH_BYTES] for at in range(0, len(raw_keys), HASH_BYTES)]
            names = dict(zip(keys, compress(chunk, is_hash.tolist()), strict=True))
            marks = ",".join("?" * len(names))
            sql = f"SELECT store_record_id, id, bytes FROM record WHERE id IN ({marks}) ORDER BY id"
            for number, key, raw in self.select(sql, tuple(names)):
                if digest(memoryview(raw)[MARKLINE_BYTES:]) != key[1:]:
                    _load(number, key, raw)  # says what is wrong
                yield names[key], raw

    def records(self, *, order: Order = Order.STORED, after: int = 0) -> Iterator[ValidRecord]:
        """Yield every record with a StoreRecordId above `after`."""
        for number, key, raw in self.raw_records(order=order, after=after):
            yield _load(number, key, raw)

    def new_records(self, after: int) -> list[ValidRecord]:
        """Return the records above `after`, rising, without reading what is remembered."""
        found = self._recent.find_all(self.keys(after))
        if found is None:
            found = list(self.records(after=after))
            self._recent.remember(found)
        return found

    def numbered_records(self, after: int = 0) -> Iterator[tuple[int, ValidRecord]]:
        """Yield StoreRecordId and record of every record above `after`, rising."""
        for number, key, raw in self.raw_records(after=after):
            yield number, _load(number, key, raw)

    def raw_records(
        self, *, order: Order = Order.STORED, after: int = 0
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield StoreRecordId, key and unchecked bytes; `verify` looks at what is there."""
        first, *others = _ORDER[order]
        by = ", ".join([f"{first} NULLS LAST", *others])  # Blobs have no coordinate and no TAI
        sql = (
            f"SELECT store_record_id, id, bytes FROM record WHERE store_record_id > ? ORDER BY {by}"
        )
        yield from self.select(sql, (after,))

    def find(self, address: Address, *, limit: int | None = None) -> list[StoredRecord]:
        """Return the records that an address names, the tip first."""
        if address.coordinate is None:
            found = self.describe(address.hash) if address.hash else None
            return [found][:limit] if found else []
        place = address.coordinate
        wanted: dict[str, str | bytes | None] = {
            "coordinate.group_path": place.group,
            "coordinate.app": place.app,
            "coordinate.name": place.name,
            "coordinate.tai": address.tai,
            "signed_by": address.signed_by,
            "id": key_of_id(address.hash) if address.hash else None,
            "substr(id, 1, 1)": address.type.encode("ascii") if address.type else None,
        }
        terms = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        sql = (
            f"{_BY_COORDINATE} WHERE {' AND '.join(terms)} "
            "ORDER BY coordinate.tai DESC, id DESC LIMIT ?"
        )
        values = tuple(value for value in wanted.values() if value is not None)
        return [_describe(row) for row in self.select(sql, (*values, _sql_limit(limit)))]

    def listing(
        self,
        prefix: str = "",
        *,
        order: Order = Order.COORDINATE,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield the records whose coordinate text starts with prefix, Blobs last."""
        direction = "DESC" if reverse else "ASC"
        left = _sql_limit(limit)
        queries = [_listing_query(prefix, order, direction, left)]
        if not prefix and order in (Order.COORDINATE, Order.TAI):
            queries.append((f"{_OF_RECORD} WHERE group_path IS NULL", [], ["id"]))
        for chosen, values, columns in queries:
            by = ", ".join(f"{column} {direction}" for column in columns)
            for row in self.select(f"{chosen} ORDER BY {by} LIMIT ?", (*values, left)):
                yield _describe(row)
                left -= 1 if limit is not None else 0

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of a record predicate."""
        return self._facts.iterate(predicate)

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the tuples whose first values are the given ones."""
        return self._facts.query(predicate, *leading)

    def count(self, predicate: str) -> int:
        """Return how many tuples the predicate has."""
        return self.totals().records if predicate == "Have" else self._facts.count(predicate)

    def select(self, sql: str, values: tuple[apsw.SQLiteValue, ...]) -> Iterator[Any]:
        """Yield the rows of a query in this state; what they hold, SQLite alone knows."""
        try:
            with translated(self._path):
                yield from self._connection.execute(sql, values)
        except UnicodeEncodeError:
            return  # a lone surrogate in a value: no stored text holds one


def _sql_limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _listing_query(
    prefix: str, order: Order, direction: str, limit: int
) -> tuple[str, list[str | bytes | int], list[str]]:
    """Return what a listing chooses from, with its values; and the columns it is ordered by.

    Where that is by coordinate or TAI, there are no Blobs among it.
    """
    first = "coordinate" if order is Order.COORDINATE else "record"
    columns = [column if column == "id" else f"{first}.{column}" for column in _ORDER[order]]
    if not prefix or prefix in _EVERY:
        if order is Order.COORDINATE:
            return _BY_COORDINATE, [], columns
        if order is Order.TAI:
            return _BY_TAI, [], ["moment.tai", "id"]
        return f"{_OF_RECORD} WHERE {'group_path IS NOT NULL' if prefix else 'TRUE'}", [], columns
    where, values = _prefix_condition(prefix)
    if order is Order.STORED:  # which ones these are, the table of coordinates alone tells
        chosen = f"SELECT * FROM coordinate WHERE {where} ORDER BY store_record_id {direction}"
        entries = f"({chosen} LIMIT ?) AS coordinate"
        return _OF_COORDINATE.format(entries=entries), [*values, limit], columns
    return f"{_BY_COORDINATE} WHERE {where}", [*values], columns


def _prefix_condition(prefix: str) -> tuple[str, tuple[str | bytes, ...]]:
    """Return SQL that narrows a range and then compares the coordinate's whole text."""
    columns = [f"coordinate.{column}" for column in _COORDINATE]
    whole = " || '//' || ".join(columns)
    exact = f"substr('//' || {whole}, 1, length(?)) = ?"
    if not prefix.startswith("//"):
        return exact, (prefix, prefix)
    parts = prefix[2:].split("//")[: len(columns)]
    terms = [f"{column} = ?" for column in columns[: len(parts) - 1]]
    # A single slash at the end may be the first half of the separator that follows.
    last = parts[-1].removesuffix("/")
    terms += [f"{columns[len(parts) - 1]} >= ? AND {columns[len(parts) - 1]} < ?", exact]
    bounds = (*parts[:-1], last, _above(last))
    return " AND ".join(terms), (*bounds, prefix, prefix)


def _above(prefix: str) -> str | bytes:
    """Return the least value above every text that starts with prefix."""
    head = prefix.rstrip(_LAST_CHARACTER)
    if not head:
        return _PAST_ALL_TEXT
    following = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)  # past the surrogates


def _describe(row: tuple[Any, ...]) -> StoredRecord:
    number, key, size, group, app, name, tai, signed_by, is_same = row
    if not is_same:
        raise StoreDamagedError(
            f"the coordinate or time of StoreRecordId {number} is not that of its entry",
            hint="run `lace verify` for all of the damage",
        )
    return StoredRecord(
        store_record_id=number,
        id=_stored_id(number, key),
        size=size,
        group=group,
        app=app,
        name=name,
        tai=tai,
        signed_by=signed_by,
    )


def _stored_id(number: int, key: bytes) -> RecordId:
    try:
        return id_from_key(key)
    except RecordError as error:
        raise StoreDamagedError(
            f"the key of StoreRecordId {number} is damaged: {error}",
            hint="run `lace verify` for all of the damage",
        ) from error


def _load(number: int, key: bytes, raw: bytes) -> ValidRecord:
    identifier = _stored_id(number, key)
    try:
        return trust_stored(raw, identifier)
    except RecordError as error:
        raise StoreDamagedError(
            f"record {identifier} (StoreRecordId {number}) is damaged: {error}",
            hint="run `lace verify` for all of the damage",
        ) from error
