"""Text 040, enforcement: scopes, the gate, intersection, lowering, and what may be observed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import lace
from lace.engine.factbase import FactBase
from lace.errors import EngineError, LimitExceeded, PolicyError, RuleError
from lace.facts.lines import format_fact, parse_fact
from lace.policy import enforcement as enforcement_module
from lace.policy.compile import (
    LOWERING_RULES,
    MERGED,
    Compiler,
    compile_policy,
    flat_program,
    lowering_rules,
)
from lace.policy.enforcement import Enforcement, Permissions
from lace.policy.exposure import Exposure, exposure_of
from lace.policy.operand import Operand, RequiredFields, operand_of, receive_operand
from lace.policy.plan import LOWERINGS, make_plan, parse_transcript
from lace.record.ids import RecordId
from lace.rules.canonical import lacegram_id, rule_id
from lace.rules.limits import PEER_LIMITS, RuleLimits
from lace.rules.profiles import EXPOSURE, MAY_REQUEST, MAY_SEND, QUERY, SELECT_HAVE
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey
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

if TYPE_CHECKING:
    from tests.conformance.exchange import Fact

requirement = pytest.mark.requirement

HAVE, REQUEST = ALL.split("\n")
TO_ALICE = exposure_of(EXPOSE_X, ALICE)
VISIBLE = {str(SHOWN.id), str(OTHER.id)}
MALICIOUS = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'X').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'X'), "
    "Field(Q,'Group',_,'Y')."
)


@requirement("040-04")
def test_policies_of_ones_own_are_composed_into_one_operand() -> None:
    ours = (
        "Wanted(P) :- Field(P,'Group',_,'X').\nWanted(P) :- Field(P,'Signed-By',_,_).\n"
        "SelectHave(P) :- Have(P), Wanted(P).\n" + REQUEST
    )
    made = policy(exposure_of(EXPOSE_ALL, anyone=True), ours=ours)
    assert enforce(made, STORE).may_send == VISIBLE | {str(SEALED.id)}
    assert len(made.plan.operands) == 2


@requirement("040-10", "040-12", "040-28")
def test_select_have_reads_the_view_of_its_origin() -> None:
    in_y = f"SelectHave(P) :- Have(P), Field(P,'Group',_,'Y').\n{REQUEST}"
    assert not enforce(policy(TO_ALICE, theirs=in_y), STORE).may_send
    ours = enforce(policy(exposure_of(EXPOSE_ALL, anyone=True), ours=in_y), STORE).may_send
    assert ours == {str(HIDDEN.id), str(SEALED.id)}


@requirement("040-11", "040-13")
def test_select_advertised_reads_advertisements_and_what_records_it_may_see() -> None:
    assert finds("AdvertisedField(P,S,'Group',_,'X')")
    assert not finds("AdvertisedField(P,S,'Group',_,'Y')")
    assert finds("AdvertisedField(P,S,'Group',_,G), Field(_,'Group',_,G)", TO_ALICE)
    assert not finds("AdvertisedField(P,S,'Group',_,G), Field(_,'Group',_,G)")
    wrong: list[Fact] = [*ADVERTISED, ("Advertised", str(SHOWN.id), BOB)]
    both = policy(theirs=f"{HAVE}\nSelectAdvertised(P,S) :- Advertised(P,S), Peer(S).")
    assert enforce(both, STORE, [*wrong, ("Peer", BOB)]).may_request == {str(SHOWN.id)}


@requirement("040-14")
def test_an_advertisement_makes_no_record_fact() -> None:
    both = f"SelectHave(P) :- Have(P).\n{REQUEST}"
    found = enforce(policy(exposure_of(EXPOSE_ALL, anyone=True), ours=both, theirs=both), [])
    assert found.may_request == {BAIT}
    assert not found.may_send
    for body in ("Have(P)", "Field(P,_,_,_)"):
        assert not finds(body, exposure_of(EXPOSE_ALL, anyone=True))
    base = FactBase(max_value_bytes=1024)
    asked = Enforcement(policy(exposure_of(EXPOSE_ALL, anyone=True)), base)
    for fact in (("Have", BAIT), ("Field", BAIT, "Group", "0", "X"), ("Peer", "a", "b"), ("Mine",)):
        with pytest.raises(EngineError, match="no public fact"):
            asked.set_public([fact])
    assert not asked.evaluate().may_send


MEMBERS = (
    "Member('X') :- true.\nSelectHave(P) :- Have(P), Field(P,'Group',_,G), Member(G).\n" + REQUEST,
    "Member('other') :- true.\nSelectHave(P) :- Have(P), Field(P,'Name',_,N), Member(N).\n"
    + REQUEST,
)


@requirement("040-16", "040-57", "040-59", "040-60")
@pytest.mark.parametrize("index", [0, 1])
def test_helpers_of_one_name_do_not_mix(index: int) -> None:
    made = policy(
        exposure_of(EXPOSE_ALL, anyone=True), ours=MEMBERS[0], theirs=MEMBERS[1], index=index
    )
    assert enforce(made, STORE).may_send == {str(OTHER.id)}
    found = evaluate_naively(flat_program(made), STORE)
    assert found[PredicateKey(f"o{index}_Member", 1)] == {("X",)}
    assert found[PredicateKey(f"o{1 - index}_Member", 1)] == {("other",)}
    assert PredicateKey("Member", 1) not in found


@requirement("040-16", "040-63", "040-64")
def test_what_an_operand_does_not_define_is_empty_for_it() -> None:
    """A helper that only the other side, or an exposure, defines is another predicate."""
    defined = f"Friend(P) :- Have(P).\n{ALL}"
    asking = f"SelectHave(P) :- Have(P), Friend(P).\n{REQUEST}"
    exposed = exposure_of(f"{EXPOSE_ALL}\nFriend(P) :- Have(P).", anyone=True)
    assert not enforce(policy(exposed, ours=defined, theirs=asking), STORE).may_send
    assert not enforce(policy(exposed, ours=asking, theirs=defined), STORE).may_send


@requirement("040-18", "040-22")
def test_the_facet_is_written_as_it_is() -> None:
    text = f"AllowQueryRecord('{ALICE}',P) :- Have(P)."
    assert enforce(policy(exposure_of(text, anyone=True)), STORE).counts[0] == 4
    authored = exposure_of(
        " # all\n AllowQueryRecord( V , P ) :- _Viewer( V ), Have( P ). ", anyone=True
    )
    assert enforce(policy(authored), STORE).counts[0] == 4


@requirement("040-19", "040-20")
def test_a_selector_is_no_exposure_and_an_exposure_no_operand() -> None:
    with pytest.raises(RuleError):
        exposure_of(ALL, anyone=True)
    with pytest.raises(PolicyError, match="cannot expose"):
        Exposure(operand_of(ALL, 0).module)
    with pytest.raises(PolicyError, match="cannot expose"):
        Exposure(check_source(EXPOSE_X, profile=EXPOSURE.with_base([("Advertised", 2)])))
    with pytest.raises(RuleError):
        operand_of(EXPOSE_X, 0)
    with pytest.raises(PolicyError, match="no operand"):
        Operand(index=0, module=check_source(ALL, profile=QUERY))


@requirement("040-25")
def test_each_side_has_a_policy_of_its_own() -> None:
    """G20: selector, exposures, limits and lowering; two sides of one plan differ in them."""
    operands = operand_of(ALL, 0), operand_of(ALL, 1)
    plan = make_plan(*operands)
    here = compile_policy(plan, operands, index=0, exposures=(TO_ALICE,), viewer=ALICE)
    there = compile_policy(plan, operands, index=1, exposures=(), viewer=BOB)
    assert here.plan is there.plan
    assert enforce(here, STORE).may_send == VISIBLE
    assert not enforce(there, STORE).may_send


@requirement("040-27")
def test_a_received_operand_is_not_trusted() -> None:
    """It has a peer's limits and a peer's view; to trust it is to expose more (G22b)."""
    theirs = receive_operand(ALL.encode(), index=0, module_id=lacegram_id(ALL), facet="selector")
    assert theirs.module.limits == PEER_LIMITS
    pair = theirs, operand_of(ALL, 1)
    plan = make_plan(*pair)
    for exposures, count in (((), 0), ((TO_ALICE,), 2), ((exposure_of(EXPOSE_ALL, ALICE),), 4)):
        made = compile_policy(plan, pair, index=1, exposures=exposures, viewer=ALICE)
        assert made.theirs.limits == PEER_LIMITS
        assert enforce(made, STORE).counts[0] == count


@requirement("040-32")
def test_with_nothing_exposed_public_facts_are_still_read() -> None:
    theirs = f"{HAVE}\nSelectAdvertised(P,S) :- Advertised(P,S), Here('{BOB}'), not Have(P)."
    made = policy(theirs=theirs)
    assert made.exposes_nothing
    assert enforce(made, STORE, [*ADVERTISED, ("Here", BOB)]).may_request == {BAIT}
    assert not enforce(made, STORE).may_request


@requirement("040-52")
def test_one_text_means_different_things_on_the_two_sides() -> None:
    """Both operands have the same R id; each side exposes something else of the same records."""
    newest = f"SelectHave(P) :- Have(P), Cardinality(Have(_),'<=','2').\n{REQUEST}"
    in_y = EXPOSE_X.replace("'X'", "'Y'")
    operands = operand_of(newest, 0), operand_of(newest, 1)
    plan = make_plan(*operands)
    assert plan.operands[0].module_id == plan.operands[1].module_id
    assert plan.operands[0].origin != plan.operands[1].origin
    small = facts(SHOWN, HIDDEN)
    at_0 = compile_policy(plan, operands, index=0, exposures=(TO_ALICE,), viewer=ALICE)
    at_1 = compile_policy(
        plan, operands, index=1, exposures=(exposure_of(in_y, anyone=True),), viewer=BOB
    )
    assert enforce(at_0, small).may_send == {str(SHOWN.id)}
    assert enforce(at_1, small).may_send == {str(HIDDEN.id)}
    # On one side, too: over four records the local reading selects none, the peer's two.
    found = evaluate_naively(flat_program(at_0), STORE)
    assert not found[PredicateKey("o0_SelectHave", 1)]
    assert len(found[PredicateKey("o1_SelectHave", 1)]) == 2


@requirement("040-58", "040-61", "040-62")
def test_a_scope_is_neither_identity_nor_authority() -> None:
    made = policy(TO_ALICE)
    text = flat_program(made).canonical
    for operand in made.plan.operands:
        assert operand.origin not in text
    assert "o0_" not in made.plan.transcript
    assert "o1_" not in made.plan.transcript
    for index in (0, 1):  # which scope the peer has does not change what it sees
        assert enforce(policy(TO_ALICE, index=index), STORE).may_send == VISIBLE


@requirement("040-65", "040-66", "040-68", "040-69")
def test_what_both_select_may_be_sent() -> None:
    links = f"SelectHave(P) :- RecordLink(P,_,_,_,_).\n{REQUEST}"
    in_x = f"SelectHave(P) :- Field(P,'Group',_,'X').\n{REQUEST}"
    open_ = exposure_of(EXPOSE_ALL, anyone=True)
    for ours, theirs in ((links, in_x), (in_x, links)):
        made = policy(open_, ours=ours, theirs=theirs)
        assert enforce(made, STORE).may_send == {str(OTHER.id)}
        found = evaluate_naively(flat_program(made), STORE)
        assert found[MERGED[0]] == {(str(OTHER.id),)}
    none = f"SelectHave(P) :- Have(P), Field(P,'Group',_,'none').\n{REQUEST}"
    assert not enforce(policy(open_, ours=none), STORE).may_send
    assert not enforce(policy(open_, theirs=none), STORE).may_send


@requirement("040-67", "040-70")
def test_both_select_an_advertisement_of_the_same_source() -> None:
    public: list[Fact] = [("Advertised", BAIT, ALICE), ("Advertised", BAIT, CAROL)]

    def of(source: str) -> str:
        return f"{HAVE}\nSelectAdvertised(P,'{source}') :- Advertised(P,'{source}')."

    assert enforce(policy(ours=of(ALICE), theirs=of(ALICE)), [], public).may_request == {BAIT}
    assert not enforce(policy(ours=of(ALICE), theirs=of(CAROL)), [], public).may_request
    assert enforce(policy(ours=of(ALICE)), [], public).may_request == {BAIT}


@requirement("040-71", "040-72", "040-73")
def test_local_rules_read_records_and_a_peers_rules_read_the_view() -> None:
    made = policy(TO_ALICE, ours=MALICIOUS, theirs=MALICIOUS)
    assert {"Have", "Field"} <= {key.name for key in made.ours.required_base}
    theirs = {key.name for key in made.theirs.required_base}
    assert theirs == {"o0_Have", "o0_Field", "Advertised", "AdvertisedField"}
    assert {key.name for key in made.view_predicates} == {"o0_Have", "o0_Field"}
    heads = {rule.head.name for rule in made.view.rules}
    assert not heads & {rule.head.name for rule in made.theirs.rules}


@requirement("040-74", "040-100")
def test_a_policy_compiled_before_says_the_same() -> None:
    compiler = Compiler()
    operands = operand_of(ALL, 0), operand_of(MALICIOUS, 1)
    plan = make_plan(*operands)
    loaded = parse_transcript(plan.transcript_bytes)

    def compiled(*exposures: Exposure, viewer: str = ALICE) -> Permissions:
        made = compiler.compile(loaded, operands, index=0, exposures=exposures, viewer=viewer)
        return enforce(made, STORE)

    for _ in range(2):
        assert compiled(TO_ALICE).may_send == VISIBLE
        assert not compiled().may_send
        assert not compiled(TO_ALICE, viewer=BOB).may_send
        assert compiled(TO_ALICE).may_send == VISIBLE


ENCRYPTED: list[Fact] = [*ADVERTISED, ("TransportEncrypted",)]
PROVEN: list[Fact] = [*ADVERTISED, ("Peer", ALICE)]


@requirement("040-75", "040-76", "040-77", "040-78")
@pytest.mark.parametrize(
    ("lowering", "public", "sends", "requests"),
    [
        ("standard-v1", ADVERTISED, True, True),
        ("standard-v1", [*ENCRYPTED, *PROVEN], True, True),
        ("encrypted-v1", PROVEN, False, False),
        ("encrypted-v1", ENCRYPTED, True, True),
        ("proven-peer-v1", ENCRYPTED, True, False),
        ("proven-peer-v1", [*ADVERTISED, ("Peer", CAROL)], True, False),
        ("proven-peer-v1", PROVEN, True, True),
    ],
)
def test_a_lowering_asks_for_more(
    lowering: str, public: list[Fact], sends: bool, requests: bool
) -> None:
    found = enforce(policy(TO_ALICE, lowering=lowering), STORE, public)
    assert found.may_send == (VISIBLE if sends else set())
    assert found.may_request == ({BAIT} if requests else set())


@requirement("040-78")
def test_every_lowering_keeps_to_the_shared_set() -> None:
    assert tuple(LOWERING_RULES) == LOWERINGS
    for name in LOWERINGS:
        rules = lowering_rules(name, ALICE)
        assert [rule.head.key for rule in rules] == [MERGED[0], *MERGED, MAY_SEND, MAY_REQUEST]
        for rule, merged in zip(rules[3:], MERGED, strict=True):
            assert next(iter(rule.positive_atoms())).key == merged
    with pytest.raises(PolicyError):
        lowering_rules("generous-v1", ALICE)


@requirement("040-78")
def test_a_lowering_follows_what_is_public() -> None:
    """The transport is lost and found again while the same records are there."""
    base = FactBase(max_value_bytes=1024)
    base.change(STORE)
    asked = Enforcement(policy(TO_ALICE, lowering="encrypted-v1"), base)
    for public, count in ((ADVERTISED, 0), (ENCRYPTED, 2), (ADVERTISED, 0), (ENCRYPTED, 2)):
        asked.set_public(public)
        assert asked.evaluate().counts[0] == count


@requirement("040-83")
def test_the_identifier_of_a_plan_is_all_of_policy_that_a_session_needs() -> None:
    """Lace derives no identifier of a session; the plan's holds nothing that is negotiated."""
    plan = policy().plan
    limited = make_plan(
        operand_of(ALL, 0, limits=RuleLimits(max_work=5)),
        receive_operand(ALL.encode(), index=1, module_id=lacegram_id(ALL), facet="selector"),
    )
    assert limited.id == plan.id


@requirement("040-95", "040-101")
def test_nothing_takes_flat_rules_of_a_peer() -> None:
    """Programs come of operands only; generated names are refused in what a peer sends."""
    flat = flat_program(policy(TO_ALICE)).canonical
    raw = flat.encode()
    with pytest.raises(RuleError):
        receive_operand(raw, index=0, module_id=lacegram_id(flat), facet="selector")
    with pytest.raises(PolicyError, match="facet"):
        receive_operand(ALL.encode(), index=0, module_id=lacegram_id(ALL), facet="prepared")
    parameters = inspect.signature(compile_policy).parameters
    assert list(parameters) == ["plan", "operands", "index", "exposures", "viewer"]
    assert not {name for name in lace.__all__ if "flat" in name.lower()}


@requirement("040-99")
def test_nothing_but_the_two_permissions_shows() -> None:
    public = {name for name in dir(Permissions) if not name.startswith("_")}
    assert public == {"may_send", "may_request", "counts", "numbers"}
    defined = {
        name
        for name, value in vars(enforcement_module).items()
        if getattr(value, "__module__", "") == enforcement_module.__name__
    }
    assert {name for name in defined if not name.startswith("_")} == {"Enforcement", "Permissions"}


@requirement("040-97")
def test_the_identifier_of_a_plan_is_no_record() -> None:
    with pytest.raises(lace.LaceError):
        RecordId(policy().plan.id)


@requirement("040-104", "040-105", "040-106")
def test_schema_and_view_are_two_controls() -> None:
    """What must be advertised follows from the rules, whatever is exposed; and the reverse."""
    theirs = f"{HAVE}\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'X')."
    needed = [policy(*some, theirs=theirs).plan.required for some in ((), (TO_ALICE,))]
    assert needed == [RequiredFields(names=frozenset({"Group"}))] * 2
    assert needed[0].is_met_by({"Group", "App"})
    assert needed[0].is_met_by(None)
    assert not needed[0].is_met_by({"App"})
    every = policy(theirs=theirs.replace("'Group'", "_")).plan.required
    assert every.is_met_by(None)
    assert not every.is_met_by({"Group", "App"})
    # A field that is advertised is no field of a record, and the reverse.
    assert finds("AdvertisedField(P,S,'Group',_,'X')")
    assert not finds("Field(P,'Group',_,'X')", exposure_of(EXPOSE_ALL, anyone=True))
    assert not finds("AdvertisedField(_,_,'Group',_,'Y')", exposure_of(EXPOSE_ALL, anyone=True))


@requirement("040-107", "040-113", "040-114")
def test_the_bait_of_alice_is_not_taken() -> None:
    exposed = exposure_of(
        f"AllowQueryRecord('{ALICE}',P) :- Have(P), Field(P,'Group',_,'X').", ALICE
    )
    made = policy(exposed, theirs=MALICIOUS)
    with_y, without = enforce(made, STORE), enforce(made, facts(SHOWN, OTHER))
    assert with_y.may_request == without.may_request == frozenset()
    assert with_y.may_send == without.may_send == VISIBLE
    # It is the gate that keeps it out: exposed to her, it is hers to ask.
    open_ = policy(exposure_of(EXPOSE_ALL, ALICE), theirs=MALICIOUS)
    assert enforce(open_, STORE).may_request == {BAIT}


@requirement("040-109", "040-110", "040-111")
def test_every_generated_rule_leads_back_to_what_was_written() -> None:
    written = '#:json {"label":"mine"}\n' + ALL
    made = policy(TO_ALICE, ours=written, theirs=MALICIOUS)
    found = set(made.provenance.facts())
    ours, theirs = operand_of(ALL, 1).module, operand_of(MALICIOUS, 0).module
    scoped = rule_id("o1_SelectHave(P) :- Have(P).")
    assert ("RuleSource", scoped, ours.id, ours.rule_ids[0]) in found
    assert ("RuleGeneratedBy", scoped, "040-operand-scope", "O1") in found
    assert ("RuleOrigin", scoped, made.plan.operands[1].origin) in found
    gated = rule_id("o0_SelectHave(P) :- o0_Have(P), o0_Field(P,'Group',_,'X').")
    assert ("RuleSource", gated, theirs.id, theirs.rule_ids[0]) in found
    assert ("RuleGeneratedBy", gated, "040-query-gate", ALICE) in found
    for line, step, of in (
        (
            "MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), not Have(P).",
            "intersection",
            "SelectHave/1",
        ),
        ("MaySend(P) :- MergedSelectHave(P).", "lowering", "MaySend/1"),
    ):
        assert ("RuleGeneratedBy", rule_id(line), f"040-{step}", of) in found
    known = {fact[1] for fact in found}
    assert known == set(flat_program(made).rule_ids)
    assert all(parse_fact(format_fact(fact).encode()) == fact for fact in found)
    assert "mine" not in made.plan.transcript
    assert "#" not in flat_program(made).canonical


@requirement("040-112")
def test_provenance_is_not_there_for_rules() -> None:
    """Facts about rules are no base facts, and a predicate of that name is just a helper."""
    theirs = f"{ALL}\nSelectHave(P) :- RuleSource(P,_,_).\nSelectHave(P) :- RuleOrigin(P,_)."
    made = policy(exposure_of(EXPOSE_ALL, anyone=True), ours=theirs, theirs=theirs)
    assert enforce(made, STORE).counts[0] == 4
    base = FactBase(max_value_bytes=1024)
    with pytest.raises(EngineError, match="no public fact"):
        Enforcement(made, base).set_public(made.provenance.facts())


@requirement("040-54", "040-55", "040-56", "040-116", "040-117")
@pytest.mark.parametrize(
    "text",
    [
        HAVE,
        REQUEST,
        f"{ALL}\nMaySend(P) :- Have(P).",
        f"{ALL}\nMayRequest(P) :- Have(P).",
        f"{ALL}\nA(P) :- MaySend(P).",
        f"{ALL}\nMergedSelectHave(P) :- Have(P).",
        f"{ALL}\no0_SelectHave(P) :- Have(P).",
        f"{ALL}\nA(P) :- o0_Have(P).",
        f"{ALL}\nA(P) :- Have(P), not o1_SelectHave(P).",
        f"{ALL}\nA(P) :- Have(P), Cardinality(o0_Have(_),'>','1').",
        f"{ALL}\nHave(P) :- Advertised(P,_).",
        f"{ALL}\n_Mine(P) :- Have(P).",
        f"{ALL}\nA(V) :- _Viewer(V).",
        f"{ALL}\nA(P) :- CanQueryRecord('{ALICE}',P).",
        f"{ALL}\nA(P) :- B(P), not A(P).\nB(P) :- Have(P).",
        f"{ALL}\nA(P,Q) :- Have(P).",
        f"{ALL}\n",
        f"# all\n{ALL}",
        ALL.replace(" :- ", ":-"),
        ALL.replace("SelectHave", "Selecthave"),
        "",
    ],
)
def test_no_illegal_operand_comes_in(text: str) -> None:
    with pytest.raises((RuleError, PolicyError)) as caught:
        receive_operand(text.encode(), index=0, module_id=lacegram_id(text), facet="selector")
    assert str(caught.value)


@requirement("040-54")
def test_an_operand_is_what_its_identifier_says() -> None:
    with pytest.raises(PolicyError, match="as it was called"):
        receive_operand(ALL.encode(), index=0, module_id=lacegram_id(MALICIOUS), facet="selector")


@requirement("040-03", "040-53")
def test_only_the_operands_of_the_plan_are_compiled() -> None:
    """In the wrong order, the peer's rules would be taken for local ones and see it all."""
    zero, one = operand_of(ALL, 0), operand_of(MALICIOUS, 1)
    plan = make_plan(zero, one)
    other = operand_of(f"{ALL}\nA(P) :- Have(P).", 1)
    for operands in ((one, zero), (zero,), (zero, one, one), (zero, zero), (zero, other), ()):
        with pytest.raises(PolicyError, match="of the plan"):
            compile_policy(plan, operands, index=0, exposures=(), viewer=ALICE)
    for index in (-1, 2, True):
        with pytest.raises(PolicyError, match="index"):
            compile_policy(plan, (zero, one), index=index, exposures=(), viewer=ALICE)


@requirement("040-37", "040-06")
def test_the_viewer_is_the_peer_of_the_plan() -> None:
    operands = operand_of(ALL, 0), operand_of(ALL, 1)
    plan = make_plan(*operands)
    mine, peers = (each.origin for each in plan.operands)
    made = compile_policy(plan, operands, index=0, exposures=(), viewer=peers)
    assert made.viewer == peers
    with pytest.raises(PolicyError):
        compile_policy(plan, operands, index=0, exposures=(), viewer=mine)


@requirement("040-08")
def test_a_limit_of_the_peers_rules_stops_them_with_a_name() -> None:
    """A limit is enforced on each side by itself and is no part of the plan."""
    small = operand_of(ALL, 0, limits=RuleLimits(max_work=1))
    pair = small, operand_of(ALL, 1)
    plan = make_plan(*pair)
    assert plan.id == policy().plan.id
    made = compile_policy(plan, pair, index=1, exposures=(TO_ALICE,), viewer=ALICE)
    with pytest.raises(LimitExceeded, match="of operand 0, theirs") as caught:
        enforce(made, STORE)
    assert (caught.value.limit, caught.value.allowed) == ("max_work", 1)


@requirement("040-15")
def test_select_have_may_be_used_by_other_rules() -> None:
    theirs = f"{HAVE}\nSelectAdvertised(P,S) :- Advertised(P,S), SelectHave(_)."
    assert enforce(policy(TO_ALICE, theirs=theirs), STORE).may_request == {BAIT}
    assert not enforce(policy(theirs=theirs), STORE).may_request
    assert SELECT_HAVE in operand_of(theirs, 0).module.derived
