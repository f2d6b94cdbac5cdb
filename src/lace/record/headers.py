"""Header lines (010): one set of rules for values being written and bytes being read.

`parse_headers` accepts a block in one pass; only a block that fails is looked at
line by line, to say exactly what is wrong with the first bad line, and where.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_EXTRA_HEADERS, MAX_LINE_BYTES
from lace.base.text import is_nfc, normalize_nfc, shorten
from lace.errors import Place, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def fault(rule: str, message: str, offset: int, hint: str | None = None) -> RecordError:
    """Return an error at a byte offset, counted from the start of the record."""
    return RecordError(message, rule=rule, place=Place(offset=offset), hint=hint)


def relocate(error: RecordError, source: str | None, base: int) -> RecordError:
    """Move an error from an offset in a record to one in the source that holds the record."""
    inside = error.place.offset if error.place else None
    error.place = Place(source=source, offset=base + (inside or 0))
    return error


def detach(error: RecordError) -> RecordError:
    """Return an error without the frames it came through, which would keep their batch alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


Header = tuple[str, str]

LINK_SUFFIX: Final = "+Link"
RESERVED_NAMES: Final = frozenset(
    {
        "Group",
        "App",
        "Name",
        "TAI",
        "Data-Length",
        "Signed-By",
        "Signature",
        "Type",
        "\N{THREE NETWORKED COMPUTERS}",
    }
)

_NAME: Final = r"[^: \x00-\x1f\x7f]+"
_VALUE: Final = r"[^ \x00-\x1f\x7f][^\x00-\x1f\x7f]*"
HEADER_LINES: Final = f"(?:{_NAME}: {_VALUE}\n)*"
"""A pattern for any number of header lines, apart from NFC and their lengths."""
_BLOCK: Final = re.compile(HEADER_LINES)
_LINES: Final = re.compile(f"({_NAME}): ({_VALUE})\n")
_CONTROL_BYTE: Final = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")


def parse_headers(block: bytes, offset: int) -> list[Header]:
    """Return the headers of a block of LF-ended lines that starts at that offset."""
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        raise _diagnose(block, offset) from None
    if _BLOCK.fullmatch(text) is None or not is_nfc(text) or _has_long_line(block):
        raise _diagnose(block, offset)
    return split_lines(text)


def split_lines(text: str) -> list[Header]:
    """Return the headers of a text that `HEADER_LINES` matches."""
    return _LINES.findall(text)


def _has_long_line(block: bytes) -> bool:
    if len(block) <= MAX_LINE_BYTES:
        return False
    return any(len(line) > MAX_LINE_BYTES for line in block.split(b"\n"))


def _diagnose(block: bytes, offset: int) -> RecordError:
    at = 0
    for line in block.split(b"\n")[:-1]:
        found = _line_fault(line, offset + at)
        if found:
            return found
        at += len(line) + 1
    return fault("010-header-form", "the last header line has no LF", offset + at)


def _line_fault(line: bytes, offset: int) -> RecordError | None:
    control = _CONTROL_BYTE.search(line)
    if control:
        return fault(
            "010-control",
            f"control byte {control[0][0]:#04x} in a header",
            offset + control.start(),
            "write lines with LF alone" if control[0] == b"\r" else None,
        )
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
        return fault("010-utf8", f"byte {line[at]:#04x} is not UTF-8", offset + at)
    shown = repr(shorten(text))
    name, separator, value = text.partition(": ")
    if not separator:
        after = "no space after the colon of" if ":" in text else "no colon in"
        return fault("010-header-form", f"{after} header line {shown}", offset)
    if not name or ":" in name or " " in name:
        what = "is empty" if not name else "holds a colon or a space"
        return fault("010-header-form", f"the name of header line {shown} {what}", offset)
    if not value or value.startswith(" "):
        what = "is empty" if not value else "begins with a second space"
        start = offset + len(name.encode()) + 2
        return fault("010-header-form", f"the value of header {name!r} {what}", start)
    if not is_nfc(text):
        hint = f"its normal form has {len(normalize_nfc(text).encode())} bytes, not {len(line)}"
        return fault("010-nfc", f"header line {shown} is not in NFC", offset, hint)
    if len(line) > MAX_LINE_BYTES:
        return fault("010-line-length", f"a header line has {len(line)} bytes", offset)
    return None


def header_bytes(headers: Sequence[Header]) -> int:
    """Return how many bytes the lines of the headers take."""
    return sum(len(name.encode()) + len(value.encode()) + 3 for name, value in headers)


def check_extra_headers(headers: Sequence[Header], end: int = 0) -> None:
    """Refuse extra headers, the last ending at that offset: too many, reserved or unordered.

    The lines themselves have passed `parse_headers` or `check_line`.
    """
    if len(headers) > MAX_EXTRA_HEADERS:
        at = end - header_bytes(headers[MAX_EXTRA_HEADERS:])
        raise fault("010-extra-count", f"{len(headers)} extra headers", at)
    before = ""
    for position, (name, _value) in enumerate(headers):
        if name < before:  # code point order is the order of UTF-8 bytes
            at = end - header_bytes(headers[position:])
            raise fault("010-extra-order", f"extra header {name!r} stands after {before!r}", at)
        if name in RESERVED_NAMES:
            at = end - header_bytes(headers[position:])
            raise fault("010-extra-reserved", f"extra header {name!r} has a reserved name", at)
        before = name


def check_line(name: str, value: str) -> None:
    """Refuse a header that cannot be written as a line."""
    try:
        line = f"{name}: {value}".encode()
    except UnicodeEncodeError:
        raise fault("010-utf8", f"header {name!r} holds a surrogate", 0) from None
    found = _line_fault(line, 0)
    if b"\n" in line:
        found = fault("010-control", f"header {name!r} holds LF", 0)
    elif found is None and ":" in name:
        found = fault("010-header-form", f"the name {name!r} holds a colon", 0)
    if found:
        raise found


def sort_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Return extra headers sorted stably by name."""
    made = [(str(name), str(value)) for name, value in headers]
    for name, value in made:
        check_line(name, value)
    made.sort(key=lambda header: header[0])
    check_extra_headers(made, header_bytes(made))
    return tuple(made)
