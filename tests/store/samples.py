"""Records for the tests of stores: made, validated, put into streams, and read back."""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import TYPE_CHECKING

import apsw

from lace.record.model import Blob, Plex, Record, Seal
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.store.sqlite.store import DATABASE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lace.store.interface import RecordStore

__all__ = [
    "blob",
    "contents",
    "files_of",
    "flip",
    "forged",
    "key",
    "make_older",
    "mixed",
    "numbers",
    "plex",
    "seal",
    "tai",
    "valid",
]


@cache
def key(number: int = 1) -> SigningKey:
    """A signing key that is the same in every run, as are its signatures."""
    return SigningKey(bytes([number]) * 32, lambda count: bytes([number]) * count)


def tai(seconds: int) -> str:
    return f"{seconds:010d}:000000000"


def blob(text: str = "data") -> Blob:
    return Blob(text.encode())


def plex(
    name: str = "n",
    *,
    group: str = "u",
    app: str = "a",
    at: int = 1,
    data: str = "data",
    headers: Iterable[tuple[str, str]] = (),
) -> Plex:
    return Plex(
        group=group, app=app, name=name, tai=tai(at), data=data.encode(), headers=tuple(headers)
    )


def seal(inner: Plex, signer: int = 1) -> Seal:
    return inner.seal(key(signer))


def valid(*records: Record) -> list[ValidRecord]:
    """The records as a store admits them."""
    made: list[ValidRecord] = []
    frames = [frame_record(record.bytes) for record in records]
    for outcome in validate_many(frames, os.urandom):
        assert isinstance(outcome, ValidRecord), outcome
        made.append(outcome)
    return made


def mixed(count: int, *, prefix: str = "r", size: int = 40, sealed_every: int = 10) -> list[Record]:
    """Many different records: mostly Plexes, some Blobs, some Seals."""
    made: list[Record] = []
    for number in range(count):
        text = "".join(f"{prefix}{number}.{part} " for part in range(1 + size // 4))[:size]
        if number % 7 == 3:
            made.append(blob(text))
            continue
        inner = plex(f"{prefix}/{number % 50}", at=number + 1, data=text)
        made.append(seal(inner, 1 + number % 3) if number % sealed_every == 0 else inner)
    return made


def flip(raw: bytes, at: int) -> bytes:
    """The bytes with one bit of one of them changed."""
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def forged(record: Seal, signer: int = 9) -> bytes:
    """A Seal whose hashes are right and whose signature is somebody else's."""
    from lace.record.model import seal_payload, write_record

    other = key(signer).sign(record.plex.id.digest)
    return write_record("S", seal_payload(record.signed_by, other, record.plex.bytes))[1]


def contents(store: RecordStore) -> dict[str, bytes]:
    """Every record of a store with its bytes, as digest checks let them through."""
    with store.snapshot() as snapshot:
        return {str(record.id): record.bytes for record in snapshot.records()}


def numbers(store: RecordStore) -> dict[str, int]:
    """The StoreRecordId of every record."""
    with store.snapshot() as snapshot:
        return {str(found.id): found.store_record_id for found in snapshot.listing()}


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


_BACK = {
    2: """
        DROP TRIGGER record_removed;
        DROP TRIGGER counter_raised;
        DELETE FROM counter WHERE name = 'placed';
        DROP TABLE coordinate;
        DROP TABLE moment;
        CREATE INDEX record_by_coordinate ON record (group_path, app, name, tai)
            WHERE group_path IS NOT NULL;
        CREATE INDEX record_by_tai ON record (tai) WHERE tai IS NOT NULL
    """,
    1: """
        DROP TABLE removal;
        DELETE FROM counter WHERE name IN ('key_xor', 'removal_sequence')
    """,
}


def make_older(folder: Path, version: int) -> None:
    """Turn a lace into one of an older version, without segments."""
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    for lower, sql in _BACK.items():
        if lower >= version:
            connection.execute(sql)
    connection.pragma("user_version", version)
    connection.close()
    shutil.rmtree(folder / "segments", ignore_errors=True)
