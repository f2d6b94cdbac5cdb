"""Events, status and observers of a link, dry runs among them; and requests to it (050-207).

They are local: no facts are made of them, and no peer sees them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.blocks import Phase, check_block, is_only_tick
from lace.exchange.failures import InterlaceFailure
from lace.exchange.transitions import State
from lace.link.messages import BlockMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lace.exchange.advertisement import Field
    from lace.exchange.effects import Effect
    from lace.exchange.events import Event
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Counters, Outcome
    from lace.facts.lines import Fact
    from lace.link.messages import Message
    from lace.link.party import Party
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.record.validate import ValidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A received record that is stored; a Blob has no coordinate."""

    id: str
    size: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None
    signed_by: str | None = None

    @property
    def coordinate(self) -> str:
        """The coordinate's text; empty for a Blob."""
        return f"//{self.group}//{self.app}//{self.name}" if self.group is not None else ""


@dataclass(frozen=True, slots=True)
class LinkAgreed:
    """Both sides agree on a plan, in the beginning and in each later epoch."""

    plan_id: str
    peer_verifier: str | None
    link_id: str | None


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """The link is in another phase: setup, hello, advertise, request, transfer or waiting."""

    phase: str


@dataclass(frozen=True, slots=True)
class RecordsStored:
    """Received records are stored; they stay however the link ends."""

    records: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of an open exchange has ended, at a fixed point or at the limit of loops."""

    outcome: Outcome

    @property
    def at_fixed_point(self) -> bool:
        """Whether it ended at a fixed point."""
        return self.outcome.at_fixed_point


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """The link has ended; nothing comes after this."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """Events that were dropped because they were not read in time.

    Each record of a `RecordsStored` counts as one event; `records` is the number of those.
    """

    count: int
    records: int = 0


LinkEvent: TypeAlias = (
    LinkAgreed | PhaseBegan | RecordsStored | RoundEnded | LinkEnded | EventsMissed
)


def arrival_of(record: ValidRecord) -> Arrival:
    """Return the `Arrival` of a stored record."""
    return Arrival(
        id=record.hash_text,
        size=len(record.bytes),
        group=record.group,
        app=record.app,
        name=record.name,
        tai=record.tai,
        signed_by=record.signed_by,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The status of an exchange at a moment.

    Attributes:
        state: the state of its machine.
        waited: for how many seconds it has waited for the peer; None when it does not.
        timeout: the phase timeout in seconds.
        received: bytes received.
        sent: bytes sent.
        counters: the counters of the outcome so far.
        records_received: records received, valid or not.
        records_sent: records sent.
        rejected: records rejected up to the end of the last round.
        validating: batches that wait for their validation.
    """

    state: State
    waited: float | None
    timeout: int
    received: int
    sent: int
    counters: Counters
    records_received: int
    records_sent: int
    rejected: int
    validating: int


# -- Observers of a party: in its thread, and announced in the event loop (050-207).


class PartyObserver:
    """Observes a party, in the party's thread; subclasses override what they need."""

    def agreed(self, terms: Terms) -> None:
        """Observe the terms of an epoch."""

    def round_ended(self, outcome: Outcome) -> None:
        """Observe the outcome of a round of an open exchange."""

    def stored(self, records: Sequence[ValidRecord]) -> None:
        """Observe received records that are stored."""

    def done(self, effect: Effect, answer: Event | None) -> None:
        """Observe an effect that was carried out and its answer; a batch again once it is sent."""


class Announcer(PartyObserver):
    """Announces the events of a link in the event loop that it is made in, in order.

    `hear` gets all events and `agreed` the terms of each epoch; `notes` get each effect, in the
    party's thread.
    """

    def __init__(
        self,
        hear: Callable[[LinkEvent], None] | None = None,
        agreed: Callable[[Terms], None] | None = None,
        notes: Sequence[Callable[[Effect, Event | None], None]] = (),
    ) -> None:
        self._hear, self._agreed, self._notes = hear, agreed, notes
        self._loop = asyncio.get_running_loop()
        self._phase: str | None = None

    def tell(self, event: LinkEvent) -> None:
        """Announce an event."""
        if self._hear is not None:
            self._loop.call_soon_threadsafe(self._hear, event)

    def tell_phase(self, phase: str | None) -> None:
        """Announce the phase of the party, if it is a new one."""
        if phase != self._phase:
            self._phase = phase
            if phase is not None:
                self.tell(PhaseBegan(phase))

    def agreed(self, terms: Terms) -> None:
        """Announce the terms of an epoch."""
        if self._agreed is not None:
            self._loop.call_soon_threadsafe(self._agreed, terms)
        self.tell(LinkAgreed(terms.plan_id, terms.peer.verifier, terms.link_id))

    def round_ended(self, outcome: Outcome) -> None:
        """Announce the end of a round."""
        self.tell(RoundEnded(outcome))

    def stored(self, records: Sequence[ValidRecord]) -> None:
        """Announce received records that are stored."""
        if self._hear is not None:
            self.tell(RecordsStored(tuple(map(arrival_of, records))))

    def done(self, effect: Effect, answer: Event | None) -> None:
        """Pass an effect on."""
        for note in self._notes:
            note(effect, answer)


# -- Dry runs, in which nothing moves; and the claims and requests of a peer.
#
# The peer cannot tell a dry run from an exchange that is broken off. It learns what is advertised:
# its rules have run over the view that is exposed to it.


class DryRun:
    """What an exchange would move, and what the peer learns."""

    def __init__(self) -> None:
        self._may_send: set[str] = set()
        self._named: set[str] = set()
        self._requests: tuple[str, ...] | None = None
        self._their_requests: tuple[str, ...] | None = None
        self.pending = 0
        """The number of records that would be requested, in this list and later ones."""

    @property
    def is_complete(self) -> bool:
        """Whether both request lists are known."""
        return self._requests is not None and self._their_requests is not None

    @property
    def is_held(self) -> bool:
        """Whether this side's request list was made and held back."""
        return self._requests is not None

    @property
    def would_request(self) -> list[str]:
        """The records that this side would request first."""
        return sorted(self._requests or ())

    @property
    def would_send(self) -> list[str]:
        """The records that the peer requests first."""
        return sorted(self._their_requests or ())

    @property
    def may_send(self) -> list[str]:
        """The records that may be sent: the peer knows them, if only by a digest of all."""
        return sorted(self._may_send)

    @property
    def named(self) -> list[str]:
        """Those of them that were advertised to the peer by name."""
        return sorted(self._named)

    def note(self, effect: Effect, answer: Event | None) -> None:
        """Note an effect that the party has carried out."""
        match effect, answer:
            case wanted.SendBlock(facts), _:
                self._named.update(_records(facts, "Advertised"))
            case wanted.Evaluate(), happened.EvaluationDone():
                if answer.kept is not None:
                    self._may_send.update(answer.kept)
                self._may_send.update(each.record for each in answer.come)
                self._may_send.difference_update(answer.gone)
                self.pending = answer.pending

    def take(self, party: Party, event: Event) -> None:
        """Give a party an event, in its thread, and hold its request list back.

        The peer's request list completes the run, and ends it. A TickReady alone is not one: the
        machine takes it (G54d).
        """
        match event:
            case happened.BlockReceived(facts) if self.is_held and not is_only_tick(facts):
                self._end(party, facts)
                return
        party.take(event)
        # In the party's thread: the list was not gathered for sending yet.
        if party.machine.state is State.REQUESTING and not self.is_held:
            self.hold(party.take_back())

    def _end(self, party: Party, facts: tuple[Fact, ...]) -> None:
        try:
            self.take_theirs(facts)
        except InterlaceFailure as failure:
            party.fail(failure)
        else:
            party.take(happened.Stopped())

    def hold(self, last: Message) -> None:
        """Take this side's request list, which is not sent."""
        if not isinstance(last, BlockMessage):
            raise AssertionError("a request list is a block")
        self._requests = tuple(_records(last.effect.facts, "MayRequest"))

    def take_theirs(self, facts: tuple[Fact, ...]) -> None:
        """Take the peer's request list."""
        self._their_requests = tuple(_records(check_block(facts, Phase.REQUEST), "MayRequest"))


def _records(facts: Iterable[Fact], predicate: str) -> list[str]:
    return [fact[1] for fact in facts if fact[0] == predicate]


class Claims:
    """Collects advertisements and requests, of a link that saves no cursors.

    It holds no more than the link, whose limits bound what a peer may claim.
    """

    def __init__(self) -> None:
        self.claimed: dict[str, tuple[Field, ...]] = {}
        """The records that the peer advertises, with their fields; without those that are here."""
        self.may_send: set[str] = set()
        """The records that both policies let this side send."""
        self.asked: set[str] = set()
        """The records that the peer requested."""
        self.sent: set[str] = set()
        """The requested records that were sent."""

    def note(self, effect: Effect, answer: Event | None) -> None:
        """Note an effect that the party has carried out."""
        match effect, answer:
            case wanted.Agree(), _:
                self.may_send.clear()
                if effect.known is None:
                    self.claimed.clear()
            case wanted.Evaluate(), happened.EvaluationDone():
                for record in effect.removed:
                    self.claimed.pop(record, None)
                self.claimed.update((each.record, each.fields) for each in effect.added)
                self.claimed.update((record, ()) for record in effect.relabelled)
                self.may_send.update(each.record for each in answer.come)
                self.may_send.difference_update(answer.gone)
            case wanted.SendBatch(), happened.BatchSent():
                self.sent.update(answer.sent)
            case wanted.SendBatch(), _:
                self.asked.update(effect.records, effect.unavailable)


# -- Requests to a running link: to end, or to use another policy.

ROUND_SECONDS: Final = 5.0
"""How long a round may go on after a stop; then the link ends with the phase."""
PHASE_SECONDS: Final = 15.0
"""How long that phase may go on: a peer that stretches it does not keep the link running."""
_ROUND: Final = frozenset({"advertise", "request", "transfer"})
"""The phases of a round; a round that has begun is finished before a stop."""


class LinkControl:
    """The requests that are pending, and when each may be acted on."""

    def __init__(self) -> None:
        self._stop_after: float | None = None
        self._last_phase: str | None = None
        self._renewal: happened.Renewed | None = None

    def stop(self) -> None:
        """Request an end, after the running round or, if that takes long, after a phase."""
        if self._stop_after is None:
            self._stop_after = time.monotonic() + ROUND_SECONDS

    @property
    def is_stopping(self) -> bool:
        """Whether an end is requested."""
        return self._stop_after is not None

    def renew(self, operand: Operand, exposures: tuple[Exposure, ...]) -> None:
        """Request another policy."""
        self._renewal = happened.Renewed(operand, exposures)

    def take(self, phase: str | None) -> happened.Renewed | happened.Stopped | None:
        """Return the event to take in this phase; None while no request can be acted on."""
        if self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            return renewal
        if self._stop_after is None:
            return None
        late = time.monotonic() - self._stop_after
        is_same = self._last_phase in (None, phase)
        if phase in _ROUND and (late < 0 or (is_same and late < PHASE_SECONDS)):
            self._last_phase = phase
            return None
        return happened.Stopped()
