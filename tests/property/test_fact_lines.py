"""Fact lines: what is read is exactly what would be written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.errors import LaceError
from lace.facts.lines import Fact, format_fact, parse_fact
from tests.property.strategies import mutations, nfc_text

pytestmark = pytest.mark.property

predicates = st.from_regex(r"_?[A-Za-z][A-Za-z0-9_~-]*", fullmatch=True)
texts = nfc_text(min_size=0, max_size=10) | st.text(
    st.sampled_from("'\\,() a\t\x00\x01\x1b\x7f\x85\u2028"), max_size=6
)
facts = st.builds(lambda name, values: (name, *values), predicates, st.lists(texts, max_size=5))


def is_written(line: bytes) -> bool:
    """Tell whether a line is read, and check that it is then what would be written."""
    try:
        fact = parse_fact(line)
    except LaceError:
        return False
    assert format_fact(fact).encode() == line
    return True


@given(facts)
def test_round_trip(fact: Fact) -> None:
    line = format_fact(fact)
    assert parse_fact(line.encode()) == fact


@given(facts.flatmap(lambda fact: mutations(format_fact(fact).encode())))
@example(b"F('a')\n")
@example(b"F('\\a')")
@example("F('e\u0301')".encode())
@example(b"F('\xed\xa0\x80')")
@example(b"F()")
@example(b"F(''')")
def test_a_changed_line_is_refused_or_means_itself(line: bytes) -> None:
    is_written(line)


@given(st.lists(st.sampled_from("F _('\\,)aé\t\n\r\x00\x7f\u0301"), max_size=12).map("".join))
def test_a_slow_reading_agrees(text: str) -> None:
    assert is_written(text.encode()) is (slow_parse(text) is not None)


def slow_parse(text: str) -> list[str] | None:
    """Read a fact line character by character."""
    name = text.partition("(")[0]
    bare = name.removeprefix("_")
    rest = text[len(name) :]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    if not bare or bare[0] not in letters or set(bare) - set(letters + "0123456789_~-"):
        return None
    if rest == "()":
        return []
    if not (rest.startswith("('") and rest.endswith(")")):
        return None
    values, at = [], 1
    while True:
        value, at = slow_value(rest, at)
        if value is None:
            return None
        values.append(value)
        if rest[at:] == ")":
            return values
        if rest[at : at + 1] != ",":
            return None
        at += 1


def slow_value(text: str, at: int) -> tuple[str | None, int]:
    if text[at : at + 1] != "'":
        return None, at
    at += 1
    value = ""
    while at < len(text) and text[at] != "'":
        if text[at] == "\\":
            at += 1
            if text[at : at + 1] not in ("'", "\\"):
                return None, at
        if text[at] in "\n\r":
            return None, at
        value += text[at]
        at += 1
    if "a\u0301" in value or "e\u0301" in value:
        return None, at
    return (value, at + 1) if at < len(text) else (None, at)
