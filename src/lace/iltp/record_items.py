"""Records in a stream: framed in the reader's buffer, large ones put together beside it.

The bytes of a large record go past the buffer, straight to where they are kept; what
is given out is that very object, so that a record is never held twice.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_DATA_LENGTH
from lace.iltp.items import OversizedRecord, RecordHead, StoredRecord, claimed_id
from lace.record.framing import FrameError, Framer
from lace.record.reader import RawRecord
from lace.record.writer import MARKLINE_BYTES

if TYPE_CHECKING:
    from lace.iltp.buffer import Buffer
    from lace.iltp.items import Item

__all__ = ["LARGE_RECORD_BYTES", "RecordAssembler"]

LARGE_RECORD_BYTES: Final = 64 * 1024
"""A record with more bytes is announced by a `RecordHead`."""


class RecordAssembler:
    """Reads one record after another out of a buffer.

    Args:
        buffer: what the bytes come from, beginning with a record's marker.
        max_data_bytes: a record with more data is read past.
    """

    def __init__(self, buffer: Buffer, max_data_bytes: int) -> None:
        self._buffer = buffer
        self._max_data_bytes = max_data_bytes
        self._framer = Framer()
        self._large: io.BytesIO | None = None
        self._missing = 0  # bytes of a large or oversized record that have not come
        self._head: RecordHead | None = None
        self._joined = False
        self.done = True
        """Whether the record that was begun last has been given out."""

    def begin(self, *, joined: bool) -> None:
        """Begin with the record at the start of the buffer."""
        self._framer.restart()
        self._joined = joined
        self._head = None
        self.done = False

    def clear(self) -> None:
        """Forget a record that is not all there."""
        self._large = None
        self._missing = 0

    def absorb(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        """Take what belongs to the large record being read; returns the rest.

        Nothing is taken while the buffer still holds bytes that come before.
        """
        if not self._missing or len(self._buffer):
            return data
        taken = min(self._missing, len(data))
        with memoryview(data) as view:
            self._keep(view[:taken])
        self._buffer.pass_by(taken)
        return data[taken:]

    def _keep(self, piece: memoryview) -> None:
        if self._large is not None:
            self._large.write(piece)
        self._missing -= len(piece)

    def read(self) -> Item | None:
        """Return the next item of the record, or None to ask for more.

        Raises:
            FrameError: the frame is lost; `at` counts from the start of the buffer.
        """
        if self._head is not None:
            return self._read_large(self._head)
        buffer, framer = self._buffer, self._framer
        if not framer.frame(buffer.data, buffer.start, buffer.base):
            return None
        size = framer.end
        length = size - framer.data_at
        if length > MAX_DATA_LENGTH:
            raise FrameError(
                f"Data-Length {length} is above {MAX_DATA_LENGTH}",
                rule="010-data-length",
                at=framer.blob_at + MARKLINE_BYTES,
            )
        fits = length <= self._max_data_bytes
        if fits and size <= LARGE_RECORD_BYTES:
            if len(buffer) < size:
                return None
            return self._stored(buffer.offset, buffer.take(size))
        identifier = claimed_id(buffer.peek(MARKLINE_BYTES))
        self._head = RecordHead(offset=buffer.offset, id=identifier, size=size)
        self._large = io.BytesIO() if fits else None
        self._missing = size
        return self._head

    def _read_large(self, head: RecordHead) -> Item | None:
        buffer = self._buffer
        count = min(self._missing, len(buffer))
        if count:
            with memoryview(buffer.data) as view:
                self._keep(view[buffer.start : buffer.start + count])
            buffer.skip(count)
        if self._missing:
            return None
        if self._large is None:
            self.done = True
            return OversizedRecord(
                offset=head.offset, id=head.id, size=head.size, joined=self._joined
            )
        data = self._large.getvalue()  # the very bytes that were written, not a copy
        self._large = None
        return self._stored(head.offset, data)

    def _stored(self, offset: int, data: bytes) -> StoredRecord:
        framer = self._framer
        self.done = True
        raw = RawRecord(offset, data, framer.plex_at, framer.blob_at, framer.data_at)
        return StoredRecord(raw=raw, joined=self._joined)
