"""Connections to the store's database: settings, errors, versions and counters.

The SQLite is the one that the `apsw` wheel carries, so that its version is known.
Commits reach the disk before they are acknowledged (`synchronous=FULL`).
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from operator import xor
from typing import TYPE_CHECKING, Final

import apsw

from lace.base.digest import DIGEST_BYTES
from lace.errors import StoreError
from lace.store.interface import (
    NoStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    StoreVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


APPLICATION_ID: Final = 0x4C616365
"""`Lace` in the database header: a database without it is somebody else's."""

_PAGE_BYTES: Final = 16_384
"""Keys are random, so an import touches pages all over its indexes: better few, large ones."""
_CHECKPOINT_PAGES: Final = 4096
_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts at what SQLite refuses at once while another process does it."""


def connect(
    path: Path, *, read_only: bool, cache_bytes: int, wait_seconds: float, create: bool = False
) -> apsw.Connection:
    """Open the database of a store."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if create:
        flags |= apsw.SQLITE_OPEN_CREATE
    with translated(path):
        connection = _open(path, flags, read_only=read_only, wait_seconds=wait_seconds)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            if not read_only:
                _prepare_for_writing(connection, path)
            # Last: SQLite counts pages, and takes the size that a page has now.
            connection.execute(f"PRAGMA cache_size = {-(cache_bytes // 1024)}")
        except BaseException:
            connection.close()
            raise
        return connection


def _open(path: Path, flags: int, *, read_only: bool, wait_seconds: float) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags)
    # Before the first read: a process that opens or closes the database locks it for a moment.
    connection.set_busy_timeout(int(wait_seconds * 1000))
    try:
        connection.pragma("application_id")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if not read_only or path.with_name(path.name + "-wal").exists():
            raise
        # A folder on a read-only disk cannot hold the shared-memory file of WAL mode;
        # with no log to read, the database itself is the whole state.
        uri = path.resolve().as_uri() + "?immutable=1"
        return apsw.Connection(uri, flags=flags | apsw.SQLITE_OPEN_URI)
    return connection


def _prepare_for_writing(connection: apsw.Connection, path: Path) -> None:
    used = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if used and connection.pragma("application_id") != APPLICATION_ID:
        raise not_a_lace(path)  # before anything is changed in another program's database
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # for a database that is new
    if _enter_wal(connection) != "wal":
        raise StoreUnavailableError(
            f"{path} cannot be put into WAL mode ({_free_bytes(path)})",
            hint="a lace needs a local disk that can lock files and share memory",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")


def _enter_wal(connection: apsw.Connection) -> object:
    """Switch to WAL mode; while another process does so, SQLite does not wait by itself."""
    for pause in _PAUSES:
        with suppress(apsw.BusyError):
            return connection.execute("PRAGMA journal_mode = WAL").get
        time.sleep(pause)
    return connection.execute("PRAGMA journal_mode = WAL").get


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into Lace's inside the `with` block."""
    try:
        yield
    except apsw.Error as error:
        raise _translate(error, path) from error
    except UnicodeDecodeError as error:
        raise StoreDamagedError(f"{path} is damaged: it holds text that is not UTF-8") from error


def _translate(error: apsw.Error, path: Path) -> StoreError:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusyError(
                f"{path} is locked by another program", hint="close that program and try again"
            )
        case apsw.FullError():
            free = _free_bytes(path)
            return StoreUnavailableError(
                f"no space is left for {path} ({free})",
                hint="nothing was lost; free space on that disk and run the command again",
            )
        case apsw.CorruptError():
            return StoreDamagedError(
                f"{path} is damaged: {error}", hint="run `lace verify`, then restore from a copy"
            )
        case apsw.ConstraintError():
            return StoreDamagedError(
                f"{path} contradicts itself: {error}", hint="run `lace verify` for the damage"
            )
        case apsw.NotADBError():
            return StoreDamagedError(
                f"{path} is not a lace database, or its header is damaged",
                hint="put the folder aside, make a new lace, and import a copy of the records",
            )
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            return StoreUnavailableError(
                f"{path} cannot be opened for this: {error}",
                hint="check that the folder exists and its permissions",
            )
        case apsw.IOError():
            return StoreUnavailableError(
                f"reading or writing {path} failed: {error} ({_free_bytes(path)})",
                hint="nothing acknowledged was lost; check the disk and run the command again",
            )
        case apsw.NoMemError():
            return StoreUnavailableError(f"not enough memory for {path}")
        case _:
            return StoreError(f"{path}: {error}")


def _free_bytes(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free:,} bytes free"
    except OSError:
        return "its disk does not answer"


def not_a_lace(path: Path) -> NoStoreError:
    """Return the error for a folder or database that is not a lace."""
    return NoStoreError(f"{path} is not a lace", hint="name another folder with --lace DIR")


# -- The counters of the store: what it holds, and a mark that tells sets of records apart.
#
# `key_xor` is the XOR of the first 64 digest bits of every stored record. Together with the
# number of records it tells whether facts that are kept beside the database are those of the
# records in it, without a look at any of them.


@dataclass(frozen=True, slots=True)
class StoreCounters:
    """The counters of one state; a store of version 1 has only the first three."""

    records: int
    record_bytes: int
    high_water: int
    removal_sequence: int | None = None
    key_xor: int | None = None


def read_counters(rows: Iterable[Sequence[object]], place: object) -> StoreCounters:
    """Return the counters of the rows of their table."""
    values = {str(name): int(str(value)) for name, value in rows}
    try:
        return StoreCounters(
            values["records"],
            values["record_bytes"],
            values["high_water"],
            values.get("removal_sequence"),
            values.get("key_xor"),
        )
    except KeyError as error:
        raise StoreDamagedError(
            f"{place} has lost its counter {error}", hint="run `lace verify`"
        ) from None


def key_number(key: bytes) -> int:
    """Return the number of a record's key: the first 64 bits of its digest, signed."""
    return int.from_bytes(key[1:9], "big", signed=True)


def xor_of_keys(keys: Iterable[bytes]) -> int:
    """Return the XOR of the numbers of keys."""
    return reduce(xor, map(key_number, keys), 0)


def xor_of_digests(digests: Sequence[bytes]) -> int:
    """Return the same from digests of 32 bytes each."""
    words = memoryview(b"".join(digests)).cast("Q")  # as this machine reads them: XOR is bitwise
    found = reduce(xor, words[:: DIGEST_BYTES // words.itemsize].tolist(), 0)
    return int.from_bytes(found.to_bytes(words.itemsize, sys.byteorder), "big", signed=True)


# -- Versions of the store: making one, bringing an old one up to date, refusing a newer one.

Migration = str
"""The SQL that brings a store from one version to the next."""


def _read(name: str) -> Migration:
    return files("lace.store.sqlite").joinpath(name).read_text("utf-8")


MIGRATIONS: Final[tuple[Migration, ...]] = tuple(
    map(_read, ("schema.sql", "schema-2.sql", "schema-3.sql"))
)
"""Entry N leads from version N to N+1; a store of the newest version has them all."""

PLACES_SINCE: Final = 3
"""The version from which on tables say where records lie."""
_PLACES: Final = """
CREATE TEMP VIEW coordinate AS
SELECT group_path, app, name, tai, store_record_id FROM record WHERE group_path IS NOT NULL;
CREATE TEMP VIEW moment AS SELECT tai, store_record_id FROM record WHERE tai IS NOT NULL
"""
"""What the tables of version 3 hold, out of an older store and by its indexes."""


class _KeyXor:
    """The SQL aggregate of version 2: the XOR of keys."""

    def __init__(self) -> None:
        self._value = 0

    def step(self, *keys: apsw.SQLiteValue) -> None:
        """Take the next key."""
        for key in keys:
            self._value ^= key_number(key) if isinstance(key, bytes) else 0

    def final(self) -> int:
        """Return the XOR of all."""
        return self._value


def is_new(connection: apsw.Connection) -> bool:
    """Tell whether the database holds nothing yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    return bool(connection.pragma("user_version") == 0 and tables == 0)


def check_version(
    connection: apsw.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS
) -> int:
    """Return the version of a store that this program can read."""
    version = int(connection.pragma("user_version"))
    if connection.pragma("application_id") != APPLICATION_ID or version < 1:
        raise not_a_lace(path)
    if version > len(migrations):
        raise StoreVersionError(
            f"{path} has store version {version}; this Lace knows versions up to {len(migrations)}",
            hint="use the newer Lace that wrote it",
        )
    return version


def show_as_newest(connection: apsw.Connection) -> None:
    """Have a connection that only reads find in an older store what is in the newest ones."""
    if connection.pragma("user_version") < PLACES_SINCE:
        connection.execute(_PLACES)


def migrate(
    connection: apsw.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[int, int]:
    """Bring a new or older store to the newest version; returns the versions before and after.

    Each step is a transaction of its own: a crash leaves a version, never a mixture.
    """
    before = 0 if is_new(connection) else check_version(connection, path, migrations)
    connection.create_aggregate_function("key_xor", _KeyXor, 1)
    for version in range(before, len(migrations)):
        with connection:
            connection.execute(migrations[version])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", version + 1)
    return before, len(migrations)
