"""Requirement by requirement: the rule language of 030, from text to a checked program.

Evaluation has its own tests; here is what a lacegram may say, what it is called, and
what each built-in means.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.base.tai import Tai
from lace.errors import RecordError, RuleError
from lace.record.ids import RecordId
from lace.rules.builtins import cardinality_holds, int_compare, lex_compare, text_shape
from lace.rules.canonical import canonicalize, parse_canonical
from lace.rules.limits import MINIMUM_LIMITS, OWN_LIMITS, PEER_LIMITS, RuleLimits
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram, check_canonical, check_source
from lace.rules.source import format_source
from lace.rules.syntax import Atom, Constant, PredicateKey, Use

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "rules" / "vectors.json").read_text("utf-8")
)
FACTS = QUERY.with_base([("E", 2), ("G", 1), ("H", 3)])


def accept(text: str, profile: Any = FACTS) -> Lacegram:
    """Check text and its canonical form alike."""
    rules = Lacegram.parse(text, profile=profile)
    again = check_canonical(rules.canonical.encode(), profile=rules.program.profile)
    assert again == rules.program
    return rules


def refuse(text: str, rule: str, profile: Any = FACTS) -> RuleError:
    """Check that text is refused, and that a finding cites the rule."""
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(text, profile=profile)
    errors = [finding for finding in caught.value.findings if finding.severity == "error"]
    assert rule in {finding.rule for finding in errors}, [str(finding) for finding in errors]
    assert all(finding.place.line for finding in errors)
    return caught.value


def strata(text: str) -> list[list[str]]:
    return [[str(predicate) for predicate in level] for level in accept(text).strata]


# Vectors


@pytest.mark.requirement("030-97", "030-98", "030-108")
@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["id"])
def test_valid_vectors(vector: dict[str, Any]) -> None:
    rules = Lacegram.parse(vector["source"])
    assert rules.canonical == vector["canonical"]
    assert rules.id == vector["id"]
    assert [str(rule) for rule in rules.rules] == [rule["line"] for rule in vector["rules"]]
    assert list(rules.rule_ids) == [rule["id"] for rule in vector["rules"]]
    assert canonicalize(format_source(vector["source"])).id == vector["id"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["why"])
def test_invalid_vectors(vector: dict[str, Any]) -> None:
    with pytest.raises(RuleError):
        Lacegram.parse(vector["source"])
    with pytest.raises(RuleError):
        check_canonical(vector["source"].encode("utf-8", "surrogatepass"))


# Values


@pytest.mark.requirement("030-01", "030-23")
def test_constants_are_utf8_nfc() -> None:
    accept("A(X) :- E(X,'é').")
    refuse("A(X) :- E(X,'e\u0301').", "030-23")
    with pytest.raises(RuleError, match="0xff"):
        check_source(b"A(X) :- E(X,'\xff').")
    refuse("A(X) :- E(X,'\ud800').", "030-12")


@pytest.mark.requirement("030-02", "030-118", "030-119")
def test_values_over_the_limit_are_refused() -> None:
    accept(f"A(X) :- E(X,'{'x' * 1024}').")
    refuse(f"A(X) :- E(X,'{'x' * 1025}').", "030-118")


@pytest.mark.requirement("030-03")
def test_all_values_are_texts() -> None:
    values = [RecordId("B." + "0" * 43 + ".H3"), "V.x.H3", "links/a", "42", "Opq_a", "U.x"]
    rules = accept("".join(f"A('{value}') :- true.\n" for value in values))
    assert [str(rule.head) for rule in rules.rules] == [f"A('{value}')" for value in values]


@pytest.mark.requirement("030-07")
def test_the_core_gives_no_name_a_special_meaning() -> None:
    for name in ("MaySend(P)", "SelectHave(P)", "CanQueryRecord(P,P)", "AllowEverything(P)"):
        assert not accept(f"{name} :- Have(P).").warnings


@pytest.mark.requirement("030-08")
def test_a_profile_may_name_outputs() -> None:
    text = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    assert accept(text, "selector").program.profile.required
    assert accept(text + "Unused(P) :- Have(P).", "selector").warnings


@pytest.mark.requirement("030-11")
def test_advertisements_and_runtime_facts_are_base_predicates() -> None:
    program = accept("A(P) :- Advertised(P,S), Peer(S), TransportEncrypted().").program
    assert [str(key) for key in program.required_base] == [
        "Advertised/2",
        "Peer/1",
        "TransportEncrypted/0",
    ]


# Syntax


@pytest.mark.requirement("030-12")
def test_each_line_is_one_rule() -> None:
    assert len(accept("A(X) :- G(X).\n\n  \t\nB(X) :- G(X).\n").rules) == 2
    refuse("A(X) :- G(X),\n E(X,_).", "030-12")
    refuse("A(X) :- G(X). B(X) :- G(X).", "030-12")
    accept("A(X) :- E(X,'\u2028\x85').")  # no line ends for us


@pytest.mark.requirement("030-13")
def test_the_form_of_a_rule() -> None:
    refuse("A(X) :- G(X)", "030-13")
    refuse("A(X) G(X).", "030-13")
    refuse(":- G(X).", "030-13")
    refuse("A(X) :- G(X)..", "030-13")


@pytest.mark.requirement("030-14", "030-26")
def test_zero_arity() -> None:
    accept("A() :- TransportEncrypted().")
    refuse("A() :- TransportEncrypted.", "030-14")
    refuse("A :- TransportEncrypted().", "030-14")


@pytest.mark.requirement("030-15", "030-16")
def test_rules_without_conditions() -> None:
    accept("KnownVerifier('V.example.H3') :- true.")
    error = refuse("KnownVerifier('V.example.H3').", "030-16")
    assert "KnownVerifier('V.example.H3') :- true." in str(error)


@pytest.mark.requirement("030-17")
def test_public_names() -> None:
    accept("a-b~c_1(X) :- G(X).")
    accept("not-blocked(X) :- G(X), not not-blocked2(X).")
    for name in ("1a", "-a", "~a", "é", "a\u00e9", "a.b", "__a"):
        with pytest.raises(RuleError):
            Lacegram.parse(f"{name}(X) :- G(X).")


@pytest.mark.requirement("030-18", "030-19", "030-51")
def test_names_with_a_leading_underscore() -> None:
    accept("_Mine(X) :- G(X).")
    exposed = "AllowQueryRecord(V,P) :- _Viewer(V), _Open(P).\n_Open(P) :- Have(P)."
    accept(exposed, "exposure")
    operand = "SelectHave(P) :- _Open(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    refuse(operand, "G21", "selector")
    refuse(operand + "_Open(P) :- Have(P).", "030-51", "selector")


@pytest.mark.requirement("030-20")
def test_variables() -> None:
    accept("A(X_1,Yz) :- E(X_1,Yz).")
    for name in ("x", "X-1", "X~", "Xé", "1X"):
        with pytest.raises(RuleError):
            Lacegram.parse(f"A('a') :- G({name}).")


@pytest.mark.requirement("030-20")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("xY", "a variable begins with a capital letter, a constant stands in quotes: 'xY'"),
        ("x-1", "a variable begins with a capital letter, a constant stands in quotes: 'x-1'"),
        ("X-y", "a variable holds ASCII letters, digits and _ only"),
    ],
)
def test_what_is_no_variable_gets_a_hint_by_its_first_letter(name: str, hint: str) -> None:
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(f"A('a') :- G({name}).")
    assert str(caught.value).endswith(f"{name} is not a term [030-20]; {hint}")


@pytest.mark.requirement("030-21", "030-44")
def test_anonymous_terms() -> None:
    accept("A() :- E(_,_), not H(_,_,_), Cardinality(E(_,_),'<','3').")


@pytest.mark.requirement("030-22", "030-141")
def test_underscore_names_are_no_terms() -> None:
    refuse("Selected(P) :- Have(P), Field(P,'Group',_Name,'u').", "030-22")


@pytest.mark.requirement("030-24")
def test_escapes() -> None:
    rules = accept(r"A(X) :- E(X,'a\'b\\c').")
    atom = rules.rules[0].body[0]
    assert isinstance(atom, Atom)
    assert str(atom.terms[1]) == r"'a\'b\\c'"
    assert atom.terms[1] == Constant("a'b\\c")
    for wrong in (r"'\n'", r"'\x'", r"'\"'", r"'\é'"):
        refuse(f"A(X) :- E(X,{wrong}).", "030-24")


@pytest.mark.requirement("030-25")
def test_constants_hold_any_character_but_line_ends() -> None:
    refuse("A(X) :- E(X,'a\rb').", "030-25")
    with pytest.raises(RuleError):
        Lacegram.parse("A(X) :- E(X,'a\nb').")
    for code in (*range(10), 11, 12, *range(14, 32), 127, 0x85, 0x2028):
        text = f"A(X) :- E(X,'{chr(code)}')."
        assert accept(text).canonical == text


@pytest.mark.requirement(
    "030-27", "030-28", "030-29", "030-30", "030-31", "030-32", "030-33", "030-34"
)
def test_every_body_atom() -> None:
    text = (
        "A(X) :- E(X,Y), not G(X), X != Y, IntCompare(X,'<',Y), LexCompare(X,'>=','a'),"
        " TextShape(X,'a','./',Y), Cardinality(E(X,Z),'<=','3'), true."
    )
    rules = accept(text)
    assert rules.canonical == text
    assert [type(item).__name__ for item in rules.rules[0].body] == [
        "Atom",
        "NegatedAtom",
        "Inequality",
        "IntCompare",
        "LexCompare",
        "TextShape",
        "Cardinality",
        "TrueAtom",
    ]


@pytest.mark.requirement("030-35")
def test_rules_for_one_head_belong_together() -> None:
    program = accept("A(X) :- G(X).\nB(X) :- G(X).\nA(X) :- E(X,_).").program
    assert program.dependencies.rules_for(PredicateKey("A", 1)) == (0, 2)


@pytest.mark.requirement("030-36")
def test_a_predicate_that_nobody_defines_is_no_error() -> None:
    rules = accept("A(X) :- G(X), Nothing(X).")
    assert "nobody defines Nothing/1: it is empty" in str(rules.warnings[0])


# Safety


@pytest.mark.requirement("030-37", "030-138")
def test_head_variables_are_bound() -> None:
    refuse("Selected(P,V) :- Field(P,'Group',_,'u').", "030-37")
    refuse("A(X) :- true.", "030-37")


@pytest.mark.requirement("030-38")
def test_negated_variables_are_bound() -> None:
    refuse("A(X) :- G(X), not E(X,Y).", "030-38")
    accept("A(X) :- G(X), not E(X,_).")


@pytest.mark.requirement("030-39", "030-139")
def test_no_anonymous_head() -> None:
    refuse("Selected(_) :- Have(P).", "030-39")


@pytest.mark.requirement("030-40", "030-74")
@pytest.mark.parametrize(
    "test",
    ["X != Y", "Y != 'a'", "IntCompare(X,'<',Y)", "LexCompare(Y,'<',X)", "TextShape(Y,'','','')",
     "TextShape(X,Y,'','')", "TextShape(X,'','',Y)"],
)  # fmt: skip
def test_variables_of_tests_are_bound(test: str) -> None:
    refuse(f"A(X) :- G(X), {test}.", "030-40")
    accept(f"A(X) :- G(X), {test}, G(Y).")


@pytest.mark.requirement("030-41", "030-140")
@pytest.mark.parametrize(
    "test",
    ["X != _", "IntCompare(_,'<',X)", "LexCompare(X,'<',_)", "TextShape(_,'links/','','')",
     "TextShape(X,_,'','')", "TextShape(X,'','',_)"],
)  # fmt: skip
def test_no_anonymous_tests(test: str) -> None:
    refuse(f"A(X) :- G(X), {test}.", "030-41")


@pytest.mark.requirement("030-42", "030-43", "030-90")
def test_cardinality_binds_nothing() -> None:
    accept("A(X) :- G(X), Cardinality(E(X,Q),'<','3'), Cardinality(E(Q2,Q2),'<','3').")
    refuse("A(Q) :- G(X), Cardinality(E(X,Q),'<','3').", "030-37")
    refuse("A(X) :- G(X), Cardinality(E(X,Q),'<','3'), Q != X.", "030-40")
    refuse("A(X) :- G(X), Cardinality(E(X,Q),'<','3'), not G(Q).", "030-38")
    refuse("A(X) :- G(X), Cardinality(E(X,Q),'<','3'), Cardinality(G(Q),'<','3').", "030-42")
    accept("A(X) :- G(X), Cardinality(E(X,Q),'<','3'), Cardinality(G(Q),'<','3'), G(Q).")


@pytest.mark.requirement("030-45", "030-72")
@pytest.mark.parametrize(
    "test",
    ["true", "X != 'a'", "IntCompare(X,'<','3')", "LexCompare(X,'<','a')",
     "TextShape(X,'a','','')", "Cardinality(G(X),'<','3')", "not G(X)"],
)  # fmt: skip
def test_only_positive_atoms_bind(test: str) -> None:
    refuse(f"A(X) :- {test}.", "030-37")


@pytest.mark.requirement("030-46")
def test_a_later_atom_binds_as_well() -> None:
    accept("S(P) :- TextShape(K,'a','',''), Field(P,'Name',_,K).")


# Reserved names


@pytest.mark.requirement("030-47", "030-52", "030-142")
@pytest.mark.parametrize(
    "head",
    ["Have(X)", "Field(X,X,X,X)", "RecordLink(X,X,X,X,X)", "BlobHash(X,X)", "PlexHash(X,X)",
     "Advertised(X,X)", "AdvertisedField(X,X,X,X,X)", "Here(X)", "Peer(X)", "Transport(X)",
     "TransportEncrypted()", "StartTAI(X)", "TickTAI(X)", "ClockSkewSeconds(X)", "G(X)"],
)  # fmt: skip
def test_no_rule_defines_a_base_predicate(head: str) -> None:
    refuse(f"{head} :- E(X,_).", "030-47")


@pytest.mark.requirement("030-48")
def test_another_arity_is_another_predicate() -> None:
    accept("Have(P,Q) :- E(P,Q).\nG(X,Y) :- E(X,Y).\nTransportEncrypted(X) :- G(X).")


@pytest.mark.requirement("030-49", "030-50", "030-53")
@pytest.mark.parametrize(
    "head",
    ["MaySend(P)", "MayRequest(P)", "CanQueryRecord(P,P)", "AllowQueryRecord(P,P)",
     "o0_Member(P)", "o1_Member(P)", "MergedSelectHave(P)"],
)  # fmt: skip
def test_names_that_the_exchange_reserves(head: str) -> None:
    operand = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    accept(operand, "selector")
    refuse(f"{operand}{head} :- Have(P).", "G21", "selector")
    refuse(f"{operand}Helper(P) :- Have(P), not {head}.", "G21", "selector")


def test_other_names_that_begin_with_allow_are_free() -> None:
    operand = "SelectHave(P) :- AllowedGroup(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    accept(f"{operand}AllowedGroup(P) :- Have(P).", "selector")


@pytest.mark.requirement("030-53")
@pytest.mark.parametrize("head", ["SelectHave(P)", "SelectAdvertised(P,P)", "CanQueryRecord(P,P)"])
def test_an_exposure_defines_no_selection(head: str) -> None:
    module = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
    accept(module, "exposure")
    refuse(f"{module}{head} :- Have(P).", "G05b", "exposure")


@pytest.mark.parametrize("name", ["not", "true", "IntCompare", "LexCompare", "TextShape"])
def test_built_ins_are_no_heads(name: str) -> None:
    refuse(f"{name}(X) :- G(X).", "G16")


# Strata


@pytest.mark.requirement("030-54")
def test_edges_have_kinds() -> None:
    program = accept("A(X) :- G(X), not B(X), Cardinality(C(_),'<','3').").program
    edges = program.dependencies.edges_from(PredicateKey("A", 1))
    assert [edge.use for edge in edges] == [Use.POSITIVE, Use.NEGATIVE, Use.CARDINALITY]


@pytest.mark.requirement("030-55", "030-143")
def test_no_recursion_through_negation() -> None:
    refuse("A(P) :- not B(P).\nB(P) :- not A(P).", "030-55")
    error = refuse("A(P) :- G(P), B(P).\nB(P) :- C(P).\nC(P) :- G(P), not A(P).", "030-55")
    assert "C/1 needs not A/1 (line 3), A/1 needs B/1 (line 1), B/1 needs C/1 (line 2)" in str(
        error
    )
    refuse("A(P) :- G(P), not A(P).", "030-55")


@pytest.mark.requirement("030-56", "030-144")
def test_no_recursion_through_counting() -> None:
    refuse("A(P) :- Candidate(P), Cardinality(A(Q),'<','100').", "030-56")
    refuse("A(P) :- B(P).\nB(P) :- G(P), Cardinality(A(P),'<','1').", "030-56")


@pytest.mark.requirement("030-57")
def test_positive_recursion_is_fine() -> None:
    text = "R(X,Y) :- E(X,Y).\nR(X,Y) :- R(X,Z), R(Z,Y).\nO(X) :- V(X).\nV(X) :- O(X), G(X)."
    assert strata(text) == [["R/2", "O/1", "V/1"]]


@pytest.mark.requirement("030-58")
def test_what_is_counted_or_negated_lies_lower() -> None:
    text = (
        "A(X) :- G(X), Cardinality(B(X),'<','3').\n"
        "B(X) :- G(X), not C(X).\n"
        "C(X) :- G(X), Cardinality(E(X,_),'>','1'), not H(X,_,_).\n"
        "D(X) :- A(X), B(X), C(X).\n"
    )
    assert strata(text) == [["C/1"], ["B/1"], ["A/1", "D/1"]]


@pytest.mark.requirement("030-60")
def test_a_bounded_universe_can_be_said() -> None:
    accept("Universe(P) :- Have(P).\nLoose(P) :- Universe(P), not RecordLink(P,_,_,_,_).")


# Built-ins


@pytest.mark.requirement("030-67")
def test_int_compare_is_numeric() -> None:
    assert int_compare("10", ">", "9")
    assert int_compare("1" + "0" * 40, ">", "9" * 40)
    assert not int_compare("ten", ">", "9")
    refuse("A(X) :- G(X), IntCompare(X,'<','ten').", "030-67")
    accept("A(X) :- G(X), IntCompare(X,'<','-007'), IntCompare(X,'>','-0').")


@pytest.mark.requirement("030-68", "030-70", "030-88")
@pytest.mark.parametrize("operator", ["'='", "'=='", "'!='", "'=<'", "''", "X", "_"])
def test_four_operators_only(operator: str) -> None:
    refuse(f"A(X) :- G(X), IntCompare(X,{operator},'3').", "030-68")
    refuse(f"A(X) :- G(X), LexCompare(X,{operator},'3').", "030-70")
    refuse(f"A(X) :- G(X), Cardinality(E(X,_),{operator},'3').", "030-88")
    for good in ("<", "<=", ">", ">="):
        accept(f"A(X) :- G(X), LexCompare(X,'{good}','3'), Cardinality(E(X,_),'{good}','3').")


@pytest.mark.requirement("030-69")
def test_lex_compare_is_bytewise() -> None:
    assert lex_compare("10", "<", "9")
    assert lex_compare("\uffff", "<", "\U00010000")


@pytest.mark.requirement("030-71")
def test_tai_and_hash_texts_order_as_they_count() -> None:
    times = [Tai(f"{second:010}:{nano:09}") for second in (9, 10, 99) for nano in (0, 5, 10**8)]
    for one, other in pairwise(times):
        assert lex_compare(one, "<", other)
    digests = sorted(digest(bytes([n])) for n in range(50))
    for first, second in pairwise(digests):
        assert lex_compare(b64a.encode(first), "<", b64a.encode(second))


@pytest.mark.requirement("030-73")
def test_delimiters_are_a_constant() -> None:
    refuse("A(X) :- G(X), TextShape(X,'',X,'').", "030-73")
    refuse("A(X) :- G(X), TextShape(X,'',_,'').", "030-73")


@pytest.mark.requirement("030-75", "030-76")
def test_shapes_compare_exactly() -> None:
    assert not text_shape("Links/a", "links/", "", "")
    for text in ("a.b", "a/b", "a-b"):
        assert text_shape(text, "", "./", "b") is text_shape(text, "", ".//.", "b")


@pytest.mark.requirement("030-77", "030-78", "030-79", "030-80")
def test_shapes_without_delimiters() -> None:
    assert not text_shape("aba", "ab", "", "ba")
    assert text_shape("links/1", "links/", "", "")
    assert not text_shape("notes/1", "links/", "", "")
    assert text_shape("a.json", "", "", ".json")
    assert text_shape("links/.md", "links/", "", ".md")


@pytest.mark.requirement("030-81", "030-82", "030-83", "030-84", "030-85")
def test_shapes_with_delimiters() -> None:
    assert text_shape("a/b/c", "a/", "/", "c")
    assert text_shape("x/b/c", "", "/", "b/c")
    assert not text_shape("links//x", "links/", "/", "x")
    assert text_shape("links/bob/", "links/", "/", "")
    assert not text_shape("links/bob/x", "links/", "/", "")
    assert not text_shape("links/bob", "links/", "/", "")


@pytest.mark.requirement("030-132", "030-133", "030-134", "030-135", "030-136")
@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("links/bob/msg", True),
        ("links/bob.msg", True),
        ("links/msg", False),
        ("links/bob/alice/msg", False),
        ("links/.msg", False),
    ],
)
def test_the_shape_of_the_example(name: str, holds: bool) -> None:
    accept("Selected(P) :- Have(P), Field(P,'Name',_,K), TextShape(K,'links/','./','msg').")
    assert text_shape(name, "links/", "./", "msg") is holds


@pytest.mark.requirement("030-89")
def test_a_bound_is_decimal() -> None:
    for bound in ("'x'", "'--1'", "'-'", "'+1'", "''", "'1.5'", "'１'", "X", "3"):  # noqa: RUF001  # full-width
        with pytest.raises(RuleError):
            Lacegram.parse(f"A(X) :- G(X), Cardinality(E(X,_),'<',{bound}).", profile=FACTS)
    accept("A(X) :- G(X), Cardinality(E(X,_),'<','0100').")
    assert cardinality_holds(99, "<", "0100")
    accept("A(X) :- G(X), Cardinality(E(X,_),'>','-1').")
    assert cardinality_holds(0, ">", "-1")


@pytest.mark.parametrize(
    "body",
    ["not IntCompare(X,'<','3')", "not X != 'a'", "not true", "not Cardinality(G(X),'<','3')",
     "Cardinality(Cardinality(G(X),'<','1'),'<','3')", "Cardinality(LexCompare(X,'<',X),'<','3')",
     "true()"],
)  # fmt: skip
def test_built_ins_are_neither_negated_nor_counted(body: str) -> None:
    refuse(f"A(X) :- G(X), {body}.", "G16")


@pytest.mark.requirement("030-29", "030-30", "030-31", "030-32")
@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("IntCompare(X,'<')", "030-29"),
        ("LexCompare(X,'<','a','b')", "030-30"),
        ("TextShape(X,'a','')", "030-31"),
        ("Cardinality(G(X),'<')", "030-32"),
        ("Cardinality(X,'<','3')", "030-32"),
    ],
)
def test_built_ins_have_one_arity(body: str, rule: str) -> None:
    refuse(f"A(X) :- G(X), {body}.", rule)


# Equality


@pytest.mark.requirement("030-92", "030-93", "030-94", "030-96", "030-146")
def test_there_is_no_equality() -> None:
    for body in ("X = Y", "X == Y", "X = 'a'", "'a'='a'", "X=Y"):
        text = f"A(X) :- E(X,Y), {body}."
        refuse(text, "030-92")
        for read in (canonicalize, format_source, check_source):
            with pytest.raises(RuleError):
                read(text)
        with pytest.raises(RuleError):
            parse_canonical(text.encode())
        with pytest.raises(RuleError):
            canonicalize(f'#:json {{"label":"x"}}\n{text}')


@pytest.mark.requirement("030-95")
def test_inequality_stays() -> None:
    assert canonicalize("A(X) :- E(X,Y), X!=Y.").text == "A(X) :- E(X,Y), X != Y."


# Canonical text, identifiers, annotations


@pytest.mark.requirement("030-98")
def test_the_lacegram_id() -> None:
    rules = accept("A(X) :- G(X).\n# comment\nB(X) :- G(X).\n")
    raw = b"A(X) :- G(X).\nB(X) :- G(X)."
    assert rules.id == f"R.{b64a.encode(digest(raw))}"


@pytest.mark.requirement("030-99", "030-100")
def test_a_lacegram_id_is_no_record_id() -> None:
    name = accept("A(X) :- G(X).").id
    assert name.startswith("R.")
    for text in (name, f"{name}.H3"):
        with pytest.raises(RecordError):
            RecordId(text)


@pytest.mark.requirement("030-148")
def test_the_prefix_stands_for_one_text_format_and_one_digest() -> None:
    text = "A(X) :- G(X).\nB(X) :- G(X)."
    name = accept(text).id
    others = [text + "\n", text.replace(" :- ", ":-"), "\ufeff" + text, text.replace("\n", "\r\n")]
    assert all(f"R.{b64a.encode(digest(each.encode()))}" != name for each in others)
    labelled = digest(b"lace-rule/v1" + text.encode())
    assert name != f"R.{b64a.encode(labelled)}"
    # A text in another form has no id of its own: it is refused, or has that of the canonical form.
    assert accept(text + "\n").id == accept(text.replace(" :- ", ":-")).id == name
    for form in others:
        with pytest.raises(RuleError):
            check_canonical(form.encode(), profile=FACTS)
    for wrong in (name, name.replace("R.", "U."), f"{name}.H3"):
        with pytest.raises(RecordError):
            RecordId(wrong)


@pytest.mark.requirement("030-101", "030-104", "030-147")
def test_canonical_text_has_no_comments() -> None:
    text = '# comment\n#:json {"a":1}\nA(X) :- G(X).'
    assert canonicalize(text).text == "A(X) :- G(X)."
    for line in ("# comment", '#:json {"a":1}'):
        with pytest.raises(RuleError):
            parse_canonical(f"{line}\nA(X) :- G(X).".encode())


@pytest.mark.requirement("030-102", "030-103", "030-109")
def test_annotated_source() -> None:
    text = (
        "# human-only comment\n"
        '#:json {"label":"member proof","tags":["evidence"],"why":"Signed by the authority."}\n'
        "A(X) :- G(X)."
    )
    made = canonicalize(text)
    assert made.text == "A(X) :- G(X)."
    assert dict(made.annotations[made.rule_ids[0]]) == {
        "label": "member proof",
        "tags": ["evidence"],
        "why": "Signed by the authority.",
    }


@pytest.mark.requirement("030-105")
def test_an_annotation_is_one_nfc_object() -> None:
    for value in ("[1]", '{"a":1} {"b":2}', "3", "", "{"):
        refuse(f"#:json {value}\nA(X) :- G(X).", "030-105")
    refuse('#:json {"a":"e\u0301"}\nA(X) :- G(X).', "G19")


@pytest.mark.requirement("030-106")
def test_later_keys_win() -> None:
    made = canonicalize('#:json {"a":1,"b":1}\n#:json {"b":2}\nA(X) :- G(X).')
    assert [dict(each) for each in made.annotations.values()] == [{"a": 1, "b": 2}]


@pytest.mark.requirement("030-107")
def test_annotations_do_not_change_the_id() -> None:
    plain = canonicalize("A(X) :- G(X).")
    assert canonicalize('# c\n#:json {"a":1}\n\nA( X ):-G(X) .').id == plain.id


@pytest.mark.requirement("030-108")
def test_the_rule_id() -> None:
    line = "A(X) :- G(X)."
    (made,) = accept(f"{line}").rule_ids
    assert made == f"U.{b64a.encode(digest(b'lace-rule/v1' + line.encode()))}"


@pytest.mark.requirement("030-110")
def test_rules_know_where_they_come_from() -> None:
    rules = accept("# one\nA(X) :- G(X).\n\nB(X) :- G(X).")
    assert [rule.span.line for rule in rules.rules] == [2, 4]


# Limits


@pytest.mark.requirement("030-111", "030-119")
def test_limits_can_be_set() -> None:
    text = "A(X) :- E(X,'abc').\nB(X) :- E(X,'abc')."
    for limits, rule in (
        (RuleLimits(max_rules=1), "030-115"),
        (RuleLimits(max_arity=1), "030-117"),
        (RuleLimits(max_value_bytes=2), "030-118"),
        (RuleLimits(max_rule_line_bytes=9), "030-111"),
    ):
        with pytest.raises(RuleError) as caught:
            Lacegram.parse(text, limits=limits)
        assert rule in {finding.rule for finding in caught.value.findings}


@pytest.mark.requirement(
    "030-112", "030-113", "030-114", "030-115", "030-116", "030-117", "030-118"
)
@pytest.mark.parametrize("limits", [OWN_LIMITS, PEER_LIMITS])
def test_defaults_are_not_below_the_minimum(limits: RuleLimits) -> None:
    assert limits.max_base_facts >= MINIMUM_LIMITS.max_base_facts == 2**20
    assert limits.max_runtime_facts >= MINIMUM_LIMITS.max_runtime_facts == 2**20
    assert limits.max_derived_facts >= MINIMUM_LIMITS.max_derived_facts == 2**18
    assert limits.max_rules >= MINIMUM_LIMITS.max_rules == 256
    assert limits.max_iterations >= MINIMUM_LIMITS.max_iterations == 1000
    assert limits.max_arity >= MINIMUM_LIMITS.max_arity == 8
    assert limits.max_value_bytes >= MINIMUM_LIMITS.max_value_bytes == 1024


# Examples

NEWEST = """Before(P,Q) :- Candidate(P,T), Candidate(Q,T), LexCompare(Q,'>',P).
Before(P,Q) :- Candidate(P,TP), Candidate(Q,TQ), LexCompare(TQ,'>',TP).
Candidate(P,T) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'), Field(P,'Name',_,K), \
TextShape(K,'links/','',''), Field(P,'TAI',_,T).
Selected(P) :- Candidate(P,T), Cardinality(Before(P,Q),'<','100')."""


@pytest.mark.requirement("030-128", "030-129", "030-130", "030-131", "030-137")
@pytest.mark.parametrize(
    "text",
    [
        "Selected(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'),"
        " Field(P,'Name',_,K), TextShape(K,'links/','','').",
        "Support(Target) :- Have(P), RecordLink(P,'+Link',_,'evidence',Target).",
        NEWEST,
        "Blocked(V) :- Have(P), Field(P,'Group',_,'keys'), Field(P,'App',_,'blocked'),"
        " Field(P,'Name',_,V).\n"
        "Selected(P) :- Have(P), Field(P,'Signed-By',_,V), not Blocked(V).",
    ],
)
def test_examples_are_valid_and_canonical(text: str) -> None:
    assert accept(text).canonical == text


@pytest.mark.requirement("030-130")
def test_the_newest_hundred_has_two_strata() -> None:
    assert strata(NEWEST) == [["Before/2", "Candidate/2"], ["Selected/1"]]


@pytest.mark.requirement("030-145")
def test_prefix_is_gone() -> None:
    error = refuse("S(P) :- Field(P,'Name',_,K), Prefix(K,'links/').", "030-145")
    assert "write TextShape(K,'links/','','')" in str(error)
    for text in (
        "S(P) :- Have(P), not Prefix(P,P).",
        "S(P) :- Have(P), Cardinality(Prefix(P,_),'<','3').",
        "Prefix(P,P) :- Have(P).",
    ):
        refuse(text, "030-145")
    accept("Prefix(P,P,P) :- Have(P).\nS(P) :- Have(P), not Prefix(P,P,P), Prefix(P).")
