"""Canonical text: one form, its identifiers, and the refusal of everything else."""

from __future__ import annotations

import pytest

from lace.errors import RuleError
from lace.rules.canonical import (
    canonical_text,
    canonicalize,
    lacegram_id,
    parse_canonical,
    rule_id,
)
from lace.rules.syntax import Atom, Rule, TrueAtom

GOOD = "A(P) :- Have(P).\nB(P) :- A(P), not C(P), P != 'x', Cardinality(A(_),'<','3')."


def test_no_rules() -> None:
    assert canonical_text([]) == ""
    assert parse_canonical(b"").rules == ()
    assert canonicalize("# nothing\n\n").text == ""


def test_ids() -> None:
    made = canonicalize("SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).")
    assert made.id == "R.V3wv7Ug32jVLxA5Q6An85cW~HQfME12J4bJK7MpVBHS"
    assert made.rule_ids[0] == "U.~5QSJ1rpuUpjwMISHdt6Bv5PfVYi~oF~NwY5lUWsc5C"
    assert lacegram_id(made.text) == made.id
    assert rule_id("SelectHave(P) :- Have(P).") == made.rule_ids[0]


def test_rules_made_by_hand() -> None:
    assert canonical_text([Rule(Atom("A", ()), (TrueAtom(),))] * 2) == "A() :- true.\nA() :- true."


def test_canonical_text_is_accepted() -> None:
    parsed = parse_canonical(GOOD.encode())
    assert canonical_text(parsed.rules) == GOOD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "\n", "canonical text has no LF behind its last rule"),
        ("\n" + GOOD, "canonical text has no blank line"),
        ("\n", "canonical text has no blank line"),
        (" ", "canonical text has no blank line"),
        ("# all\n" + GOOD, "canonical text has no comment"),
        ("#:json {}\n" + GOOD, "canonical text has no annotation"),
        (" " + GOOD, "the spaces of this rule are not the canonical ones"),
        (GOOD + " ", "the spaces of this rule are not the canonical ones"),
        (GOOD.replace(" :- ", ":-"), "the spaces of this rule are not the canonical ones"),
        (GOOD.replace("), ", "),"), "the spaces of this rule are not the canonical ones"),
        (GOOD.replace("not ", "not\t"), "the spaces of this rule are not the canonical ones"),
        (GOOD.replace("A(_),'", "A(_), '"), "the spaces of this rule are not the canonical ones"),
        (GOOD.replace("\n", "\r\n"), "a carriage return stands here"),
        ("\ufeff" + GOOD, "the text begins with a byte order mark"),
        (GOOD.replace("P != 'x'", "P != 'e\u0301'"), "a constant is in Unicode normal form NFC"),
        (GOOD[:-1], "a rule ends with a period"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_canonical(text.encode())
    assert message in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(RuleError, match="byte 0xff is not UTF-8"):
        parse_canonical(b"A(P) :- Field(P,'\xff',_,_).")


def test_the_reason_names_place_and_canonical_line() -> None:
    with pytest.raises(RuleError) as caught:
        parse_canonical(b"A(P) :- Have(P).\nB(P) :-  Have(P).", name="R.x")
    assert str(caught.value) == (
        "R.x:2:9: the spaces of this rule are not the canonical ones;"
        " canonical is: B(P) :- Have(P)."
    )


def test_a_finding_marks_what_canonical_text_would_not_hold() -> None:
    """A whole line, the end of the last one, or the first character that differs."""
    with pytest.raises(RuleError) as caught:
        parse_canonical(b"# all\nA(P) :- Have(P).\n\nB(P) :-  Have(P).\n")
    assert [finding.render().partition(";")[0] for finding in caught.value.findings] == [
        "1:1: canonical text has no comment [030-101]\n    # all\n    ^^^^^",
        "3:1: canonical text has no blank line\n    \n    ^",
        "4:9: the spaces of this rule are not the canonical ones",
        "4:18: canonical text has no LF behind its last rule\n"
        "    B(P) :-  Have(P).\n"
        "                     ^",
    ]


def test_canonicalize_refuses_what_does_not_parse() -> None:
    with pytest.raises(RuleError, match="= is not part of the language"):
        canonicalize("A(P) :- Have(P), P = 'x'.")
