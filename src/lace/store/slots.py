"""How many threads of this process compute at once: those of many links take turns.

The interpreter runs one thread at a time. Each of the others that could run wakes up two
hundred times a second to ask for its turn, so that two hundred of them spend more on asking
than on work. Here they wait without waking. A thread that waits for something else, as
for the write lock, lends its slot to others; and a thread that computes for long keeps nobody
waiting, but shares the interpreter with the next one.

Work is long if it is known to be, or if its worker has computed for longer than others lately.
Long work waits for its turn after short work, but not for longer than `AGED_SECONDS`: from then
on it waits as short work does. Few threads do long work at once, and an evaluation offers its slot
to others from time to time (`offer_slot`). Turns go round between the groups that those who wait
belong to, whatever number of them a group has.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LONG_SECONDS", "MOST_AT_WORK", "Worker", "at_work", "offer_slot", "slot_lent"]

MOST_AT_WORK: Final = 4
"""Threads that compute at once: one runs, and others are in the database or ready to follow."""
MAX_LONG: Final = max(1, min(2, (os.cpu_count() or 1) // 2))
"""Those of them that do long work; such a thread counts until its work ends or is offered."""
LONG_SECONDS: Final = 0.25
"""How long a slot is held; who goes on for longer has none any more, and is not stopped."""
AGED_SECONDS: Final = 0.5
"""How long long work waits after short work."""
_LOOK_SECONDS: Final = 0.25
"""How often a thread that waits looks whether a slot was held for long, and whether to give up."""
TURN_SECONDS: Final = 0.05
"""How long an evaluation computes before it offers its slot to others."""
FREE_SECONDS: Final = 0.1
"""Processor time that a worker has before its work is long."""
_MANY_GROUPS: Final = 1_000
"""Groups whose last turn is remembered."""
_FORGET_SECONDS: Final = 1.0
"""After this time half of what a worker has used counts no more."""


class Worker:
    """A user of the processor, such as one link: what it has used, and its group.

    Args:
        group: those who share turns with it, as all links of one address.
    """

    __slots__ = ("_at", "_used", "group")

    def __init__(self, group: str = "") -> None:
        self.group = group
        self._used = 0.0
        self._at = time.monotonic()

    def use(self, seconds: float) -> None:
        """Count processor time."""
        now = time.monotonic()
        self._used *= 0.5 ** ((now - self._at) / _FORGET_SECONDS)
        self._used += seconds
        self._at = now

    @property
    def is_long(self) -> bool:
        """Whether it has used more than others get at once."""
        left: float = 0.5 ** ((time.monotonic() - self._at) / _FORGET_SECONDS)
        return self._used * left > FREE_SECONDS


def _go_on() -> None:
    """Wait on: nothing ends the wait."""


class _Waiter:
    """A thread that waits for a slot."""

    __slots__ = ("is_long", "may_go", "since", "thread", "worker")

    def __init__(self, worker: Worker, *, is_long: bool) -> None:
        self.thread = threading.get_ident()
        self.worker, self.is_long = worker, is_long
        self.since = time.monotonic()
        self.may_go = threading.Event()


class _Slots:
    """Who holds a slot, by thread, and since when; and who waits for one, in their order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._since: dict[int, float] = {}
        self._long: set[int] = set()
        self._waiting: list[_Waiter] = []
        self._served: dict[str, int] = {}
        self._turns = 0

    def take(
        self, worker: Worker, check: Callable[[], None] = _go_on, *, is_long: bool = False
    ) -> None:
        """Wait for a slot, and hold it; `check` is called meanwhile, and raises to give up."""
        waiter = _Waiter(worker, is_long=is_long)
        with self._guard:
            self._waiting.append(waiter)
            self._hand_out()
        try:
            while not waiter.may_go.wait(_LOOK_SECONDS):
                check()
                with self._guard:
                    self._hand_out()
        except BaseException:
            self._give_up(waiter)
            raise

    def give(self) -> float:
        """Give back the slot of this thread, unless it was held for long; tells for how long."""
        with self._guard:
            since = self._since.pop(threading.get_ident(), None)
            self._long.discard(threading.get_ident())
            self._hand_out()
        return LONG_SECONDS if since is None else time.monotonic() - since

    def held_for(self) -> float:
        """Return for how many seconds this thread has held its slot; many, if it was for long."""
        with self._guard:
            since = self._since.get(threading.get_ident())
        return LONG_SECONDS if since is None else time.monotonic() - since

    def _give_up(self, waiter: _Waiter) -> None:
        """Wait no more; give a slot back that was handed out meanwhile."""
        with self._guard:
            if waiter.may_go.is_set():
                self._since.pop(waiter.thread, None)
                self._long.discard(waiter.thread)
            else:
                self._waiting.remove(waiter)
            self._hand_out()

    @property
    def _is_free(self) -> bool:
        if len(self._since) < MOST_AT_WORK:
            return True
        longest = next(iter(self._since))
        if time.monotonic() - self._since[longest] < LONG_SECONDS:
            return False
        del self._since[longest]
        return True

    def _hand_out(self) -> None:
        """Give free slots to those who wait: the short ones and the aged ones first."""
        while self._waiting and self._is_free:
            waiter = self._next()
            if waiter is None:
                return
            self._waiting.remove(waiter)
            self._since[waiter.thread] = time.monotonic()
            if waiter.is_long:
                self._long.add(waiter.thread)
            self._turns += 1
            self._served.pop(waiter.worker.group, None)
            self._served[waiter.worker.group] = self._turns
            if len(self._served) > _MANY_GROUPS:
                del self._served[next(iter(self._served))]
            waiter.may_go.set()

    def _next(self) -> _Waiter | None:
        """Return who is next: of the group that was served longest ago, the first who came."""
        may_be_long = len(self._long) < MAX_LONG
        aged = time.monotonic() - AGED_SECONDS
        able = [
            waiter
            for waiter in self._waiting
            if not waiter.is_long or (may_be_long and waiter.since <= aged)
        ]
        if not able and may_be_long:
            able = self._waiting
        return min(able, key=lambda each: self._served.get(each.worker.group, 0), default=None)


_slots = _Slots()
_own = threading.local()


@contextmanager
def at_work(worker: Worker | None = None, *, is_long: bool = False) -> Iterator[None]:
    """Hold a slot inside the `with` block; wait for one first.

    Args:
        worker: who computes; its processor time is counted.
        is_long: whether the work is known to be long.
    """
    found = worker or Worker()
    _slots.take(found, is_long=is_long or found.is_long)
    _own.worker, _own.counted = found, time.thread_time()
    try:
        yield
    finally:
        _own.worker = None
        found.use(time.thread_time() - _own.counted)
        _slots.give()


@contextmanager
def slot_lent(check: Callable[[], None] = _go_on) -> Iterator[None]:
    """Leave the slot of this thread, if it holds one, to others inside the `with` block.

    Args:
        check: called while this thread waits to have it back; raises to go on without.
    """
    worker: Worker | None = getattr(_own, "worker", None)
    if worker is None:
        yield
        return
    _slots.give()
    try:
        yield
    finally:
        _slots.take(worker, check, is_long=worker.is_long)


def offer_slot(check: Callable[[], None] = _go_on) -> bool:
    """Let others compute, if this thread has a slot and its turn is over; called in evaluations.

    Args:
        check: called while this thread waits for its next turn; raises to go on without.

    Returns:
        Whether the turn was over, so that the time was counted.
    """
    worker: Worker | None = getattr(_own, "worker", None)
    if worker is None or _slots.held_for() < TURN_SECONDS:
        return False
    now = time.thread_time()
    worker.use(now - _own.counted)
    _own.counted = now
    if worker.is_long:
        _slots.give()
        _slots.take(worker, check, is_long=True)
    return True
