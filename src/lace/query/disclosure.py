"""Disclosing: what a viewer may query of a store, what that shows, and what would be sent.

Everything in a viewer's query view counts as told to that viewer (020): the records, their
fields, and every hash that these hold. It is worked out before a byte leaves; the answer
is a `lace.policy.disclosure.Disclosure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_argument, check_many
from lace.columns.relation import Relation
from lace.engine.engine import EvaluationSession
from lace.engine.field_histogram import Census
from lace.exchange.capabilities import capabilities_of
from lace.policy.compile import compile_view
from lace.policy.disclosure import Disclosure, FieldShown, LinksShown, Sent
from lace.policy.exposure import active_exposures, check_viewer, read_clock
from lace.policy.local import Policy, exposures_of, prepare_exchange
from lace.policy.operand import RequiredFields, advertised_fields, operand_of
from lace.policy.plan import LOWERINGS, check_lowering
from lace.policy.public_facts import missing_facts, with_local_time, with_peer
from lace.policy.schema import ALL_FIELDS, Offer, allowed_schema, offered_schema, schema_of
from lace.query.preview import Preview
from lace.query.store_query import ask_store
from lace.rules.checks.emptiness import parse_allowed
from lace.rules.limits import limits_of, peer_limits_of
from lace.rules.profiles import CAN_QUERY_RECORD, LOCAL_TAI
from lace.rules.program import RULE_KINDS, refuse_undefined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.base.limits import Settings
    from lace.engine.factbase import FactBase
    from lace.facts.lines import Fact
    from lace.policy.exposure import Exposure
    from lace.policy.local import Exposing, Rules
    from lace.policy.operand import Operand
    from lace.rules.limits import RuleLimits
    from lace.rules.program import CheckedProgram
    from lace.store.sqlite.store import SqliteStore


_ANY_OFFER: Final = Offer(ALL_FIELDS)
_ALL_RECORDS: Final = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."


def disclose_policy(
    store: SqliteStore,
    settings: Settings,
    policy: Policy | Iterable[Exposing],
    viewer: str,
    *,
    peer_select: Rules | None = None,
    public: Iterable[Fact] = (),
    lowering: str | None = None,
    at: str,
    allow_undefined: Iterable[str] = (),
    fields: Iterable[str] | None = None,
    all_fields: bool = False,
) -> Disclosure:
    """Return what a viewer may query of a store, by a policy or by exposures alone.

    What is asked beyond selection is the policy's lowering, unless another is given here.
    `at` is what exposures read as `_LocalTAI`, unless `public` has one. `fields` and `all_fields`
    say which fields are offered, for exposures alone; a policy says so itself.
    """
    if not isinstance(policy, Policy):
        check_many(policy, "policy is a Policy or a list of exposures")
    if peer_select is not None:
        check_argument(peer_select, RULE_KINDS, "peer_select is a Lacegram or its text")
    limits, theirs = limits_of(settings), peer_limits_of(settings)
    if lowering is None:
        lowering = policy.lowering if isinstance(policy, Policy) else LOWERINGS[0]
    check_lowering(lowering)
    if isinstance(policy, Policy):
        exposures, allowed = policy.exposures, parse_allowed(policy.allow_undefined)
    else:
        exposures, allowed = exposures_of(policy, limits), parse_allowed(allow_undefined)
        for each in exposures:
            refuse_undefined(each.module, allowed)
    facts = with_peer(public, viewer)
    peer = None if peer_select is None else operand_of(peer_select, 1, limits=theirs)
    means = capabilities_of(settings, policy if isinstance(policy, Policy) else None)
    asked = schema_of(fields, all_fields=all_fields) or means.asked_schema
    own = advertised_fields(policy.select) if isinstance(policy, Policy) else RequiredFields()
    offer = Offer(allowed_schema(asked, own), means.formats)
    if peer is not None:
        required = own | advertised_fields(peer.module)
        offer = Offer.of(offered_schema(asked, own, required), means.formats, required)
    return disclose_store(
        store,
        exposures,
        check_viewer(viewer),
        select=policy.select if isinstance(policy, Policy) else None,
        peer=peer,
        offer=offer,
        public=with_local_time(facts, at) if read_clock(exposures) else facts,
        lowering=lowering,
        limits=limits,
        allow_undefined=map(str, allowed),
    )


def disclose_store(
    store: SqliteStore,
    exposures: Iterable[Exposure],
    viewer: str,
    *,
    select: CheckedProgram | None = None,
    peer: Operand | None = None,
    public: Iterable[Fact] = (),
    lowering: str = LOWERINGS[0],
    limits: RuleLimits,
    allow_undefined: Iterable[str] = (),
    offer: Offer = _ANY_OFFER,
) -> Disclosure:
    """Return what a viewer may query of a store at this moment."""
    active = active_exposures(exposures, viewer)
    facts, allowed = list(public), tuple(allow_undefined)

    def ask(base: FactBase) -> Disclosure:
        sent = None
        view = compile_view(active, viewer, limits)
        programs = [view]
        if peer is not None:
            rules = _ALL_RECORDS if select is None else select
            policy = Policy(
                rules, active, lowering=lowering, limits=limits, allow_undefined=allowed
            )
            preview = Preview(prepare_exchange(policy, peer, viewer), base, facts)
            moving = preview.permissions.may_send - preview.not_here
            sent = Sent(
                peer_select=peer.module_id,
                select=None if select is None else select.id,
                records=tuple(sorted(moving)),
                lowering=lowering,
            )
            programs += preview.executable.programs
        else:
            base.change(sorted(set(facts)))
        census = _view(base, view)
        hidden, hidden_here = census.targets_elsewhere()
        return Disclosure(
            lace=str(store.folder.resolve()),
            viewer=viewer,
            exposures=tuple(each.module.id for each in active),
            stored=census.stored,
            records=tuple(census.texts),
            fields=tuple(FieldShown(*each) for each in census.fields()),
            links=tuple(LinksShown(*each) for each in census.links()),
            hidden_hashes=tuple(hidden),
            hidden_here=hidden_here,
            blobs=census.embedded("BlobHash"),
            plexes=census.embedded("PlexHash"),
            sent=sent,
            missing_facts=missing_facts(programs, facts),
            offer=offer,
            local_tai=next((fact[1] for fact in facts if fact[0] == LOCAL_TAI.name), None)
            if read_clock(active)
            else None,
        )

    return ask_store(store, ask, max_value_bytes=limits.max_value_bytes)


def _view(base: FactBase, program: CheckedProgram) -> Census:
    """Return the records that a view program lets through."""
    answer = EvaluationSession(base).evaluate(program, [CAN_QUERY_RECORD])
    known = CAN_QUERY_RECORD in program.derived
    allowed = answer.relation(CAN_QUERY_RECORD) if known else Relation(CAN_QUERY_RECORD.arity)
    return Census(base, allowed.columns()[1])
