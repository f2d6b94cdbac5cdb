"""The journal of a generation of segments: what the other files hold, one entry an append.

An entry is a fixed number of bytes that end with their own checksum. The last entry that
is whole is the state: bytes that other files have behind its lengths do not count. Nothing
here needs NumPy, so that a command which stores one record stays quick.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base.digest import digest
from lace.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path


FORMAT: Final = b"LaceSeg1"
"""Raise it when the files or the facts in them change: other generations are then rebuilt."""
KEY_BYTES: Final = 32
HEADER: Final = "header"
JOURNAL: Final = "journal"
DIRECTORY: Final = "directory"
SUMS: Final = "sums"
LOCATE: Final = "locate"
REMOVED: Final = "removed"
HEAPS: Final = ("heap.hashes", "heap.cold", "heap.texts")
"""Texts by how they are stored: record hashes in binary, signatures apart, and all others."""
COLUMNS: Final = {
    "Have": ("have.0",),
    "Field": ("field.0", "field.1", "field.2", "field.3"),
    "RecordLink": ("link.0", "link.1", "link.2", "link.3", "link.4"),
    "BlobHash": ("blob.0", "blob.1"),
    "PlexHash": ("plex.0", "plex.1"),
}
"""The file of each column, by predicate and position."""
FILES: Final = (*(name for names in COLUMNS.values() for name in names), LOCATE, *HEAPS, REMOVED)
"""Files whose lengths the journal keeps, in its order; the number of a file in `sums`."""
MOST_RUNS: Final = 48
"""Runs of the index: each has more than twice the entries of the next, so this is never reached."""

_HEAD: Final = struct.Struct("<8sQqqqqqQ")
_LENGTHS: Final = struct.Struct(f"<{len(FILES)}Q")
_TABLES: Final = struct.Struct("<QQQQQ")
_RUN: Final = struct.Struct("<QQQ")
_CHECK: Final = struct.Struct("<Q")
_BODY_BYTES: Final = _HEAD.size + _LENGTHS.size + _TABLES.size + MOST_RUNS * _RUN.size
ENTRY_BYTES: Final = _BODY_BYTES + _CHECK.size


class SegmentDamagedError(EngineError):
    """Segments that do not hold what was written; they are rebuilt, never trusted."""


def checksum(data: bytes | memoryview) -> int:
    """Return the checksum of bytes: the first 64 bits of their BLAKE3 digest."""
    return int.from_bytes(digest(data)[:8], "little")


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A sorted run of the index: its number, its size, and the checksum of its table."""

    number: int
    count: int
    check: int


@dataclass(frozen=True, slots=True)
class Covered:
    """Which records segments cover: the counters of the store that had just these."""

    high_water: int
    removal_sequence: int
    records: int
    record_bytes: int
    key_xor: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The state after an append.

    `records`, `record_bytes` and `key_xor` count the covered records that are stored: those up to
    StoreRecordId `high_water`, without the removals up to `removal_sequence`.
    """

    sequence: int
    high_water: int
    removal_sequence: int
    records: int
    record_bytes: int
    key_xor: int
    texts: int
    lengths: tuple[int, ...]
    sums_bytes: int
    sums_check: int
    directory_bytes: int
    directory_check: int
    runs: tuple[RunEntry, ...]

    def length(self, name: str) -> int:
        """Return the committed length of a file."""
        return self.lengths[FILES.index(name)]


def run_name(number: int) -> str:
    """Return the file name of a run."""
    return f"run-{number}"


def format_header(key: bytes) -> bytes:
    """Return the bytes of a generation's header: its format and the key of its text hashes."""
    body = FORMAT + key
    return body + _CHECK.pack(checksum(body))


def read_header(folder: Path) -> bytes:
    """Return the key of a generation."""
    raw = (folder / HEADER).read_bytes()
    body = raw[: len(FORMAT) + KEY_BYTES]
    if raw != body + _CHECK.pack(checksum(body)) or body[: len(FORMAT)] != FORMAT:
        raise SegmentDamagedError(f"{folder / HEADER} is not the header of these segments")
    return body[len(FORMAT) :]


def format_entry(entry: JournalEntry) -> bytes:
    """Return the bytes of an entry."""
    body = b"".join(
        (
            _HEAD.pack(
                FORMAT,
                entry.sequence,
                entry.high_water,
                entry.removal_sequence,
                entry.records,
                entry.record_bytes,
                entry.key_xor,
                entry.texts,
            ),
            _LENGTHS.pack(*entry.lengths),
            _TABLES.pack(
                entry.sums_bytes,
                entry.sums_check,
                entry.directory_bytes,
                entry.directory_check,
                len(entry.runs),
            ),
            *(_RUN.pack(run.number, run.count, run.check) for run in entry.runs),
        )
    ).ljust(_BODY_BYTES, b"\0")
    return body + _CHECK.pack(checksum(body))


def parse_entry(raw: bytes) -> JournalEntry | None:
    """Return the entry of such bytes; None when they are not whole."""
    body = raw[:_BODY_BYTES]
    if len(raw) != ENTRY_BYTES or raw[_BODY_BYTES:] != _CHECK.pack(checksum(body)):
        return None
    magic, sequence, high_water, removals, records, size, key_xor, texts = _HEAD.unpack_from(body)
    sums, sums_check, directory, directory_check, run_count = _TABLES.unpack_from(
        body, _HEAD.size + _LENGTHS.size
    )
    if magic != FORMAT or run_count > MOST_RUNS:
        return None
    at = _HEAD.size + _LENGTHS.size + _TABLES.size
    runs = tuple(RunEntry(*_RUN.unpack_from(body, at + n * _RUN.size)) for n in range(run_count))
    return JournalEntry(
        sequence,
        high_water,
        removals,
        records,
        size,
        key_xor,
        texts,
        _LENGTHS.unpack_from(body, _HEAD.size),
        sums,
        sums_check,
        directory,
        directory_check,
        runs,
    )


def read_last_entry(folder: Path) -> tuple[JournalEntry, int]:
    """Return the last whole entry of a journal, and where it ends."""
    with (folder / JOURNAL).open("rb") as file:
        count = os.fstat(file.fileno()).st_size // ENTRY_BYTES
        for number in range(count - 1, -1, -1):
            file.seek(number * ENTRY_BYTES)
            entry = parse_entry(file.read(ENTRY_BYTES))
            if entry is not None and entry.sequence == number:
                return entry, (number + 1) * ENTRY_BYTES
    raise SegmentDamagedError(f"{folder / JOURNAL} has no whole entry")
