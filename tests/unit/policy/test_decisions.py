"""Decisions: which gate stops a record, and that it is named rightly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.engine.factbase import FactBase
from lace.errors import UsageError
from lace.policy.local import Policy, prepare_exchange
from lace.policy.operand import operand_of
from lace.query import preview as previewing
from lace.query.preview import Gate, Preview
from lace.why import why_not as misses

if TYPE_CHECKING:
    from lace.facts.lines import Fact

PEER = f"V.{'0' * 43}.H3"
SHOWN, HIDDEN, CLAIMED = (f"P.{letter * 42}0.H3" for letter in "ABC")
RECORDS: list[Fact] = [
    *((("Have", record)) for record in (SHOWN, HIDDEN)),
    ("Field", SHOWN, "Group", "0", "X"),
    ("Field", HIDDEN, "Group", "0", "Y"),
]
CLAIMS: list[Fact] = [
    ("Advertised", CLAIMED, PEER),
    ("AdvertisedField", CLAIMED, PEER, "Group", "0", "other"),
]
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
EXPOSE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'X')."


def preview(
    ours: str = ALL,
    theirs: str = ALL,
    *,
    expose: bool = True,
    lowering: str = "standard-v1",
    public: list[Fact] = CLAIMS,
) -> Preview:
    policy = Policy(ours, [(EXPOSE, PEER)] if expose else [], lowering=lowering)
    base = FactBase(max_value_bytes=1024)
    base.change(RECORDS)
    return Preview(prepare_exchange(policy, operand_of(theirs, 1), PEER), base, public)


NAMED = f"SelectHave('{HIDDEN}') :- true.\nSelectAdvertised(P,S) :- Advertised(P,S)."
LINKED = "SelectHave(T) :- RecordLink(_,_,_,_,T).\nSelectAdvertised(P,S) :- Advertised(P,S)."
GROUP_Y = ALL.replace("Have(P).", "Have(P), Field(P,'Group',_,'Y').")


@pytest.mark.parametrize(
    ("asked", "record", "gate"),
    [
        (preview(), SHOWN, None),
        (preview(), HIDDEN, Gate.NOT_EXPOSED),
        (preview(theirs=NAMED), HIDDEN, Gate.NOT_EXPOSED),
        (preview(theirs=LINKED), HIDDEN, Gate.NOT_EXPOSED),
        (preview(expose=False, theirs=NAMED), HIDDEN, Gate.NOT_EXPOSED),
        (preview(ours=GROUP_Y), SHOWN, Gate.NOT_OURS),
        (preview(theirs=GROUP_Y), SHOWN, Gate.NOT_THEIRS),
        (preview(), CLAIMED, Gate.NOT_HERE),
        (preview(theirs=NAMED.replace(HIDDEN, CLAIMED)), CLAIMED, Gate.NOT_HERE),
        (preview(lowering="encrypted-v1"), SHOWN, Gate.NOT_ENCRYPTED),
        (preview(lowering="proven-peer-v1"), SHOWN, None),
    ],
)
def test_what_is_not_sent(asked: Preview, record: str, gate: Gate | None) -> None:
    decision = asked.decide("MaySend", record)
    assert decision.gate is gate
    assert decision.moves is (gate is None)
    assert (record in asked.permissions.may_send) is decision.allowed
    assert decision.to_json()["gate"] == (None if gate is None else gate.value)


def test_that_nothing_is_exposed_is_said() -> None:
    message = preview(expose=False).decide("MaySend", SHOWN).message
    assert message == "it would not be sent: nothing is exposed to this peer"


def selecting(*bodies: str) -> str:
    rules = [f"SelectAdvertised(P,S) :- Advertised(P,S), {body}." for body in bodies]
    return "\n".join(["SelectHave(P) :- Have(P).", *rules])


RARE = "AdvertisedField(P,S,'Rare',_,'x')"
TEAM = "AdvertisedField(P,S,'Group',_,'team')"
HELPER = f"Good(P,S) :- Advertised(P,S), {RARE}."


@pytest.mark.parametrize(
    ("asked", "gate"),
    [
        (preview(), None),
        (preview(public=[]), Gate.NOT_ADVERTISED),
        (preview(selecting(TEAM)), Gate.NOT_OURS),
        (preview(theirs=selecting(TEAM)), Gate.NOT_THEIRS),
        (preview(selecting(RARE)), Gate.FIELD_NOT_ADVERTISED),
        (preview(theirs=selecting(RARE)), Gate.FIELD_NOT_ADVERTISED),
        (preview(f"{selecting('Good(P,S)')}\n{HELPER}"), Gate.FIELD_NOT_ADVERTISED),
        (preview(selecting(TEAM, RARE)), Gate.NOT_OURS),
        (preview(selecting(f"{TEAM}, not {RARE}")), Gate.NOT_OURS),
        (
            preview(
                selecting(f"{TEAM}, Other(S)") + "\nOther(S) :- AdvertisedField(_,S,'Rare',_,_)."
            ),
            Gate.NOT_OURS,
        ),
        (
            preview("SelectHave(P) :- Have(P).\nSelectAdvertised('x',S) :- Advertised(_,S)."),
            Gate.NOT_OURS,
        ),
        (preview(lowering="encrypted-v1"), Gate.NOT_ENCRYPTED),
        (preview(lowering="proven-peer-v1"), Gate.NOT_PROVEN),
        (preview(lowering="proven-peer-v1", public=[*CLAIMS, ("Peer", PEER)]), None),
    ],
)
def test_what_is_not_requested(asked: Preview, gate: Gate | None) -> None:
    decision = asked.decide("MayRequest", CLAIMED)
    assert decision.gate is gate
    assert decision.allowed is (CLAIMED in asked.permissions.may_request)
    if gate is Gate.FIELD_NOT_ADVERTISED:
        assert decision.message.endswith("field not advertised: Rare")


def test_gates_are_decided_by_values_and_not_by_their_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(misses, "instance_of", lambda _item, _binding: "shown in another way")
    for rules in (selecting(RARE), f"{selecting('Good(P,S)')}\n{HELPER}"):
        assert preview(rules).decide("MayRequest", CLAIMED).gate is Gate.FIELD_NOT_ADVERTISED
    for lowering, gate in (
        ("encrypted-v1", Gate.NOT_ENCRYPTED),
        ("proven-peer-v1", Gate.NOT_PROVEN),
    ):
        found = preview(lowering=lowering).why("MayRequest", CLAIMED)
        assert found.absence is not None
        told = tuple(replace(each, item="not Peer(X)") for each in found.absence.misses)
        other = replace(found, absence=replace(found.absence, misses=told))
        assert previewing._lowering_gate(other) is gate
        told = tuple(replace(each, item="shown in another way") for each in told)
        other = replace(found, absence=replace(found.absence, misses=told))
        assert previewing._lowering_gate(other) is gate


def test_what_is_here_already_is_not_requested() -> None:
    public: list[Fact] = [("Advertised", SHOWN, PEER)]
    assert preview(public=public).decide("MayRequest", SHOWN).gate is Gate.ALREADY_HERE


def test_records_of_other_formats_do_not_move() -> None:
    other = CLAIMED.replace(".H3", ".H9")
    asked = preview(public=[("Advertised", other, PEER)])
    assert asked.decide("MayRequest", other).gate is Gate.FORMAT
    base = FactBase(max_value_bytes=1024)
    base.change([*RECORDS, ("Have", other), ("Field", other, "Group", "0", "X")])
    exchange = prepare_exchange(Policy(ALL, [(EXPOSE, PEER)]), operand_of(ALL, 1), PEER)
    assert Preview(exchange, base).decide("MaySend", other).gate is Gate.FORMAT
    assert Preview(exchange, base, formats=None).decide("MaySend", other).gate is None


def test_only_permissions_are_decided_about() -> None:
    with pytest.raises(UsageError, match="MaySend and MayRequest"):
        preview().decide("Have", SHOWN)
