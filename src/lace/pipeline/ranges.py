"""Byte ranges of a file of records that can be read apart, and together give the same outcomes.

The frames are hopped over one after another, without a look at the data. Where a frame is lost,
a recovering reader goes on until it has found an intact record; from there the hops continue, and
what lies between is a range of its own. A search for marklines would be wrong: data holds them too.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_DATA_LENGTH
from lace.record.framing import FrameError, Framer
from lace.record.reader import RawRecord, RecordReader, hides_record, is_intact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.record.reader import Fault

__all__ = ["RANGE_BYTES", "Range", "file_ranges", "find_ranges", "read_range"]

RANGE_BYTES: Final = 32 * 1024 * 1024
"""A range ends behind the record that makes it larger than this."""
_SEARCH_PIECE: Final = 256 * 1024
_READ_PIECE: Final = 1024 * 1024
_MOST_REPAIRS: Final = 1000
"""Lost frames in one file that are searched around here; the rest of it is then one range."""


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a file, from a record's start on; `plain` ones hold nothing but whole frames."""

    start: int
    end: int
    plain: bool


def file_ranges(path: Path, max_data_bytes: int) -> list[Range]:
    """Return the ranges of a file, in their order; together they are all of it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return []
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as view:
            return list(find_ranges(view, max_data_bytes))


def find_ranges(
    view: mmap.mmap | bytes, max_data_bytes: int, range_bytes: int = RANGE_BYTES
) -> Iterator[Range]:
    """Yield the ranges of bytes that hold records.

    Args:
        view: the bytes.
        max_data_bytes: what a reader of the ranges takes; it says where it must look twice.
        range_bytes: how large a range may become before it ends.
    """
    framer = Framer()
    size = len(view)
    begin = last = at = 0  # of the range; of the record before; of the record to be framed
    repairs = 0
    while at < size:
        end = _frame_end(framer, view, at, max_data_bytes)
        if end is not None:
            if end - begin > range_bytes and at > begin:
                yield Range(begin, at, plain=True)
                begin = at
            last, at = at, end
            continue
        # What follows a broken record may begin inside it, so the reader starts before that.
        start = last if last >= begin else at
        if start > begin:
            yield Range(begin, start, plain=True)
        repairs += 1
        found = _next_intact(view, start, at, max_data_bytes) if repairs <= _MOST_REPAIRS else size
        yield Range(start, found, plain=False)
        begin = last = at = found
    if at > begin:
        yield Range(begin, at, plain=True)


def _frame_end(framer: Framer, view: mmap.mmap | bytes, at: int, max_data_bytes: int) -> int | None:
    """Return where the record there ends; None when a reader might see it otherwise."""
    framer.restart()
    try:
        if not framer.frame(view, at):  # type: ignore[arg-type]  # a map is as good as bytes
            return None
    except FrameError:
        return None
    end = at + framer.end
    length = framer.end - framer.data_at
    if end > len(view) or length > MAX_DATA_LENGTH:
        return None
    if framer.blob_at > 0 and length <= max_data_bytes:
        head = view[at : at + framer.blob_at]
        record = RawRecord(at, head, framer.plex_at, framer.blob_at, framer.data_at)
        if hides_record(record):
            return None
    return end


def _next_intact(view: mmap.mmap | bytes, start: int, lost: int, max_data_bytes: int) -> int:
    """Return the end of the first intact record that a recovering reader finds; else of all."""
    reader = RecordReader(max_data_bytes=max_data_bytes, recover=True, size=len(view), start=start)
    for piece in range(start, len(view), _SEARCH_PIECE):
        for outcome in reader.feed(view[piece : piece + _SEARCH_PIECE]):
            is_later = outcome.offset > start or start == lost
            if (
                is_later
                and isinstance(outcome, RawRecord)
                and not hides_record(outcome)
                and is_intact(outcome)
            ):
                return outcome.offset + len(outcome.data)
    return len(view)


def read_range(
    path: Path, part: Range, size: int, max_data_bytes: int
) -> Iterator[RawRecord | Fault]:
    """Yield the records and faults of a range, as a reader of the whole file would.

    Raises:
        OSError: the file cannot be read, or has become shorter.
    """
    reader = RecordReader(max_data_bytes=max_data_bytes, recover=True, size=size, start=part.start)
    with path.open("rb") as file:
        file.seek(part.start)
        place = part.start
        while place < size:
            piece = file.read(min(_READ_PIECE, size - place))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            place += len(piece)
            for outcome in reader.feed(piece):
                if outcome.offset >= part.end:
                    return
                yield outcome
                if not part.plain or not isinstance(outcome, RawRecord):
                    continue
                if outcome.offset + len(outcome.data) >= part.end:
                    return
        for outcome in reader.finish():
            if outcome.offset < part.end:
                yield outcome
