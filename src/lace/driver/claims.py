"""What a peer claims to have, and what was asked of this side and sent, as an exchange goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.interlacing import effects as wanted
from lace.interlacing import events as happened

if TYPE_CHECKING:
    from lace.interlacing.advertisement import Field
    from lace.interlacing.effects import Effect
    from lace.interlacing.events import Event

__all__ = ["Claims"]


class Claims:
    """Takes note of advertisements and requests; they are of a link that keeps no cursors.

    It holds no more than the link does, whose limits say how much a peer may claim.
    """

    def __init__(self) -> None:
        self.claimed: dict[str, tuple[Field, ...]] = {}
        """What the peer says that it has, with the fields it says; none of those that are here."""
        self.may_send: set[str] = set()
        """What both policies let this side send."""
        self.asked: set[str] = set()
        """What the peer asked for."""
        self.sent: set[str] = set()
        """What of it was sent: a budget may end before it, and a record may be gone by then."""

    def note(self, effect: Effect, answer: Event | None) -> None:
        """Take note of what a party has done."""
        match effect, answer:
            case wanted.Agree(), _:
                self.may_send.clear()
                if effect.known is None:
                    self.claimed.clear()
            case wanted.Evaluate(), happened.Evaluated():
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
