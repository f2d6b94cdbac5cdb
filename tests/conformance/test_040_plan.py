"""Text 040, setup: operands, origins, advertised fields, and the plan with its identifier."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.base.text import is_nfc
from lace.errors import PolicyError, RecordError, RuleError
from lace.facts.lines import format_fact, parse_fact
from lace.policy.operand import (
    Operand,
    RequiredFields,
    advertised_fields,
    check_module_id,
    operand_of,
    receive_operand,
)
from lace.policy.origin import (
    Origin,
    check_claim,
    claim_of,
    is_opaque_label,
    opaque_digest,
    opaque_labels,
    prove_claim,
)
from lace.policy.plan import (
    LOWERINGS,
    ExchangePlan,
    PlanOperand,
    check_same_plan,
    make_plan,
    parse_transcript,
)
from lace.record.ids import RecordId, Verifier, is_link_target
from lace.rules.canonical import lacegram_id
from lace.rules.limits import PEER_LIMITS, RuleLimits
from lace.rules.program import Lacegram

if TYPE_CHECKING:
    from collections.abc import Mapping

requirement = pytest.mark.requirement

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "plans.json").read_text("utf-8"))
HAVE = "SelectHave(P) :- Have(P)."
ADVERTISED = "SelectAdvertised(P,S) :- Advertised(P,S)."
PLAIN = f"{HAVE}\n{ADVERTISED}"
GROUP = f"{HAVE}\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u')."
APP = f"{HAVE}\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'App',_,'ding')."
ANY = f"{HAVE}\nSelectAdvertised(P,S) :- AdvertisedField(P,S,N,_,'u')."
ALICE = Verifier.from_public_key(b"\x01" * 32)
BOB = Verifier.from_public_key(b"\x02" * 32)


def receive(text: str, **changes: Any) -> Operand:
    values = {"index": 1, "module_id": lacegram_id(text), "facet": "selector"}
    return receive_operand(text.encode(), **{**values, **changes})


def plan_of(zero: str = GROUP, one: str = PLAIN, lowering: str = "standard-v1") -> ExchangePlan:
    return make_plan(operand_of(zero, 0), operand_of(one, 1), lowering)


def facts_of(plan: ExchangePlan) -> list[tuple[str, ...]]:
    return [parse_fact(line) for line in plan.transcript_bytes.split(b"\n")]


def values_of(plan: ExchangePlan, name: str) -> list[tuple[str, ...]]:
    return [fact[1:] for fact in facts_of(plan) if fact[0] == name]


def without(plan: ExchangePlan, start: str) -> bytes:
    return "\n".join(
        line for line in plan.transcript.split("\n") if not line.startswith(start)
    ).encode()


def refused(raw: bytes, rule: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_transcript(raw)
    assert caught.value.rule == rule


@requirement("040-46", "040-47", "040-79", "040-86", "040-96")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"][:8])
def test_vectors(vector: Mapping[str, Any]) -> None:
    zero, one = (operand_of(vector[f"operand{index}"], index) for index in (0, 1))
    for operand in (zero, one):
        text = vector[f"operand{operand.index}"]
        assert operand.canonical_bytes == text.encode()
        received = receive(text, index=operand.index, module_id=operand.module_id)
        assert received.canonical_bytes == text.encode()
    digests = [opaque_digest(each.index, each.module_id) for each in (zero, one)]
    assert [b64a.encode(found) for found in digests] == vector["opaque"]
    assert list(opaque_labels(*digests)) == vector["origins"]
    plan = make_plan(zero, one)
    assert [operand.origin for operand in plan.operands] == vector["origins"]
    assert plan.transcript == vector["transcript"]
    assert plan.id == vector["id"]
    read = parse_transcript(vector["transcript"].encode())
    assert (read, read.id) == (plan, vector["id"])


@requirement("040-01", "040-54")
def test_a_module_is_canonical_text_under_its_name() -> None:
    operand = receive(PLAIN)
    assert operand.canonical_bytes == PLAIN.encode()
    assert operand.module_id == lacegram_id(PLAIN)
    assert (operand.index, operand.facet) == (1, "selector")
    with pytest.raises(RuleError, match="spaces"):
        receive(PLAIN.replace("(P,S)", "(P, S)"))
    with pytest.raises(RuleError, match="not bound"):
        receive(f"{PLAIN}\nA(X) :- Have(P).")
    with pytest.raises(PolicyError, match="as it was called"):
        receive(PLAIN, module_id=lacegram_id(GROUP))
    with pytest.raises(PolicyError, match="no rules"):
        receive("")


@requirement("040-02", "040-36")
def test_setup_labels_each_operand() -> None:
    plan = plan_of()
    for index, operand in enumerate(plan.operands):
        assert operand.module_id == operand_of((GROUP, PLAIN)[index], index).module_id
        assert is_opaque_label(operand.origin)
    assert plan.operands[0].origin != plan.operands[1].origin


@requirement("040-03", "040-53")
def test_exactly_two_operands() -> None:
    plan = plan_of()
    zero, one = plan.operands
    wrong: list[Any] = [(zero,), (zero, one, one), (one, zero), (zero, zero)]
    for operands in wrong:
        with pytest.raises(PolicyError) as caught:
            dataclasses.replace(plan, operands=operands)
        assert caught.value.rule == "040-53"
    refused(without(plan, "ExchangePlanOperand('1'"), "040-90")
    third = plan.transcript.replace(
        "\nExchangePlanOperandOrigin('0'",
        f"\nExchangePlanOperand('2','selector','{zero.module_id}')\nExchangePlanOperandOrigin('0'",
    )
    refused(third.encode(), "040-53")
    with pytest.raises(PolicyError, match="operand 0 and operand 1"):
        make_plan(operand_of(PLAIN, 0), operand_of(PLAIN, 0))
    with pytest.raises(PolicyError, match="index 0 or 1"):
        operand_of(PLAIN, 2)


@requirement("040-05", "040-38")
def test_no_text_says_where_it_comes_from() -> None:
    """What rules say of themselves changes their name, and no label is read from them."""
    claims = f"{PLAIN}\nOrigin('{BOB}') :- true."
    plan = plan_of(GROUP, claims)
    digests = (opaque_digest(index, plan.operands[index].module_id) for index in (0, 1))
    assert tuple(each.origin for each in plan.operands) == opaque_labels(*digests)
    assert BOB not in plan.transcript
    assert check_claim("Opq_H", index=1) is None, "the peer gets the computed label (G27)"
    with pytest.raises(PolicyError):
        check_claim("Opq_0", index=1)


@requirement("040-06", "040-39", "040-40", "040-51")
def test_the_viewer_is_a_proven_verifier_else_the_label() -> None:
    plan = plan_of()
    unproven = plan.origin(1, prove_claim(None, None))
    assert unproven.viewer == unproven.label == plan.operands[1].origin
    proven = plan.origin(1, prove_claim(BOB, BOB))
    assert (proven.viewer, proven.verifier) == (BOB, BOB)
    assert proven.label == unproven.label
    with pytest.raises(PolicyError, match="label"):
        Origin(BOB)


@requirement("040-07", "040-81")
def test_what_a_plan_records() -> None:
    plan = plan_of(GROUP, APP)
    zero, one = plan.operands
    assert values_of(plan, "ExchangePlanProfile") == [("lace-040-exchange-plan-v1",)]
    assert values_of(plan, "ExchangePlanLowering") == [("standard-v1",)]
    assert values_of(plan, "ExchangePlanOperand") == [
        ("0", "selector", zero.module_id),
        ("1", "selector", one.module_id),
    ]
    assert values_of(plan, "ExchangePlanOperandOrigin") == [("0", zero.origin), ("1", one.origin)]
    assert values_of(plan, "ExchangePlanRequireAdvertisedField") == [("App",), ("Group",)]
    assert len(values_of(plan, "ExchangePlanRuntime")) == 7


@requirement("040-08", "040-82")
def test_what_is_negotiated_is_no_part_of_a_plan() -> None:
    """Limits that a side sets do not change the plan, and no line has room for them."""
    tight = dataclasses.replace(PEER_LIMITS, max_rules=2, max_work=1)
    for limits in (PEER_LIMITS, tight, RuleLimits()):
        assert make_plan(operand_of(GROUP, 0), receive(PLAIN, limits=limits)).id == plan_of().id
    line = "ExchangePlanLimit('max_fact_block_size','1048576')"
    refused(plan_of().transcript.replace("\n", f"\n{line}\n", 1).encode(), "040-85")


@requirement("040-09", "040-55", "040-116")
@pytest.mark.parametrize(
    ("text", "missing"), [(HAVE, "SelectAdvertised/2"), (ADVERTISED, "SelectHave/1")]
)
def test_a_selector_defines_both_selections(text: str, missing: str) -> None:
    with pytest.raises(RuleError, match=f"no rule defines {missing}"):
        operand_of(text, 0)
    with pytest.raises(RuleError, match=f"no rule defines {missing}"):
        receive(text)
    assert {"SelectHave", "SelectAdvertised"} == {key.name for key in receive(PLAIN).module.derived}
    with pytest.raises(PolicyError, match="facet"):
        receive(PLAIN, facet="expose")


@requirement("040-15")
def test_helpers() -> None:
    text = f"SelectHave(P) :- Mine(P).\n{ADVERTISED}\nMine(P) :- Have(P), Field(P,'Group',_,'u')."
    assert receive(text).canonical_bytes == text.encode()


@requirement("040-17", "040-20", "040-24", "040-56", "040-117")
@pytest.mark.parametrize(
    "head",
    [
        "MaySend(P)",
        "MayRequest(P)",
        "CanQueryRecord(P,P)",
        "AllowQueryRecord(P,P)",
        "MergedSelectHave(P)",
        "o0_SelectHave(P)",
        "o1_Member(P)",
    ],
)
def test_what_an_operand_cannot_define(head: str) -> None:
    text = f"{PLAIN}\n{head} :- Have(P)."
    with pytest.raises(RuleError, match="cannot define"):
        operand_of(text, 0)
    with pytest.raises(RuleError, match="cannot define") as caught:
        receive(text)
    assert caught.value.findings[0].rule == "G21"


@requirement("040-19", "040-21", "040-23")
def test_an_exposure_is_no_operand() -> None:
    rules = Lacegram.parse("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", profile="exposure")
    with pytest.raises(RuleError, match="AllowQueryRecord/2"):
        operand_of(rules, 0)
    with pytest.raises(PolicyError, match="no operand"):
        Operand(index=0, module=rules.program)
    with pytest.raises(RuleError, match="cannot mention CanQueryRecord/2"):
        receive(f"SelectHave(P) :- CanQueryRecord(_,P).\n{ADVERTISED}")


@requirement("040-37")
def test_origins_are_stable() -> None:
    assert len({plan_of().operands for _ in range(3)}) == 1
    plan = plan_of()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.operands = plan.operands[::-1]  # type: ignore[misc]  # the point of the test


@requirement("040-41")
def test_a_peer_cannot_claim_local_origin() -> None:
    with pytest.raises(PolicyError) as caught:
        check_claim("Opq_0", index=1)
    assert caught.value.rule == "040-41"
    # The verifier of this side is a claim like any other: to be proven, and then a viewer.
    assert check_claim(ALICE, index=1) == ALICE
    with pytest.raises(PolicyError, match="has not proven it"):
        prove_claim(ALICE, None)


@requirement("040-42", "040-43", "040-44")
def test_a_claimed_verifier_must_be_proven() -> None:
    claimed = check_claim(claim_of(1, BOB), index=1)
    assert claimed == BOB
    assert prove_claim(claimed, BOB) == BOB
    with pytest.raises(PolicyError, match="has not proven it"):
        prove_claim(claimed, None)
    with pytest.raises(PolicyError, match="has proven to be"):
        prove_claim(claimed, ALICE)


@requirement("040-45")
def test_the_form_of_a_label() -> None:
    assert all(is_opaque_label(f"Opq_{character}") for character in b64a.ALPHABET)
    assert not any(map(is_opaque_label, ["Opq_", "Opq_-", "Opq_ab", "opq_a", "OPQ_a"]))


@requirement("040-46")
def test_what_an_opaque_digest_covers() -> None:
    module, other = lacegram_id(PLAIN), lacegram_id(GROUP)
    nonce = b64a.encode(b"\x07" * 32)
    found = {
        opaque_digest(0, module),
        opaque_digest(1, module),
        opaque_digest(0, other),
        opaque_digest(0, module, nonce=nonce),
        opaque_digest(0, module, verifier=ALICE),
        opaque_digest(0, module, nonce=nonce, verifier=ALICE),
    }
    assert len(found) == 6
    text = (
        "lace-opaque-origin/v1OpaqueOriginRole('0')\n"
        f"OpaqueOriginNonce('{nonce}')\n"
        f"OpaqueOriginVerifier('{ALICE}')\n"
        f"OpaqueOriginOperand('selector','{module}','{module[2:]}')\n"
    )
    assert opaque_digest(0, module, nonce=nonce, verifier=ALICE) == digest(text.encode())


@requirement("040-47")
def test_the_first_place_that_differs() -> None:
    one = b64a.decode("0" * 20 + "A" + "x" * 22)
    other = b64a.decode("0" * 20 + "B" + "y" * 21 + "0")
    assert opaque_labels(one, other) == ("Opq_A", "Opq_B")


@requirement("040-48")
def test_equal_digests_end_setup() -> None:
    same = opaque_digest(0, lacegram_id(PLAIN))
    with pytest.raises(PolicyError) as caught:
        opaque_labels(same, same)
    assert caught.value.rule == "040-48"


@requirement("040-49", "040-50")
def test_labels_say_neither_role_nor_identity() -> None:
    """The same side has another label in another exchange, whoever it is."""
    labels = {
        plan_of(PLAIN, f"{PLAIN}\nA{number}(P) :- Have(P).").operands[1].origin
        for number in range(40)
    }
    assert len(labels) > 10
    assert plan_of(PLAIN, GROUP).operands[0].origin != plan_of(GROUP, PLAIN).operands[1].origin
    nonces = {
        make_plan(operand_of(GROUP, 0), operand_of(PLAIN, 1), nonce=b64a.encode(bytes([n]) * 32)).id
        for n in range(20)
    }
    assert len(nonces) > 10


@requirement("040-58", "040-60", "040-61", "040-62")
def test_scopes_are_names_and_nothing_else() -> None:
    zero, one = operand_of(PLAIN, 0), operand_of(PLAIN, 1)
    assert (zero.scope, one.scope) == ("o0_", "o1_")
    assert zero.module_id == one.module_id
    plan = make_plan(zero, one)
    assert "o0_" not in plan.transcript
    assert "o1_" not in plan.transcript
    assert not any(is_opaque_label(operand.scope) for operand in (zero, one))


@requirement("040-63", "040-64")
@pytest.mark.parametrize("atom", ["o0_Member(P)", "not o1_Member(P)", "MergedSelectHave(P)"])
def test_an_operand_is_closed(atom: str) -> None:
    with pytest.raises(RuleError, match="cannot mention"):
        receive(f"SelectHave(P) :- Have(P), {atom}.\n{ADVERTISED}")


@requirement("040-80")
def test_both_sides_agree_on_one_plan() -> None:
    ours = plan_of()
    check_same_plan(ours, parse_transcript(plan_of().transcript_bytes))
    with pytest.raises(PolicyError, match="plans differ in operand 0"):
        check_same_plan(ours, plan_of(APP))


@requirement("040-75", "040-80", "040-88")
def test_lowerings() -> None:
    plans = [plan_of(lowering=lowering) for lowering in LOWERINGS]
    assert len({plan.id for plan in plans}) == len(LOWERINGS) == 3
    for plan in plans:
        assert values_of(plan, "ExchangePlanLowering") == [(plan.lowering,)]
    with pytest.raises(PolicyError, match="plans differ in lowering"):
        check_same_plan(plans[0], plans[1])
    refused(without(plans[0], "ExchangePlanLowering"), "040-88")
    with pytest.raises(PolicyError, match="no lowering"):
        plan_of(lowering="mine-v1")


@requirement("040-84", "040-109")
def test_the_text_of_a_transcript() -> None:
    accented = GROUP.replace("'Group'", "'Größe'")
    raw = plan_of(accented).transcript_bytes
    assert is_nfc(raw.decode("utf-8"))
    assert not raw.endswith(b"\n")
    for bad in (
        raw + b"\n",
        raw.replace(b"\n", b"\r\n"),
        raw.replace(b"\n", b"\n\n", 1),
        b"# plan\n" + raw,
        raw.replace(b"\n", b'\n#:json {"label":"x"}\n', 1),
        raw.replace("ö".encode(), b"o\xcc\x88"),
        raw.replace("ö".encode(), b"\xf6"),
        b"\xef\xbb\xbf" + raw,
    ):
        with pytest.raises(PolicyError) as caught:
            parse_transcript(bad)
        assert caught.value.rule in ("040-84", "G24")
    annotated = operand_of(f'#:json {{"label":"mine"}}\n{PLAIN}', 0)
    assert annotated.module.annotations
    assert annotated.canonical_bytes == PLAIN.encode()


@requirement("040-85")
def test_each_line_is_a_fact() -> None:
    plan = plan_of(GROUP.replace("'Group'", r"'it\'s \\'"))
    assert [format_fact(fact) for fact in facts_of(plan)] == plan.transcript.split("\n")
    assert r"ExchangePlanRequireAdvertisedField('it\'s \\')" in plan.transcript
    refused(plan.transcript.replace("('Here','1')", "('Here', '1')").encode(), "050-23")
    refused(plan.transcript.replace("('Here','1')", "('Here','1').").encode(), "050-23")
    refused(plan.transcript.replace("('Here','1')", "('Here')").encode(), "040-85")


@requirement("040-86")
def test_the_order_of_lines() -> None:
    plan = plan_of(GROUP, APP)
    assert [fact[0].removeprefix("ExchangePlan") for fact in facts_of(plan)] == [
        "Profile",
        "Lowering",
        *["Operand"] * 2,
        *["OperandOrigin"] * 2,
        *["RequireAdvertisedField"] * 2,
        *["Runtime"] * 7,
    ]
    lines = plan.transcript.split("\n")
    refused("\n".join(sorted(lines)).encode(), "040-86")
    refused("\n".join([*lines[:7], *reversed(lines[7:])]).encode(), "040-86")
    refused("\n".join([*lines, lines[-1]]).encode(), "040-86")
    assert facts_of(plan_of(ANY))[6] == ("ExchangePlanRequireAllAdvertisedFields",)


@requirement("040-87")
def test_the_profile() -> None:
    plan = plan_of()
    assert plan.transcript.startswith("ExchangePlanProfile('lace-040-exchange-plan-v1')\n")
    refused(without(plan, "ExchangePlanProfile"), "040-87")
    refused(plan.transcript.replace("plan-v1", "plan-v2").encode(), "040-87")


@requirement("040-89")
def test_the_runtime_facts() -> None:
    plan = plan_of()
    assert values_of(plan, "ExchangePlanRuntime") == [
        ("ClockSkewSeconds", "1"),
        ("Here", "1"),
        ("Peer", "1"),
        ("StartTAI", "1"),
        ("TickTAI", "1"),
        ("Transport", "1"),
        ("TransportEncrypted", "0"),
    ]
    for name, arity in values_of(plan, "ExchangePlanRuntime"):
        line = f"ExchangePlanRuntime('{name}','{arity}')"
        refused(without(plan, line), "040-89")
        refused(plan.transcript.replace(line, line.replace(f"'{arity}'", "'3'")).encode(), "040-89")


@requirement("040-90", "040-91")
@pytest.mark.parametrize(
    ("name", "rule"), [("ExchangePlanOperand", "040-90"), ("ExchangePlanOperandOrigin", "040-91")]
)
@pytest.mark.parametrize("index", ["0", "1"])
def test_one_line_for_each_operand(name: str, rule: str, index: str) -> None:
    plan = plan_of()
    assert [values[0] for values in values_of(plan, name)] == ["0", "1"]
    refused(without(plan, f"{name}('{index}'"), rule)
    other = {
        "040-90": f"{name}('{index}','selector','{lacegram_id(APP)}')",
        "040-91": f"{name}('{index}','Opq_~')",
    }[rule]
    refused(f"{plan.transcript}\n{other}".encode(), rule)


@requirement("040-92", "040-102")
def test_constant_names_are_required() -> None:
    text = (
        f"{HAVE}\nSelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'a',_,_), "
        "not AdvertisedField(P,S,'b',_,'x'), Cardinality(AdvertisedField(P,S,'c',_,_),'<','3')."
    )
    required = advertised_fields(operand_of(text, 0).module)
    assert required == RequiredFields(names=frozenset("abc"))
    plan = plan_of(text, f"{text}\nA(P) :- AdvertisedField(P,_,'d',_,_).")
    assert values_of(plan, "ExchangePlanRequireAdvertisedField") == [("a",), ("b",), ("c",), ("d",)]
    assert not values_of(plan, "ExchangePlanRequireAllAdvertisedFields")
    line = "ExchangePlanRequireAdvertisedField('a')"
    refused(plan.transcript.replace(line, f"{line}\n{line}").encode(), "040-86")


@requirement("040-93", "040-94", "040-103")
@pytest.mark.parametrize(
    "atom",
    [
        "AdvertisedField(P,S,N,_,_)",
        "AdvertisedField(P,S,_,_,_)",
        "not AdvertisedField(P,S,_,_,_)",
        "Cardinality(AdvertisedField(P,S,N,_,_),'<','3')",
    ],
)
def test_another_name_requires_all(atom: str) -> None:
    text = f"{HAVE}\nSelectAdvertised(P,S) :- Advertised(P,S), {atom}."
    assert advertised_fields(operand_of(text, 0).module) == RequiredFields(all=True)
    plan = plan_of(text, GROUP)
    assert values_of(plan, "ExchangePlanRequireAllAdvertisedFields") == [()]
    assert not values_of(plan, "ExchangePlanRequireAdvertisedField")
    both = plan.transcript.replace(
        "\nExchangePlanRequireAll",
        "\nExchangePlanRequireAdvertisedField('Group')\nExchangePlanRequireAll",
    )
    refused(both.encode(), "G25")


@requirement("040-96")
def test_the_identifier() -> None:
    plan = plan_of()
    hashed = digest(b"lace-exchange-plan/v1" + plan.transcript_bytes)
    assert plan.id == f"E.{b64a.encode(hashed)}"


@requirement("040-97")
def test_a_plan_s_identifier_names_no_record() -> None:
    plan = plan_of()
    for text in (plan.id, f"{plan.id}.H3"):
        with pytest.raises(RecordError):
            RecordId(text)
    assert not is_link_target(plan.id)
    with pytest.raises(PolicyError, match="identifier of a module"):
        check_module_id(plan.id)
    with pytest.raises(PolicyError):
        PlanOperand(index=0, module_id=plan.id, origin="Opq_0")


@requirement("040-104", "040-105")
def test_a_schema_meets_a_plan() -> None:
    some = plan_of(GROUP, APP).required
    assert some.is_met_by({"App", "Group", "Name"})
    assert some.is_met_by(None)
    assert not some.is_met_by({"App"})
    assert not some.is_met_by(frozenset())
    everything = plan_of(ANY, APP).required
    assert everything.is_met_by(None)
    assert not everything.is_met_by({"App", "Group", "Name"})
    assert plan_of(PLAIN, PLAIN).required.is_met_by(frozenset())
