"""Fact lines of a stream, many at a time (050, 060).

What is a fact line is decided by `lace.facts.lines`; a run of plain lines, as nearly
all are, is split as a whole. A listing repeats its texts again and again, so that equal
ones are kept once.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_LINE_BYTES
from lace.base.text import is_nfc, safe_text
from lace.errors import LaceError
from lace.facts.lines import format_fact, parse_fact
from lace.iltp.faults import StreamError, StreamFault, WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact

__all__ = ["FactLineParser", "format_lines"]

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_~-]*")
_PLAIN_BYTES: Final = bytes({0x0A, *range(0x20, 0x100)} - {0x5C, 0x7F})
"""All bytes but a backslash and the control bytes that are no LF."""
_LINE_BYTES: Final = _PLAIN_BYTES + b"\\"
_FEW: Final = 16
"""A run of so few lines is parsed line by line when it is not plain."""
_MOST_SHARED: Final = 1 << 14
"""How many texts are remembered to be shared."""


class FactLineParser:
    """Parses runs of fact lines; texts that come again are shared by their facts."""

    __slots__ = ("_shared", "_source")

    def __init__(self, source: str | None = None) -> None:
        self._shared: dict[str, str] = {}
        self._source = source

    def parse(self, raw: bytes, offset: int) -> list[Fact]:
        """Return the facts of lines that begin with a letter, each with its LF.

        Raises:
            StreamError: a line is too long or no fact line; the first of them counts.
        """
        facts = self._parse_plain(raw)
        if facts is not None:
            return facts
        if raw.count(b"\n") > _FEW:
            middle = raw.index(b"\n", len(raw) // 2) + 1
            if middle < len(raw):
                facts = self.parse(raw[:middle], offset)
                facts += self.parse(raw[middle:], offset + middle)
                return facts
        return self._parse_each(raw, offset)

    def _parse_plain(self, raw: bytes) -> list[Fact] | None:
        """Return the facts of plain lines: in NFC, without control bytes and escapes, with values.

        In a legal one of these, quotes stand only around values. A line that opens n values
        has at least 2n of them, so that all lines are legal if together they have no more.
        """
        if raw.translate(None, _PLAIN_BYTES) or not raw.endswith(b"')\n"):
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not is_nfc(text):
            return None
        pieces = text[:-3].split("')\n")
        lengths = map(len, pieces if text.isascii() else raw[:-3].split(b"')\n"))
        if len(pieces) != raw.count(b"\n") or max(lengths) > MAX_LINE_BYTES - 2:
            return None
        facts: list[Fact] = []
        share = self._shared.setdefault
        values = 0
        for piece in pieces:
            name, opening, inner = piece.partition("('")
            if not opening:
                return None
            parts = [name, *inner.split("','")]
            values += len(parts)
            facts.append(tuple(map(share, parts, parts)))
        if len(self._shared) > _MOST_SHARED:
            self._shared.clear()
        if raw.count(b"'") != 2 * (values - len(facts)):
            return None
        return facts if all(map(_NAME.fullmatch, set(map(itemgetter(0), facts)))) else None

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


def format_lines(facts: Iterable[Fact]) -> bytes:
    """Return the lines of facts, each with its LF.

    Raises:
        WriteError: a line that a reader refuses.
    """
    lines = list(map(format_fact, facts))
    text = "".join([f"{line}\n" for line in lines])
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise WriteError("a fact value is not UTF-8", rule="060-21") from None
    if text.count("\n") != len(lines) or raw.translate(None, _LINE_BYTES) or not is_nfc(text):
        raise _first_problem(lines)
    if max(map(len, lines if text.isascii() else raw.split(b"\n")), default=0) > MAX_LINE_BYTES:
        raise WriteError(f"a fact line has more than {MAX_LINE_BYTES} bytes", rule="060-144")
    if not all(map(_NAME.fullmatch, {line.partition("(")[0] for line in lines})):
        raise WriteError("a fact line does not begin with an ASCII letter", rule="060-30")
    return raw


def _first_problem(lines: Iterable[str]) -> WriteError:
    for line in lines:
        try:
            parse_fact(line.encode("utf-8"))
        except LaceError as error:
            return WriteError(safe_text(error.message), rule=error.rule)
    raise AssertionError("lines that are legal each, but not together")
