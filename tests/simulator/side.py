"""One side of a simulated exchange: a machine, a store, and a check of all that it does.

What a machine wants done is carried out step by step, so that anything can happen between
two steps. The reference evaluator, which shares no code with the engine that answers the
machine, says whether what is sent and requested may be.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lace.engine.factbase import FactBase
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.advertisement import Advertisement, advertised_fields_of, is_bare
from lace.exchange.blocks import format_block
from lace.exchange.machine import Machine
from lace.exchange.negotiation import runtime_facts
from lace.exchange.transitions import State
from lace.facts.extract import record_facts
from lace.policy.enforcement import Enforcement
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.rules.profiles import MAY_REQUEST, MAY_SEND
from tests.oracle.naive_engine import evaluate_naively

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from lace.base.tai import Tai
    from lace.exchange.capabilities import Cursor, MachineConfig
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.rules.syntax import PredicateKey

Item: TypeAlias = (
    happened.BlockReceived
    | happened.BatchEnded
    | happened.Unavailable
    | happened.RecordLost
    | bytes
    | str
)
"""What travels: blocks, the bytes of records, and `end`."""
LINE = 1024
ANSWERED = (wanted.Evaluate, wanted.Describe, wanted.SendBatch, wanted.Validate, wanted.Admit)
_FACTS: dict[str, list[Fact]] = {}


def facts_of(record: ValidRecord) -> list[Fact]:
    """The facts of a record, worked out once."""
    found = _FACTS.get(record.hash_text)
    if found is None:
        found = _FACTS[record.hash_text] = list(record_facts(record))
    return found


@dataclass
class Kept:
    """What a side keeps from one exchange to the next: records, cursors, and their claims."""

    store: dict[str, ValidRecord] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    claims: dict[str, dict[str, Advertisement]] = field(default_factory=dict)


class Side:
    """A machine, whoever runs it, and its end of the wire."""

    def __init__(self, config: MachineConfig, kept: Kept, rnd: random.Random, name: str) -> None:
        self.name = name
        self.config = config
        self.machine = Machine(config)
        self.kept = kept
        self.store = kept.store
        self._peer: weakref.ref[Side] | None = None
        self._rnd = rnd
        self.effects: deque[wanted.Effect] = deque()
        self.answers: deque[happened.Event] = deque()
        self.inbox: deque[Item] = deque()
        self.alarm: Tai | None = None
        self.outcome: Outcome | None = None
        self.reports: list[Outcome] = []
        self.trace: list[tuple[happened.Event, Tai, list[wanted.Effect]]] = []
        self.transcript: list[bytes] = []
        self.asked: list[str] = []
        self.answered: list[str] = []
        self._told: set[str] = set()
        self._claims: dict[str, Advertisement] = {}
        self._frozen: dict[str, ValidRecord] = {}
        self._executable: Executable | None = None
        self._terms: Terms | None = None
        self._engine: Enforcement | None = None
        self._base: FactBase | None = None
        self._facts: frozenset[Fact] = frozenset()
        self._tick: Tai | None = None
        self._local: Tai | None = None
        self.ticks: list[Tai] = []
        self._found: tuple[object, tuple[frozenset[str], frozenset[str]]] = (
            None,
            (frozenset(), frozenset()),
        )
        self._is_checked = False
        self.deferrals = 0
        """How many request lists it may still defer whole, which is no failure (G47)."""
        self.is_strict = True
        """Whether the reference evaluator looks at what is sent and requested."""
        self.is_trusting = True
        """Whether what reconciliation finds is compared with what the peer has."""

    @property
    def peer(self) -> Side:
        """The other side, which the world holds: engines go with a world, and wait for no cycle."""
        found = None if self._peer is None else self._peer()
        assert found is not None
        return found

    @peer.setter
    def peer(self, other: Side) -> None:
        self._peer = weakref.ref(other)

    # -- events --------------------------------------------------------------------------------

    def happen(self, event: happened.Event, now: Tai) -> None:
        """Give an event to the machine."""
        made = self.machine.receive(event, now)
        self.trace.append((event, now, made))
        self.effects += made

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to do here."""
        return not self.effects and not self.answers

    @property
    def may_change(self) -> bool:
        """Whether the store may change: not between the last check and the sending."""
        is_sending = any(isinstance(each, wanted.SendBatch) for each in self.effects)
        return not self._is_checked and not is_sending

    def work(self, now: Tai) -> None:
        """Carry out the next effect, or give back its answer."""
        if self.answers:
            self.happen(self.answers.popleft(), now)
        elif self.effects:
            answer = self._do(self.effects.popleft())
            if answer is not None:
                self.answers.append(answer)

    def take(self, now: Tai) -> bool:
        """Take what came next from the peer; tells whether anything was taken."""
        if not self.inbox:
            return False
        if self.inbox[0] == "end":
            self.inbox.clear()
            self.happen(happened.Ended(), now)
            return True
        if not self.machine.takes_input:
            return False
        item = self.inbox.popleft()
        if isinstance(item, bytes):
            group = [item]
            while self.inbox and isinstance(self.inbox[0], bytes) and self._rnd.random() < 0.6:
                following = self.inbox.popleft()
                assert isinstance(following, bytes)
                group.append(following)
            frames = tuple(frame_record(each) for each in group)
            self.answered += [each.claimed for each in frames]
            self.happen(happened.RecordsReceived(frames), now)
        elif isinstance(item, happened.Unavailable):
            self.answered.append(item.record)
            self.happen(item, now)
        else:
            assert not isinstance(item, str)
            self.happen(item, now)
        return True

    # -- effects -------------------------------------------------------------------------------

    def _do(self, effect: wanted.Effect) -> happened.Event | None:
        match effect:
            case wanted.SendBlock():
                self._send_block(effect)
            case wanted.Agree():
                self._agree(effect)
            case wanted.Evaluate():
                return self._evaluate(effect)
            case wanted.Describe():
                return happened.Described(
                    tuple(self._describe(each, effect.source) for each in effect.records)
                )
            case wanted.SendBatch():
                return self._send_batch(effect)
            case wanted.Validate():
                outcomes = validate_many(effect.records, self._rnd.randbytes)
                return happened.Validated(
                    tuple(each if isinstance(each, ValidRecord) else str(each) for each in outcomes)
                )
            case wanted.Admit():
                for record in effect.records:
                    assert isinstance(record, ValidRecord), "nothing is stored before validation"
                    assert record.hash_text in self.asked, (
                        "nothing is stored that was not asked for"
                    )
                    self.store[record.hash_text] = record
                return happened.Admitted(len(effect.records))
            case wanted.SaveCursor():
                self.kept.cursors[effect.link_id] = effect.cursor
                self.kept.claims[effect.link_id] = dict(self._claims)
            case wanted.Wake():
                self.alarm = effect.at
            case wanted.Report():
                self.reports.append(effect.outcome)
            case wanted.Close():
                self.outcome = effect.outcome
                self.peer.inbox.append("end")
        return None

    def _send_block(self, effect: wanted.SendBlock) -> None:
        self.transcript.append(format_block(effect.facts))
        requested = [fact[1] for fact in effect.facts if fact[0] == "MayRequest"]
        if requested and self.is_strict:
            _, may_request = self._ask_reference(self._frozen)
            assert may_request.issuperset(requested), f"{self.name} requests what it may not"
        for record in requested:
            assert record in self._claims, f"{self.name} requests what is not advertised"
            assert record not in self._frozen, f"{self.name} requests what it has"
            assert record.endswith(".H3")
        self.asked += requested
        self.peer.inbox.append(happened.BlockReceived(effect.facts, dict(effect.modules)))

    def _agree(self, effect: wanted.Agree) -> None:
        self._executable, self._terms = effect.executable, effect.terms
        self._told, self._engine = set(), None
        self._found = None, (frozenset(), frozenset())
        if effect.known is None:
            self._claims = {}
        elif effect.terms.link_id is not None:
            self._claims = dict(self.kept.claims[effect.terms.link_id])
        assert effect.known is None or set(effect.known) == set(self._claims)

    def _describe(self, record: str, source: str) -> Advertisement:
        assert self._terms is not None
        if is_bare(self._terms.schema):  # what was sent and then removed is claimed by the peer
            return Advertisement(record)
        found = self._frozen[record]
        fields = advertised_fields_of(
            record, source, facts_of(found), self._terms.schema, max_line_bytes=LINE
        )
        return Advertisement(record, fields)

    def _evaluate(self, effect: wanted.Evaluate) -> happened.EvaluationDone:
        assert self._terms is not None
        assert self._tick is None or effect.tick >= self._terms.start_tai
        assert self._local is None or effect.local >= self._local, "a clock never goes back"
        self._tick, self._local = effect.tick, effect.local
        self.ticks.append(effect.tick)
        source = self._terms.peer_source
        relabelled = {each: self._describe(each, source) for each in effect.relabelled}
        self._claims.update(relabelled)
        self._claims.update({each.record: each for each in effect.added})
        for record in effect.removed:
            del self._claims[record]
        if self.machine.state is State.COMPARING and self.is_trusting:
            self._check_claims()
        self._frozen = dict(self.store)
        may_send, may_request = self._ask_engine()
        if self.is_strict and self._rnd.random() < 0.1:
            expected = self._ask_reference(self.store)
            assert (may_send, may_request) == expected, "two engines, two answers"
        self._is_checked = self.machine.state is State.CHECKING
        send = {each for each in may_send if each in self.store}
        come = [self._describe(each, self._terms.source) for each in sorted(send - self._told)]
        gone = sorted(self._told - send)
        self._told = send
        found = sorted(
            each
            for each in may_request
            if each in self._claims
            and each not in self.store
            and each not in effect.excluded
            and each.rpartition(".")[2] in self._terms.formats
        )
        return happened.EvaluationDone(
            tuple(come), tuple(gone), tuple(found[: effect.most_requests]), len(found)
        )

    def _check_claims(self) -> None:
        """What reconciliation found is exactly what the peer advertises, field by field."""
        ours, theirs = self.machine._loops, self.peer.machine._loops
        assert ours is not None
        assert theirs is not None
        assert self._terms is not None
        assert ours.ticks.tick == theirs.ticks.tick
        assert ours.states.theirs == theirs.states.own
        assert set(self._claims) == set(theirs.states.own)
        for record, claim in self._claims.items():
            assert claim.digest(self._terms.peer_source) == theirs.states.own.digest(record)

    def _public(self) -> list[Fact]:
        assert self._terms is not None
        assert self._executable is not None
        # Rules read the proven verifier as the source, whatever the wire says (G42).
        source = self._terms.peer.verifier or self._terms.peer_source
        facts = [fact for each in self._claims.values() for fact in each.facts(source)]
        local = [("_LocalTAI", str(self._local))] if self._executable.reads_clock else []
        return [
            *facts,
            *local,
            *runtime_facts(self._terms, transport="mem", encrypted=False, tick=self._tick),
        ]

    def _ask_engine(self) -> tuple[frozenset[str], frozenset[str]]:
        assert self._executable is not None
        facts = frozenset(fact for each in self.store.values() for fact in facts_of(each))
        if self._engine is None or self._base is None:
            self._base = FactBase(max_value_bytes=LINE)
            self._base.change(facts)
            self._engine = Enforcement(self._executable, self._base)
        elif facts != self._facts:
            changes = self._base.change(sorted(facts - self._facts), sorted(self._facts - facts))
            self._engine.update(changes)
        self._facts = facts
        self._engine.set_public(self._public())
        found = self._engine.evaluate()
        return found.may_send, found.may_request

    def _ask_reference(
        self, store: dict[str, ValidRecord]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """What may be sent and requested with these records, straight from the rules."""
        executable = self._executable
        assert executable is not None
        records = [fact for each in store.values() for fact in facts_of(each)]
        public = self._public()
        key = executable.plan.id, frozenset(store), frozenset(public)
        if self._found[0] != key:
            self._found = key, self._naively(executable, records, public)
        return self._found[1]

    @staticmethod
    def _naively(
        executable: Executable, records: list[Fact], public: list[Fact]
    ) -> tuple[frozenset[str], frozenset[str]]:
        local = [fact for fact in public if fact[0] == "_LocalTAI"]
        public = [fact for fact in public if fact not in local]
        view = evaluate_naively(executable.view, [*records, *local])
        shown = rows(view, *executable.view_predicates)
        theirs = evaluate_naively(executable.theirs, [*shown, *public])
        ours = evaluate_naively(executable.ours, [*records, *public])
        selected = [
            fact
            for made in (ours, theirs)
            for fact in rows(made, *(each for each in executable.selections if each in made))
        ]
        made = evaluate_naively(executable.lowering, [*selected, *public])
        return (
            frozenset(record for (record,) in made[MAY_SEND]),
            frozenset(record for (record,) in made[MAY_REQUEST]),
        )

    def _send_batch(self, effect: wanted.SendBatch) -> happened.BatchSent:
        self._is_checked = False
        if effect.records and self.is_strict:
            may_send, _ = self._ask_reference(self.store)
            assert may_send.issuperset(effect.records), f"{self.name} sends what it may not"
        sent: list[str] = []
        unavailable = list(effect.unavailable)
        size = 0
        is_deferring = self.deferrals > 0 and self._rnd.random() < 0.5
        self.deferrals -= is_deferring
        for record in () if is_deferring else effect.records:
            if size > effect.most_bytes and (sent or unavailable):
                break
            if record in self.store:
                raw = bytes(self.store[record].bytes)
                sent.append(record)
                size += len(raw)
                self.peer.inbox.append(raw)
            else:
                unavailable.append(record)
        self.peer.inbox += [happened.Unavailable(each) for each in unavailable]
        self.peer.inbox.append(happened.BatchEnded())
        self.transcript.append(b"".join(bytes(self.store[each].bytes) for each in sent))
        self.transcript.append(format_block([("NotAvailable", each) for each in unavailable]))
        return happened.BatchSent(tuple(sent), tuple(unavailable), size)

    # -- questions of the tests ----------------------------------------------------------------

    def requestable(self) -> set[str]:
        """What could be requested now, and is not set aside for good reason."""
        _, may_request = self._ask_reference(self.store)
        excluded = self.machine._ledger.excluded
        return {
            each
            for each in may_request
            if each in self._claims and each not in self.store and each not in excluded
        }

    def sendable(self) -> set[str]:
        """What could be sent now."""
        may_send, _ = self._ask_reference(self.store)
        return {each for each in may_send if each in self.store}


def rows(
    made: Mapping[PredicateKey, frozenset[tuple[str, ...]]], *keys: PredicateKey
) -> list[Fact]:
    """The facts of some predicates."""
    return [(key.name, *row) for key in keys for row in made[key]]
