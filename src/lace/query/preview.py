"""Previews: what a policy would send and request, and which gate decides about a record.

No peer and no network: the peer's operand is given, its advertisements are given as facts,
and the answer is the one that an exchange would come to at this moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lace.base.arguments import check_argument, check_many
from lace.base.limits import STORED_FORMATS
from lace.base.tai import Tai
from lace.base.text import shorten
from lace.columns.index import Members
from lace.columns.relation import Relation
from lace.engine.engine import EvaluationSession
from lace.engine.field_histogram import Census
from lace.errors import Finding, Place, UsageError
from lace.exchange.blocks import CONTROL_PREDICATES, Syntax
from lace.exchange.capabilities import capabilities_of, relabelled
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.facts.lines import FactLineError, format_fact
from lace.policy.compile import compile_view, flat_program
from lace.policy.disclosure import Disclosure, FieldShown, LinksShown, Sent
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import (
    active_exposures,
    check_viewer,
    local_time,
    missing_facts,
    read_clock,
    with_local_time,
    with_peer,
)
from lace.policy.local import Policy, check_policy, exposures_of, prepare_exchange
from lace.policy.operand import RequiredFields, advertised_fields, check_index, operand_of
from lace.policy.plan import LOWERINGS, check_lowering
from lace.policy.schema import ALL_FIELDS, Offer, allowed_schema, offered_schema, schema_of
from lace.query.result import Result
from lace.query.store_query import ask_store
from lace.rules.checks.warnings import parse_allowed
from lace.rules.limits import limits_of, peer_limits_of
from lace.rules.profiles import (
    CAN_QUERY_RECORD,
    LOCAL_TAI,
    MAY_REQUEST,
    MAY_SEND,
    SELECT_ADVERTISED,
    SELECT_HAVE,
)
from lace.rules.program import RULE_KINDS, refuse_undefined
from lace.rules.syntax import PredicateKey
from lace.why.explanation import show_fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.base.limits import Settings
    from lace.columns.dictionary import Ids
    from lace.engine.factbase import FactBase
    from lace.facts.lines import Fact
    from lace.policy.exposure import Exposure
    from lace.policy.local import Exchange, Exposing, Rules
    from lace.policy.operand import Operand
    from lace.rules.limits import RuleLimits
    from lace.rules.program import CheckedProgram
    from lace.store.sqlite.store import SqliteStore
    from lace.why.explanation import Absence, Explanation


_HAVE: Final = PredicateKey("Have", 1)
_PEER: Final = PredicateKey("Peer", 1)
_ADVERTISED_FIELD: Final = PredicateKey("AdvertisedField", 5)


class Gate(Enum):
    """What decides that a record does not move."""

    NOT_HERE = "not here"
    NOT_OURS = "not in my selector"
    NOT_THEIRS = "not in theirs"
    NOT_EXPOSED = "not exposed to this viewer"
    NOT_ADVERTISED = "not advertised"
    FIELD_NOT_ADVERTISED = "field not advertised"
    FORMAT = "format"
    ALREADY_HERE = "already here"
    NOT_ENCRYPTED = "transport not encrypted"
    NOT_PROVEN = "peer not proven"


FORMATS: Final = STORED_FORMATS
"""The record formats, by the suffix of their hashes, that are taken unless others are said."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a record would move, and why: the gate that stops it, and the rules behind it.

    `moves` may be False though the policy allows it: a record that is here already is not
    requested, one that is not here is not sent.
    """

    fact: Fact
    allowed: bool
    gate: Gate | None
    message: str
    explanation: Explanation

    @property
    def moves(self) -> bool:
        """Whether the record would be sent or requested."""
        return self.gate is None

    def __str__(self) -> str:
        return f"{self.message}\n{self.explanation}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        name, *values = self.fact
        return {
            "fact": {"predicate": name, "values": values, "text": show_fact(self.fact)},
            "allowed": self.allowed,
            "moves": self.moves,
            "gate": None if self.gate is None else self.gate.value,
            "message": self.message,
            "explanation": self.explanation.to_json(),
        }


class Preview:
    """A compiled policy over facts at one moment."""

    def __init__(
        self,
        exchange: Exchange,
        base: FactBase,
        public: Iterable[Fact] = (),
        formats: Iterable[str] | None = FORMATS,
        offer: Offer | None = None,
    ) -> None:
        self.executable = executable = exchange.executable
        required, own = executable.plan.required, exchange.operands[executable.index].module
        usual = offered_schema(None, advertised_fields(own), required)
        self.offer = offer or Offer.of(usual, STORED_FORMATS, required)
        """The fields and formats that this side offers for the plan, and what it needs beyond."""
        self._operands = exchange.operands
        self._base = base
        # Advertisements may be given as they are on the wire, where a label is the source.
        self._public = frozenset(relabelled(public, executable))
        self._formats = None if formats is None else frozenset(formats)
        enforcement = Enforcement(executable, base)
        enforcement.set_public(self._public)
        self.permissions = enforcement.evaluate()
        self.their_work = enforcement.their_work
        self._shown = enforcement.shown
        self._result: Result | None = None

    def __repr__(self) -> str:
        sent, requested = self.permissions.counts
        return f"<Preview: may send {sent:,}, may request {requested:,}>"

    @property
    def local_tai(self) -> str | None:
        """The instant that exposures read as `_LocalTAI`; None if none of them does."""
        if not self.executable.reads_clock:
            return None
        return next((fact[1] for fact in self._public if fact[0] == LOCAL_TAI.name), None)

    def fact_lines(self) -> list[str]:
        """Return a fact line for each record that may be sent or requested, sorted bytewise."""
        may = self.permissions
        facts = [(MAY_SEND.name, record) for record in may.may_send]
        facts += [(MAY_REQUEST.name, record) for record in may.may_request]
        return sorted(map(format_fact, facts))

    @property
    def result(self) -> Result:
        """All programs of the policy as one, for explanations."""
        if self._result is None:
            flat = flat_program(self.executable)
            # What is asked about is made when it is asked about.
            self._result = Result(flat, EvaluationSession(self._base).evaluate(flat, ()))
        return self._result

    @cached_property
    def not_here(self) -> frozenset[str]:
        """The records that may be sent and are not here, so that they are not sent."""
        return self._records(MAY_SEND, here=False)

    @cached_property
    def already_here(self) -> frozenset[str]:
        """The records that may be requested and are here, so that they are not requested."""
        return self._records(MAY_REQUEST, here=True)

    @cached_property
    def shows_nothing(self) -> bool:
        """Whether exposures are registered for the viewer, and allow no record that is here."""
        return not self.executable.exposes_nothing and not len(self._which(self._shown, here=True))

    def _records(self, predicate: PredicateKey, *, here: bool) -> frozenset[str]:
        numbers = self._which(self.permissions.numbers(predicate), here=here)
        return frozenset(self._base.dictionary.texts(numbers))

    def _which(self, numbers: Ids, *, here: bool) -> Ids:
        """Return those of some records that are here, or those that are not."""
        held = self._base.relations.get(_HAVE) or Relation(_HAVE.arity)
        if not held.rows or not len(numbers):
            return numbers[:0] if here else numbers
        is_held = Members(held.columns()[0], self._base.size).mask(numbers)
        return numbers[is_held if here else ~is_held]

    def why(self, predicate: str, *values: str) -> Explanation:
        """Explain any fact of the policy, by the rules as they were written."""
        return self.result.why(predicate, *values)

    def decide(self, predicate: str, record: str) -> Decision:
        """Say whether a record would be sent (`MaySend`) or requested (`MayRequest`), and why."""
        if predicate == MAY_SEND.name:
            return self._decide_send(record)
        if predicate == MAY_REQUEST.name:
            return self._decide_request(record)
        raise UsageError(
            f"a policy decides about MaySend and MayRequest, not {predicate!r}",
            hint="as in \"MaySend('P.….H3')\"",
        )

    def _decide_send(self, record: str) -> Decision:
        fact = (MAY_SEND.name, record)
        executable = self.executable
        allowed = self.why(*fact)
        is_here = self.why("Have", record)
        if not is_here.holds:
            reason = allowed if allowed.holds else is_here
            return Decision(fact, allowed.holds, *_because(Gate.NOT_HERE), reason)
        if allowed.holds:
            if not self._is_taken(record):
                return Decision(fact, True, *_because(Gate.FORMAT), allowed)
            return Decision(fact, True, None, "it would be sent", allowed)
        ours = self.why(executable.our_scope + SELECT_HAVE.name, record)
        if not ours.holds:
            return Decision(fact, False, *_because(Gate.NOT_OURS), ours)
        shown = self.why(CAN_QUERY_RECORD.name, executable.viewer, record)
        if not shown.holds:
            if executable.exposes_nothing:
                message = "it would not be sent: nothing is exposed to this peer"
                return Decision(fact, False, Gate.NOT_EXPOSED, message, shown)
            return Decision(fact, False, *_because(Gate.NOT_EXPOSED), shown)
        theirs = self.why(executable.their_scope + SELECT_HAVE.name, record)
        if not theirs.holds:
            return Decision(fact, False, *_because(Gate.NOT_THEIRS), theirs)
        return Decision(fact, False, *_because(_lowering_gate(allowed)), allowed)

    def _is_taken(self, record: str) -> bool:
        """Tell whether both sides take records of this format."""
        return self._formats is None or record.rpartition(".")[2] in self._formats

    def _decide_request(self, record: str) -> Decision:
        fact = (MAY_REQUEST.name, record)
        allowed = self.why(*fact)
        is_here = self.why("Have", record)
        if allowed.holds:
            gate = None
            if is_here.holds:
                gate = Gate.ALREADY_HERE
            elif not self._is_taken(record):
                gate = Gate.FORMAT
            if gate is None:
                return Decision(fact, True, None, "it would be requested", allowed)
            return Decision(fact, True, *_because(gate, "requested"), allowed)
        sources = sorted(each[2] for each in self._public if each[:2] == ("Advertised", record))
        if not sources:
            return Decision(fact, False, *_because(Gate.NOT_ADVERTISED, "requested"), allowed)
        return self._unselected(fact, sources, allowed)

    def _unselected(self, fact: Fact, sources: list[str], allowed: Explanation) -> Decision:
        """Say which operand does not select an advertised record."""
        index = self.executable.index
        for at, gate in ((index, Gate.NOT_OURS), (1 - index, Gate.NOT_THEIRS)):
            name = f"o{at}_{SELECT_ADVERTISED.name}"
            found = [self.why(name, fact[1], source) for source in sources]
            if any(each.holds for each in found):
                continue
            missing = self._unadvertised(found[0].absence, at, fact[1], sources[0])
            if missing:
                message = _because(Gate.FIELD_NOT_ADVERTISED, "requested")[1]
                told = f"{message}: {', '.join(sorted(missing))}"
                return Decision(fact, False, Gate.FIELD_NOT_ADVERTISED, told, found[0])
            return Decision(fact, False, *_because(gate, "requested"), found[0])
        return Decision(fact, False, *_because(_lowering_gate(allowed), "requested"), allowed)

    def _unadvertised(
        self, absence: Absence | None, index: int, record: str, source: str
    ) -> frozenset[str]:
        """Return the fields whose absence alone is why no rule selects an advertised record.

        None are returned when some rule fails for another reason.
        """
        if absence is None or absence.kind != "rules":
            return frozenset()
        given = {
            each[3] for each in self._public if each[:3] == ("AdvertisedField", record, source)
        }
        names = advertised_fields(self._operands[index].module).names - given
        found: set[str] = set()
        for miss in absence.misses:
            if miss.kind == "head":
                continue
            asked: set[str] = set()
            if (miss.kind, miss.predicate) == ("fact", _ADVERTISED_FIELD):
                of_record, of_source, name = miss.values[:3]
                if (of_record, of_source) == (record, source) and name is not None:
                    asked = {name} & names
            if not asked:
                asked = set(self._unadvertised(miss.inner, index, record, source))
            if not asked:
                return frozenset()
            found |= asked
        return frozenset(found)


def _lowering_gate(allowed: Explanation) -> Gate:
    """Return what a lowering asks for beyond selection, of a fact that lacks only that."""
    misses = allowed.absence.misses if allowed.absence is not None else ()
    is_unproven = any(miss.predicate == _PEER for miss in misses)
    return Gate.NOT_PROVEN if is_unproven else Gate.NOT_ENCRYPTED


def preview_store(
    exchange: Exchange,
    store: SqliteStore,
    public: Iterable[Fact] = (),
    *,
    max_value_bytes: int,
    formats: Iterable[str] | None = FORMATS,
    offer: Offer | None = None,
) -> Preview:
    """Return the preview of an exchange over the facts of a store at this moment."""
    wanted = list(public)
    return ask_store(
        store,
        lambda base: Preview(exchange, base, wanted, formats, offer),
        max_value_bytes=max_value_bytes,
    )


def exchange_of(
    settings: Settings,
    policy: Policy,
    peer_select: Rules,
    *,
    index: int = 0,
    viewer: str | None = None,
) -> Exchange:
    """Return an exchange with a peer's selector, which gets the limits of a peer's rules."""
    check_policy(policy)
    check_argument(peer_select, RULE_KINDS, "peer_select is a Lacegram or its text")
    check_index(index)
    peer = operand_of(peer_select, 1 - index, limits=peer_limits_of(settings))
    return prepare_exchange(policy, peer, viewer)


def offer_of(settings: Settings, policy: Policy, required: RequiredFields) -> Offer:
    """Return the fields and formats that a side offers for a plan."""
    means = capabilities_of(settings, policy)
    schema = means.offered_schema(required, advertised_fields(policy.select))
    return Offer.of(schema, means.formats, required)


def local_instant(settings: Settings, at: str | None, clock: Callable[[], Tai]) -> Tai:
    """Return an instant that is given, or what exposures read as this side's clock now."""
    interval = capabilities_of(settings).tick_interval
    return local_time(clock(), interval) if at is None else Tai(at)


def preview_policy(
    store: SqliteStore,
    settings: Settings,
    policy: Policy,
    peer_select: Rules,
    *,
    index: int = 0,
    viewer: str | None = None,
    public: Iterable[Fact] = (),
    at: str,
) -> Preview:
    """Return what an exchange with a peer would send and request, by the settings of a lace.

    `at` is what exposures read as `_LocalTAI`, unless `public` has one.
    """
    exchange = exchange_of(settings, policy, peer_select, index=index, viewer=viewer)
    facts = with_peer(public, viewer)
    if exchange.executable.reads_clock:
        facts = with_local_time(facts, at)
    return preview_store(
        exchange,
        store,
        facts,
        max_value_bytes=settings.max_value_bytes,
        offer=offer_of(settings, policy, exchange.executable.plan.required),
    )


def _because(gate: Gate, done: str = "sent") -> tuple[Gate, str]:
    return gate, f"it would not be {done}: {gate.value}"


# -- Facts that come with an exchange: advertisements and runtime facts.
#
# A value of a wrong form is refused. Well-formed facts that no exchange would contain get a warning
# with their place: a preview may still use them.

_OPTION_OF: Final = {
    FactClass.ADVERTISEMENT: "--advertised",
    FactClass.RUNTIME: "--runtime",
}
_KIND_OF: Final = {option: kind for kind, option in _OPTION_OF.items()}
_RULE_OF: Final = {FactClass.ADVERTISEMENT: "040-13", FactClass.RUNTIME: "040-89"}
_FORMS: Final = {
    "Advertised": CONTROL_PREDICATES["Advertised"].syntax,
    "AdvertisedField": CONTROL_PREDICATES["AdvertisedField"].syntax,
    "Here": (Syntax.VERIFIER,),
    "Peer": (Syntax.VERIFIER,),
    "Transport": (Syntax.TEXT,),
    "TransportEncrypted": (),
    "StartTAI": (Syntax.TAI,),
    "TickTAI": (Syntax.TAI,),
    "ClockSkewSeconds": (Syntax.DECIMAL,),
    LOCAL_TAI.name: (Syntax.TAI,),
}
_RULES: Final = {
    "Advertised": "050-39",
    "AdvertisedField": "050-40",
    "Here": "050-25",
    "Peer": "050-26",
    "Transport": "050-27",
    "StartTAI": "050-29",
    "TickTAI": "050-30",
    "ClockSkewSeconds": "050-31",
    LOCAL_TAI.name: "G05b",
}
_TAKEN: Final = {
    FactClass.ADVERTISEMENT: frozenset(
        name
        for name, found in BASE_PREDICATES.items()
        if found.fact_class is FactClass.ADVERTISEMENT
    ),
    FactClass.RUNTIME: frozenset(
        {
            LOCAL_TAI.name,
            *(
                name
                for name, found in BASE_PREDICATES.items()
                if found.fact_class is FactClass.RUNTIME
            ),
        }
    ),
}
"""The predicates that each option takes."""
_KNOWN: Final = {**BASE_PREDICATES, **LOCAL_PREDICATES}


class _Oddity:
    """Something that no exchange would have: where it is first, and how often it is there."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.line = 0
        self.message = ""
        self.count = 0

    def add(self, line: int, message: str, count: int = 1) -> None:
        """Note it, once or more often; the first is told."""
        if not self.count:
            self.line, self.message = line, message
        self.count += count

    def finding(self, name: str) -> Finding:
        """Return what is said of it."""
        others = self.count - 1
        more = f", and {others:,} other{'' if others == 1 else 's'} like it" if others else ""
        return Finding(
            severity="warning",
            place=Place(name, self.line),
            message=f"{self.message}{more}",
            rule=self.rule,
        )


class PublicFactChecker:
    """Checks the facts of one file, line by line, for a preview.

    Args:
        option: the option that names the file: `--advertised` or `--runtime`.
        name: what findings call the file.
    """

    def __init__(self, option: str, name: str) -> None:
        self._kind = _KIND_OF[option]
        self._name = name
        self._line = 0
        self._source: tuple[str, int] | None = None
        self._advertised: set[tuple[str, str]] = set()
        self._claimed: dict[tuple[str, str], tuple[int, int]] = {}
        self._values: dict[Fact, str] = {}
        self._single: dict[str, tuple[Fact, int]] = {}
        self._odd: dict[str, _Oddity] = {}

    def __call__(self, fact: Fact) -> None:
        """Check the fact of the next line.

        Raises:
            FactLineError: it is of another kind, or a value has a wrong form.
        """
        self._line += 1
        _check_kind(self._kind, fact)
        _check_form(fact)
        match fact:
            case ("Advertised", record, source):
                self._advertised.add((record, source))
                self._check_source(source)
            case ("AdvertisedField", record, source, *_):
                first, count = self._claimed.get((record, source), (self._line, 0))
                self._claimed[record, source] = first, count + 1
                self._check_source(source)
                if self._values.setdefault(fact[:-1], fact[-1]) != fact[-1]:
                    message = f"field {shorten(fact[3])} has another value at index {fact[4]}"
                    self._note("value", "G42", message)
            case _:
                other, line = self._single.setdefault(fact[0], (fact, self._line))
                if other != fact:
                    message = f"an exchange has one {fact[0]}, and line {line:,} has another"
                    self._note(fact[0], _RULES[fact[0]], message)

    def findings(self) -> list[Finding]:
        """Return what is odd, by line, once all lines were taken."""
        for key, (line, count) in self._claimed.items():
            if key not in self._advertised:
                odd = self._odd.setdefault("field", _Oddity("G42"))
                odd.add(line, "this field has no Advertised line of its record and source", count)
        found = sorted(self._odd.values(), key=lambda each: each.line)
        return [each.finding(self._name) for each in found]

    def _check_source(self, source: str) -> None:
        if self._source is None:
            self._source = source, self._line
        first, line = self._source
        if source != first:
            message = f"a peer is one source, and line {line:,} has another: {shorten(first)}"
            self._note("source", "G42", message)

    def _note(self, sort: str, rule: str, message: str) -> None:
        self._odd.setdefault(sort, _Oddity(rule)).add(self._line, message)


def _check_kind(kind: FactClass, fact: Fact) -> None:
    """Refuse a fact of another kind, or with another number of values."""
    option, rule = _OPTION_OF[kind], _RULE_OF[kind]
    found, arity = _KNOWN.get(fact[0]), len(fact) - 1
    if found is None or found.name not in _TAKEN[kind]:
        taken = [each for each in _KNOWN.values() if each.name in _TAKEN[kind]]
        other = _OPTION_OF.get(found.fact_class) if found is not None else None
        hint = f"{option} takes {', '.join(map(str, taken))}"
        if found is not None:
            hint = f"it belongs into {other}" if other else "record facts come from the lace"
        if found is not None and found.fact_class is FactClass.LOCAL:
            hint = "give it with --runtime" if found.name == LOCAL_TAI.name else "give --viewer V"
        raise FactLineError(f"{fact[0]}/{arity} is no {kind.value} fact", rule=rule, hint=hint)
    if found.arity != arity:
        many = "" if found.arity == 1 else "s"
        raise FactLineError(
            f"{fact[0]} has {found.arity} value{many}, and here {arity:,}",
            rule=rule,
            hint=f"write {found.name}({','.join(found.arguments)}), each value in quotes",
        )


def _check_form(fact: Fact) -> None:
    """Refuse a value that has not the form of its place."""
    name, *values = fact
    for value, syntax in zip(values, _FORMS[name], strict=True):
        if not syntax.matches(value) and syntax is not Syntax.TEXT:
            raise FactLineError(
                f"{shorten(value)!r} is not {syntax.title}",
                rule=_RULES[name],
                hint=f"as in {name}({','.join(_KNOWN[name].arguments)})",
            )


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
