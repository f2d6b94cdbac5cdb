"""Runs of fact lines: the quick way gives what the careful way gives."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.errors import LaceError
from lace.facts.lines import Fact, format_fact, parse_fact
from lace.iltp.fact_lines import FactLineParser, format_lines
from lace.iltp.items import StreamError, StreamFault, WriteError

TEXT = st.text(st.sampled_from("aB'\\,() éΩ\u0301\u200b\t\r\x00\x01\x7f\x85é"), max_size=6)
LINES = st.lists(
    st.one_of(
        st.builds(lambda name, values: format_fact((name, *values)).encode(),
                  st.sampled_from(["A", "Bc_d~-1", "a"]), st.lists(TEXT, max_size=3)),
        st.text(st.sampled_from("ab'(),\\.é"), max_size=12).map(lambda text: ("A" + text).encode()),
        st.binary(max_size=8).map(lambda raw: b"A('" + raw.replace(b"\n", b"") + b"')"),
        st.sampled_from([b"A('%b')" % (b"x" * size) for size in (1019, 1020)]),
    ),
    max_size=40,
)  # fmt: skip


ALIKE = st.builds(
    lambda name, values, rest: [b"%b('%b'%b)" % (name, value, rest) for value in values],
    st.sampled_from([b"A", b"a-1", b"A.b"]),
    st.lists(
        st.one_of(
            TEXT.map(lambda text: text.replace("\\", "\\\\").replace("'", "\\'").encode()),
            st.text(st.sampled_from("a'(),"), max_size=8).map(str.encode),
            st.sampled_from([b"x" * 1010, b"x" * 1019, b"x" * 1020]),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([b"", b",'b'", b",'b','c'", b",'b'c'", b",b", b"','", b",''", b",'b\\'"]),
)
"""Lines that differ in their first value."""


@given(LINES | ALIKE)
@example([b"A('a','b'c')", b"A('x','b'c')"])
@example([b"A('a')A('b')", b"A('c')"])
@example([b"A('a','b')", b"A('x'','b')"])
@example([b"A('a','b')", b"A('','b','b')"])
@example([b"A','B('c')", b"A('c')"])
@example([b"A('a','b')", b"A()"] * 20)
@example([b"A('e')", b"A('\xc3\xa9')"] * 20)
@example([b"A('a''b')", b"A('x','y')"])
@example([b"X'"])
@example([b"A('xA('b')", b"x')"])
@example([b"B('x'y')", b"A('a\\')"])
@example([b"A('a\\')", b"B('x'y')"])
@example([b"A('\\x')"])
@example([b"A('\\\\','\\'\\\\\\'')", b"B('b')"])
@example([b"A.b('x')"])
def test_many_at_once_are_as_each_alone(lines: list[bytes]) -> None:
    wanted: list[Fact] = []
    failed: LaceError | None = None
    at = 7
    for line in lines:
        try:
            if len(line) > 1024:
                raise LaceError("a fact line has more than 1024 bytes", rule="060-144")
            wanted.append(parse_fact(line))
        except LaceError as error:
            failed = error
            break
        at += len(line) + 1
    raw = b"".join(line + b"\n" for line in lines)
    parser = FactLineParser("tcp:h:1")
    if failed is None:
        assert not lines or parser.parse(raw, 7) == wanted
        return
    with pytest.raises(StreamError) as caught:
        parser.parse(raw, 7)
    assert (caught.value.offset, caught.value.rule) == (at, failed.rule)
    assert caught.value.fault is StreamFault.LINE
    assert str(caught.value).startswith(f"tcp:h:1: byte {at}: ")


def test_one_line_larger_than_all_others() -> None:
    raw = b"A('\\'')\n" * 20 + b"B('" + b"x" * 900 + b"')\n"
    assert len(FactLineParser().parse(raw, 0)) == 21


def test_equal_texts_are_one_object_and_few_are_remembered() -> None:
    parser = FactLineParser()
    one, two = parser.parse(b"A('some text','b')\nA('c','some text')\n", 0)
    assert one[1] is two[2]
    assert parser._shared
    parser.forget()
    assert not parser._shared
    raw = b"".join(b"A('%d')\nB('%d')\n" % (number, number) for number in range(10_000))
    assert len(parser.parse(raw, 0)) == 20_000
    assert not parser._shared
    parser.parse(b"".join(b"A('%d','b')\n" % number for number in range(20_000)), 0)
    assert parser._shared.keys() == {"A", "b"}
    for number in range(10_000):
        assert parser.parse(b"A('a','%d')\n" % number, 0) == [("A", "a", str(number))]
    assert len(parser._shared) < 5_000, "lines that come one by one, too"


@given(
    st.lists(st.tuples(st.just("A") | st.just("Bc"), TEXT, TEXT), max_size=5)
    | st.lists(st.tuples(st.just("A"), TEXT, st.just("b")), max_size=5)
    | st.lists(st.tuples(st.just("A"), TEXT), max_size=5)
)
def test_what_is_written_can_be_read(facts: list[Fact]) -> None:
    try:
        raw = format_lines(facts)
    except WriteError:
        with pytest.raises(LaceError):
            [parse_fact(format_fact(fact).encode("utf-8", "surrogatepass")) for fact in facts]
        return
    assert raw == b"".join(format_fact(fact).encode() + b"\n" for fact in facts)
    if facts:
        assert FactLineParser().parse(raw, 0) == facts


@pytest.mark.parametrize(
    ("fact", "rule"),
    [
        (("A", "x" * 1020), "060-144"),
        (("A", "é" * 510), "060-144"),
        (("_A", "x"), "060-30"),
        (("A b", "x"), "060-30"),
        (("", "x"), "060-30"),
        (("A", "a\nb"), "050-23"),
        (("A", "a\rb"), "050-23"),
        (("A", "e\u0301"), "020-14"),
        (("A", "\ud800"), "060-21"),
    ],
)
def test_what_is_not_written(fact: Fact, rule: str) -> None:
    with pytest.raises(WriteError) as caught:
        format_lines([("B", "fine"), fact])
    assert caught.value.rule == rule


def test_the_longest_line() -> None:
    fact = ("A", "x" * 1019)
    assert FactLineParser().parse(format_lines([fact]), 0) == [fact]
    wide = ("A", "é" * 509 + "x")
    assert FactLineParser().parse(format_lines([wide]), 0) == [wide]


def test_all_pairs_of_short_lines() -> None:
    """What one line has too many of, another may lack: together they are as each alone."""
    bodies = ["".join(signs) for size in range(4) for signs in product("'\\,(a", repeat=size)]
    lines = [f"A({body})".encode() for body in bodies] + [
        f"A('{body}')".encode() for body in bodies
    ]
    verdicts: dict[bytes, Fact | None] = {}
    for line in lines:
        try:
            verdicts[line] = parse_fact(line)
        except LaceError:
            verdicts[line] = None
    parser = FactLineParser()
    for one, two in product(verdicts, repeat=2):
        wanted = [verdicts[one], verdicts[two]]
        found = parser._parse_together(b"%b\n%b\n" % (one, two))
        assert found is None or found == wanted, (one, two)
        if None not in wanted and "()" not in (one + two).decode():
            assert found == wanted
