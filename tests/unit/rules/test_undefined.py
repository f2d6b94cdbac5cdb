"""Undefined predicates in one's own modules: refused where something rests on their emptiness."""

from __future__ import annotations

import pytest

from lace.errors import RuleError, UsageError
from lace.policy.operand import operand_of, receive_operand
from lace.rules.checks.warnings import parse_allowed
from lace.rules.profiles import EXPOSURE, QUERY, SELECTOR
from lace.rules.program import check_canonical, check_source, refuse_undefined
from lace.rules.syntax import PredicateKey

ALLOW = "AllowQueryRecord(V,P) :- Peer(V), Have(P)"
MORE = "Blocked(P) :- Field(P,'Blocked',_,_).\n"


def refused(text: str, *allowed: str) -> list[str]:
    """What is refused in an exposure of one's own, as line:column, and the message."""
    try:
        check_source(text, profile=EXPOSURE, allowed=parse_allowed(allowed))
    except RuleError as error:
        return [str(each) for each in error.findings if each.severity == "error"]
    return []


@pytest.mark.requirement("030-36")
@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (f"{MORE}{ALLOW}, not Blokced(P).", "2:48", "not Blokced(P) always holds"),
        (f"{MORE}{ALLOW}, not Blocked(P,V).", "2:48", "not Blocked(P,V) always holds"),
        (f"{ALLOW}, not Field(P,'Hidden').", "1:48", "not Field(P,'Hidden') always holds"),
        (
            f"{ALLOW}, Cardinality(Flag(P),'<','2').",
            "1:56",
            "Cardinality(Flag(P),'<','2') counts nothing",
        ),
        (
            f"{ALLOW}, not Hidden(P).\nHidden(P) :- Have(P), Blokced(P).\n{MORE}",
            "2:23",
            "not Hidden(P) in line 1 depends on it",
        ),
        (
            f"{ALLOW}, not A(P).\nA(P) :- B(P).\nB(P) :- Have(P), not C(P).\nC(P) :- D(P).",
            "4:9",
            "not A(P) in line 1 depends on it",
        ),
        (
            f"{ALLOW}, Cardinality(A(P),'>=','1').\nA(P) :- B(P).\nB(P) :- A(P), Zzz(P).",
            "3:15",
            "Cardinality(A(P),'>=','1') in line 1 depends on it",
        ),
        (
            f"{ALLOW}, Open(P).\nOpen(P) :- Have(P), not Shut(P).",
            "2:25",
            "not Shut(P) always holds",
        ),
    ],
)
def test_what_is_negated_or_counted_is_defined(text: str, place: str, said: str) -> None:
    (found,) = refused(text)
    assert found.startswith(f"{place}: nobody defines ")
    assert said in found
    assert "[030-36]" in found
    assert "with --allow-undefined (allow_undefined)" in found


def test_the_nearest_name_is_suggested() -> None:
    (found,) = refused(f"{MORE}{ALLOW}, not Blokced(P).")
    assert "; did you mean Blocked? If it is empty on purpose, allow Blokced/1 with" in found
    (found,) = refused(f"{MORE}{ALLOW}, not Blocked(P,V).")
    assert "; there is Blocked/1; if it is empty on purpose, allow Blocked/2 with" in found
    (found,) = refused(f"{ALLOW}, not Field(P,'x').")
    assert "; its form is Field(P,Name,Index,Value); if it is" in found
    (found,) = refused(f"{ALLOW}, not Xyzzy(P).")
    assert "; if it is empty on purpose, allow Xyzzy/1 with" in found


@pytest.mark.requirement("030-36")
@pytest.mark.parametrize(
    "text",
    [
        f"{ALLOW}, Memebr(V).",
        f"{MORE}{ALLOW}, not Blocked(P), Nobody(V).",
        f"{ALLOW}, A(P).\nA(P) :- B(P).",
        f"{ALLOW}, not A(P).\nA(P) :- Field(P,'x',_,_).\nC(P) :- Zzz(P).",
    ],
)
def test_what_only_positive_atoms_lead_to_stays_a_warning(text: str) -> None:
    program = check_source(text, profile=EXPOSURE, allowed=frozenset())
    refuse_undefined(program, frozenset())
    assert "030-36" in {warning.rule for warning in program.warnings}


def test_what_is_allowed_is_not_reported_at_all() -> None:
    text = f"{ALLOW}, not Blocked(P), not Shut(P,V).\n"
    assert len(refused(text)) == 2
    assert len(refused(text, "Blocked/1")) == 1
    assert len(refused(text, "Blocked/2", "Shut/2")) == 1, "the arity counts"
    allowed = parse_allowed(["Blocked/1", "Shut/2", "Other/3"])
    program = check_source(text, profile=EXPOSURE, allowed=allowed)
    assert "030-36" not in {warning.rule for warning in program.warnings}


def test_each_name_once_and_all_of_them() -> None:
    text = f"{ALLOW}, not A(P), not A(P), not B(P).\n{ALLOW}, not A(P), not C(P)."
    assert [each.split("nobody defines ")[1][:3] for each in refused(text)] == ["A/1", "B/1", "C/1"]


@pytest.mark.requirement("030-36")
def test_a_peer_and_a_question_may_name_what_nobody_defines() -> None:
    text = "SelectHave(P) :- Have(P), not Gone(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    assert operand_of(text, 0).module.undefined == (PredicateKey("Gone", 1),)
    raw = text.encode()
    made = receive_operand(
        raw, index=1, module_id=check_canonical(raw, profile=SELECTOR).id, facet="selector"
    )
    assert [warning.rule for warning in made.module.warnings] == ["030-36"]
    with pytest.raises(RuleError, match="nobody defines Gone/1"):
        refuse_undefined(made.module, frozenset())
    assert check_source("A(P) :- Have(P), not Gone(P).", profile=QUERY).undefined
    given = QUERY.with_base([("Gone", 1)])
    check_source("A(P) :- Have(P), not Gone(P).", profile=given, allowed=frozenset())


def test_a_long_chain_of_helpers() -> None:
    count = 3_000
    rules = [f"{ALLOW}, not H0(P)."]
    rules += [f"H{n}(P) :- H{n + 1}(P), H{n + 1}(P)." for n in range(count)]
    (found,) = refused("\n".join(rules))
    assert f"nobody defines H{count}/1" in found


def test_allowances_are_names_with_arity() -> None:
    assert parse_allowed(["A/1", "_b/0"]) == {PredicateKey("A", 1), PredicateKey("_b", 0)}
    for wrong in (["A"], ["A/x"], ["A/1 "], [""], "A/1", [1], None):
        with pytest.raises(UsageError):
            parse_allowed(wrong)  # type: ignore[arg-type]
