"""Explanations as values: what they say, as text, as JSON and as HTML."""

from __future__ import annotations

import json
import re

import pytest

from lace.why.explanation import (
    Absence,
    Condition,
    Explanation,
    Miss,
    RuleReference,
    Step,
    show_fact,
)

RULE = RuleReference(1, "U.x", "A(X) :- B(X).", "p.lace", 3, {"label": "why\n", "tags": ["a"]})


def holding(value: str = "a") -> Explanation:
    condition = Condition("fact", "B(X)", f"B('{value}')", ("B", value))
    return Explanation(
        ("A", value),
        (Step(("A", value), 1, RULE, (condition,)), Step(("B", value))),
    )


def test_what_holds_is_true() -> None:
    found = holding()
    assert found
    assert found.holds
    assert found.height == 1
    assert found.step(("B", "a")).is_base
    assert list(found.base_facts()) == [("B", "a")]
    assert str(found) == (
        "A('a')\n"
        "├─ by rule 1 (U.x, p.lace:3): A(X) :- B(X).\n"
        '│  label: "why\\n"\n'
        '│  tags: ["a"]\n'
        "└─ B('a')   base fact"
    )


def test_what_does_not_hold_is_false() -> None:
    found = Explanation(("A",), absence=Absence(("A",), "unknown", suggestion="B/0"))
    assert not found
    assert found.height is None
    assert str(found) == (
        "A()   does not hold\n└─ no rule and no fact has the predicate A/0; did you mean B/0?"
    )


def test_a_fact_is_derived_or_absent() -> None:
    with pytest.raises(AssertionError):
        Explanation(("A",))


def test_the_place_of_a_rule() -> None:
    assert str(RuleReference(2, "U.x", "A() :- true.")) == "rule 2 (U.x): A() :- true."
    assert "(U.x, line 4)" in str(RuleReference(2, "U.x", "", line=4))
    assert "(U.x, p.lace)" in str(RuleReference(2, "U.x", "", "p.lace"))


def test_nothing_reaches_a_terminal_or_a_browser_unseen() -> None:
    found = holding("<b>\x1b[31m\u202e&'\n")
    text = str(found)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 5
    html = found._repr_html_()
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "&lt;b&gt;\\u{1b}[31m" in html


def test_html_is_balanced_and_folds() -> None:
    html = holding()._repr_html_()
    for tag in ("div", "details", "summary", "code", "small"):
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>"), tag
    assert html.count("<details open") == 1


def test_json_of_what_holds() -> None:
    made = json.loads(json.dumps(holding().to_json()))
    assert list(made) == ["fact", "holds", "height", "steps", "absence"]
    assert made["fact"] == {"predicate": "A/1", "values": ["a"], "text": "A('a')"}
    assert made["holds"] is True
    first, second = made["steps"]
    assert first["rule"] == {
        "number": 1,
        "id": "U.x",
        "text": "A(X) :- B(X).",
        "source": "p.lace",
        "line": 3,
        "part": None,
        "annotations": {"label": "why\n", "tags": ["a"]},
    }
    (item,) = first["body"]
    assert item["kind"] == "fact"
    assert made["steps"][item["step"]] == second
    assert second["rule"] is None
    assert second["body"] == []


def test_json_of_what_does_not_hold() -> None:
    inner = Absence(("B", "a"), "base", nearest=("B", "b"))
    miss = Miss(RULE, "fact", "B(X)", "B('a')", 0, (("X", "a"),), nearest=("B", "b"), inner=inner)
    found = Explanation(("A", "a"), absence=Absence(("A", "a"), "rules", (miss,)))
    made = json.loads(json.dumps(found.to_json()))
    assert made["holds"] is False
    assert made["height"] is None
    (rule,) = made["absence"]["rules"]
    assert rule["binding"] == {"X": "a"}
    assert rule["nearest"]["text"] == "B('b')"
    assert rule["inner"]["kind"] == "base"


def test_facts_as_text() -> None:
    assert show_fact(("A",)) == "A()"
    assert show_fact(("A", "it's", "\\")) == r"A('it\'s','\\')"


def test_facts_behind_the_limit_are_counted() -> None:
    steps = [
        Step((f"P{n}",), 5 - n, RULE, (Condition("fact", "", "", (f"P{n + 1}",)),))
        for n in range(5)
    ]
    found = Explanation(("P0",), (*steps, Step(("P5",))))
    assert "not shown further" not in found.tree()
    short = found.tree(limit=2)
    assert short.splitlines()[-1] == "… and 4 more facts of this derivation"
    assert "P2()   not shown further" in short
    assert found.tree(limit=None) == found.tree()
