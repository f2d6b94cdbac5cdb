"""Versions of the store: making one, bringing an old one up to date, refusing a newer one."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from lace.store.interface import StoreVersionError
from lace.store.sqlite.connection import APPLICATION_ID, not_a_lace
from lace.store.sqlite.counters import key_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import apsw

__all__ = [
    "MIGRATIONS",
    "PLACES_SINCE",
    "Migration",
    "check_version",
    "is_new",
    "migrate",
    "show_as_newest",
]

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
    """Return the version of a store that this program can read.

    Raises:
        StoreVersionError: a newer program wrote it.
        NoStoreError: it is another program's database.
    """
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
