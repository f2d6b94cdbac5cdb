"""Annotations: one JSON object, merged in order, kept by rule id."""

from __future__ import annotations

import pytest

from lace.errors import RuleError
from lace.rules.canonical import canonicalize
from lace.rules.source import merge_annotations


def annotated(text: str) -> list[dict[str, object]]:
    found = canonicalize(text).annotations
    return [dict(each) for each in found.values()]


def test_lines_before_one_rule_merge() -> None:
    text = '#:json {"a":1,"b":[1]}\n\n# between\n  #:json {"b":{"c":2}}\t\nA() :- true.'
    assert annotated(text) == [{"a": 1, "b": {"c": 2}}]


def test_equal_rules_share_an_entry() -> None:
    text = '#:json {"a":1,"b":1}\nA() :- true.\n#:json {"b":2}\nA()  :- true.\nB() :- true.'
    assert annotated(text) == [{"a": 1, "b": 2}]


def test_any_json_is_kept() -> None:
    text = '#:json  {"é":"\\u00e9","n":-1.5e3,"t":true,"x":null,"":{}}\nA() :- true.'
    assert annotated(text) == [{"é": "é", "n": -1500.0, "t": True, "x": None, "": {}}]


@pytest.mark.parametrize(
    "value",
    ["", "[1]", "{", "{} {}", "{}{}", "{'a':1}", '{"a":NaN}', '{"a":-Infinity}', '{"a":1e999}',
     '{"a":"\\ud800"}', "3", "null", "[" * 30_000, '{"a":' * 12_000,
     '{"a":' * 65 + "1" + "}" * 65, f'{{"n":{"1" * 5000}}}',
     '{"a":1,}'],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(RuleError) as caught:
        canonicalize(f"#:json {value}\nA() :- true.")
    assert caught.value.findings[0].rule == "030-105"


def test_an_annotation_without_a_rule_is_refused() -> None:
    with pytest.raises(RuleError) as caught:
        canonicalize('A() :- true.\n#:json {"a":1}\n\n# the end')
    assert (caught.value.rule, caught.value.place and caught.value.place.line) == ("G12", 2)


@pytest.mark.parametrize("line", ["#:json", "#:json{}", "#:json\t{}", "#:jsonx {}"])
def test_near_misses_are_comments_with_a_warning(line: str) -> None:
    assert annotated(f"{line}\nA() :- true.") == []


@pytest.mark.parametrize("line", ["#:yaml a", "#: json {}", "#json {}", "#"])
def test_other_lines_are_comments(line: str) -> None:
    assert annotated(f"{line}\nA() :- true.") == []


def test_an_annotation_of_a_rule_that_fails_is_not_dangling() -> None:
    with pytest.raises(RuleError) as caught:
        canonicalize('#:json {"a":1}\nA( :- true.')
    assert {finding.rule for finding in caught.value.findings} == {"030-26"}


def test_nesting_has_a_fixed_bound() -> None:
    text = '{"a":' * 63 + "1" + "}" * 63
    assert annotated(f"#:json {text}\nA() :- true.")


def test_merging_nothing() -> None:
    assert merge_annotations([]) == {}
