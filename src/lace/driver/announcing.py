"""Telling the observer of a link what happens on it, in the event loop and in order (050-207)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.driver.happenings import (
    LinkAgreed,
    LinkEvent,
    PhaseBegan,
    RecordsStored,
    RoundEnded,
    arrival_of,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from lace.driver.party import Party
    from lace.interlacing.negotiation import Terms
    from lace.record.validate import ValidRecord

__all__ = ["Announcer"]


class Announcer:
    """Tells what a party does, from whichever thread, to those who listen in the event loop.

    Args:
        party: the party, not started.
    """

    def __init__(self, party: Party) -> None:
        self._party = party
        self._loop: asyncio.AbstractEventLoop | None = None
        self._phase: str | None = None
        self.agreed: Callable[[Terms], None] | None = None
        """Hears of what both sides have agreed on; once for each epoch."""
        self.hear: Callable[[LinkEvent], None] | None = None
        """Hears of all that happens."""
        party.agreed = self._tell_agreed
        party.reporter = lambda outcome: self.tell(RoundEnded(outcome))
        party.tell_stored(self._tell_stored)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell in this event loop from now on."""
        self._loop = loop

    def tell(self, what: LinkEvent) -> None:
        """Tell the listener."""
        if self.hear is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self.hear, what)

    def tell_phase(self) -> None:
        """Report the phase that the party is in, if it is another than before."""
        phase = self._party.machine.state.phase
        if phase != self._phase:
            self._phase = phase
            if phase is not None:
                self.tell(PhaseBegan(phase))

    def _tell_agreed(self, terms: Terms) -> None:
        if self.agreed is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self.agreed, terms)
        self.tell(LinkAgreed(terms.plan_id, terms.peer.verifier, terms.link_id))

    def _tell_stored(self, records: Sequence[ValidRecord]) -> None:
        if self.hear is not None:
            self.tell(RecordsStored(tuple(map(arrival_of, records))))
