"""Fact lines: `Name('value','value')`, one fact a line, both directions (030, 050).

No spaces outside quotes, no period, no variables; only a backslash and a quote are
escaped, and every other character but LF and CR is written as it is. Reading refuses
whatever writing would not give.
"""

from __future__ import annotations

import re
from typing import Final

from lace.base.limits import MAX_LINE_BYTES
from lace.base.text import LINE_BREAK, is_nfc, shorten
from lace.errors import LaceError, LimitExceeded, Place

Fact = tuple[str, ...]
"""A predicate's name and then its values."""

_NAME: Final = "_?[A-Za-z][A-Za-z0-9_~-]*"
_QUOTED: Final = r"'(?:[^'\\]|\\['\\])*'"
_PLAIN_NAME: Final = re.compile(_NAME)
_LINE: Final = re.compile(rf"({_NAME})\(((?:{_QUOTED}(?:,{_QUOTED})*)?)\)")
_VALUE: Final = re.compile(_QUOTED)
_ESCAPED: Final = re.compile(r"\\(.)")


class FactLineError(LaceError):
    """A line that is no fact."""


def check_value(value: str, max_value_bytes: int = MAX_LINE_BYTES) -> None:
    """Refuse a fact value that is not NFC, not encodable as UTF-8, or too long."""
    try:
        length = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise FactLineError(f"value {shorten(value)!r} is not UTF-8", rule="020-13") from None
    if not is_nfc(value):
        raise FactLineError(f"value {shorten(value)!r} is not in NFC", rule="020-14")
    if length > max_value_bytes:
        raise LimitExceeded(
            f"a fact value has {length} bytes",
            limit="max_value_bytes",
            allowed=max_value_bytes,
            observed=length,
            rule="020-15",
        )


def format_fact(fact: Fact) -> str:
    r"""Return the line of a fact, without LF.

    >>> format_fact(("Field", "P.x", "Name", "0", "it's"))
    "Field('P.x','Name','0','it\\'s')"
    """
    name, *values = fact
    quoted = [f"'{_escape(value)}'" for value in values]
    return f"{name}({','.join(quoted)})"


def _escape(value: str) -> str:
    if "\\" in value or "'" in value:
        return value.replace("\\", "\\\\").replace("'", "\\'")
    return value


def parse_fact(
    line: bytes,
    *,
    max_value_bytes: int = MAX_LINE_BYTES,
    place: Place | None = None,
) -> Fact:
    """Return the fact of a line without its LF."""
    plain = _parse_plain(line) if len(line) <= max_value_bytes else None
    if plain is not None:
        return plain
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FactLineError(
            f"byte {line[error.start]:#04x} is not UTF-8", rule="020-13", place=place
        ) from None
    found = _LINE.fullmatch(text)
    if not found or LINE_BREAK.search(text):
        raise FactLineError(
            f"{shorten(text)!r} is not a fact line",
            rule="050-23",
            place=place,
            hint="write Name('value','value') without spaces outside quotes",
        )
    values = [_ESCAPED.sub(r"\1", quoted[1:-1]) for quoted in _VALUE.findall(found[2])]
    for value in values:
        try:
            check_value(value, max_value_bytes)
        except LaceError as error:
            error.place = place
            raise
    return (found[1], *values)


def parse_typed_fact(text: str, max_value_bytes: int = MAX_LINE_BYTES) -> Fact:
    """Return the fact that somebody wrote; space around it and a full stop are forgiven.

    >>> parse_typed_fact("Edge('a','b'). ")
    ('Edge', 'a', 'b')
    """
    try:
        raw = text.strip().encode("utf-8", "surrogateescape").removesuffix(b".")
        return parse_fact(raw, max_value_bytes=max_value_bytes)
    except UnicodeEncodeError:
        raise FactLineError(f"{shorten(text)!r} is not UTF-8", rule="020-13") from None
    except FactLineError as error:
        if error.rule == "050-23":
            error.hint = "write it like a line of `lace query`: \"Name('value','value')\""
        raise


def _parse_plain(line: bytes) -> Fact | None:
    """Return the fact of a line of printable ASCII without escapes, as nearly all are.

    In a legal one of these, quotes stand only around values; whatever else is for the
    long way, which says what is wrong.
    """
    if not line.isascii() or b"\\" in line or not line.endswith(b"')"):
        return None
    text = line.decode("ascii")
    name, opening, inner = text[:-2].partition("('")
    values = inner.split("','")
    if not opening or inner.count("'") != 2 * (len(values) - 1) or not text.isprintable():
        return None
    return (name, *values) if _PLAIN_NAME.fullmatch(name) else None
