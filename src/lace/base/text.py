"""Text rules: UTF-8, NFC by one pinned Unicode version, control bytes, and safe display.

NFC means the tables of the pinned package `unicodedata2`, never the interpreter's
own: two honest peers must agree whatever Python they run.
"""

from __future__ import annotations

import re
from typing import Final

import unicodedata2

UNICODE_VERSION: Final[str] = unicodedata2.unidata_version

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""A character that no header value and no path may hold."""
LINE_BREAK: Final = re.compile(r"[\n\r]")
"""A character that no constant and no fact line may hold; every other character may be in one."""

# C0, DEL, C1, soft hyphen, zero-width and bidirectional controls, line and paragraph
# separators, surrogates, BOM, interlinear annotation, tags, variation selectors' plane.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U000e0fff]"
)


def is_nfc(text: str) -> bool:
    """Tell whether text is in Unicode normalisation form C."""
    return text.isascii() or unicodedata2.normalize("NFC", text) == text


def is_wide(character: str) -> bool:
    """Tell whether a character takes two columns of a terminal.

    >>> is_wide("a"), is_wide("日")
    (False, True)
    """
    return unicodedata2.east_asian_width(character) in ("W", "F")


def normalize_nfc(text: str) -> str:
    """Return text in Unicode normalisation form C, for hints; nothing received is repaired."""
    return text if text.isascii() else str(unicodedata2.normalize("NFC", text))


def safe_text(text: str) -> str:
    r"""Return text with every character that could trick a terminal made visible.

    >>> safe_text("a\x1b[31mb")
    'a\\u{1b}[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def shorten(text: str, limit: int = 60) -> str:
    """Return text cut in the middle to at most limit characters, for messages."""
    if len(text) <= limit:
        return text
    keep = (limit - 1) // 2
    return f"{text[:keep]}…{text[len(text) - keep :]}"


_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """Return a byte count for people.

    >>> size_text(1536)
    '1.5 KiB'
    """
    value, unit = float(count), "bytes"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
