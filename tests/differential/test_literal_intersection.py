"""The intersection and the lowerings as text 040 has them, against what the driver answers.

The literal rules are evaluated by the reference evaluator: each operand in its own environment,
the peer's over the records that are exposed to it, and then the rules of 040 over both
selections. The driver's evaluator works over a real store, with columns, changes and an enclave.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from lace.exchange.advertisement import Advertisement
from lace.exchange.capabilities import Capabilities
from lace.exchange.effects import Evaluate
from lace.facts.extract import facts_of_records
from lace.link.evaluator import StoreEvaluator
from lace.policy.compile import compile_policy
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import LOWERINGS
from lace.query.evaluate import check_rules
from lace.rules.profiles import MAY_REQUEST, MAY_SEND, SELECT_ADVERTISED, SELECT_HAVE
from lace.rules.syntax import PredicateKey
from lace.store.sqlite.store import SqliteStore
from tests.oracle.naive_engine import evaluate_naively
from tests.profiles import examples
from tests.property import policies
from tests.property.policies import SELECT_RECORDS, seen, visible_in
from tests.unit.exchange.sides import START, pair_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact
    from lace.policy.exposure import Exposure

pytestmark = [pytest.mark.property, pytest.mark.slow]

TRANSPORT: Final = "unix:/run/lace"
INTERSECTION: Final = """\
MergedSelectHave(P) :- O0SelectHave(P), O1SelectHave(P).
MergedSelectAdvertised(P,S) :- O0SelectAdvertised(P,S), O1SelectAdvertised(P,S).
"""
LITERAL: Final = {
    "standard-v1": "MaySend(P) :- MergedSelectHave(P).\n"
    "MayRequest(P) :- MergedSelectAdvertised(P,S).",
    "encrypted-v1": "MaySend(P) :- MergedSelectHave(P), TransportEncrypted().\n"
    "MayRequest(P) :- MergedSelectAdvertised(P,S), TransportEncrypted().",
    "proven-peer-v1": "MaySend(P) :- MergedSelectHave(P).\n"
    "MayRequest(P) :- MergedSelectAdvertised(P,S), Peer(S).",
}
GIVEN: Final = frozenset(
    PredicateKey(f"O{index}{key.name}", key.arity)
    for index in (0, 1)
    for key in (SELECT_HAVE, SELECT_ADVERTISED)
) | {PredicateKey("TransportEncrypted", 0), PredicateKey("Peer", 1)}
EVERYTHING: Final = exposure_of("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", anyone=True)
ONLY_X: Final = exposure_of(
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'X').", anyone=True
)
OTHER_FORMAT: Final = "Q.ab.Z9"
IDS: Final = tuple(record.hash_text for record in policies.real_records())


def literally(
    operands: tuple[str, str],
    index: int,
    lowering: str,
    exposed: Sequence[Exposure],
    viewer: str,
    records: list[Fact],
    public: list[Fact],
) -> tuple[set[str], set[str]]:
    """Return what may be sent and requested, by the rules of the text alone."""
    here = {fact[1] for fact in records if fact[0] == "Have"}
    known = [fact for fact in public if fact[0] not in ("Advertised", "AdvertisedField")]
    view = visible_in(exposed, [*records, *known], viewer)
    selections: list[Fact] = []
    for each, text in enumerate(operands):
        read = records if each == index else list(seen(records, view))
        made = evaluate_naively(operand_of(text, each).module, [*read, *public])
        for key in (SELECT_HAVE, SELECT_ADVERTISED):
            for row in made[key]:
                # SelectHave is about records of the view that the operand has (040-12, G31b).
                is_hidden = each != index and key == SELECT_HAVE and row[0] in here - view
                if not is_hidden:
                    selections.append((f"O{each}{key.name}", *row))
    program = check_rules(INTERSECTION + LITERAL[lowering], GIVEN)
    made = evaluate_naively(program, [*selections, *public])
    advertised = {fact[1] for fact in public if fact[0] == "Advertised"}
    may_send = {record for (record,) in made[MAY_SEND]}
    may_request = {record for (record,) in made[MAY_REQUEST]}
    asked = {each for each in may_request & advertised - here if each.endswith(".H3")}
    return may_send & here, asked


def runtime(terms: Terms, *, encrypted: bool) -> list[Fact]:
    """The runtime facts of 050's table."""
    facts: list[Fact] = [("Transport", TRANSPORT), ("StartTAI", START), ("TickTAI", START)]
    facts.append(("ClockSkewSeconds", "0"))
    if terms.peer.verifier is not None:
        facts.append(("Peer", terms.peer.verifier))
    return [*facts, ("TransportEncrypted",)] if encrypted else facts


@st.composite
def claims(draw: st.DrawFn) -> dict[str, Advertisement]:
    """What a peer claims, of records that may be here, hidden, or nowhere."""
    made = {}
    for record in draw(st.lists(st.sampled_from([*IDS, OTHER_FORMAT]), unique=True, max_size=8)):
        names = sorted(draw(st.sets(st.sampled_from(policies.NAMES), max_size=2)))
        fields = tuple((name, "0", draw(st.sampled_from(policies.VALUES))) for name in names)
        made[record] = Advertisement(record, fields)
    return made


def within(claimed: dict[str, Advertisement], terms: Terms) -> dict[str, Advertisement]:
    """Claims with the fields that were negotiated."""
    return {
        record: Advertisement(
            record, tuple(each for each in claim.fields if each[0] in terms.schema)
        )
        for record, claim in claimed.items()
    }


MODULES = st.one_of(st.just(SELECT_RECORDS), policies.modules)
EXPOSED = st.one_of(st.just([EVERYTHING]), st.just([ONLY_X]), policies.own_exposures)
NAMING = (
    f"SelectHave('{IDS[3]}') :- true.\nSelectHave(Q) :- RecordLink(P,_,_,_,Q).\n"
    "SelectHave(P) :- Advertised(P,S).\nSelectAdvertised(P,S) :- Advertised(P,S)."
)
"""It names records by constant, by link and by claim."""
HELD = st.lists(st.sampled_from(range(len(IDS))), unique=True, min_size=2)


@pytest.mark.requirement("040-12", "040-14", "040-66", "040-67", "040-69", "040-70", "040-74")
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
@given(
    st.tuples(MODULES, MODULES),
    EXPOSED,
    st.sampled_from(LOWERINGS),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(HELD, claims()), min_size=1, max_size=3),
)
@example(
    (SELECT_RECORDS, NAMING),
    [ONLY_X],
    "standard-v1",
    0,
    True,
    False,
    [(list(range(len(IDS))), {each: Advertisement(each) for each in IDS}), ([0, 3], {})],
)
@example(
    (SELECT_RECORDS, SELECT_RECORDS),
    [EVERYTHING],
    "proven-peer-v1",
    1,
    True,
    True,
    [([2, 3, 4], {each: Advertisement(each) for each in (*IDS, OTHER_FORMAT)})],
)
def test_the_driver_selects_what_the_literal_rules_select(
    tmp_path_factory: pytest.TempPathFactory,
    operands: tuple[str, str],
    exposed: list[Exposure],
    lowering: str,
    index: int,
    proven: bool,
    encrypted: bool,
    life: list[tuple[list[int], dict[str, Advertisement]]],
) -> None:
    """Records and claims come and go; at each step both say the same."""
    means = Capabilities(offer_all=True)  # each operand may read what it likes of the other side
    pair = pair_of(
        rules=operands, keys=(None, None), lowering=lowering, capabilities=(means, means)
    )
    terms = pair.terms(index, transport_peer=policies.VIEWER if proven else None)
    modules = [operand_of(text, each) for each, text in enumerate(operands)]
    viewer = terms.peer.viewer
    policy = compile_policy(pair.plan, modules, index=index, exposures=exposed, viewer=viewer)
    pool = policies.real_records()
    folder = tmp_path_factory.mktemp("literal") / "some.lace"
    sent: set[str] = set()
    before: dict[str, Advertisement] = {}
    held: set[int] = set()
    with closing(SqliteStore(folder, create=True)) as store:
        evaluator = StoreEvaluator(
            store,
            policy,
            terms,
            transport=TRANSPORT,
            encrypted=encrypted,
            max_value_bytes=1024,
            max_line_bytes=1024,
        )
        for wanted, claimed in life:
            store.remove([pool[each].id for each in sorted(held - set(wanted))])
            store.admit([pool[each] for each in sorted(set(wanted) - held)])
            held = set(wanted)
            now = within(claimed, terms)
            answer = evaluator.evaluate(
                Evaluate(
                    START,
                    START,
                    added=tuple(each for each in now.values() if before.get(each.record) != each),
                    removed=tuple(sorted(before.keys() - now.keys())),
                    most_requests=1_000,
                )
            )
            before = now
            sent = (sent | {each.record for each in answer.come}) - set(answer.gone)
            records = list(facts_of_records([pool[each] for each in sorted(held)]))
            public = runtime(terms, encrypted=encrypted)
            public += [fact for each in now.values() for fact in each.facts(viewer)]
            expected = literally(operands, index, lowering, exposed, viewer, records, public)
            event(f"sends {bool(expected[0])}, requests {bool(expected[1])}")
            assert (sent, set(answer.requestable)) == expected
            assert answer.pending == len(expected[1])
