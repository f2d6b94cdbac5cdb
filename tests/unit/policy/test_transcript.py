"""Exchange plans: made, written, read back, compared; and every way in which reading refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import PolicyError
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.policy.operand import RequiredFields, operand_of
from lace.policy.origin import Origin, opaque_digest, opaque_labels
from lace.policy.plan import (
    LOWERINGS,
    MAX_TRANSCRIPT_BYTES,
    PLAN_PROFILE,
    RUNTIME_FACTS,
    ExchangePlan,
    PlanOperand,
    check_plan_id,
    check_same_plan,
    make_plan,
    parse_transcript,
    plan_id,
)
from lace.record.ids import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
FIELDS = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u'), AdvertisedField(P,S,'App',_,_)."
)
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,_,_,'u')."
R0 = "R.V3wv7Ug32jVLxA5Q6An85cW~HQfME12J4bJK7MpVBHS"
R1 = "R.OoB~Ykht0lEcTl6o53iVktk4uWOzwVOxGCWKKVv28~4"
ALICE = Verifier.from_public_key(b"\x01" * 32)
BOB = Verifier.from_public_key(b"\x02" * 32)


def plan_of(zero: str, one: str, lowering: str = "standard-v1") -> ExchangePlan:
    return make_plan(operand_of(zero, 0), operand_of(one, 1), lowering)


PLAN = plan_of(FIELDS, PLAIN)
LINES = PLAN.transcript.split("\n")


def operand(index: int, **changes: Any) -> PlanOperand:
    values = {"module_id": (R0, R1)[index % 2], "origin": ("Opq_a", "Opq_b")[index % 2]}
    return PlanOperand(index=index, **{**values, **changes})


def plan(**changes: Any) -> ExchangePlan:
    values = {
        "lowering": "standard-v1",
        "operands": (operand(0), operand(1)),
        "required": RequiredFields(),
    }
    return ExchangePlan(**{**values, **changes})


def test_a_plan_is_made_of_two_operands() -> None:
    zero, one = operand_of(FIELDS, 0), operand_of(PLAIN, 1)
    made = make_plan(zero, one)
    labels = opaque_labels(opaque_digest(0, zero.module_id), opaque_digest(1, one.module_id))
    assert made.operands == (
        PlanOperand(index=0, facet="selector", module_id=zero.module_id, origin=labels[0]),
        PlanOperand(index=1, facet="selector", module_id=one.module_id, origin=labels[1]),
    )
    assert made.required == RequiredFields(names=frozenset({"App", "Group"}))
    assert made.lowering == "standard-v1"
    assert made.transcript_bytes == made.transcript.encode()
    assert made.id == plan_id(made.transcript_bytes)
    assert made.id == "E." + b64a.encode(digest(b"lace-exchange-plan/v1" + made.transcript_bytes))
    assert plan_of(PLAIN, ALL).required == plan_of(ALL, FIELDS).required == RequiredFields(all=True)


def test_both_sides_make_the_same_plan() -> None:
    assert plan_of(FIELDS, PLAIN) == PLAN
    assert hash(plan_of(FIELDS, PLAIN)) == hash(PLAN)
    assert plan_of(PLAIN, FIELDS) != PLAN


@pytest.mark.parametrize("indexes", [(0, 0), (1, 1), (1, 0)])
def test_the_indexes_are_0_and_1(indexes: tuple[int, int]) -> None:
    zero, one = (operand_of(PLAIN, index) for index in indexes)
    with pytest.raises(PolicyError, match=f"not {indexes[0]} and {indexes[1]}") as caught:
        make_plan(zero, one)
    assert caught.value.rule == "040-53"


def test_a_binding_s_nonce_and_verifiers() -> None:
    zero, one = operand_of(FIELDS, 0), operand_of(PLAIN, 1)
    nonce = b64a.encode(b"\x05" * 32)
    for verifiers in (None, (ALICE, BOB), (None, BOB)):
        made = make_plan(zero, one, nonce=nonce, verifiers=verifiers)
        first, second = verifiers or (None, None)
        assert tuple(each.origin for each in made.operands) == opaque_labels(
            opaque_digest(0, zero.module_id, nonce=nonce, verifier=first),
            opaque_digest(1, one.module_id, nonce=nonce, verifier=second),
        )


def test_an_origin_is_bound_to_a_verifier() -> None:
    assert PLAN.origin(0) == Origin(PLAN.operands[0].origin)
    assert PLAN.origin(1, BOB).viewer == BOB
    with pytest.raises(PolicyError, match="index"):
        PLAN.origin(-1)


@pytest.mark.parametrize("lowering", ["", "standard", "standard-v2", "Standard-v1"])
def test_an_unknown_lowering(lowering: str) -> None:
    with pytest.raises(PolicyError, match="no lowering") as caught:
        plan_of(PLAIN, PLAIN, lowering)
    assert caught.value.rule == "040-88"
    assert "encrypted-v1" in str(caught.value)


def test_the_runtime_facts_are_those_of_the_catalogue() -> None:
    known = {
        (each.name, each.arity)
        for each in BASE_PREDICATES.values()
        if each.fact_class is FactClass.RUNTIME
    }
    assert known == set(RUNTIME_FACTS)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: operand(2), "040-53"),
        (lambda: operand(0, facet="expose"), "040-55"),
        (lambda: operand(0, module_id="R.x"), "040-54"),
        (lambda: operand(0, origin=str(ALICE)), "040-45"),
        (lambda: plan(operands=(operand(0),)), "040-53"),
        (lambda: plan(operands=()), "040-53"),
        (lambda: plan(operands=(operand(0), operand(1), operand(1))), "040-53"),
        (lambda: plan(operands=(operand(1), operand(0))), "040-53"),
        (lambda: plan(operands=(operand(0), operand(1, origin="Opq_a"))), "040-48"),
        (lambda: plan(lowering="other-v1"), "040-88"),
    ],
)
def test_values_that_no_plan_has(make: Callable[[], object], rule: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make()
    assert caught.value.rule == rule


def test_a_transcript_has_a_size() -> None:
    names = [f"{number:0>1000}" for number in range(1100)]
    with pytest.raises(PolicyError, match="1,048,576") as caught:
        plan(required=RequiredFields(names=frozenset(names)))
    assert caught.value.rule == "040-92"
    assert len(plan(required=RequiredFields(names=frozenset(names[:900]))).transcript) > 900_000
    with pytest.raises(PolicyError, match="1,048,577 bytes"):
        parse_transcript(b"\xff" * (MAX_TRANSCRIPT_BYTES + 1))
    with pytest.raises(PolicyError, match="not UTF-8"):
        parse_transcript(b"\xff" * MAX_TRANSCRIPT_BYTES)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("one", [PLAIN, FIELDS, ALL])
def test_reading_gives_the_plan_back(one: str, lowering: str) -> None:
    made = plan_of(PLAIN, one, lowering)
    assert parse_transcript(made.transcript_bytes) == made
    assert parse_transcript(made.transcript_bytes).id == made.id


def test_names_are_escaped_and_sorted_by_the_bytes_of_their_lines() -> None:
    names = frozenset({"b", "a'", "a\\", "a", "aa", "é", "Z", "", "\U0001f5a7", "a\tb", "\x00\x85"})
    made = plan(required=RequiredFields(names=names))
    found = [line for line in made.transcript.split("\n") if "RequireAdvertised" in line]
    assert len(found) == len(names)
    assert found == sorted(found, key=str.encode)
    assert parse_transcript(made.transcript_bytes) == made


def at(prefix: str) -> int:
    return next(number for number, line in enumerate(LINES) if line.startswith(prefix))


def lines(*edits: tuple[int, int, list[str]]) -> bytes:
    """The transcript with slices of its lines replaced, last edit first."""
    changed = list(LINES)
    for first, last, new in reversed(edits):
        changed[first:last] = new
    return "\n".join(changed).encode()


def put(prefix: str, *new: str) -> bytes:
    """The transcript with other lines in place of the first that begins so."""
    return lines((at(prefix), at(prefix) + 1, list(new)))


WHOLE = PLAN.transcript_bytes
OPERAND = "ExchangePlanOperand("
ORIGIN = "ExchangePlanOperandOrigin("
FIELD = "ExchangePlanRequireAdvertisedField("
RUNTIME = "ExchangePlanRuntime("
HERE = "ExchangePlanRuntime('Here','1')"
REFUSED = [
    ("empty", b"", None, "empty", "040-84"),
    ("only LF", b"\n", 1, "no LF behind", "G24"),
    ("final LF", WHOLE + b"\n", len(LINES), "no LF behind", "G24"),
    ("not UTF-8", WHOLE.replace(b"'App'", b"'\xc3('"), at(FIELD) + 1, "0xc3 is not", "040-84"),
    ("not NFC", WHOLE.replace(b"App", "e\u0301".encode()), at(FIELD) + 1, "NFC", "040-84"),
    ("CR", WHOLE.replace(b"\n", b"\r\n"), 1, "carriage return", "040-84"),
    ("BOM", b"\xef\xbb\xbf" + WHOLE, 1, "byte order mark", "040-84"),
    ("blank", WHOLE.replace(b"\n", b"\n\n", 1), 2, "no blank line", "040-84"),
    ("spaces", WHOLE.replace(b"\n", b"\n \t\n", 1), 2, "no blank line", "040-84"),
    ("first blank", b"\n" + WHOLE, 1, "no blank line", "040-84"),
    ("comment", b"# ours\n" + WHOLE, 1, "no comments", "040-84"),
    ("inner comment", WHOLE.replace(b"\n", b"\n  #:json {}\n", 1), 2, "no comments", "040-84"),
    ("no fact", put(HERE, "Hello"), at(HERE) + 1, "is not a fact line", "050-23"),
    ("period", put(HERE, HERE + "."), at(HERE) + 1, "is not a fact line", "050-23"),
    ("space", put(HERE, HERE.replace(",", ", ")), at(HERE) + 1, "is not a fact line", "050-23"),
    ("tab", put(FIELD, FIELD + "\t'x')"), at(FIELD) + 1, "is not a fact line", "050-23"),
    ("long value", put(FIELD, f"{FIELD}'{'x' * 1025}')"), at(FIELD) + 1, "1025", "020-15"),
    ("duplicate", put(HERE, HERE, HERE), at(HERE) + 2, "stands here again", "040-86"),
    ("unknown", put(HERE, HERE, "ExchangePlanX('1')"), at(HERE) + 2, "no fact", "040-85"),
    ("arity", put(HERE, "ExchangePlanRuntime('Here')"), at(HERE) + 1, "takes 2 values", "040-85"),
    ("all of one", put(FIELD, "ExchangePlanRequireAllAdvertisedFields('x')"), at(FIELD) + 1,
     "takes 0 values", "040-85"),
    ("other profile", put("ExchangePlanProfile", "ExchangePlanProfile('v2')"), 1,
     "profile 'v2' is unknown", "040-87"),
    ("no profile", lines((0, 1, [])), None, "no ExchangePlanProfile", "040-87"),
    ("other lowering", put("ExchangePlanLowering", "ExchangePlanLowering('x')"), 2,
     "no lowering 'x'", "040-88"),
    ("no lowering", lines((1, 2, [])), None, "no ExchangePlanLowering", "040-88"),
    ("two lowerings", lines((1, 1, ["ExchangePlanLowering('encrypted-v1')"])), 3,
     "second ExchangePlanLowering", "040-88"),
    ("no operand 0", put(OPERAND), None, "no ExchangePlanOperand for index 0", "040-90"),
    ("no operand 1", put(OPERAND + "'1'"), None, "no ExchangePlanOperand for index 1", "040-90"),
    ("operand twice", put(OPERAND, f"{OPERAND}'0','selector','{R0}')", LINES[at(OPERAND)]),
     at(OPERAND) + 2, "second ExchangePlanOperand for index 0", "040-90"),
    ("operand 2", put(OPERAND, f"{OPERAND}'2','selector','{R0}')"), at(OPERAND) + 1,
     "index 0 or 1, not '2'", "040-53"),
    ("operand 00", put(OPERAND, f"{OPERAND}'00','selector','{R0}')"), at(OPERAND) + 1,
     "index 0 or 1", "040-53"),
    ("facet", put(OPERAND, f"{OPERAND}'0','expose','{R0}')"), at(OPERAND) + 1, "facet", "040-55"),
    ("bad R", put(OPERAND, f"{OPERAND}'0','selector','E{R0[1:]}')"), at(OPERAND) + 1,
     "identifier of a module", "040-54"),
    ("no origin", put(ORIGIN), None, "no ExchangePlanOperandOrigin for index 0", "040-91"),
    ("origin twice", put(ORIGIN, LINES[at(ORIGIN)], f"{ORIGIN}'0','Opq_~')"), at(ORIGIN) + 2,
     "second ExchangePlanOperandOrigin for index 0", "040-91"),
    ("origin 2", put(ORIGIN, f"{ORIGIN}'2','Opq_~')"), at(ORIGIN) + 1, "index", "040-53"),
    ("bad label", put(ORIGIN, f"{ORIGIN}'0','{ALICE}')"), at(ORIGIN) + 1, "label", "040-45"),
    ("equal origins", put(ORIGIN, f"{ORIGIN}'0','{PLAN.operands[1].origin}')"), at(ORIGIN) + 2,
     "both operands have the origin", "040-48"),
    ("runtime missing", put(HERE), None, r"no ExchangePlanRuntime\('Here','1'\)", "040-89"),
    ("runtime arity", put(HERE, HERE.replace("'1'", "'2'")), at(HERE) + 1, "arity '2'", "040-89"),
    ("runtime name", put(HERE, HERE, HERE.replace("Here", "There")), at(HERE) + 2,
     "runtime fact 'There'", "040-89"),
    ("all and some", put(RUNTIME, "ExchangePlanRequireAllAdvertisedFields()", LINES[at(RUNTIME)]),
     at(FIELD) + 1, "single fields are left out", "G25"),
    ("profile not first", lines((0, 2, [LINES[1], LINES[0]])), 1, "not in its place", "040-86"),
    ("fields swapped", lines((at(FIELD), at(FIELD) + 2, LINES[at(FIELD) : at(FIELD) + 2][::-1])),
     at(FIELD) + 1, "not in its place", "040-86"),
    ("backwards", lines((1, len(LINES), LINES[:0:-1])), 2, "not in its place", "040-86"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "line", "what", "rule"),
    [pytest.param(*case, id=name) for name, *case in REFUSED],
)
def test_reading_refuses(raw: bytes, line: int | None, what: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=what) as caught:
        parse_transcript(raw)
    error = caught.value
    assert error.rule == rule
    assert error.place is not None
    assert (error.place.source, error.place.line) == ("transcript", line)
    assert str(error).startswith("transcript")


def test_messages_are_short_and_safe() -> None:
    hostile = "\u202e\u115f" + "y" * 900
    for raw in (
        put(FIELD, f"{FIELD}'{hostile}'"),
        put("ExchangePlanProfile", f"ExchangePlanProfile('{hostile}')"),
        put("ExchangePlanLowering", f"ExchangePlanLowering('{hostile}')"),
        put(OPERAND, f"{OPERAND}'{hostile}','selector','{R0}')"),
        put(OPERAND, f"{OPERAND}'0','{hostile}','{R0}')"),
        put(OPERAND, f"{OPERAND}'0','selector','{hostile}')"),
        put(ORIGIN, f"{ORIGIN}'0','{hostile}')"),
        put(HERE, f"{RUNTIME}'{hostile}','{hostile}')"),
        put(HERE, f"X{'x' * 900}()"),
        lines((1, 1, [f"{FIELD}'{hostile}')"])),
    ):
        with pytest.raises(PolicyError) as caught:
            parse_transcript(raw)
        text = str(caught.value)
        assert len(text) < 700
        assert not any(sign in text for sign in "\u202e\u115f\n")


def test_equal_plans_pass() -> None:
    check_same_plan(PLAN, plan_of(FIELDS, PLAIN))
    check_plan_id(PLAN, PLAN.id)


def test_plans_that_differ_in_lowering() -> None:
    other = plan_of(FIELDS, PLAIN, "encrypted-v1")
    checks: list[Callable[[], None]] = [
        lambda: check_same_plan(PLAN, other),
        lambda: check_plan_id(PLAN, other.id),
    ]
    for check in checks:
        with pytest.raises(PolicyError) as caught:
            check()
        assert caught.value.message == "plans differ in lowering"
        assert caught.value.rule == "040-80"
        assert "lowering: standard-v1 here, encrypted-v1 there" in str(caught.value)


def test_plans_that_differ_in_more() -> None:
    other = plan_of(ALL, PLAIN, "proven-peer-v1")
    with pytest.raises(PolicyError) as caught:
        check_same_plan(PLAN, other)
    assert caught.value.message.startswith("plans differ in lowering, operand 0, ")
    assert "required fields: App, Group here, all there" in str(caught.value)
    moved = replace(PLAN, operands=(PLAN.operands[0], replace(PLAN.operands[1], origin="Opq_~")))
    with pytest.raises(PolicyError, match="plans differ in the origin of operand 1"):
        check_same_plan(PLAN, moved)
    with pytest.raises(PolicyError, match="required fields: App, Group here, none there"):
        check_same_plan(PLAN, replace(PLAN, required=RequiredFields()))


@pytest.mark.parametrize("theirs", ["", "E.x", plan_of(PLAIN, PLAIN).id, "\x1b" * 900])
def test_another_identifier(theirs: str) -> None:
    with pytest.raises(PolicyError, match="plans differ: E") as caught:
        check_plan_id(PLAN, theirs)
    assert caught.value.rule == "040-80"
    assert len(str(caught.value)) < 600
    assert "\x1b" not in str(caught.value)


def test_the_profile_has_a_name() -> None:
    assert LINES[0] == f"ExchangePlanProfile('{PLAN_PROFILE}')"
