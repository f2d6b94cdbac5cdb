"""What observers see of a link: events and status; and what they ask of it (050-207).

Nobody else hears of it: these are no facts, and no peer sees them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.exchange import events as happened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.exchange.effects import Effect
    from lace.exchange.events import Event
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Counters, Outcome
    from lace.exchange.transitions import State
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.record.validate import ValidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A record that came and is stored; a Blob has no coordinate."""

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
    """The link is at something else: setup, hello, advertise, request, transfer or waiting."""

    phase: str


@dataclass(frozen=True, slots=True)
class RecordsStored:
    """Records came and are stored: they stay, whatever becomes of the link."""

    records: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of an open exchange has ended, at a fixed point or at the limit of loops."""

    outcome: Outcome

    @property
    def at_fixed_point(self) -> bool:
        """Whether nothing more was to be had."""
        return self.outcome.at_fixed_point


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """The link has ended; nothing comes after this."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """Events that were not looked at in time, and are forgotten.

    Each record of a `RecordsStored` counts as one; `records` says how many of them those were.
    """

    count: int
    records: int = 0


LinkEvent: TypeAlias = (
    LinkAgreed | PhaseBegan | RecordsStored | RoundEnded | LinkEnded | EventsMissed
)


def arrival_of(record: ValidRecord) -> Arrival:
    """Return what is told of a record that is stored."""
    return Arrival(
        id=record.hash_text,
        size=len(record.bytes),
        group=record.group,
        app=record.app,
        name=record.name,
        tai=record.tai,
        signed_by=record.signed_by,
    )


# -- The status of an exchange, for observers.


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The status of an exchange at a moment, for observers.

    Attributes:
        state: what it is at.
        waited: for how many seconds the peer has been waited for; None when it is not.
        timeout: for how many it is.
        received: the bytes that have come.
        sent: the bytes that were sent.
        counters: what was counted.
        records_received: the records that have come, valid or not.
        records_sent: the records that were sent.
        rejected: those that were rejected, up to the end of the last round.
        validating: how many groups of records wait for their validation.
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


# -- What a party tells its observer, and how a link announces it in the event loop (050-207).


class PartyObserver:
    """Observes a party, in the party's thread; a subclass overrides what it is interested in."""

    def agreed(self, terms: Terms) -> None:
        """Take the terms that both sides have agreed on, once for each epoch."""

    def round_ended(self, outcome: Outcome) -> None:
        """Take the outcome of a round of an open exchange."""

    def stored(self, records: Sequence[ValidRecord]) -> None:
        """Take records that came and are stored."""

    def done(self, effect: Effect, answer: Event | None) -> None:
        """Take an effect that was carried out, with its answer; a batch again when it is sent."""


class Announcer(PartyObserver):
    """Announces what happens on a link in the event loop, in order; made in that loop.

    Args:
        hear: hears of all events.
        agreed: hears of the terms that both sides have agreed on, once for each epoch.
        notes: take note of effects, in the party's thread.
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
        """Announce the phase that the party is in, if it is another than before."""
        if phase != self._phase:
            self._phase = phase
            if phase is not None:
                self.tell(PhaseBegan(phase))

    def agreed(self, terms: Terms) -> None:
        """Announce the terms that both sides have agreed on."""
        if self._agreed is not None:
            self._loop.call_soon_threadsafe(self._agreed, terms)
        self.tell(LinkAgreed(terms.plan_id, terms.peer.verifier, terms.link_id))

    def round_ended(self, outcome: Outcome) -> None:
        """Announce the end of a round."""
        self.tell(RoundEnded(outcome))

    def stored(self, records: Sequence[ValidRecord]) -> None:
        """Announce records that came and are stored."""
        if self._hear is not None:
            self.tell(RecordsStored(tuple(map(arrival_of, records))))

    def done(self, effect: Effect, answer: Event | None) -> None:
        """Take note of an effect that was carried out."""
        for note in self._notes:
            note(effect, answer)


# -- What the caller wants of a running side: to end, or to go on with another policy.

ROUND_SECONDS: Final = 5.0
"""How long a round may go on once this side is to end; then it ends with its phase."""
PHASE_SECONDS: Final = 15.0
"""How long that phase may go on: a peer that stretches it does not keep this side running."""
_ROUND: Final = frozenset({"advertise", "request", "transfer"})
"""The phases of a round; one that has begun is finished before this side ends by its own wish."""


class Wishes:
    """The wishes that were not granted yet, and when each may be."""

    def __init__(self) -> None:
        self._stop_after: float | None = None
        self._last_phase: str | None = None
        self._renewal: happened.Renewed | None = None

    def stop(self) -> None:
        """Wish for an end: with the round under way or, if that takes long, with a phase."""
        if self._stop_after is None:
            self._stop_after = time.monotonic() + ROUND_SECONDS

    @property
    def is_stopping(self) -> bool:
        """Whether an end is wished for."""
        return self._stop_after is not None

    def renew(self, operand: Operand, exposures: tuple[Exposure, ...]) -> None:
        """Wish for another policy."""
        self._renewal = happened.Renewed(operand, exposures)

    def take(self, phase: str | None) -> happened.Renewed | happened.Stopped | None:
        """Return what is to happen now, in this phase; None when there is nothing to do yet."""
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
