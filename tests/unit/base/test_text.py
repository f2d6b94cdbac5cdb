"""Text: NFC by the pinned tables, and display that tricks nobody."""

from __future__ import annotations

import pytest

from lace.base.text import UNICODE_VERSION, is_nfc, normalize_nfc, safe_text, shorten


def test_the_unicode_version_is_pinned() -> None:
    assert UNICODE_VERSION == "18.0.0"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("abc", "abc"),
        ("é", "é"),
        ("e\u0301", "é"),
        ("\u212b", "Å"),
        ("\u1112\u1161\u11ab", "한"),
        ("a\u0323\u0307", "ạ̇"),
        ("\u0344", "\u0308\u0301"),
        ("\u2126", "Ω"),
        ("\U0001d15e", "\U0001d157\U0001d165"),
    ],
)
def test_nfc(text: str, normal: str) -> None:
    assert is_nfc(text) is (text == normal)
    assert normalize_nfc(text) == normal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 한 \U0001f5a7", "größe 한 \U0001f5a7"),
        ("a\x1b[31mb", "a\\u{1b}[31mb"),
        ("\x9b31m", "\\u{9b}31m"),
        ("line\nline\r\t", "line\\u{a}line\\u{d}\\u{9}"),
        ("\u202egnp.exe", "\\u{202e}gnp.exe"),
        ("\u2066\u2069\u200f\u061c", "\\u{2066}\\u{2069}\\u{200f}\\u{61c}"),
        ("\u2028\u2029\ufeff\xad", "\\u{2028}\\u{2029}\\u{feff}\\u{ad}"),
        ("\ud800", "\\u{d800}"),
        ("\U000e0041", "\\u{e0041}"),
        ("\x7f", "\\u{7f}"),
    ],
)
def test_safe_text(text: str, shown: str) -> None:
    assert safe_text(text) == shown


def test_shorten() -> None:
    assert shorten("short") == "short"
    assert shorten("x" * 60) == "x" * 60
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("abcdefghij", 6) == "ab…ij"
    assert shorten("abcdefghij", 1) == "…"
