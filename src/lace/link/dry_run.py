"""Dry runs, in which nothing moves; and the claims and requests of a peer.

The peer cannot tell a dry run from an exchange that is broken off. It learns what is advertised:
its rules have run over the view that is exposed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.blocks import Phase, check_block, is_only_tick
from lace.exchange.failures import InterlaceFailure
from lace.exchange.transitions import State
from lace.link.bridge import BlockMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.exchange.advertisement import Field
    from lace.exchange.effects import Effect
    from lace.exchange.events import Event
    from lace.facts.lines import Fact
    from lace.link.bridge import Message
    from lace.link.party import Party


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


# -- The claims and requests of a peer during an exchange.


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
