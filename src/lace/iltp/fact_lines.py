"""Fact lines of a stream, many at a time (050, 060).

What is a fact line is decided by `lace.facts.lines`; a run of plain lines, as nearly
all are, is split as a whole. A listing repeats its texts again and again, so that equal
ones are kept once.
"""

from __future__ import annotations

import re
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from lace.base.limits import LEAST_FACT_BYTES, MAX_LINE_BYTES
from lace.base.text import is_nfc, safe_text
from lace.errors import LaceError
from lace.facts.lines import format_fact, parse_fact
from lace.iltp.items import Comment, Facts, StreamError, StreamFault, WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.facts.lines import Fact
    from lace.iltp.reader import Buffer


_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_~-]*")
_BETWEEN: Final = "','"
# These replace what was escaped while lines are split: UTF-8 text holds no surrogates.
_BACKSLASH: Final = "\ud800"
_QUOTE: Final = "\ud801"
_SHORT: Final = ({2}, {3})
"""How many texts facts of a listing without fields and of a request have, with the name."""
_MOST_SHARED: Final = 1 << 12
"""How many texts are remembered to be shared."""


class FactLineParser:
    """Parses runs of fact lines; texts that come again are shared by their facts."""

    __slots__ = ("_shared", "_source")

    def __init__(self, source: str | None = None) -> None:
        self._shared: dict[str, str] = {}
        self._source = source

    def parse(self, raw: bytes, offset: int) -> list[Fact]:
        """Return the facts of lines that begin with a letter, each with its LF."""
        facts = self._parse_together(raw)
        return self._parse_each(raw, offset) if facts is None else facts

    def _parse_together(self, raw: bytes) -> list[Fact] | None:
        """Return the facts of legal lines that all have values, None if there are others.

        With escapes out of the way, quotes of a legal line stand only around its values. A
        line that opens n values has at least 2n of them, so that all lines are legal if
        together they have no more.
        """
        if b"\r" in raw:
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not is_nfc(text):
            return None
        escaped = "\\" in text
        if not escaped and text.isascii():
            facts = self._split_alike(text)
            if facts is not None:
                return facts
        if escaped:
            text = text.replace("\\\\", _BACKSLASH).replace("\\'", _QUOTE)
            if "\\" in text:
                return None
        if not text.endswith("')\n"):
            return None
        pieces = text[:-3].split("')\n")
        plain = text.isascii() and not escaped
        longest = max(map(len, pieces)) + 2 if plain else max(map(len, raw.split(b"\n")))
        if len(pieces) != raw.count(b"\n") or longest > MAX_LINE_BYTES:
            return None
        facts = self._split(pieces)
        if facts is None:
            return None
        if text.count("'") != 2 * (sum(map(len, facts)) - len(facts)):
            return None
        if not all(map(_NAME.fullmatch, set(map(itemgetter(0), facts)))):
            return None
        return list(map(_unescape, pieces, facts)) if escaped else facts

    def _split_alike(self, text: str) -> list[Fact] | None:
        """Return the facts of legal lines that differ in their first value alone, else None.

        A listing has nothing but such lines, and a request neither. As for other lines, the
        quotes tell: there are no more of them than around this many values.
        """
        first, closing, _ = text.partition("')\n")
        name, opening, inner = first.partition("('")
        between, others = inner.partition(_BETWEEN)[1:]
        rest = others.split(_BETWEEN) if between else []
        head, tail = name + opening, between + others + closing
        if not closing or not opening or not text.endswith(tail) or not _NAME.fullmatch(name):
            return None
        values = text[len(head) : -len(tail)].split(tail + head)
        count = len(values)
        if text.count("\n") != count or text.count("'") != 2 * count * (1 + len(rest)):
            return None
        if max(map(len, values)) + len(head) + len(tail) - 1 > MAX_LINE_BYTES:
            return None
        same = [self._shared.setdefault(each, each) for each in (name, *rest)]
        self._forget_if_many()
        return list(zip(repeat(same[0]), values, *map(repeat, same[1:])))

    def _split(self, pieces: list[str]) -> list[Fact] | None:
        facts: list[Fact] = []
        share = self._shared.setdefault
        for piece in pieces:
            name, opening, inner = piece.partition("('")
            if not opening:
                return None
            parts = [name, *inner.split(_BETWEEN)]
            facts.append(tuple(map(share, parts, parts)))
        self._forget_if_many()
        return facts

    def _forget_if_many(self) -> None:
        if len(self._shared) > _MOST_SHARED:
            self._shared.clear()

    def forget(self) -> None:
        """Forget the texts that are shared: a block has ended."""
        self._shared.clear()

    def _parse_each(self, raw: bytes, offset: int) -> list[Fact]:
        facts: list[Fact] = []
        for line in raw.split(b"\n")[:-1]:
            if len(line) > MAX_LINE_BYTES:
                raise self.too_long(offset)
            try:
                facts.append(parse_fact(line))
            except LaceError as error:
                raise StreamError(
                    StreamFault.LINE,
                    safe_text(error.message),
                    offset=offset,
                    rule=error.rule,
                    hint=error.hint,
                    source=self._source,
                ) from None
            offset += len(line) + 1
        return facts

    def too_long(self, offset: int) -> StreamError:
        """Return the error of a line that is too long."""
        return StreamError(
            StreamFault.LINE,
            f"a fact line has more than {MAX_LINE_BYTES} bytes",
            offset=offset,
            rule="060-144",
            source=self._source,
        )


def _unescape(piece: str, fact: Fact) -> Fact:
    if _BACKSLASH not in piece and _QUOTE not in piece:
        return fact
    return tuple([text.replace(_QUOTE, "'").replace(_BACKSLASH, "\\") for text in fact])


def format_lines(facts: Sequence[Fact]) -> bytes:
    """Return the lines of facts, each with its LF."""
    text = _format_alike(facts) or _format_plain(facts) or "".join(_lines_of(facts))
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise WriteError("a fact value is not UTF-8", rule="060-21") from None
    if raw.count(b"\n") != len(facts) or b"\r" in raw or not is_nfc(text):
        raise _first_problem(facts)
    if max(map(len, raw.split(b"\n"))) > MAX_LINE_BYTES:
        raise WriteError(f"a fact line has more than {MAX_LINE_BYTES} bytes", rule="060-144")
    if not all(map(_NAME.fullmatch, set(map(itemgetter(0), facts)))):
        raise WriteError("a fact line does not begin with an ASCII letter", rule="060-30")
    return raw


def _format_alike(facts: Sequence[Fact]) -> str | None:
    """Return the lines of facts that differ in their first value alone, as those of a listing."""
    if {*map(len, facts)} not in _SHORT:
        return None
    alike = {(fact[0], *fact[2:]) for fact in facts}
    if len(alike) > 1:
        return None
    ((name, *rest),) = alike
    head, tail = f"{name}('", _BETWEEN.join(["", *rest]) + "')\n"
    text = head + (tail + head).join(map(itemgetter(1), facts)) + tail
    return text if _is_plain(text, len(facts) * (1 + len(rest))) else None


def _format_plain(facts: Sequence[Fact]) -> str | None:
    """Return the lines of facts in which nothing is to be escaped and that all have values."""
    text = "".join([fact[0] + "('" + _BETWEEN.join(fact[1:]) + "')\n" for fact in facts])
    return text if _is_plain(text, sum(map(len, facts)) - len(facts)) else None


def _is_plain(text: str, values: int) -> bool:
    """Tell whether quotes stand around this many values alone, and nothing is to be escaped."""
    return "\\" not in text and text.count("'") == 2 * values


def _lines_of(facts: Iterable[Fact]) -> Iterator[str]:
    for fact in facts:
        yield f"{format_fact(fact)}\n"


def _first_problem(facts: Iterable[Fact]) -> WriteError:
    for line in _lines_of(facts):
        try:
            parse_fact(line[:-1].encode("utf-8"))
        except LaceError as error:
            return WriteError(safe_text(error.message), rule=error.rule)
    raise AssertionError("lines that are legal each, but not together")


# -- The fact lines and comments of a block, out of the bytes that came, within its limits (060).

MAX_COMMENT_BYTES: Final = 128
"""Bytes of a comment line, `#` and LF included."""
LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""What a fact line begins with."""

_FEW_FACTS: Final = 1024
"""A block may have this many facts beside, however small."""
_RUN_END: Final = re.compile(rb"\n(?![A-Za-z])")


class BlockLines:
    """Reads runs of fact lines, and comments; counts what a block has of them."""

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
        """Take the complete fact lines that came; the run ends where another item begins."""
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
        """Take a comment, or wait for the rest of it."""
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
