"""How many threads of this process compute at once: those of many links take turns.

The interpreter runs one thread at a time. Each of the others that could run wakes up two
hundred times a second to ask for its turn, so that two hundred of them spend more on asking
than on work. Here they wait without waking. Whoever waits for something else meanwhile, as
for the write lock, lends its slot to others; and whoever computes for long keeps nobody
waiting, but shares the interpreter with the next one.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONG_SECONDS", "MOST_AT_WORK", "at_work", "slot_lent"]

MOST_AT_WORK: Final = 4
"""Threads that compute at once: one runs, and others are in the database or ready to follow."""
LONG_SECONDS: Final = 0.25
"""How long a slot is held; who goes on for longer has none any more, and is not stopped."""


class _Slots:
    """Who holds a slot, by thread, and since when; those who have held it longest come first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._since: dict[int, float] = {}

    def take(self) -> None:
        """Wait for a slot, and hold it."""
        with self._changed:
            while len(self._since) >= MOST_AT_WORK:
                longest = next(iter(self._since))
                left = self._since[longest] + LONG_SECONDS - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                else:
                    del self._since[longest]
            self._since[threading.get_ident()] = time.monotonic()

    def give(self) -> None:
        """Give back the slot of this thread, unless it was held for long."""
        with self._changed:
            if self._since.pop(threading.get_ident(), None) is not None:
                self._changed.notify()


_slots = _Slots()
_own = threading.local()


@contextmanager
def at_work() -> Iterator[None]:
    """Hold a slot inside the `with` block; wait for one first."""
    _slots.take()
    _own.has_slot = True
    try:
        yield
    finally:
        _own.has_slot = False
        _slots.give()


@contextmanager
def slot_lent() -> Iterator[None]:
    """Leave the slot of this thread, if it holds one, to others inside the `with` block."""
    if not getattr(_own, "has_slot", False):
        yield
        return
    _slots.give()
    try:
        yield
    finally:
        _slots.take()
