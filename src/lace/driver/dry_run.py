"""A dry run: everything up to the request lists, and nothing moves.

The peer cannot tell it from an exchange that is broken off. What it learned is what was
advertised: its rules had run over the view that is exposed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.driver.messages import Block
from lace.interlacing import effects as wanted
from lace.interlacing import events as happened
from lace.interlacing.blocks import check_block, is_only_tick
from lace.interlacing.failures import InterlaceFailure
from lace.interlacing.transitions import State
from lace.interlacing.vocabulary import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.driver.messages import Message
    from lace.driver.party import Party
    from lace.facts.lines import Fact
    from lace.interlacing.effects import Effect
    from lace.interlacing.events import Event

__all__ = ["DryRun"]


class DryRun:
    """What would move, and what the peer has learned."""

    def __init__(self) -> None:
        self._may_send: set[str] = set()
        self._named: set[str] = set()
        self._requests: tuple[str, ...] | None = None
        self._their_requests: tuple[str, ...] | None = None
        self.pending = 0
        """How many records would be requested, in this list and later ones."""

    @property
    def is_complete(self) -> bool:
        """Whether both request lists are known."""
        return self._requests is not None and self._their_requests is not None

    @property
    def is_held(self) -> bool:
        """Whether this side's request list was made, and kept back."""
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
        """Those of them that were named to the peer now, with their advertised fields."""
        return sorted(self._named)

    def note(self, effect: Effect, answer: Event | None) -> None:
        """Take note of what a party has done."""
        match effect, answer:
            case wanted.SendBlock(facts), _:
                self._named.update(_records(facts, "Advertised"))
            case wanted.Evaluate(), happened.Evaluated():
                if answer.kept is not None:
                    self._may_send.update(answer.kept)
                self._may_send.update(each.record for each in answer.come)
                self._may_send.difference_update(answer.gone)
                self.pending = answer.pending

    def take(self, party: Party, event: Event) -> None:
        """Have a party take an event, in its thread; its request list is kept back.

        With the peer's request list all is known, and it ends. A TickReady alone is not one, and
        the machine's to judge (G54d).
        """
        match event:
            case happened.BlockReceived(facts) if self.is_held and not is_only_tick(facts):
                self._end(party, facts)
                return
        party.take(event)
        # Here, in the party's own thread, nobody has gathered the list for sending yet.
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
        if not isinstance(last, Block):
            raise AssertionError("a request list is a block")
        self._requests = tuple(_records(last.effect.facts, "MayRequest"))

    def take_theirs(self, facts: tuple[Fact, ...]) -> None:
        """Take the peer's request list.

        Raises:
            InterlaceFailure: it is not a request list.
        """
        self._their_requests = tuple(_records(check_block(facts, Phase.REQUEST), "MayRequest"))


def _records(facts: Iterable[Fact], predicate: str) -> list[str]:
    return [fact[1] for fact in facts if fact[0] == predicate]
