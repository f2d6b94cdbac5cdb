"""Operands: one's own, a peer's, and the advertised fields that they read."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import lace.policy
from lace.errors import PolicyError, RuleError
from lace.policy.operand import (
    SELECTOR_FACET,
    Operand,
    RequiredFields,
    advertised_fields,
    check_module_id,
    operand_of,
    receive_operand,
)
from lace.rules.canonical import lacegram_id
from lace.rules.limits import OWN_LIMITS, PEER_LIMITS, RuleLimits
from lace.rules.profiles import EXPOSURE, QUERY, SELECTOR
from lace.rules.program import Lacegram, check_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.rules.profiles import Profile

PLAIN = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
PLAIN_ID = "R.V3wv7Ug32jVLxA5Q6An85cW~HQfME12J4bJK7MpVBHS"
SPACED = "# mine\nSelectHave(P):-Have( P ).\n\nSelectAdvertised(P, S) :- Advertised(P,S).\n"
MODULES = [found.name for found in pkgutil.walk_packages(lace.policy.__path__, "lace.policy.")]


def receive(
    raw: bytes,
    *,
    index: int = 1,
    module_id: str | None = None,
    facet: str = SELECTOR_FACET,
    limits: RuleLimits = PEER_LIMITS,
) -> Operand:
    """What a peer that named its own bytes honestly would get."""
    name = lacegram_id(raw.decode("utf-8", "replace")) if module_id is None else module_id
    return receive_operand(
        raw, index=index, module_id=name, facet=facet, limits=limits, name="peer"
    )


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_own_text_is_made_canonical() -> None:
    operand = operand_of(SPACED, 0, name="mine.lace")
    assert operand.canonical_bytes == PLAIN.encode()
    assert operand.module_id == PLAIN_ID
    assert (operand.index, operand.facet, operand.scope) == (0, "selector", "o0_")
    assert operand.module.profile == SELECTOR
    assert operand.module.source == "mine.lace"


def test_scopes_are_by_index() -> None:
    assert [operand_of(PLAIN, index).scope for index in (0, 1)] == ["o0_", "o1_"]


def test_checked_rules_are_taken_as_they_are() -> None:
    lacegram = Lacegram.parse(SPACED, profile="selector")
    assert operand_of(lacegram, 1).module is lacegram.program
    assert operand_of(lacegram.program, 1).module is lacegram.program


def test_rules_of_another_profile_are_checked_again() -> None:
    lacegram = Lacegram.parse(SPACED, name="mine.lace")
    operand = operand_of(lacegram, 1)
    assert operand.module.profile == SELECTOR
    assert operand.module.source == "mine.lace"
    assert operand == operand_of(PLAIN.encode(), 1)
    with pytest.raises(RuleError, match="SelectHave/1"):
        operand_of(Lacegram.parse("A(P) :- Have(P)."), 0)


def test_own_limits_hold() -> None:
    tight = replace(OWN_LIMITS, max_rules=1)
    with pytest.raises(RuleError, match="max_rules=1"):
        operand_of(PLAIN, 0, limits=tight)
    with pytest.raises(RuleError, match="max_rules=1"):
        operand_of(Lacegram.parse(PLAIN), 0, limits=tight)


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_own_rules_must_be_there(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        operand_of(text, 0)
    assert [finding.message for finding in caught.value.findings] == [
        "no rule defines SelectHave/1: every selector module does",
        "no rule defines SelectAdvertised/2: every selector module does",
    ]


@pytest.mark.parametrize("index", [-1, 2, True, False])
def test_another_index(index: int) -> None:
    module = check_source(PLAIN, profile=SELECTOR)
    makers: list[Callable[[], Operand]] = [
        lambda: Operand(index=index, module=module),
        lambda: operand_of(module, index),
        lambda: receive(PLAIN.encode(), index=index),
    ]
    for make in makers:
        with pytest.raises(PolicyError, match="index 0 or 1") as caught:
            make()
        assert caught.value.rule == "040-53"


@pytest.mark.parametrize("profile", [QUERY, SELECTOR.with_base([("Edge", 2)])])
def test_an_operand_holds_a_selector_module(profile: Profile) -> None:
    module = check_source(PLAIN, profile=profile)
    with pytest.raises(PolicyError, match="module are no operand") as caught:
        Operand(index=0, module=module)
    assert caught.value.rule == "040-54"
    assert "operand_of" in str(caught.value)


def test_an_exposure_is_no_operand() -> None:
    module = check_source("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", profile=EXPOSURE)
    with pytest.raises(PolicyError, match="exposure module"):
        Operand(index=0, module=module)
    with pytest.raises(RuleError, match="AllowQueryRecord/2"):
        operand_of(module, 0)


@pytest.mark.parametrize("facet", ["", "Selector", "expose", "selector ", "\x1b[31m" + "x" * 200])
def test_another_facet(facet: str) -> None:
    module = check_source(PLAIN, profile=SELECTOR)
    with pytest.raises(PolicyError, match="no shared facet"):
        Operand(index=0, module=module, facet=facet)
    with pytest.raises(PolicyError, match="no shared facet") as caught:
        receive(PLAIN.encode(), facet=facet)
    assert caught.value.rule == "040-55"
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_peer_s_bytes() -> None:
    operand = receive(PLAIN.encode())
    assert operand.module_id == PLAIN_ID
    assert operand.canonical_bytes == PLAIN.encode()
    assert operand.module.limits == PEER_LIMITS
    assert operand.module.source == "peer"


@pytest.mark.parametrize(
    ("raw", "what", "rule"),
    [
        (SPACED.encode(), "no comment", "030-101"),
        (PLAIN.encode() + b"\n", "no LF behind", "G10"),
        (b"\n" + PLAIN.encode(), "no blank line", "G10"),
        (PLAIN.replace("P,S", "P, S").encode(), "spaces", "G10"),
        (PLAIN.replace("\n", "\r\n").encode(), "carriage return", "030-25"),
        (b"\xef\xbb\xbf" + PLAIN.encode(), "byte order mark", "G10"),
        (b"#:json {}\n" + PLAIN.encode(), "no annotation", "030-101"),
        (PLAIN.encode() + b"\nA(X) :- B(X,'\xff').", "not UTF-8", "030-12"),
        ((PLAIN + "\nA(X) :- B(X,'e\u0301').").encode(), "NFC", "030-23"),
    ],
)
def test_a_peer_s_bytes_are_canonical(raw: bytes, what: str, rule: str) -> None:
    with pytest.raises(RuleError) as caught:
        receive(raw)
    found = [each for each in caught.value.findings if each.severity == "error"]
    assert any(what in each.message and each.rule == rule for each in found)
    assert all(each.place.source == "peer" for each in found)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("A(X) :- B(Y).", "030-37"),
        ("A(X) :- B(X), not A(X).", "030-55"),
        ("A(X) :- B(X), Cardinality(A(Y),'<','3').", "030-56"),
        ("Have(X) :- B(X).", "030-47"),
        ("Here(X) :- B(X).", "030-47"),
        ("MaySend(P) :- Have(P).", "G21"),
        ("MayRequest(P) :- Have(P).", "G21"),
        ("CanQueryRecord(V,P) :- Have(P), Peer(V).", "G21"),
        ("AllowQueryRecord(V,P) :- Have(P), Peer(V).", "G21"),
        ("MergedSelectHave(P) :- Have(P).", "G21"),
        ("MergedSelectAdvertised(P,S) :- Advertised(P,S).", "G21"),
        ("o0_SelectHave(P) :- Have(P).", "G21"),
        ("o1_Helper(P) :- Have(P).", "G21"),
        ("_Local(P) :- Have(P).", "030-51"),
        ("A(P) :- Have(P), MaySend(P).", "G21"),
        ("A(P) :- Have(P), not MayRequest(P).", "G21"),
        ("A(P) :- Have(P), Cardinality(CanQueryRecord(_,P),'>','0').", "G21"),
        ("A(P) :- AllowQueryRecord(_,P).", "G21"),
        ("A(P) :- MergedSelectHave(P).", "G21"),
        ("A(P) :- o0_Helper(P).", "G21"),
        ("A(P) :- not o1_Helper('x'), Have(P).", "G21"),
        ("A(V) :- _Viewer(V).", "G21"),
    ],
)
def test_a_peer_s_rules_are_checked(line: str, rule: str) -> None:
    with pytest.raises(RuleError) as caught:
        receive(f"{PLAIN}\n{line}".encode())
    found = {each.rule for each in caught.value.findings if each.severity == "error"}
    assert found == {rule}
    (error, *_) = [each for each in caught.value.findings if each.severity == "error"]
    assert error.place.line == 3


@pytest.mark.requirement("030-53", "030-145", "030-25", "030-89")
@pytest.mark.parametrize(
    "line",
    [
        "AllowedGroup(G) :- Field(_,'Group',_,G).",
        "A(P) :- Have(P), AllowAnything(P), not Allow().",
        "AllowQueryRecord(P) :- Have(P), AllowQueryRecord(P,P,P).",
        "Prefix(P,K,I) :- Field(P,K,I,_), Prefix(P), not Prefix(P,K,I,I).",
        "A(P) :- Field(P,'a\tb',_,'\x00\x1b\x85\u2028').",
        "A(P) :- Have(P), Cardinality(Field(P,_,_,_),'>','-1').",
    ],
)
def test_what_a_peer_s_rules_may_hold(line: str) -> None:
    raw = f"{PLAIN}\n{line}".encode()
    operand = receive(raw)
    assert operand.module.canonical.encode() == raw
    assert operand_of(raw, 0).module_id == operand.module_id


@pytest.mark.parametrize(("keep", "missing"), [(0, "SelectAdvertised/2"), (1, "SelectHave/1")])
def test_a_peer_defines_both_selections(keep: int, missing: str) -> None:
    with pytest.raises(RuleError, match=f"no rule defines {missing}"):
        receive(PLAIN.split("\n")[keep].encode())


def test_a_peer_s_limits() -> None:
    tight = replace(PEER_LIMITS, max_rules=1)
    with pytest.raises(RuleError, match="max_rules=1"):
        receive(PLAIN.encode(), limits=tight)
    many = "\n".join([PLAIN, *(f"A{number}(P) :- Have(P)." for number in range(255))])
    assert len(operand_of(many, 0).module.rules) == 257
    with pytest.raises(RuleError, match="257 rules"):
        receive(many.encode())
    huge = replace(PEER_LIMITS, max_rules=2, max_rule_line_bytes=30)
    with pytest.raises(PolicyError, match="63 bytes, more than its rules can have") as caught:
        receive(b"x" * 63, limits=huge)
    assert caught.value.rule == "040-54"
    with pytest.raises(RuleError):
        receive(b"x" * 62, limits=huge)


def test_a_peer_has_rules() -> None:
    with pytest.raises(PolicyError, match="peer: the operand has no rules") as caught:
        receive(b"")
    assert caught.value.rule == "040-54"
    assert caught.value.hint
    with pytest.raises(PolicyError, match=r"^the operand has no rules"):
        receive_operand(b"", index=0, module_id=PLAIN_ID, facet="selector")


def test_the_identifier_recomputes() -> None:
    other = operand_of(PLAIN + "\nA(P) :- Have(P).", 0).module_id
    with pytest.raises(PolicyError, match=f"{PLAIN_ID}, not {other}") as caught:
        receive(PLAIN.encode(), module_id=other)
    assert caught.value.rule == "040-54"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "R.",
        PLAIN_ID[:-1],
        PLAIN_ID + "0",
        PLAIN_ID[:-1] + "T",
        PLAIN_ID[2:],
        "E" + PLAIN_ID[1:],
        "r" + PLAIN_ID[1:],
        "xR" + PLAIN_ID[1:],
        "R." + PLAIN_ID,
        PLAIN_ID.replace("~", "+"),
        PLAIN_ID + ".H3",
        PLAIN_ID + "\n",
        "R." + "\udcff" * 43,
        "R." + "\u202e" * 10_000,
    ],
)
def test_a_malformed_identifier(text: str) -> None:
    with pytest.raises(PolicyError, match="is not the identifier of a module") as caught:
        receive(PLAIN.encode(), module_id=text)
    assert caught.value.rule == "040-54"
    assert "43 Base64-Ascend" in str(caught.value)
    assert len(str(caught.value)) < 700
    assert "\u202e" not in str(caught.value)


def test_a_well_formed_identifier() -> None:
    check_module_id(PLAIN_ID)


def needs(*bodies: str) -> RequiredFields:
    lines = [f"A{number}(P) :- {body}." for number, body in enumerate(bodies)]
    return advertised_fields(check_source("\n".join([PLAIN, *lines]), profile=SELECTOR))


@pytest.mark.parametrize(
    "body",
    [
        "AdvertisedField(P,_,'Group',_,'u')",
        "Have(P), not AdvertisedField(P,'s','Group',_,_)",
        "Have(P), Cardinality(AdvertisedField(P,_,'Group',_,_),'<','3')",
    ],
)
def test_constant_names(body: str) -> None:
    assert needs(body) == RequiredFields(names=frozenset({"Group"}))


@pytest.mark.parametrize(
    "body",
    [
        "AdvertisedField(P,_,N,_,N)",
        "AdvertisedField(P,_,_,_,'u')",
        "Have(P), not AdvertisedField(P,_,_,_,_)",
        "Have(P), Cardinality(AdvertisedField(P,_,N,_,_),'<','3')",
    ],
)
def test_any_name_means_all(body: str) -> None:
    assert needs(body) == RequiredFields(all=True)
    assert needs("AdvertisedField(P,_,'Group',_,'u')", body).all


def test_other_atoms_need_nothing() -> None:
    assert needs("Field(P,'Group',_,'u')", "AdvertisedField(P,_,'Group',_)") == RequiredFields()


def test_names_of_all_rules_and_both_modules() -> None:
    one = needs("AdvertisedField(P,_,'a',_,_), AdvertisedField(P,_,'it\\'s',_,_)")
    other = needs("AdvertisedField(P,_,'a',_,_)", "AdvertisedField(P,_,'b',_,_)")
    assert one | other == one.union(other) == RequiredFields(names=frozenset({"a", "b", "it's"}))
    assert (one | RequiredFields(all=True)) == RequiredFields(all=True)


def test_all_fields_include_the_names() -> None:
    assert RequiredFields(names=frozenset({"a"}), all=True) == RequiredFields(all=True)


@pytest.mark.parametrize(
    ("required", "schema", "met"),
    [
        (RequiredFields(), frozenset(), True),
        (RequiredFields(), None, True),
        (RequiredFields(names=frozenset({"a"})), frozenset({"a", "b"}), True),
        (RequiredFields(names=frozenset({"a", "b"})), frozenset({"a"}), False),
        (RequiredFields(names=frozenset({"a"})), None, True),
        (RequiredFields(names=frozenset({"A"})), frozenset({"a"}), False),
        (RequiredFields(all=True), frozenset({"a"}), False),
        (RequiredFields(all=True), None, True),
    ],
)
def test_a_schema(required: RequiredFields, schema: frozenset[str] | None, met: bool) -> None:
    assert required.is_met_by(schema) is met


@pytest.mark.parametrize("name", ["e\u0301", "a\nb", "a\rb", "\udc80", "x" * 1025])
def test_a_name_that_no_fact_holds(name: str) -> None:
    with pytest.raises(PolicyError, match="cannot be the name") as caught:
        RequiredFields(names=frozenset({name}))
    assert caught.value.rule == "040-92"
    assert "\n" not in str(caught.value)
