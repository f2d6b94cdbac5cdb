"""The writer of one direction of a stream: items to bytes (060).

It gives pieces of bytes and sends nothing; the bytes of records are passed on as they
are. It refuses to write what a reader refuses, which is a fault of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from lace.base.limits import DEFAULT_SETTINGS
from lace.iltp.fact_lines import MAX_COMMENT_BYTES, format_lines, is_comment_text
from lace.iltp.items import (
    PREFACE,
    PUZZLE_PIECE,
    Blank,
    Comment,
    Facts,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
    WriteError,
)
from lace.iltp.resources import MAX_RESOURCES, ResourceError, check_resource, kind_of
from lace.record.reader import FrameError, Framer
from lace.rules.limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.iltp.items import Item


_FACTS_AT_ONCE: Final = 4096
"""Facts of a block that are written together."""


class Writer:
    r"""Writes one direction of a stream. All methods return the bytes to send, in pieces.

    >>> writer = Writer()
    >>> b"".join(writer.preface() + writer.block([("HelloRecordFormat", "H3")]))[6:]
    b"iltp/1\nHelloRecordFormat('H3')\n\n"
    """

    def __init__(self, *, max_block_bytes: int = DEFAULT_SETTINGS.max_fact_block_size) -> None:
        self._max_block_bytes = max_block_bytes
        self._batch = False
        self._begun = False
        self._after_preface = False
        self._after_comment = False
        self._after_record = False  # the LF behind it is still to be written
        self._in_block = False
        self._has_facts = False
        self._block_bytes = 0
        self._resources = 0
        self._sent: set[str] = set()

    def expect(self, *, batch: bool, max_block_bytes: int | None = None) -> None:
        """Say what is written next: a fact block, or a batch of records.

        It holds until it is said otherwise, and can be said only between blocks.
        """
        if self._in_block:
            raise AssertionError("what is written cannot change inside a block")
        self._batch = batch
        if max_block_bytes is not None:
            self._max_block_bytes = max_block_bytes

    # -- whole blocks ------------------------------------------------------------------

    def block(
        self, facts: Iterable[Fact], resources: Mapping[str, bytes] | None = None
    ) -> list[bytes]:
        """Write a fact block: before it the resources that were not yet sent, behind it an LF.

        Equal facts are written once.
        """
        return list(self.block_pieces(facts, resources))

    def block_pieces(
        self, facts: Iterable[Fact], resources: Mapping[str, bytes] | None = None
    ) -> Iterator[bytes]:
        """Yield a fact block as `block` writes it; a large one is not made before it is sent."""
        for identifier, body in (resources or {}).items():
            yield from self.resource(identifier, body)
        distinct = tuple(dict.fromkeys(facts))
        for start in range(0, len(distinct), _FACTS_AT_ONCE):
            yield from self.facts(distinct[start : start + _FACTS_AT_ONCE])
        yield from self.blank()

    # -- items ---------------------------------------------------------------------------

    def preface(self) -> list[bytes]:
        """Write the first line of the stream."""
        if self._begun:
            raise WriteError("a second preface", rule="060-65")
        self._begun = self._after_preface = True
        return [PREFACE]

    def resource(self, identifier: str, body: bytes) -> list[bytes]:
        """Write a resource, unless this stream has carried it already."""
        return [] if identifier in self._sent else self._resource(identifier, body)

    def _resource(self, identifier: str, body: bytes) -> list[bytes]:
        if self._has_facts and not self._batch:
            raise WriteError("a resource between the fact lines of one block", rule="060-43")
        if self._resources >= MAX_RESOURCES:
            raise WriteError(f"more than {MAX_RESOURCES} resources on a stream", rule="060-149")
        try:
            kind = kind_of(identifier)
            check_resource(identifier, kind, body, limits=UNLIMITED)
        except ResourceError as error:
            raise WriteError(error.message, rule=error.rule, hint=error.hint) from error
        chunks = self._begin_item()
        self._resources += 1
        self._sent.add(identifier)
        return [
            *chunks,
            b"%b%b %b\n" % (PUZZLE_PIECE, identifier.encode(), kind.encode()),
            body,
            b"\n\n",
        ]

    def facts(self, facts: Sequence[Fact]) -> list[bytes]:
        """Write fact lines; `NotAvailable` lines of a batch are such, too."""
        lines = format_lines(facts)
        if not lines:
            raise WriteError("no facts to write", rule="060-66")
        self._count(len(lines))
        chunks = self._begin_item()
        self._has_facts = True
        return [*chunks, lines]

    def record(self, data: bytes, *, joined: bool = False) -> list[bytes]:
        """Write the bytes of a record; `joined` leaves out the LF behind the one before."""
        framer = Framer()  # one that has seen other records would look past this one's marker
        try:
            whole = framer.frame(data) and framer.end == len(data)
        except FrameError as error:
            raise WriteError(error.message, rule=error.rule) from error
        if not whole:
            raise WriteError("bytes that are not exactly one record", rule="060-61")
        if not self._batch:
            raise WriteError("a record where a block of facts is written", rule="060-64")
        if joined:
            if not self._after_record:
                raise WriteError("no record stands directly before this one", rule="G56")
            self._after_record = False
        chunks = self._begin_item()
        self._after_record = True
        return [*chunks, data]

    def stored_records(self, records: Sequence[bytes]) -> list[bytes]:
        """Write records that a store gave: valid ones, which need no look at their bytes."""
        if not self._batch:
            raise WriteError("a record where a block of facts is written", rule="060-64")
        if not records:
            return []
        chunks = self._begin_item()
        self._after_record = True
        between = [b"\n"] * (2 * len(records) - 1)
        between[::2] = records
        return [*chunks, *between]

    def comment(self, text: str | bytes) -> list[bytes]:
        """Write a comment; the text does not hold the `#`."""
        raw = text.encode("utf-8") if isinstance(text, str) else text
        if len(raw) + 2 > MAX_COMMENT_BYTES:
            raise WriteError(f"a comment of more than {MAX_COMMENT_BYTES} bytes", rule="060-82")
        if not is_comment_text(raw):
            raise WriteError("a comment is one line of UTF-8", rule="060-21")
        if self._after_comment:
            raise WriteError("two comments with nothing between them", rule="060-84")
        self._count(len(raw) + 2)
        chunks = self._begin()
        self._after_comment = True
        return [*chunks, b"#%b\n" % raw]

    def blank(self) -> list[bytes]:
        """Write the blank line that ends a block or batch, after the LF behind a last record."""
        if self._after_preface:
            raise WriteError("a blank line directly behind the preface", rule="060-27")
        chunks = self._begin()
        self._in_block = self._has_facts = self._after_comment = False
        self._block_bytes = 0
        return [*chunks, b"\n"]

    def write(self, item: Item) -> list[bytes]:
        """Write an item as it was read; a stream that ended cleanly comes out byte for byte."""
        match item:
            case Preface():
                return self.preface()
            case Facts(facts=facts):
                return self.facts(facts)
            case Comment(text=text):
                return self.comment(text)
            case Blank():
                return self.blank()
            case Resource(id=identifier, body=body):
                return self._resource(identifier, body)
            case RecordHead():
                return []  # the record follows
            case RecordItem(raw=raw, joined=joined):
                return self.record(raw.data, joined=joined)
            case OversizedRecord():
                raise WriteError(
                    "the bytes of an oversized record were not kept", rule="010-size-limit"
                )
            case _:
                assert_never(item)

    # -- state -----------------------------------------------------------------------------

    def _begin(self) -> list[bytes]:
        if not self._begun:
            raise WriteError("the preface comes first", rule="060-22")
        chunks = [b"\n"] if self._after_record else []
        self._after_preface = self._after_record = False
        return chunks

    def _begin_item(self) -> list[bytes]:
        chunks = self._begin()
        self._in_block = True
        self._after_comment = False
        return chunks

    def _count(self, size: int) -> None:
        if self._block_bytes + size > self._max_block_bytes:
            raise WriteError(f"a block of more than {self._max_block_bytes} bytes", rule="050-222")
        self._block_bytes += size
