"""Connections to the store's database, their settings, and what SQLite's errors mean.

The SQLite is the one that the `apsw` wheel carries, so that its version is known.
Commits reach the disk before they are acknowledged (`synchronous=FULL`).
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import apsw

from lace.errors import StoreError
from lace.store.interface import (
    NoStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["APPLICATION_ID", "connect", "not_a_lace", "translated"]

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
    """Open the database of a store.

    Raises:
        StoreError: what stands in the way, in words.
    """
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
