"""Header lines: what each refusal says, and where."""

from __future__ import annotations

import pytest

from lace.errors import RecordError
from lace.record.headers import (
    RESERVED_NAMES,
    Header,
    check_extra_headers,
    check_line,
    header_bytes,
    parse_headers,
    sort_headers,
)


def test_good_lines() -> None:
    block = "A: 1\nB: two words \nname+Link: x: y\nκ: 🖧: ü\n".encode()
    assert parse_headers(block, 0) == [
        ("A", "1"),
        ("B", "two words "),
        ("name+Link", "x: y"),
        ("κ", "🖧: ü"),
    ]
    assert parse_headers(b"", 0) == []
    assert header_bytes(parse_headers(block, 0)) == len(block)


def test_a_line_of_1024_bytes_is_the_longest() -> None:
    line = b"A: " + b"x" * 1021
    assert parse_headers(line + b"\n" + line + b"\n", 0) == [("A", "x" * 1021)] * 2
    with pytest.raises(RecordError) as caught:
        parse_headers(b"B: 1\n" + line + b"x\n", 0)
    assert (caught.value.rule, caught.value.place and caught.value.place.offset) == (
        "010-line-length",
        5,
    )


@pytest.mark.parametrize(
    ("block", "rule", "offset", "said"),
    [
        (b"A: 1\r\n", "010-control", 104, "control byte 0x0d"),
        (b"A: \t\n", "010-control", 103, "control byte 0x09"),
        (b"A: \x7f\n", "010-control", 103, "control byte 0x7f"),
        (b"\0: 1\n", "010-control", 100, "control byte 0x00"),
        (b"A: \xff\n", "010-utf8", 103, "byte 0xff is not UTF-8"),
        (b"A: \xc0\x80\n", "010-utf8", 103, "byte 0xc0"),
        (b"A: \xed\xa0\x80\n", "010-utf8", 103, "byte 0xed"),
        (b"A: 1\nB\n", "010-header-form", 105, "no colon in header line 'B'"),
        (b"A:1\n", "010-header-form", 100, "no space after the colon"),
        (b": 1\n", "010-header-form", 100, "is empty"),
        (b"A B: 1\n", "010-header-form", 100, "holds a colon or a space"),
        (b"A:B: 1\n", "010-header-form", 100, "holds a colon or a space"),
        (b"A: \n", "010-header-form", 103, "the value of header 'A' is empty"),
        (b"A:  1\n", "010-header-form", 103, "begins with a second space"),
        (b"\n", "010-header-form", 100, "no colon"),
        ("A: e\u0301\n".encode(), "010-nfc", 100, "is not in NFC"),
        (b"A: 1", "010-header-form", 100, "the last header line has no LF"),
        (b"A: 1\nA: 2", "010-header-form", 105, "the last header line has no LF"),
    ],
)
def test_refusals(block: bytes, rule: str, offset: int, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_headers(block, 100)
    assert caught.value.rule == rule
    assert caught.value.place is not None
    assert caught.value.place.offset == offset
    assert said in caught.value.message


def test_the_first_bad_line_is_the_one_reported() -> None:
    with pytest.raises(RecordError) as caught:
        parse_headers(b"A: \t\nB: \xff\nC\n", 0)
    assert caught.value.rule == "010-control"
    with pytest.raises(RecordError) as caught:
        parse_headers(b"A: " + b"x" * 2000 + b"\nC\n", 0)
    assert caught.value.rule == "010-line-length"


def test_hints() -> None:
    with pytest.raises(RecordError, match="write lines with LF alone"):
        parse_headers(b"A: 1\r\n", 0)
    with pytest.raises(RecordError, match="its normal form has 5 bytes, not 6"):
        parse_headers("A: e\u0301\n".encode(), 0)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("A", "x\ny", "010-control"),
        ("A\n", "x", "010-control"),
        ("A", "\ud800", "010-utf8"),
        ("A:", "x", "010-header-form"),
        ("A: B", "x", "010-header-form"),
        ("A ", "x", "010-header-form"),
        ("", "x", "010-header-form"),
        ("A", "", "010-header-form"),
        ("A", " x", "010-header-form"),
        ("A", "e\u0301", "010-nfc"),
        ("A", "x" * 1022, "010-line-length"),
    ],
)
def test_lines_that_cannot_be_written(name: str, value: str, rule: str) -> None:
    with pytest.raises(RecordError) as caught:
        check_line(name, value)
    assert caught.value.rule == rule


def many(count: int) -> list[Header]:
    return [("A", str(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("headers", "rule", "at"),
    [
        (many(513), "010-extra-count", header_bytes(many(512))),
        ([("B", "1"), ("A", "1")], "010-extra-order", 5),
        ([("é", "1"), ("z", "1")], "010-extra-order", 6),
        ([("\U00010000", "1"), ("\uffee", "1")], "010-extra-order", 8),
        ([("A", "1"), ("Type", "1")], "010-extra-reserved", 5),
    ],
)
def test_extra_headers_refused(headers: list[Header], rule: str, at: int) -> None:
    with pytest.raises(RecordError) as caught:
        check_extra_headers(headers, 1000 + header_bytes(headers))
    assert caught.value.rule == rule
    assert caught.value.place is not None
    assert caught.value.place.offset == 1000 + at


def test_extra_headers_allowed() -> None:
    check_extra_headers(many(512))
    check_extra_headers([])
    check_extra_headers([("A", "1"), ("A", "0"), ("B", "1"), ("\uffee", "1"), ("\U00010000", "1")])


def test_reserved_names() -> None:
    assert set(RESERVED_NAMES) == {
        *("Group", "App", "Name", "TAI", "Data-Length", "Signed-By", "Signature", "Type"),
        "\U0001f5a7",
    }
    for name in RESERVED_NAMES:
        with pytest.raises(RecordError):
            sort_headers([(name, "x")])
    assert sort_headers([("type", "x"), ("\U0001f5a7x", "y")])


def test_sorting_is_stable() -> None:
    assert sort_headers([("b", "2"), ("a", "9"), ("b", "1")]) == (
        ("a", "9"),
        ("b", "2"),
        ("b", "1"),
    )
