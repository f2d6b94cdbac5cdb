"""A machine that tells which records were sent: what it wants to be sent is more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.interlacing.events import BatchSent
from lace.interlacing.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.base.tai import Tai
    from lace.interlacing.effects import Effect
    from lace.interlacing.events import Event
    from lace.interlacing.machine import MachineConfig

__all__ = ["TellingMachine"]


class TellingMachine(Machine):
    """A machine that tells of each batch what was sent in it, once it is.

    Args:
        config: as for any machine.
        hear: hears of the records.
    """

    def __init__(self, config: MachineConfig, hear: Callable[[Sequence[str]], None]) -> None:
        super().__init__(config)
        self._hear = hear

    def receive(self, event: Event, now: Tai) -> list[Effect]:
        """Take an event; returns what is to be done, in order."""
        if isinstance(event, BatchSent) and not self.is_closed:
            self._hear(event.sent)
        return super().receive(event, now)
