"""The reader of one direction of a stream: bytes in at any split, items out (060).

It does no input of its own. Its driver feeds bytes, says what is expected next,
and asks for events until it is told `NEED_MORE`. Any split of the same bytes gives the
same items and the same error. What is held is bounded: by the limits of lines, blocks,
resources and records, each of which is checked before more is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base.limits import DEFAULT_SETTINGS
from lace.base.text import safe_text
from lace.iltp.block_lines import LETTERS, BlockLines
from lace.iltp.buffer import Buffer
from lace.iltp.faults import StreamError, StreamFault
from lace.iltp.items import (
    KNOT,
    NEED_MORE,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    Preface,
    StreamEnd,
)
from lace.iltp.leading import (
    LONGEST_MARKER,
    Mismatch,
    differs_at,
    leading_marker,
    preface_mismatch,
)
from lace.iltp.record_items import RecordAssembler
from lace.iltp.resource_items import ResourceAssembler
from lace.iltp.resources import ResourceError, ResourceStore
from lace.record.framing import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.iltp.items import Event, Item

__all__ = ["Reader"]

_LF: Final = 0x0A
_HASH: Final = 0x23
_NEXT_RECORD: Final = b"\n" + RECORD


class Reader:
    r"""Reads one direction of a stream.

    Args:
        max_block_bytes: most bytes of the fact lines and comments of one block, LFs included.
        max_data_bytes: a record with more data is read past and reported.
        resources: where resources are kept and counted; one of its own if None.
        source: what the bytes come from, for messages.

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

        Args:
            batch: whether records may come.
            max_block_bytes: another limit than before.
            limit: the setting that it comes from.
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
        """Return the next item, `NEED_MORE`, or after `end` a `StreamEnd`.

        Raises:
            StreamError: the bytes are no stream; so does every later call.
        """
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
