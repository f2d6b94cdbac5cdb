"""The fact lines and comments of a block, out of the bytes that came, within its limits (060)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base.limits import LEAST_FACT_BYTES, MAX_LINE_BYTES
from lace.iltp.fact_lines import FactLineParser
from lace.iltp.faults import StreamError, StreamFault
from lace.iltp.items import Comment, Facts

if TYPE_CHECKING:
    from lace.facts.lines import Fact
    from lace.iltp.buffer import Buffer

__all__ = ["LETTERS", "MAX_COMMENT_BYTES", "BlockLines", "is_comment_text"]

MAX_COMMENT_BYTES: Final = 128
"""Bytes of a comment line, `#` and LF included."""
LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""What a fact line begins with."""

_FEW_FACTS: Final = 1024
"""A block may have this many facts beside, however small."""
_RUN_END: Final = re.compile(rb"\n(?![A-Za-z])")


class BlockLines:
    """Reads runs of fact lines, and comments; counts what a block has of them.

    Args:
        buffer: the bytes that came.
        max_block_bytes: most bytes of them in one block, LFs included.
        source: what the bytes come from, for messages.
    """

    def __init__(self, buffer: Buffer, max_block_bytes: int, source: str | None) -> None:
        self._buffer, self._source = buffer, source
        self._max_block_bytes, self._limit = max_block_bytes, "max_fact_block_size"
        self._parser = FactLineParser(source)
        self._block_bytes = self._block_facts = 0
        self._run: list[Fact] = []
        self._run_at = 0

    def set_limit(self, max_block_bytes: int, limit: str) -> None:
        """Take another limit, which comes from the setting of that name."""
        self._max_block_bytes, self._limit = max_block_bytes, limit

    def begin(self) -> None:
        """Begin a run of fact lines."""
        self._run_at = self._buffer.offset

    def end_block(self) -> None:
        """Begin to count again."""
        self._block_bytes = self._block_facts = 0
        self._parser.forget()

    def clear(self) -> None:
        """Forget the run: the bytes are no stream."""
        self._run.clear()

    def read(self, *, is_end: bool) -> Facts | None:
        """Take the complete fact lines that came; the run ends where another item begins.

        Args:
            is_end: whether no bytes follow those that came.

        Raises:
            StreamError: a line is no fact line, or the block has too much.
        """
        buffer = self._buffer
        while len(buffer) and buffer.data[buffer.start] in LETTERS:
            length = buffer.line_length(MAX_LINE_BYTES)
            if length is None:
                return None
            if length > MAX_LINE_BYTES:
                raise self._parser.too_long(buffer.offset)
            found = _RUN_END.search(buffer.data, buffer.start + length)
            end = found.start() if found else buffer.data.rfind(b"\n")
            self._take(end + 1 - buffer.start)
        if not len(buffer) and not is_end:
            return None
        run, self._run = tuple(self._run), []
        return Facts(self._run_at, run)

    def _take(self, size: int) -> None:
        """Take fact lines of that size together; the first one too many is refused."""
        buffer = self._buffer
        left = self._max_block_bytes - self._block_bytes
        fitting = size
        if size > left:
            end = buffer.data.rfind(b"\n", buffer.start, buffer.start + left) + 1
            fitting = max(end - buffer.start, 0)
        if fitting:
            lines = bytes(buffer.data[buffer.start : buffer.start + fitting])
            facts = self._parser.parse(lines, buffer.offset)
            self._count_facts(len(facts))
            self._run += facts
            self._block_bytes += fitting
            buffer.skip(fitting)
        else:
            raise self._block_too_large()

    def _count_facts(self, count: int) -> None:
        """Refuse more facts than a block of exchange facts can have: each takes memory.

        There are no more comments than facts, since none follows another.
        """
        self._block_facts += count
        most = self._max_block_bytes // LEAST_FACT_BYTES + _FEW_FACTS
        if self._block_facts > most:
            raise self._fail(
                StreamFault.BLOCK_SIZE,
                f"a block has more than {most} facts",
                "050-222",
                f"the limit is {self._limit}={self._max_block_bytes}, and a fact counts for"
                f" at least {LEAST_FACT_BYTES} bytes",
            )

    def _block_too_large(self) -> StreamError:
        limit = self._max_block_bytes
        return self._fail(
            StreamFault.BLOCK_SIZE,
            f"a block has more than {limit} bytes of facts",
            "050-222",
            f"the limit is {self._limit}={limit}",
        )

    def read_comment(self) -> Comment | None:
        """Take a comment, or wait for the rest of it.

        Raises:
            StreamError: it is too long or no text, or the block has too much.
        """
        buffer = self._buffer
        length = buffer.line_length(MAX_COMMENT_BYTES - 1)
        if length is None:
            return None
        if length >= MAX_COMMENT_BYTES:
            raise self._fail(
                StreamFault.COMMENT,
                f"a comment line has more than {MAX_COMMENT_BYTES} bytes",
                "060-82",
            )
        self._block_bytes += length + 1
        if self._block_bytes > self._max_block_bytes:
            raise self._block_too_large()
        text = buffer.peek(length)[1:]
        if not is_comment_text(text):
            raise self._fail(
                StreamFault.COMMENT, "a comment is UTF-8 without carriage returns", "060-21"
            )
        comment = Comment(buffer.offset, text)
        buffer.skip(length + 1)
        return comment

    def _fail(
        self, fault: StreamFault, message: str, rule: str, hint: str | None = None
    ) -> StreamError:
        offset = self._buffer.offset
        return StreamError(fault, message, offset=offset, rule=rule, hint=hint, source=self._source)


def is_comment_text(text: bytes) -> bool:
    """Tell whether bytes may stand in a comment: UTF-8 without CR, and LF of course."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\r" not in text and b"\n" not in text
