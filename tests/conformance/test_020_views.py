"""Text 020, views: what a peer's rules see of the records here, and what they do not."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from lace.engine.engine import evaluate
from lace.engine.factbase import FactBase
from lace.errors import LimitExceeded, PolicyError, RuleError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.source import MemoryFacts, RecordView
from lace.policy.compile import compile_policy, flat_program
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.origin import Origin, check_claim, is_opaque_label
from lace.policy.plan import check_same_plan, make_plan
from lace.rules.limits import RuleLimits
from lace.rules.profiles import CAN_QUERY_RECORD, MAY_REQUEST, MAY_SEND, QUERY
from lace.rules.program import check_source
from tests.conformance.exchange import (
    ADVERTISED,
    ALICE,
    ALL,
    BAIT,
    BOB,
    CAROL,
    EXPOSE_ALL,
    EXPOSE_X,
    HIDDEN,
    OTHER,
    SEALED,
    SHOWN,
    STORE,
    enforce,
    facts,
    finds,
    policy,
)
from tests.oracle.naive_engine import evaluate_naively
from tests.store.samples import blob, plex, seal

requirement = pytest.mark.requirement

TO_ALICE = exposure_of(EXPOSE_X, ALICE)
VISIBLE = {str(SHOWN.id), str(OTHER.id)}
EVERY = {str(record.id) for record in (SHOWN, OTHER, HIDDEN, SEALED)}


@requirement("020-43")
def test_an_inner_record_is_sent_only_if_it_is_stored_by_itself() -> None:
    inner = str(HIDDEN.id)
    theirs = "SelectHave(H) :- PlexHash(_,H).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    made = policy(exposure_of(EXPOSE_ALL, anyone=True), theirs=theirs)
    assert inner not in enforce(made, facts(SEALED)).may_send
    assert inner in enforce(made, facts(SEALED, HIDDEN)).may_send


@requirement("020-44")
def test_an_answer_is_that_of_the_facts_it_was_given() -> None:
    base = FactBase(max_value_bytes=1024)
    base.change(facts(SHOWN))
    enforcement = Enforcement(policy(TO_ALICE), base)
    before = enforcement.evaluate()
    enforcement.update(base.change(facts(OTHER)))
    assert before.may_send == {str(SHOWN.id)}
    assert enforcement.evaluate().may_send == VISIBLE
    assert before.counts == (1, 0)


@requirement("020-45")
def test_an_evaluation_reads_no_clock_and_opens_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = policy(TO_ALICE)
    expected = enforce(made, STORE).may_send

    def refused(*_: object, **__: object) -> object:
        raise AssertionError("nothing outside the snapshot is read")

    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
        monkeypatch.setattr(time, name, refused)
    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr("builtins.open", refused)
    assert enforce(made, STORE).may_send == expected == VISIBLE


@requirement("020-46", "020-66")
def test_there_is_the_full_view_and_the_view_of_a_viewer() -> None:
    """The local operand counts all four records, the peer's the two that it may see."""
    count = "SelectHave(P) :- Have(P), Cardinality(Have(_),'>=','{}').\n"
    rest = "SelectAdvertised(P,S) :- Advertised(P,S)."
    four, two, three = (count.format(number) + rest for number in "423")
    assert enforce(policy(TO_ALICE, ours=four, theirs=two), STORE).may_send == VISIBLE
    assert not enforce(policy(TO_ALICE, ours=four, theirs=three), STORE).may_send
    view = RecordView(MemoryFacts(STORE), VISIBLE.__contains__)
    assert view.count("Have") == 2
    assert MemoryFacts(STORE).count("Have") == 4


ATOMS = {
    "Have": "Have(Q)",
    "Field": "Field(Q,'Group',_,_)",
    "RecordLink": "RecordLink(Q,_,_,_,_)",
    "BlobHash": "BlobHash(Q,_)",
    "PlexHash": "PlexHash(Q,_)",
}


@requirement("020-47")
@pytest.mark.parametrize("atom", ATOMS.values(), ids=ATOMS)
def test_no_record_fact_is_there_for_a_peer_by_itself(atom: str) -> None:
    assert not finds(atom)
    assert finds(atom, exposure_of(EXPOSE_ALL, ALICE))


@requirement("020-47", "020-48")
def test_the_owner_of_the_facts_says_what_may_be_queried() -> None:
    ask = "Field(_,'Group',_,'Y')"
    assert not finds(ask, TO_ALICE)
    assert finds(ask, exposure_of(EXPOSE_ALL, ALICE))
    assert not finds(ask, exposure_of(EXPOSE_ALL, BOB))


@requirement("020-49")
def test_setup_assigns_the_origins() -> None:
    plan = make_plan(operand_of(ALL, 0), operand_of(ALL, 1))
    assert all(is_opaque_label(each.origin) for each in plan.operands)
    assert plan.origin(0).viewer == plan.operands[0].origin
    for claim in ("Opq_a", "Opq_9"):  # a label that a peer claims counts for nothing (G27)
        assert check_claim(claim, index=0) is None
    with pytest.raises(PolicyError, match="the origin of this side"):
        check_claim("Opq_1", index=0)


@requirement("020-50", "040-05")
@pytest.mark.parametrize(
    "rules",
    [
        f"Viewer('{CAROL}') :- true.",
        f"Origin('{CAROL}') :- true.\nSide('local') :- true.",
        f"Me(V) :- Peer(V).\nMe('{CAROL}') :- true.",
    ],
)
def test_rules_that_name_another_verifier_change_nothing(rules: str) -> None:
    to_carol = exposure_of(f"AllowQueryRecord('{CAROL}',P) :- Have(P).", CAROL)
    assert not finds("Have(_)", to_carol, rules=rules)
    assert not finds("Field(_,'Group',_,'Y')", to_carol, TO_ALICE, rules=rules)


@requirement("020-51", "020-52")
def test_a_viewer_is_a_proven_verifier_or_the_label_of_the_exchange() -> None:
    to_anyone = exposure_of(EXPOSE_X, anyone=True)
    assert enforce(policy(to_anyone, viewer=None), STORE).may_send == VISIBLE
    assert enforce(policy(to_anyone, viewer=ALICE), STORE).may_send == VISIBLE
    assert not enforce(policy(TO_ALICE, viewer=None), STORE).may_send
    assert Origin("Opq_a").viewer == "Opq_a"
    for viewer in ("Opq_?", "alice", "V.alice.H3", "", "local"):
        with pytest.raises(PolicyError):
            policy(to_anyone, viewer=viewer)


@requirement("020-53", "040-98")
def test_the_four_rules_of_alice_and_bob() -> None:
    """Each counts what it sees: one's own rules all, the other's what was exposed to them."""
    alices = facts(SHOWN, OTHER, HIDDEN)
    bobs = facts(plex("b1", group="X"), plex("b2", group="Z"), plex("b3", group="Z"))
    only = "AllowQueryRecord('{}',P) :- Have(P), Field(P,'Group',_,'{}')."

    def counts(least: int, most: int) -> str:
        return (
            f"SelectHave(P) :- Have(P), Cardinality(Have(_),'>=','{least}'), "
            f"Cardinality(Have(_),'<=','{most}').\n"
            "SelectAdvertised(P,S) :- Advertised(P,S)."
        )

    # Alice's rules have index 0: three records at home, two of Bob's.
    alice_on_alice = policy(
        exposure_of(only.format(BOB, "X"), BOB), ours=counts(3, 3), theirs=ALL, viewer=BOB, index=0
    )
    assert enforce(alice_on_alice, alices).may_send == VISIBLE
    alice_on_bob = policy(
        exposure_of(only.format(ALICE, "Z"), ALICE), ours=ALL, theirs=counts(2, 2), viewer=ALICE
    )
    assert len(enforce(alice_on_bob, bobs).may_send) == 2
    # Bob's rules have index 1: three records at home, two of Alice's.
    bob_on_bob = policy(
        exposure_of(only.format(ALICE, "Z"), ALICE), ours=counts(3, 3), theirs=ALL, viewer=ALICE
    )
    assert len(enforce(bob_on_bob, bobs).may_send) == 2
    bob_on_alice = policy(
        exposure_of(only.format(BOB, "X"), BOB), ours=ALL, theirs=counts(2, 2), viewer=BOB, index=0
    )
    assert enforce(bob_on_alice, alices).may_send == VISIBLE


@requirement("020-54", "020-67", "020-72")
def test_every_rule_of_a_view_asks_the_gate() -> None:
    made = policy(TO_ALICE)
    assert CAN_QUERY_RECORD.arity == 2
    view = [rule for rule in made.view.rules if rule.head.key in made.view_predicates]
    assert view
    for rule in view:
        asked = [atom for _, atom in rule.uses() if atom.key == CAN_QUERY_RECORD]
        assert [(str(atom.terms[0]), atom.terms[1]) for atom in asked] == [
            (f"'{ALICE}'", rule.head.terms[0])
        ]
    for rule in made.theirs.rules:
        assert not any(atom.name in RECORD_PREDICATES for _, atom in rule.uses())


@requirement("020-55", "020-56", "040-24")
@pytest.mark.parametrize(
    "rule",
    [
        f"CanQueryRecord('{ALICE}',P) :- Have(P).",
        f"AllowQueryRecord('{ALICE}',P) :- Have(P).",
        f"Helper(P) :- CanQueryRecord('{ALICE}',P).",
        f"Helper(P) :- Have(P), not CanQueryRecord('{ALICE}',P).",
        f"Helper(P) :- Have(P), Cardinality(CanQueryRecord('{ALICE}',_),'>','0').",
        "Helper(V) :- _Viewer(V).",
        f"_Viewer('{CAROL}') :- true.",
        "m1_AllowQueryRecord(V,P) :- Peer(V), o1_Have(P).",
    ],
)
def test_a_peer_neither_defines_nor_reads_the_gate(rule: str) -> None:
    with pytest.raises(RuleError) as caught:
        operand_of(f"{ALL}\n{rule}", 1)
    found = {finding.rule for finding in caught.value.findings} | {caught.value.rule}
    assert found & {"G21", "030-47", "030-51"}


@requirement("020-55")
@pytest.mark.parametrize(
    "rule",
    [
        f"CanQueryRecord('{ALICE}',P) :- Have(P).",
        "SelectHave(P) :- Have(P).",
        "MaySend(P) :- Have(P).",
        "o1_Have(P) :- Have(P).",
    ],
)
def test_an_exposure_defines_no_predicate_of_others(rule: str) -> None:
    with pytest.raises(RuleError):
        exposure_of(f"{EXPOSE_X}\n{rule}", anyone=True)


@requirement("020-57", "040-21", "040-26")
def test_exposures_stay_at_home() -> None:
    """Neither the plan nor its identifier has anything of them."""
    plain, exposed = policy(), policy(TO_ALICE, exposure_of(EXPOSE_ALL, anyone=True))
    assert plain.plan == exposed.plan
    assert plain.plan.id == exposed.plan.id
    assert "AllowQueryRecord" not in exposed.plan.transcript
    assert TO_ALICE.module.id not in exposed.plan.transcript


@requirement("020-58", "040-113")
def test_the_viewer_of_an_exposure_is_bound() -> None:
    with pytest.raises(RuleError, match="Viewer"):
        exposure_of("AllowQueryRecord(Viewer,P) :- Have(P), Field(P,'Group',_,'X').", anyone=True)
    named = f"AllowQueryRecord('{ALICE}',P) :- Have(P), Field(P,'Group',_,'X')."
    for text in (named, EXPOSE_X):
        assert enforce(policy(exposure_of(text, ALICE)), STORE).may_send == VISIBLE
    assert not enforce(
        policy(exposure_of(named.replace(ALICE, CAROL), anyone=True)), STORE
    ).may_send


@requirement("020-59", "020-78", "040-108")
def test_what_is_exposed_can_be_queried_and_nothing_else() -> None:
    assert finds(f"Field('{SHOWN.id}','Name',_,'shown')", TO_ALICE)
    assert finds("Field(P1,_,_,V), Field(P2,_,_,V), P1 != P2", TO_ALICE)
    assert finds("Cardinality(Have(_),'>=','2')", TO_ALICE)
    assert not finds(f"Field('{HIDDEN.id}','Name',_,_)", TO_ALICE)
    assert not finds(f"Have('{HIDDEN.id}')", TO_ALICE)
    assert not finds("Cardinality(Have(_),'>=','3')", TO_ALICE)


LATE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Name',_,'other')."


@requirement("020-60", "020-61", "020-65", "040-29", "040-30", "040-35")
def test_constraints_intersect() -> None:
    late = exposure_of(LATE, ALICE)
    both = policy(TO_ALICE, late)
    assert enforce(both, STORE).may_send == {str(OTHER.id)}
    assert enforce(policy(late, TO_ALICE), STORE).may_send == {str(OTHER.id)}
    gate = [str(rule) for rule in both.view.rules if rule.head.key == CAN_QUERY_RECORD]
    assert gate == [
        f"CanQueryRecord('{ALICE}',P) :- "
        f"m1_AllowQueryRecord('{ALICE}',P), m2_AllowQueryRecord('{ALICE}',P)."
    ]
    for more in (LATE, EXPOSE_ALL, EXPOSE_X, LATE.replace("other", "nobody")):
        narrowed = enforce(policy(TO_ALICE, exposure_of(more, anyone=True)), STORE).may_send
        assert narrowed <= VISIBLE


@requirement("020-60")
def test_a_constraint_for_somebody_else_takes_no_part() -> None:
    nothing = LATE.replace("other", "nobody")
    assert enforce(policy(TO_ALICE, exposure_of(nothing, BOB)), STORE).may_send == VISIBLE
    assert not enforce(policy(TO_ALICE, exposure_of(nothing, ALICE)), STORE).may_send


@requirement("020-62", "040-31")
def test_without_a_constraint_the_view_is_empty() -> None:
    for exposures in ((), (exposure_of(EXPOSE_ALL, BOB),)):
        made = policy(*exposures)
        assert made.exposes_nothing
        assert not enforce(made, STORE).may_send
    assert not policy(TO_ALICE).exposes_nothing


@requirement("020-63", "020-64", "040-33", "040-34")
def test_a_view_is_widened_by_a_rule_that_says_so() -> None:
    union = f"{EXPOSE_X}\nAllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'Y')."
    assert enforce(policy(exposure_of(union, ALICE)), STORE).may_send == EVERY
    apart = [exposure_of(line, ALICE) for line in union.split("\n")]
    assert not enforce(policy(*apart), STORE).may_send


@requirement("020-67", "020-68", "020-69", "020-70", "020-71", "020-80")
@pytest.mark.parametrize("name", ATOMS)
def test_each_record_fact_passes_the_gate_of_its_record(name: str) -> None:
    """The facts of a visible record are all there, those of another are all gone."""
    assert set(ATOMS) == set(RECORD_PREDICATES)
    sealed = seal(plex("sealed", group="X", headers=[("a+Link", f"see {HIDDEN.id}")]))
    store = [*STORE, *facts(sealed)]
    for record, is_seen in ((sealed, True), (SEALED, False), (HIDDEN, False)):
        atom = ATOMS[name].replace("Q", f"'{record.id}'")
        there = any(fact[:2] == (name, str(record.id)) for fact in store)
        assert finds(atom, TO_ALICE, store=store) == (is_seen and there)


@requirement("020-69", "020-79")
def test_a_link_is_gated_by_its_record_and_tells_of_its_target() -> None:
    """The target is hidden or not even here; the link is seen all the same."""
    away = plex("away", at=9)
    linking = plex(
        "links", group="X", headers=[("a+Link", f"see {HIDDEN.id}"), ("a+Link", f"see {away.id}")]
    )
    store = facts(linking, HIDDEN)
    for target in (HIDDEN, away):
        assert finds(f"RecordLink(_,_,_,_,'{target.id}')", TO_ALICE, store=store)
        assert not finds(f"Have('{target.id}')", TO_ALICE, store=store)
    assert not finds(f"RecordLink(_,_,_,_,'{SHOWN.id}')", TO_ALICE, store=facts(SHOWN, HIDDEN))
    assert finds(f"BlobHash(_,'{blob('data').id}')", TO_ALICE, store=store)


@requirement("020-72", "020-73")
def test_four_programs_and_one_flat_program_say_the_same() -> None:
    theirs = "SelectHave(P) :- Have(P), not RecordLink(_,_,_,_,P).\n" + ALL.split("\n")[1]
    made = policy(TO_ALICE, theirs=theirs)
    flat = flat_program(made)
    expected = enforce(made, STORE)
    for found in (
        evaluate(flat, [*STORE, *ADVERTISED]).texts,
        evaluate_naively(flat, [*STORE, *ADVERTISED]).__getitem__,
    ):
        assert {record for (record,) in found(MAY_SEND)} == expected.may_send == {str(OTHER.id)}
        assert {record for (record,) in found(MAY_REQUEST)} == expected.may_request == {BAIT}


@requirement("020-74")
def test_helpers_see_no_more_than_what_they_help() -> None:
    rules = (
        "Raw(Q) :- Have(Q).\nDeep(Q) :- Raw(Q), Field(Q,'Group',_,'Y').\n"
        "Deeper(Q) :- Deep(Q).\nDeeper(Q) :- Deeper(P), RecordLink(P,_,_,_,Q)."
    )
    assert not finds("Deeper(_)", TO_ALICE, rules=rules)
    assert finds("Deeper(_)", exposure_of(EXPOSE_ALL, anyone=True), rules=rules)


@requirement("020-75", "020-76", "020-77")
def test_the_three_atoms_of_alice_range_over_her_view() -> None:
    many = [*STORE, *facts(*(plex(f"y{number}", group="Y") for number in range(12)))]
    positive = "Field(Q,'Group',_,'Y')"
    negated = f"Have(Q), not {positive}"
    counted = f"Cardinality({positive},'>=','10')"
    assert not finds(positive, TO_ALICE, store=many)
    assert not finds(counted, TO_ALICE, store=many)
    theirs = f"SelectHave(Q) :- {negated}.\nSelectAdvertised(P,S) :- Advertised(P,S)."
    assert enforce(policy(TO_ALICE, theirs=theirs), many).may_send == VISIBLE
    # A record that is hidden has no such field either, so the negated atom tells nothing.
    assert finds(f"not Field('{HIDDEN.id}','Group',_,'Y')", TO_ALICE, store=many)
    assert finds(positive, exposure_of(EXPOSE_ALL, anyone=True), store=many)
    assert finds(counted, exposure_of(EXPOSE_ALL, anyone=True), store=many)


@requirement("020-81")
def test_two_stores_with_the_same_view_answer_alike() -> None:
    """The general case is in tests/property/test_noninterference.py."""
    for body in ("Have(_)", "not Field(_,'Group',_,'Y')", "Cardinality(Have(_),'<','3')"):
        assert finds(body, TO_ALICE) == finds(body, TO_ALICE, store=facts(OTHER, SHOWN))


@requirement("020-82")
@pytest.mark.parametrize(
    "rule", ["SelectHave('{}') :- true.", "SelectHave(P) :- AdvertisedField(P,_,'Group',_,'{}')."]
)
def test_who_knows_the_hash_of_a_hidden_record_gets_nothing_for_it(rule: str) -> None:
    """A request that does not come for what is here already is all that can show."""
    known = str(HIDDEN.id)
    advertised: list[tuple[str, ...]] = [
        ("Advertised", known, ALICE),
        ("AdvertisedField", known, ALICE, "Group", "0", known),
    ]
    theirs = f"{rule.format(known)}\nSelectAdvertised(P,S) :- Advertised(P,S)."
    for exposures in ((), (TO_ALICE,)):
        made = policy(*exposures, theirs=theirs)
        for store in (STORE, facts(SHOWN)):
            found = enforce(made, store, advertised)
            assert (set(found.may_send), set(found.may_request)) == (set(), {known})
    shown = policy(exposure_of(EXPOSE_ALL, ALICE), theirs=theirs)
    assert enforce(shown, STORE, advertised).may_send == {known}


@requirement("020-59", "040-10")
def test_a_link_leads_to_no_hidden_record() -> None:
    theirs = "SelectHave(T) :- RecordLink(_,_,_,_,T).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    linked: list[tuple[str, ...]] = [
        *STORE,
        ("RecordLink", str(SHOWN.id), "+Link", "0", "see", str(HIDDEN.id)),
    ]
    assert str(HIDDEN.id) not in enforce(policy(TO_ALICE, theirs=theirs), linked).may_send
    open_ = exposure_of(EXPOSE_ALL, ALICE)
    assert str(HIDDEN.id) in enforce(policy(open_, theirs=theirs), linked).may_send


@requirement("020-83")
def test_identifiers_of_plans_and_rules_show_in_messages() -> None:
    ours = make_plan(operand_of(ALL, 0), operand_of(ALL, 1))
    theirs = make_plan(operand_of(ALL, 0), operand_of(f"{ALL}\nA(P) :- Have(P).", 1))
    with pytest.raises(PolicyError) as caught:
        check_same_plan(ours, theirs)
    assert theirs.operands[1].module_id in str(caught.value)
    limited = operand_of(ALL, 0, limits=RuleLimits(max_derived_facts=0))
    plan = make_plan(limited, operand_of(ALL, 1))
    made = compile_policy(
        plan, (limited, operand_of(ALL, 1)), index=1, exposures=(TO_ALICE,), viewer=ALICE
    )
    with pytest.raises(LimitExceeded) as stopped:
        enforce(made, STORE)
    assert any(each in str(stopped.value) for each in limited.module.rule_ids)


@requirement("020-85", "040-115")
def test_local_rules_may_depend_on_what_is_hidden() -> None:
    """That is the owner's own choice to disclose it."""
    ours = (
        "SelectHave(P) :- Have(P), Field(P,'Group',_,'X'), Field(_,'Group',_,'Y').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S)."
    )
    made = policy(TO_ALICE, ours=ours)
    assert enforce(made, STORE).may_send == VISIBLE
    assert not enforce(made, facts(SHOWN, OTHER)).may_send


def test_an_exposure_reads_nothing_that_a_peer_says() -> None:
    """G05b: no advertisements, no ticks; and it is safe and complete like any module."""
    for text in (
        "AllowQueryRecord(V,P) :- _Viewer(V), Advertised(P,V).",
        "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not AdvertisedField(P,V,'Group',_,'X').",
        "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), TickTAI(_).",
        "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), ClockSkewSeconds('0').",
        "AllowQueryRecord(V,P) :- _Viewer(V), not Have(P).",
        "Allowed(V,P) :- _Viewer(V), Have(P).",
        "AllowQueryRecord(P) :- Have(P).",
    ):
        with pytest.raises(RuleError):
            exposure_of(text, anyone=True)
    wider = check_source(EXPOSE_X, profile=QUERY)
    assert exposure_of(wider, anyone=True).module.profile.name == "exposure"


def test_nothing_is_exposed_to_a_label_or_to_what_is_no_verifier() -> None:
    """X6: a label can be ground out by anyone."""
    for viewer in ("Opq_a", "Opq_", "alice", "V.alice.H3", ALICE.lower(), "", f"{ALICE} "):
        with pytest.raises(PolicyError):
            exposure_of(EXPOSE_X, ALICE, viewer)


@requirement("020-84")
def test_what_shows_all_the_same_is_documented() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "policies.md"
    text = page.read_text("utf-8").partition("## What a peer can learn")[2].partition("\n## ")[0]
    for what in ("is here already", "Identifiers of policies", "hashes that exposed facts name"):
        assert what in text
