"""The reader of one direction of a stream: bytes in at any split, items out (060).

It does no input of its own. Its driver feeds bytes, says what is expected next,
and asks for events until it is told `NEED_MORE`. Any split of the same bytes gives the
same items and the same error. What is held is bounded: by the limits of lines, blocks,
resources and records, each of which is checked before more is kept.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, NamedTuple

from lace.base.limits import DEFAULT_SETTINGS, MAX_DATA_LENGTH
from lace.base.text import safe_text
from lace.iltp.fact_lines import LETTERS, BlockLines
from lace.iltp.items import (
    KNOT,
    NEED_MORE,
    OPEN_RECORD,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
    StreamEnd,
    StreamError,
    StreamFault,
    claimed_id,
)
from lace.iltp.resources import (
    MAX_MARKER_BYTES,
    MAX_RESOURCE_BYTES,
    ResourceError,
    ResourceStore,
    parse_marker,
    too_large,
)
from lace.record.model import MARKLINE_BYTES
from lace.record.reader import FrameError, Framer, RawRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.iltp.items import Event, Item


# -- The buffer between a stream and its reader: bytes are put in behind and taken in front.
#
# Nothing is looked at twice: a search that found nothing goes on where it ended, and
# bytes that were taken are dropped all at once, when the next ones come.


class Buffer:
    """Bytes that have come and were not yet taken; positions count from the first of them."""

    __slots__ = ("_base", "_searched", "data", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        self._base = 0  # stream offset of the first byte of `data`
        self._searched = 0  # how far the search for the end of the present item has come

    def __len__(self) -> int:
        return len(self.data) - self.start

    @property
    def offset(self) -> int:
        """The stream offset of the first byte."""
        return self._base + self.start

    @property
    def base(self) -> int:
        """The stream offset of `data[0]`, which may be taken already."""
        return self._base

    def append(self, piece: bytes | bytearray | memoryview) -> None:
        """Put bytes in behind."""
        if self.start:
            del self.data[: self.start]
            self._base += self.start
            self.start = 0
        self.data += piece

    def peek(self, count: int) -> bytes:
        """Return the first bytes, at most this many, and leave them."""
        return bytes(self.data[self.start : self.start + count])

    def find(self, wanted: bytes, begin: int, end: int) -> int:
        """Return where the wanted bytes stand between two positions, or -1.

        Until bytes are taken, all calls have to look for the same; what they have
        looked at is not looked at again.
        """
        first = max(begin, self._searched - len(wanted) + 1)
        found = self.data.find(wanted, self.start + first, self.start + end)
        if found < 0:
            self._searched = min(end, len(self))
            return -1
        return found - self.start

    def line_length(self, most: int) -> int | None:
        """Return the length of the first line without its LF; None if its end is not there.

        A line that is longer than `most` has the length `most + 1`, whether its end is
        there or not.
        """
        found = self.find(b"\n", 0, most + 1)
        if found >= 0:
            return found
        return most + 1 if len(self) > most else None

    def take(self, count: int) -> bytes:
        """Take the first bytes out; that many must be there."""
        taken = bytes(self.data[self.start : self.start + count])
        self.skip(count)
        return taken

    def skip(self, count: int) -> None:
        """Drop the first bytes; that many must be there."""
        self.start += count
        self._searched = 0

    def pass_by(self, count: int) -> None:
        """Count bytes of the stream that were never put in; the buffer is empty."""
        self.append(b"")
        self._base += count

    def clear(self) -> None:
        """Drop everything."""
        self.skip(len(self))
        self.append(b"")


# -- What a stream and its items begin with, told from as few bytes as can tell it (060).
#
# A marker counts when all of its bytes are there, because several begin alike; what
# cannot become one is known at the first byte that differs.

_MARKERS: Final = (KNOT, PUZZLE_PIECE, RECORD, OPEN_RECORD)
LONGEST_MARKER: Final = max(map(len, _MARKERS))
"""This many bytes tell every marker."""

_HTTP: Final = "the peer seems to speak HTTP"
_STRANGERS: Final = {
    0x15: "the peer seems to speak TLS: is it a wss address?",  # an alert
    0x16: "the peer seems to begin TLS: is it a wss address?",
    0x43: _HTTP,  # CONNECT
    0x44: _HTTP,  # DELETE
    0x47: _HTTP,  # GET
    0x48: f"{_HTTP}: is it a ws address?",  # HEAD, and every answer
    0x4F: _HTTP,  # OPTIONS
    0x50: _HTTP,  # POST, PUT
    0x53: "the peer seems to speak SSH",
}
_HINTS: Final = {
    0x09: "a line does not begin with a tab",
    0x0D: "lines end with LF alone",
    0x20: "a line does not begin with a space",
    0x5F: "no predicate of a stream begins with _",
    0xEF: "a stream has no byte order mark",
}


class Mismatch(NamedTuple):
    """Bytes that cannot be what should be there: where they differ, and what to say."""

    at: int
    message: str
    hint: str | None


def differs_at(head: bytes, wanted: bytes) -> int:
    """Return where bytes differ from those wanted, -1 if they may still become them."""
    return next(
        (i for i, (one, other) in enumerate(zip(head, wanted, strict=False)) if one != other), -1
    )


def preface_mismatch(head: bytes) -> Mismatch | None:
    """Return why the first bytes of a stream cannot become its preface, or None."""
    at = differs_at(head, PREFACE)
    if at < 0:
        return None
    found, wanted = head[at], PREFACE[at]
    return Mismatch(
        at,
        f"found byte {found:#04x} where the preface of a stream has {wanted:#04x}",
        _STRANGERS.get(head[0]),
    )


def leading_marker(head: bytes) -> bytes | Mismatch | None:
    """Return the marker that an item begins with, None if too few bytes are there to tell."""
    for marker in _MARKERS:
        if head.startswith(marker):
            return marker
    places = [differs_at(head, marker) for marker in _MARKERS]
    if -1 in places:
        return None
    at = max(places)
    return Mismatch(
        at, f"no item of a stream begins with {head[: at + 1].hex(' ')}", _HINTS.get(head[0])
    )


# -- Records in a stream: framed in the reader's buffer, large ones put together beside it.
#
# The bytes of a large record go past the buffer, straight to where they are kept; what
# is given out is that very object, so that a record is never held twice.

LARGE_RECORD_BYTES: Final = 64 * 1024
"""A record with more bytes is announced by a `RecordHead`."""


class RecordAssembler:
    """Reads one record after another out of a buffer."""

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
        """Return the next item of the record, or None to ask for more."""
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

    def _stored(self, offset: int, data: bytes) -> RecordItem:
        framer = self._framer
        self.done = True
        raw = RawRecord(offset, data, framer.plex_at, framer.blob_at, framer.data_at)
        return RecordItem(raw=raw, joined=self._joined)


# -- Resources in a stream: from the marker line to the blank line behind the last line.


class ResourceAssembler:
    """Reads one resource after another out of a buffer, checks it and keeps it."""

    def __init__(self, buffer: Buffer, store: ResourceStore) -> None:
        self._buffer = buffer
        self._store = store
        self._announced: tuple[int, str, str] | None = None  # offset, identifier and kind

    def read(self) -> Resource | None:
        """Return the resource, or None to ask for more."""
        if self._announced is None:
            self._announced = self._read_marker_line()
        return self._announced and self._read_body(*self._announced)

    def _read_marker_line(self) -> tuple[int, str, str] | None:
        buffer = self._buffer
        length = buffer.line_length(MAX_MARKER_BYTES)
        if length is None:
            return None
        if length > MAX_MARKER_BYTES:
            raise ResourceError(
                f"a marker line has more than {MAX_MARKER_BYTES} bytes", rule="060-146"
            )
        self._store.begin()
        announced = (buffer.offset, *parse_marker(buffer.peek(length)))
        buffer.skip(length + 1)
        return announced

    def _read_body(self, offset: int, identifier: str, kind: str) -> Resource | None:
        buffer = self._buffer
        if buffer.peek(1) == b"\n":
            raise ResourceError("a resource without a line", rule="060-37")
        most = MAX_RESOURCE_BYTES + 2
        length = buffer.find(b"\n\n", 0, most)
        if length < 0:
            if len(buffer) >= most:
                raise too_large()
            return None
        body = self._store.add(identifier, kind, buffer.peek(length))
        buffer.skip(length + 2)
        self._announced = None
        return Resource(offset=offset, id=identifier, kind=kind, body=body)


_LF: Final = 0x0A
_HASH: Final = 0x23
_NEXT_RECORD: Final = b"\n" + RECORD


class Reader:
    r"""Reads one direction of a stream.

    >>> reader = Reader()
    >>> reader.feed(PREFACE + b"HelloRecordFormat('H3')\n\n")
    >>> [reader.next_event() for _ in range(4)][1]
    Facts(offset=13, facts=(('HelloRecordFormat', 'H3'),))
    """

    def __init__(
        self,
        *,
        max_block_bytes: int = DEFAULT_SETTINGS.max_fact_block_size,
        max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes,
        resources: ResourceStore | None = None,
        source: str | None = None,
    ) -> None:
        self.resources = ResourceStore() if resources is None else resources
        self._source = source
        self._buffer = Buffer()
        self._lines = BlockLines(self._buffer, max_block_bytes, source)
        self._records = RecordAssembler(self._buffer, max_data_bytes)
        self._texts = ResourceAssembler(self._buffer, self.resources)
        self._step: Callable[[], Item | None] = self._read_preface
        self._again = False  # the step gave nothing, but the next one may
        self._ended = False
        self._error: StreamError | None = None
        self._batch = False  # records may come
        self._after_preface = False  # no item since the preface
        self._after_comment = False  # no item since a comment
        self._in_block = False  # an item of the present block or batch has come
        self._has_facts = False  # a fact line of it has come

    # -- the driver's side -------------------------------------------------------------

    @property
    def offset(self) -> int:
        """The stream offset of the first byte that is not yet part of an item."""
        return self._buffer.offset

    @property
    def buffered(self) -> int:
        """How many bytes wait for the next events."""
        return len(self._buffer)

    @property
    def at_boundary(self) -> bool:
        """Whether nothing but comments has come since the last block or batch ended."""
        return not self._in_block

    def expect(
        self,
        *,
        batch: bool,
        max_block_bytes: int | None = None,
        limit: str = "max_fact_block_size",
    ) -> None:
        """Say what comes next: a fact block, or a batch of records.

        It holds until it is said otherwise, and can be said only between blocks.
        """
        if self._in_block:
            raise AssertionError("what is expected cannot change inside a block")
        self._batch = batch
        if max_block_bytes is not None:
            self._lines.set_limit(max_block_bytes, limit)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the stream; after an error they are dropped."""
        if self._ended:
            raise AssertionError("bytes behind the end of the stream")
        if self._error is None:
            self._buffer.append(self._records.absorb(data))

    def end(self) -> None:
        """Take the end of the stream: the events that follow say where it fell."""
        self._ended = True

    def next_event(self) -> Event:
        """Return the next item, `NEED_MORE`, or after `end` a `StreamEnd`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            item = self._step()
            while item is None and self._again:
                self._again = False
                item = self._step()
            if item is not None:
                return item
            return self._end_event() if self._ended else NEED_MORE
        except StreamError as error:
            self._error = error
        except FrameError as error:
            self._error = self._fail(
                StreamFault.RECORD, safe_text(error.message), error.rule, error.at, error.hint
            )
        except ResourceError as error:
            self._error = self._fail(
                StreamFault.RESOURCE, error.message, error.rule, error.at, error.hint
            )
        self._buffer.clear()
        self._lines.clear()
        self._records.clear()
        raise self._error

    def _fail(
        self,
        fault: StreamFault,
        message: str,
        rule: str | None,
        at: int = 0,
        hint: str | None = None,
    ) -> StreamError:
        offset = self._buffer.offset + at
        return StreamError(fault, message, offset=offset, rule=rule, hint=hint, source=self._source)

    def _end_event(self) -> StreamEnd:
        if self._step == self._read_preface:
            raise self._fail(StreamFault.PREFACE, "the stream ended before its preface", "060-26")
        if len(self._buffer) or self._step not in (self._read_item, self._read_behind_record):
            raise self._fail(StreamFault.CUT, "the stream ended inside an item", "060-104")
        return StreamEnd(self._buffer.offset, self._in_block)

    def _go(self, step: Callable[[], Item | None]) -> None:
        """Go on with another step at once."""
        self._step = step
        self._again = True

    # -- preface and dispatch -------------------------------------------------------------

    def _read_preface(self) -> Item | None:
        head = self._buffer.peek(len(PREFACE))
        wrong = preface_mismatch(head)
        if wrong:
            raise self._fail(StreamFault.PREFACE, wrong.message, "060-26", wrong.at, wrong.hint)
        if len(head) < len(PREFACE):
            return None
        self._buffer.skip(len(PREFACE))
        self._step = self._read_item
        self._after_preface = True
        return Preface()

    def _read_item(self) -> Item | None:
        """Dispatch by the bytes that an item begins with."""
        buffer = self._buffer
        if not len(buffer):
            return None
        first = buffer.data[buffer.start]
        if first == _LF:
            return self._read_blank()
        if first == _HASH:
            self._go(self._read_comment)
        elif first in LETTERS:
            self._begin_item()
            self._has_facts = True
            self._lines.begin()
            self._go(self._read_run)
        else:
            self._begin_marked()
        return None

    def _begin_marked(self) -> None:
        """Begin with an item that has a marker, or wait until that is certain."""
        marker = leading_marker(self._buffer.peek(LONGEST_MARKER))
        if marker is None:
            return
        if isinstance(marker, Mismatch):
            raise self._fail(StreamFault.ITEM, marker.message, "060-73", hint=marker.hint)
        if marker == KNOT:
            raise self._fail(StreamFault.ITEM, "a second preface", "060-65")
        if marker == RECORD:
            self._begin_record(joined=False)
        elif marker == PUZZLE_PIECE:
            self._begin_resource()
        else:
            raise self._fail(
                StreamFault.ITEM,
                "a record in trailer-hash form, which is not supported here",
                "060-69",
                hint="send it with the hash first",
            )

    def _read_blank(self) -> Blank:
        if self._after_preface:
            raise self._fail(
                StreamFault.ITEM,
                "a blank line directly behind the preface",
                "060-27",
                hint="the first block follows the preface without one",
            )
        blank = Blank(self._buffer.offset)
        self._buffer.skip(1)
        self._in_block = self._has_facts = self._after_comment = False
        self._lines.end_block()
        return blank

    def _begin_item(self) -> None:
        self._in_block = True
        self._after_preface = self._after_comment = False

    # -- fact lines and comments -------------------------------------------------------------

    def _read_run(self) -> Item | None:
        facts = self._lines.read(is_end=self._ended)
        if facts is not None:
            self._step = self._read_item
        return facts

    def _read_comment(self) -> Item | None:
        if self._after_comment:
            raise self._fail(
                StreamFault.COMMENT, "two comments with nothing between them", "060-84"
            )
        comment = self._lines.read_comment()
        if comment is not None:
            self._after_preface = False
            self._after_comment = True
            self._step = self._read_item
        return comment

    # -- resources and records ---------------------------------------------------------------

    def _begin_resource(self) -> None:
        if self._has_facts and not self._batch:
            raise self._fail(
                StreamFault.ITEM,
                "a resource between the fact lines of one block",
                "060-43",
                hint="resources come before the first line of a block",
            )
        self._begin_item()
        self._go(self._read_resource)

    def _read_resource(self) -> Item | None:
        resource = self._texts.read()
        if resource:
            self._step = self._read_item
        return resource

    def _begin_record(self, *, joined: bool) -> None:
        if not self._batch:
            raise self._fail(
                StreamFault.ITEM, "a record where a block of facts is expected", "060-64"
            )
        self._begin_item()
        self._records.begin(joined=joined)
        self._go(self._read_record)

    def _read_record(self) -> Item | None:
        item = self._records.read()
        if self._records.done:
            self._step = self._read_behind_record
        return item

    def _read_behind_record(self) -> Item | None:
        """Take the LF behind a record, or go on with a record that follows directly."""
        buffer = self._buffer
        if buffer.data.startswith(_NEXT_RECORD, buffer.start):  # as nearly always
            buffer.skip(1)
            self._begin_record(joined=False)
            return None
        head = buffer.peek(len(RECORD))
        if head.startswith(b"\n"):
            buffer.skip(1)
            self._go(self._read_item)
            return None
        if head == RECORD:
            self._begin_record(joined=True)
            return None
        at = differs_at(head, RECORD)
        if at >= 0:
            raise self._fail(
                StreamFault.RECORD,
                f"found byte {head[at]:#04x} behind a record",
                "G56",
                at,
                "an LF or the marker of another record follows a record",
            )
        return None
