"""The evaluations of an exchange, over the facts of a store.

A `StoreEvaluator` answers the machine: what may be sent now, and how that changed; what may be
requested; what the advertisement of a record says. It follows the store incrementally, so each
answer is for the current state and costs what changed.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from lace.base import b64a
from lace.base.digest import digest
from lace.engine.exchange_facts import (
    ClaimTable,
    RecordChanges,
    claim_table,
    claims_about,
    facts_of_table,
    fields_of,
    first_of,
    numbers_of,
    others,
    that_are,
    that_are_not,
)
from lace.engine.load import GroupedFacts
from lace.exchange.advertisement import Advertisement, bare_advertisements, is_bare, ordered_fields
from lace.exchange.events import Described, EvaluationDone
from lace.exchange.negotiation import runtime_facts
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import with_local_time
from lace.rules.profiles import MAY_REQUEST, MAY_SEND
from lace.rules.syntax import PredicateKey
from lace.store.store_view import StoreFollower

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.base.tai import Tai
    from lace.columns.dictionary import Ids
    from lace.engine.budget import Supervisor
    from lace.engine.factbase import FactBase
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.exchange.effects import Describe, Evaluate
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.store.sqlite.connection import StoreCounters
    from lace.store.store_view import ExchangeStore


# -- State fingerprints: when nothing that an evaluation reads has changed.
#
# At a fixed point everything is known about the state of the store, the policy and the peer's
# claims: what may be sent is what was advertised, and nothing is left to request. The fingerprint
# of that state is saved with the cursor. An exchange that finds both sides in it again evaluates
# nothing, however many records there are.

_LABEL: Final = "lace-state/1"


class StateFingerprints:
    """Fingerprints of the states in which evaluations of one policy give one answer."""

    def __init__(self, executable: Executable) -> None:
        self._read = {key for each in executable.programs for key in each.required_base}
        policy = "\n\n".join(each.canonical for each in executable.programs)
        self._policy = f"{_LABEL}\n{executable.index}\n{executable.viewer}\n{policy}"

    def name(self, counters: StoreCounters, runtime: Iterable[Fact]) -> str | None:
        """Return the fingerprint of a state of the store and the runtime facts that rules read.

        None for a store of a version without a digest of its records.
        """
        if counters.key_xor is None or counters.removal_sequence is None:
            return None
        facts = sorted(
            fact for fact in runtime if PredicateKey(fact[0], len(fact) - 1) in self._read
        )
        return b64a.encode(digest(f"{self._policy}\n{counters!r}\n{facts!r}".encode()))


_HAVE: Final = PredicateKey("Have", 1)
_ADVERTISED: Final = PredicateKey("Advertised", 2)
_ADVERTISED_FIELD: Final = "AdvertisedField"


@dataclass(frozen=True, slots=True)
class Known:
    """The saved claims of a peer: its records and, with fields, what it says about them.

    `ours` is what was advertised to it; in the state with this fingerprint there is no more.
    """

    claimed: AdvertisementSet
    table: ClaimTable | None = None
    ours: AdvertisementSet | None = None
    state: str | None = None


class StoreEvaluator:
    """Evaluates a policy over a store for an exchange."""

    def __init__(
        self,
        store: ExchangeStore,
        executable: Executable,
        terms: Terms,
        *,
        transport: str,
        encrypted: bool,
        max_value_bytes: int,
        max_line_bytes: int | None,
        known: Known | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._known = known
        self._supervisor = supervisor
        self._executable = executable
        self._terms = terms
        self._transport, self._encrypted = transport, encrypted
        self._max_line_bytes = max_line_bytes
        self._bare = is_bare(terms.schema)
        self._names = None if terms.schema.all else terms.schema.names
        self._enforcement: Enforcement | None = None
        self._changes = RecordChanges()
        self._runtime: frozenset[Fact] = frozenset()
        self._local: Tai | None = None
        """The time that exposures last read; None if they read no clock."""
        self._suffixes = tuple(f".{each}" for each in terms.formats)
        self._foreign: set[str] = set()
        """The claimed records of formats that are not exchanged."""
        self._store = store
        self._names_of_states = StateFingerprints(executable)
        self._rests_at: tuple[int, int] | None = None
        # The follower refers to this object only weakly: without a cycle the facts are freed
        # at the end of the exchange, not by a garbage collection.
        this = weakref.proxy(self)
        self._follower: StoreFollower[Enforcement] = StoreFollower(
            store, lambda base: this._begin(base), max_value_bytes=max_value_bytes
        )
        if not self._bare:
            self._follower.read("Field", self._names)

    def _begin(self, base: FactBase) -> Enforcement:
        if self._enforcement is None:
            self._enforcement = Enforcement(self._executable, base, supervisor=self._supervisor)
        else:
            self._enforcement.take_base(base)
        return self._enforcement

    @property
    def position(self) -> tuple[int, int]:
        """The last record and removal of the store that the last answer covers."""
        return self._follower.position if self._rests_at is None else self._rests_at

    @property
    def is_resting(self) -> bool:
        """Whether nothing was evaluated so far, because the state is the saved one."""
        return self._rests_at is not None

    def _ask(self) -> Enforcement:
        return self._follower.ask(
            self._executable.view, self._executable.ours, question=lambda found: found
        )

    def evaluate(self, effect: Evaluate) -> EvaluationDone:
        """Return what may be sent and requested now."""
        kept = self._as_kept(effect)
        if kept is not None:
            return kept
        relabelled: list[Advertisement] = []
        if effect.relabelled:  # as of the last evaluation, before the store is read
            relabelled = self._described(effect.relabelled, self._terms.peer_source)
        enforcement = self._ready()
        self._take_claims(enforcement, (*effect.added, *relabelled), effect.removed)
        self._take_time(enforcement, effect)
        permissions = enforcement.evaluate()
        base = enforcement.base
        sendable = that_are(base, _HAVE, permissions.numbers(MAY_SEND))
        come, gone = self._changes.since(base, sendable)
        wanted = that_are_not(base, _HAVE, permissions.numbers(MAY_REQUEST))
        wanted = that_are(base, _ADVERTISED, wanted)
        excluded = effect.excluded | self._foreign
        if excluded and len(wanted):
            wanted = others(wanted, numbers_of(base, excluded))
        asked = base.dictionary.texts(first_of(base, wanted, effect.most_requests))
        return EvaluationDone(
            tuple(self._advertisements(base, come, self._terms.source)),
            tuple(gone),
            tuple(sorted(asked)),
            len(wanted),
        )

    def _as_kept(self, effect: Evaluate) -> EvaluationDone | None:
        """Return the saved answer if nothing has changed since; else leave the saved state.

        Later answers are changes relative to this one.
        """
        known = self._known
        if known is None or known.state is None:
            return None
        asks_more = effect.added or effect.relabelled or effect.removed or effect.excluded
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
        state = self._names_of_states.name(counters, self._facts_at(effect))
        if asks_more or state != known.state:
            self._wake()
            return None
        ours = None if self.is_resting else known.ours
        self._rests_at = counters.high_water, counters.removal_sequence or 0
        return EvaluationDone((), (), (), 0, ours)

    def _wake(self) -> None:
        """Leave the saved state: changes are relative to what was advertised in it."""
        if self._known is not None and self._known.ours is not None and self.is_resting:
            self._changes.begin_with(self._known.ours.records())
        self._rests_at = None
        self._ready()

    def _ready(self) -> Enforcement:
        """Bring the facts up to date, with the saved claims of the peer."""
        enforcement = self._ask()
        if self._known is not None:
            known, self._known = self._known, None
            self._take_known(enforcement, known)
        return enforcement

    def state(self) -> str | None:
        """Return the fingerprint of the state of the last answer; None if the store has changed."""
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
        if self.position != (counters.high_water, counters.removal_sequence or 0):
            return None
        return self._names_of_states.name(counters, self._with_local(self._runtime, self._local))

    def _facts_at(self, effect: Evaluate) -> frozenset[Fact]:
        local = effect.local if self._executable.reads_clock else None
        return self._with_local(self._runtime_at(effect.tick), local)

    @staticmethod
    def _with_local(runtime: frozenset[Fact], local: Tai | None) -> frozenset[Fact]:
        return runtime if local is None else frozenset(with_local_time(runtime, local))

    def _take_known(self, enforcement: Enforcement, known: Known) -> None:
        """Add the saved claims of the peer."""
        records = known.claimed.records()
        self._foreign.update(each for each in records if not each.endswith(self._suffixes))
        if known.table is not None:
            enforcement.change_public(facts_of_table(known.table))
        else:
            claims = bare_advertisements(records)
            enforcement.change_public(_grouped(claims, self._terms.rule_source))

    def release(self) -> None:
        """Free the results of the peer's rules; the next evaluation makes them again."""
        if self._enforcement is not None:
            self._enforcement.release()

    def claims(self) -> ClaimTable | None:
        """Return the peer's claims for saving; None if they are records without fields."""
        if self.is_resting and self._known is not None:
            return self._known.table
        if self._bare or self._enforcement is None:
            return None
        return claim_table(self._enforcement.base)

    def _take_time(self, enforcement: Enforcement, effect: Evaluate) -> None:
        """Set the tick, and this side's clock if an exposure reads it."""
        runtime = self._runtime_at(effect.tick)
        enforcement.change_public(runtime - self._runtime, self._runtime - runtime)
        self._runtime = runtime
        if self._executable.reads_clock:
            self._local = effect.local
            enforcement.set_local_time(effect.local)

    def _runtime_at(self, tick: Tai) -> frozenset[Fact]:
        return frozenset(
            runtime_facts(
                self._terms, transport=self._transport, encrypted=self._encrypted, tick=tick
            )
        )

    def _take_claims(
        self,
        enforcement: Enforcement,
        added: Sequence[Advertisement],
        removed: Sequence[str],
    ) -> None:
        """Add and remove claims of the peer; a new claim about a record replaces the old one."""
        if not added and not removed:
            return
        source = self._terms.rule_source
        self._foreign.difference_update(removed)
        self._foreign.update(
            each.record for each in added if not each.record.endswith(self._suffixes)
        )
        touched = list(removed)
        if not self._bare:  # else what is claimed again is what was claimed before
            touched += [claim.record for claim in added]
        gone = claims_about(enforcement.base, touched)
        if gone:
            kept = {fact for claim in added for fact in claim.facts(source)}
            gone = [fact for fact in gone if fact not in kept]
        enforcement.change_public(_grouped(added, source), gone)

    def describe(self, effect: Describe) -> Described:
        """Return the advertisements of records as of the last evaluation."""
        return Described(tuple(self._described(effect.records, effect.source)))

    def _described(self, records: Sequence[str], source: str) -> list[Advertisement]:
        if self._bare:
            return bare_advertisements(records)
        if self._enforcement is None:
            self._wake()
        if self._enforcement is None:
            raise AssertionError("what is described was found by an evaluation")
        base = self._enforcement.base
        return self._advertisements(base, numbers_of(base, records), source)

    def _advertisements(self, base: FactBase, records: Ids, source: str) -> list[Advertisement]:
        texts = base.dictionary.texts(records)
        if self._bare:
            return bare_advertisements(texts)
        found = fields_of(base, records, self._names)
        return [
            Advertisement(
                text,
                ordered_fields(
                    text, source, found.get(text, ()), max_line_bytes=self._max_line_bytes
                ),
            )
            for text in texts
        ]


def _grouped(claims: Sequence[Advertisement], source: str) -> GroupedFacts:
    """Return the facts of claims, grouped for the engine."""
    made = GroupedFacts()
    if claims:
        made[_ADVERTISED] = [value for claim in claims for value in (claim.record, source)]
    fields = [
        value
        for claim in claims
        for field in claim.fields
        for value in (claim.record, source, *field)
    ]
    if fields:
        made[PredicateKey(_ADVERTISED_FIELD, 5)] = fields
    return made


# -- Who answers a machine's questions about a store, whatever store it is.


class ExchangeEvaluator(Protocol):
    """The evaluator of one epoch."""

    @property
    def position(self) -> tuple[int, int]:
        """The last record and removal of the store that the last answer covers."""
        ...

    @property
    def is_resting(self) -> bool:
        """Whether the state is the saved one."""
        ...

    def evaluate(self, effect: Evaluate) -> EvaluationDone:
        """Return what may be sent and requested now."""
        ...

    def describe(self, effect: Describe) -> Described:
        """Return the advertisements of records."""
        ...

    def claims(self) -> ClaimTable | None:
        """Return the peer's claims for saving."""
        ...

    def state(self) -> str | None:
        """Return the fingerprint of the state of the last answer; None if it has none."""
        ...

    def release(self) -> None:
        """Free the results of the peer's rules; called in any thread, between evaluations."""
        ...


class EvaluatorMaker(Protocol):
    """Makes an evaluator; its arguments are those of `StoreEvaluator`."""

    def __call__(
        self,
        store: ExchangeStore,
        executable: Executable,
        terms: Terms,
        *,
        transport: str,
        encrypted: bool,
        max_value_bytes: int,
        max_line_bytes: int | None,
        known: Known | None = None,
        supervisor: Supervisor | None = None,
    ) -> ExchangeEvaluator:
        """Return the evaluator of an epoch."""
        ...
