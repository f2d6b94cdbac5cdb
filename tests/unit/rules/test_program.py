"""CheckedProgram and Lacegram: proof by type, and the friendly face."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from lace.errors import RuleError, UsageError
from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import EXPOSURE, PROFILES, QUERY, SELECTOR, profile_named
from lace.rules.program import (
    CheckedProgram,
    Lacegram,
    check_canonical,
    check_source,
    find_all,
)
from lace.rules.syntax import PredicateKey

TEXT = """# Members' records.
#:json {"label":"members"}
Member(V) :- Field(P,'Signed-By',_,'V.admin.H3'), Field(P,'Name',_,V).
Selected(P) :- Field(P,'Signed-By',_,V), Member(V), not Blocked(P).
"""


def key(text: str) -> PredicateKey:
    name, arity = text.split("/")
    return PredicateKey(name, int(arity))


def test_only_checks_make_a_program() -> None:
    with pytest.raises(TypeError, match="made by the checks only"):
        CheckedProgram()
    program = check_source("A() :- true.")
    with pytest.raises(TypeError):
        dataclasses.replace(program, canonical="")
    with pytest.raises(dataclasses.FrozenInstanceError):
        program.canonical = ""  # type: ignore[misc]  # on purpose


def test_what_a_program_holds() -> None:
    program = check_source(TEXT, name="m.lace")
    assert program.canonical.count("\n") == 1
    assert program.lines == tuple(program.canonical.split("\n"))
    assert program.derived == (key("Member/1"), key("Selected/1"))
    assert program.required_base == (key("Field/4"),)
    assert program.strata == ((key("Member/1"), key("Selected/1")),)
    assert program.depends_on(key("Selected/1"), key("Have/1"), key("Field/4"))
    assert not program.depends_on(key("Selected/1"), key("TickTAI/1"))
    assert program.source == "m.lace"
    assert [str(warning) for warning in program.warnings] == [
        "m.lace:4:57: warning: nobody defines Blocked/1: it is empty [030-36]"
    ]
    assert dict(program.annotations) == {program.rule_ids[0]: {"label": "members"}}


def test_programs_are_values() -> None:
    program = check_source(TEXT)
    again = check_source(program.canonical)
    assert program == again
    assert hash(program) == hash(again)
    assert program != check_source(TEXT, limits=PEER_LIMITS)
    assert program != "text"
    assert copy.copy(program) == program


def test_canonical_bytes() -> None:
    program = check_canonical(b"A(P) :- Have(P).", profile=QUERY, limits=PEER_LIMITS)
    assert program.limits is PEER_LIMITS
    with pytest.raises(RuleError, match="spaces"):
        check_canonical(b"A(P) :-  Have(P).")
    with pytest.raises(RuleError, match="not bound"):
        check_canonical(b"A(P) :- true.")


def test_find_all_raises_nothing() -> None:
    found = find_all("A(P) :- true.\nB(")
    assert [finding.severity for finding in found] == ["error", "error"]


def test_lacegram() -> None:
    rules = Lacegram.parse(TEXT)
    assert str(rules) == rules.canonical == rules.program.canonical
    assert rules.id == rules.program.id
    assert rules.rule_ids == rules.program.rule_ids
    assert rules.strata == rules.program.strata
    assert rules.rules[0].span.line == 3
    assert rules.annotations[rules.rule_ids[0]]["label"] == "members"
    assert rules.warnings == rules.program.warnings
    assert rules == Lacegram.parse(rules.canonical)


def test_lacegram_errors_hold_everything() -> None:
    with pytest.raises(RuleError) as caught:
        Lacegram.parse("A(P) :- true.\nB(P) :- Have(P)\n", name="x")
    assert [str(finding) for finding in caught.value.findings] == [
        "x:1:3: head variable P is not bound by a positive atom [030-37]; add an atom binding P",
        "x:2:16: a rule ends with a period [030-13]",
    ]
    assert pickle.loads(pickle.dumps(caught.value)).findings == caught.value.findings  # noqa: S301  # our own bytes


def test_profiles_by_name() -> None:
    assert profile_named("selector") is SELECTOR
    assert list(PROFILES) == ["query", "selector", "exposure"]
    with pytest.raises(UsageError, match="query, selector, exposure"):
        Lacegram.parse("", profile="other")


def test_more_base_predicates() -> None:
    profile = QUERY.with_base([("Edge", 2)])
    assert Lacegram.parse("A(X) :- Edge(X,_).", profile=profile).warnings == ()
    with pytest.raises(RuleError, match="Edge/2 is a base predicate"):
        Lacegram.parse("Edge(X,Y) :- Edge(Y,X).", profile=profile)
    ticking = EXPOSURE.with_base([("TickTAI", 1)])
    Lacegram.parse("AllowQueryRecord(T,P) :- TickTAI(T), Have(P).", profile=ticking)


@pytest.mark.parametrize("text", ["", "# nothing", "\n\n"])
def test_no_rules_are_fine_for_a_query(text: str) -> None:
    rules = Lacegram.parse(text)
    assert (rules.canonical, rules.rules, rules.strata) == ("", (), ())
    for profile in ("selector", "exposure"):
        with pytest.raises(RuleError, match="no rule defines"):
            Lacegram.parse(text, profile=profile)


@pytest.mark.parametrize(
    "piece",
    ["not ", "(", ")", "Have(", "Cardinality(", "'", "','", ",", ".", ":-", "A() :- ", " != ", "= ",
     "X ", "_", '"', "#", "A(X),", "not(", "\\", "A(X) :- B(X,Y),", "-", "<", "\u0301", "é("],
)  # fmt: skip
@pytest.mark.parametrize("start", ["", "A(P) :- Have(P), ", "#:json "])
def test_long_lines_of_anything_are_quick_and_calm(piece: str, start: str) -> None:
    text = start + piece * (60_000 // len(piece.encode()))
    for finding in find_all(text):
        assert len(finding.render()) < 3_000


def test_large_programs_are_quick() -> None:
    rules = "\n".join(f"A{i}(P) :- Have(P), not A{(i + 1) % 4096}(P)." for i in range(4096))
    with pytest.raises(RuleError, match="and 4,084 more steps back to A0/1"):
        Lacegram.parse(rules)
    names = "\n".join(f"A{i}(X,Y{i}) :- B{i}(X)." for i in range(10_000))
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(names)
    assert len(str(caught.value)) < 20_000


def test_only_the_lines_of_one_rule_are_taken_for_it() -> None:
    """A rule over several lines is one fault; a fault after it is another."""
    text = "A(X) :- B(X),\n  C(X),\n  D(X).\nnonsense\nE(X) :- B(X).\n"
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(text)
    assert {finding.place.line for finding in caught.value.findings} == {1, 4}


@pytest.mark.parametrize(
    ("behind", "rule"), [(" B(X) :- Have(X).", "030-12"), (" tail", "030-13"), (" (X)", "030-13")]
)
def test_what_follows_the_period_of_a_rule(behind: str, rule: str) -> None:
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(f"A(X) :- Have(X).{behind}")
    assert [finding.rule for finding in caught.value.findings] == [rule]
