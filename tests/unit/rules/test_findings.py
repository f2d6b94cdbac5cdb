"""Findings: their order, their words, their carets, and how many are shown."""

from __future__ import annotations

import pickle

import pytest

from lace.errors import Finding, LaceError, Place, RuleError
from lace.rules.findings import MAX_KEPT, MAX_SHOWN, Reporter, SourceText, format_findings, show
from lace.rules.program import check_source
from lace.rules.syntax import NOWHERE, Span


def reporter(text: str = "one\ntwo", name: str | None = "a.lace") -> Reporter:
    return Reporter(SourceText(name, tuple(text.split("\n"))))


def test_a_finding_is_one_line_and_a_caret() -> None:
    found = reporter()
    found.error("030-37", Span(2, 2, 4), "what is wrong", "what to do")
    (finding,) = found.findings
    assert str(finding) == "a.lace:2:2: what is wrong [030-37]; what to do"
    assert finding.render() == f"{finding}\n    two\n     ^^"
    assert finding.severity == "error"


def test_a_warning_says_so() -> None:
    found = reporter(name=None)
    found.warn("G11", Span(1, 1, 2), "looks odd")
    assert [str(finding) for finding in found.warnings] == ["1:1: warning: looks odd"]
    assert found.warnings[0].log_line() == "1:1: warning: looks odd [G11]"
    assert not found.has_errors


def test_a_finding_without_place_or_rule() -> None:
    finding = Finding(severity="error", place=Place(), message="odd")
    assert str(finding) == finding.render() == "odd"


def test_a_span_from_nowhere_has_no_excerpt() -> None:
    found = reporter()
    found.error("G10", NOWHERE, "made up")
    assert found.findings[0].render() == "a.lace: made up"


def test_findings_come_in_the_order_of_the_source() -> None:
    found = reporter()
    for line, column in [(2, 1), (1, 3), (1, 1)]:
        found.error("G10", Span(line, column, column + 1), f"{line}:{column}")
    found.warn("G10", Span(1, 2, 3), "1:2")
    assert [finding.message for finding in found.findings] == ["1:1", "1:2", "1:3", "2:1"]


@pytest.mark.parametrize(
    ("line", "span", "shown"),
    [
        ("abc", Span(1, 4, 5), "    abc\n       ^"),
        ("a\tb", Span(1, 3, 4), "    a b\n      ^"),
        ("a\x1b[31m", Span(1, 2, 3), "    a\\u{1b}[31m\n     ^^^^^^"),
        ("x" * 300, Span(1, 200, 203), f"    …{'x' * 100}…\n    {' ' * 61}^^^"),
        ("x" * 300, Span(1, 1, 301), f"    {'x' * 100}…\n    {'^' * 100}"),
    ],
)
def test_excerpts_are_visible_and_cut(line: str, span: Span, shown: str) -> None:
    assert SourceText(None, (line,)).excerpt(span) == shown


def test_one_error_is_raised_with_its_own_parts() -> None:
    found = reporter()
    found.error("030-37", Span(1, 1, 2), "wrong", "mend it")
    error = found.refusal()
    assert isinstance(error, RuleError)
    assert isinstance(error, LaceError)
    assert (error.message, error.rule, error.hint) == ("wrong", "030-37", "mend it")
    assert str(error) == "a.lace:1:1: wrong [030-37]; mend it"
    assert pickle.loads(pickle.dumps(error)).findings == found.findings  # noqa: S301  # our own


def test_warnings_beside_errors_are_counted() -> None:
    found = reporter()
    found.error("G10", Span(1, 1, 2), "wrong")
    found.warn("G10", Span(1, 1, 2), "odd")
    assert str(found.refusal()) == "a.lace:1:1: wrong\nand 1 warning"
    assert found.refusal().message == "a.lace:1:1: wrong [G10]\nand 1 warning"
    found.warn("G10", Span(1, 1, 2), "odd")
    assert str(found.refusal()).endswith("\nand 2 warnings")
    assert len(found.refusal().findings) == 3


def test_the_first_hundred_are_shown_and_the_rest_counted() -> None:
    found = reporter("\n" * 20_000)
    for line in range(1, 12_001):
        found.error("G10", Span(line, 1, 2), "wrong")
    text = str(found.refusal())
    assert text.count("wrong") == MAX_SHOWN == 100
    assert text.endswith("\nand 11,900 more findings")
    assert len(found.findings) == MAX_KEPT == 10_000
    assert found.error_count == 12_000


def test_format_findings_with_excerpts() -> None:
    found = reporter()
    for _ in range(101):
        found.error("G10", Span(1, 1, 2), "wrong")
    text = format_findings(found.findings, excerpts=True)
    assert text.count("    one\n    ^\n") == 100
    assert text.endswith("\nand 1 more finding")


def test_show_is_short_and_visible() -> None:
    assert show("a\x1b") == "a\\u{1b}"
    assert len(show("x" * 1000)) == 60


@pytest.mark.parametrize(("length", "is_cut"), [(99, False), (100, False), (101, True)])
def test_a_line_longer_than_the_window_is_cut(length: int, is_cut: bool) -> None:
    found = reporter("x" * length)
    found.error("030-13", Span(1, 1, 2), "odd")
    excerpt = found.findings[0].render().split("\n")[1]
    assert excerpt.endswith("…") == is_cut
    assert len(excerpt.strip()) == (101 if is_cut else length)


@pytest.mark.requirement("030-12")
@pytest.mark.parametrize(
    ("character", "message"),
    [
        ("\udc80", "byte 0x80 is not UTF-8 text"),
        ("\udcff", "byte 0xff is not UTF-8 text"),
        ("\udc7f", "U+DC7F is not UTF-8 text"),
        ("\udd00", "U+DD00 is not UTF-8 text"),
    ],
)
def test_a_surrogate_that_escapes_a_byte_is_reported_as_that_byte(
    character: str, message: str
) -> None:
    with pytest.raises(RuleError) as caught:
        check_source(f"A(X) :- Have(X). # {character}")
    (found,) = caught.value.findings
    assert (found.rule, found.message) == ("030-12", message)


def test_a_variable_of_what_not_stands_before_is_not_called_unused() -> None:
    with pytest.raises(RuleError) as caught:
        check_source("A(P) :- Field(P,'x',_,V), not V != 'a'.")
    assert [found.rule for found in caught.value.findings] == ["G16"]
