"""Fact lines, both directions."""

from __future__ import annotations

from itertools import product

import pytest

from lace.errors import LaceError, LimitExceeded, Place
from lace.facts.lines import (
    Fact,
    FactLineError,
    check_value,
    format_fact,
    parse_fact,
    parse_typed_fact,
)


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (("Have", "P.x.H3"), "Have('P.x.H3')"),
        (("TransportEncrypted",), "TransportEncrypted()"),
        (("F", ""), "F('')"),
        (("F", "it's", "a\\b", "\\'"), r"F('it\'s','a\\b','\\\'')"),
        (("F", "a,b", "(c)", " d "), "F('a,b','(c)',' d ')"),
        (("_Viewer", "é\U0001f5a7\u2028"), "_Viewer('é\U0001f5a7\u2028')"),
        (("a~b-c_1", "x"), "a~b-c_1('x')"),
    ],
)
def test_round_trip(fact: Fact, line: str) -> None:
    assert format_fact(fact) == line
    assert parse_fact(line.encode()) == fact


def test_the_short_way_agrees_with_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain lines are read without a pattern; every short line of these signs, both ways."""

    def read(line: bytes) -> Fact | None:
        try:
            return parse_fact(line)
        except FactLineError:
            return None

    more = [b"F('a\\')", b"F('a\\\\')", b"F('a\x7f')", b"F('a\tb')", b"1('a')", b"F ('a')"]
    lines = [bytes(b"F" + bytes(end)) for n in range(7) for end in product(b"(',)a", repeat=n)]
    short = {line: read(line) for line in lines + more}
    monkeypatch.setattr("lace.facts.lines._parse_plain", lambda _line: None)
    assert {line: read(line) for line in lines + more} == short
    assert short[b"F('a')"] == ("F", "a")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Have",
        b"Have(",
        b"Have()x",
        b"Have('a'",
        b"Have('a').",
        b"Have('a')\n",
        b"Have( 'a')",
        b"Have('a', 'b')",
        b"Have('a',)",
        b"Have(,'a')",
        b" Have('a')",
        b'Have("a")',
        b"Have(a)",
        b"Have(X)",
        b"Have('a''b')",
        b"Have('a''''b')",
        b"Have('''a''')",
        b"Have('a','b'c')",
        b"Have('a'b','c')",
        b"Have('\\n')",
        b"Have('a\\')",
        b"Have('a'\t)",
        b"Have('a',\t'b')",
        b"Have('a\rb')",
        b"1Have('a')",
        b"__Have('a')",
        b"H\xc3\xa9('a')",
        b"not Have('a')",
    ],
)
def test_everything_else_is_refused(line: bytes) -> None:
    with pytest.raises(FactLineError) as caught:
        parse_fact(line, place=Place("facts", 3))
    assert caught.value.place == Place("facts", 3)
    assert caught.value.rule == "050-23"
    assert caught.value.hint


def test_values_that_are_not_text() -> None:
    with pytest.raises(FactLineError) as caught:
        parse_fact(b"F('\xff')", place=Place("facts", 1))
    assert (caught.value.rule, caught.value.place) == ("020-13", Place("facts", 1))
    with pytest.raises(FactLineError) as caught:
        parse_fact("F('e\u0301')".encode(), place=Place("facts", 2))
    assert (caught.value.rule, caught.value.place) == ("020-14", Place("facts", 2))
    with pytest.raises(FactLineError) as caught:
        check_value("\ud800")
    assert caught.value.rule == "020-13"


def test_a_value_limit() -> None:
    check_value("x" * 1024)
    with pytest.raises(LimitExceeded) as caught:
        check_value("é" * 513)
    assert (caught.value.rule, caught.value.observed) == ("020-15", 1026)
    assert caught.value.limit == "max_value_bytes"
    assert parse_fact(b"F('abc')", max_value_bytes=3) == ("F", "abc")
    with pytest.raises(LaceError) as limited:
        parse_fact(b"F('abc')", max_value_bytes=2, place=Place("facts", 4))
    assert limited.value.place == Place("facts", 4)


@pytest.mark.parametrize("text", ["nonsense", "A('x'", "A(x)", "A('x') B"])
def test_what_somebody_typed_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(FactLineError) as caught:
        parse_typed_fact(text)
    assert "write it like a line of `lace query`" in str(caught.value.hint)
