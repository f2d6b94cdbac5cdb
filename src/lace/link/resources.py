"""Resources that the links of one server share: processor, memory for evaluations, intake load.

A server has one `Resources` for all its links; a link without a server has its own. Nothing in it
is global to the process, and every part may be used from any thread.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from lace.engine.budget import EvaluationCancelled
from lace.errors import LimitExceeded
from lace.link.intake import IntakeLoad
from lace.store.cpu_slots import Worker, offer_slot, slot_lent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from lace.base.limits import Settings
    from lace.link.evaluator import ExchangeEvaluator


# -- The memory pool of evaluations of peers' rules, for all links of a server.
#
# A third of the pool is divided into equal shares, and the rest goes to one evaluation at a time.
# An evaluation begins when it has a share; when it needs more, it gets the rest as well. The holder
# of the rest never waits, so no evaluation waits forever, and all together never hold more than the
# pool. Waiting evaluations take turns by group, such as the address of a peer, however many links
# a group has; a group has half of the shares at most.
#
# A link keeps the state of its evaluation for the next one, and its share with it. The state is
# dropped when others need the memory while that link does not evaluate.

SHARES: Final = 32
"""Evaluations that may run at once, each within its share."""
_SMALL_PART: Final = 3
"""The shares together are the pool divided by this."""
_MAX_GROUPS: Final = 1_000
"""Groups whose last turn is remembered."""
_LOOK_SECONDS: Final = 0.1
"""How often a waiting member checks whether it is cancelled."""


class PoolMember:
    """The evaluations of one link, which run one after the other, in one thread."""

    def __init__(
        self,
        pool: MemoryPool,
        group: str,
        check: Callable[[], None],
        drop: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self.group = group
        self.check = check
        self.drop = drop
        """Frees the state between evaluations; called in any thread, but never during one."""
        self.has_share = self.has_rest = self.is_evaluating = False
        self.may_go = threading.Event()
        """Set when it has what it waits for."""

    def belong_to(self, group: str) -> None:
        """Take turns with another group from now on."""
        with self._pool.guard:
            self.group = group
            self._pool.hand_out()

    def begin(self, *, wait: bool = True) -> bool:
        """Begin an evaluation with a share, waiting for one unless told not to.

        Returns:
            Whether it has a share; False only without waiting.
        """
        pool = self._pool
        with pool.guard:
            if self.has_share:
                self.is_evaluating = True
                return True
            if not wait and pool.for_share:
                return False
            pool.queue(pool.for_share, self)
            if not wait:
                pool.leave_queue(pool.for_share, self)
                return self.has_share
        pool.wait(pool.for_share, self)
        return True

    def has_room(self, total_bytes: int) -> bool:
        """Return whether this many bytes can be held without waiting for others."""
        return self.has_rest or total_bytes <= self._pool.share_bytes

    def hold(self, total_bytes: int) -> None:
        """Hold this many bytes from now on, waiting for the rest if they exceed a share."""
        pool = self._pool
        if not self.has_room(total_bytes):
            with pool.guard:
                pool.queue(pool.for_rest, self)
            pool.wait(pool.for_rest, self)
        if total_bytes > pool.share_bytes + pool.rest_bytes:
            raise LimitExceeded(
                f"an evaluation of a peer's rules would hold {total_bytes:,} bytes",
                limit="peer_memory_pool",
                allowed=pool.total_bytes,
                observed=total_bytes,
                rule="X3",
            )

    def end(self, total_bytes: int) -> None:
        """End an evaluation, and keep this many bytes."""
        pool = self._pool
        with pool.guard:
            self.is_evaluating = False
            if total_bytes <= pool.share_bytes:
                pool.give_rest(self)
            if not total_bytes:
                pool.give_share(self)
            pool.hand_out()

    def leave(self) -> None:
        """Give everything back."""
        self.end(0)


class MemoryPool:
    """Who holds a share, who holds the rest, and who waits for either."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.share_bytes = total_bytes // _SMALL_PART // SHARES
        self.rest_bytes = total_bytes - SHARES * self.share_bytes
        self.guard = threading.RLock()
        self.for_share: list[PoolMember] = []
        self.for_rest: list[PoolMember] = []
        self._shares: list[PoolMember] = []
        self._rest: PoolMember | None = None
        self._served: dict[str, int] = {}
        self._turns = 0

    @property
    def holders(self) -> tuple[int, int]:
        """The number of members that hold a share, and of those that hold the rest."""
        with self.guard:
            return len(self._shares), int(self._rest is not None)

    def queue(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Add a member to a queue; it may have its turn at once."""
        member.may_go.clear()
        queue.append(member)
        self.hand_out()

    def leave_queue(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Remove a member that still waits from a queue."""
        if member in queue:
            queue.remove(member)

    def wait(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Wait until a member of a queue has had its turn."""
        try:
            while not member.may_go.wait(_LOOK_SECONDS):
                member.check()
        except BaseException:
            with self.guard:
                self.leave_queue(queue, member)
                if member.may_go.is_set():  # it had its turn meanwhile
                    if queue is self.for_rest:
                        self.give_rest(member)
                    else:
                        member.is_evaluating = False
                        self.give_share(member)
                self.hand_out()
            raise

    def hand_out(self) -> None:
        """Serve waiting members, and drop the state of idle ones for them."""
        while self._serve_share() or self._serve_rest():
            pass

    def _serve_share(self) -> bool:
        """Give a share to the member whose turn it is, and return whether there was one."""
        if not self.for_share:
            return False
        counts = Counter(each.group for each in self._shares)
        idle = {each.group for each in self._shares if not each.is_evaluating}
        if len(self._shares) >= SHARES and not idle:
            return False
        full = {group for group, count in counts.items() if count >= SHARES // 2}
        member = self._find_next(self.for_share, full - idle)
        if member is None:
            return False
        if member.group in full:
            self._drop_one([each for each in self._shares if each.group == member.group])
        elif len(self._shares) >= SHARES:
            self._drop_one(self._shares)
        self._shares.append(member)
        member.has_share = member.is_evaluating = True
        self._serve(self.for_share, member)
        return True

    def _serve_rest(self) -> bool:
        """Give the rest to the member whose turn it is, and return whether it was free."""
        member = self._find_next(self.for_rest, frozenset())
        if member is None or (self._rest is not None and self._rest.is_evaluating):
            return False
        if self._rest is not None:
            self._drop_one([self._rest])
        self._rest, member.has_rest = member, True
        self._serve(self.for_rest, member)
        return True

    def _find_next(self, queue: list[PoolMember], full: AbstractSet[str]) -> PoolMember | None:
        """Return the next member: the first of the group that was served longest ago."""
        able = (each for each in queue if each.group not in full)
        return min(able, key=lambda each: self._served.get(each.group, 0), default=None)

    def _serve(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Note that a member has had its turn, and wake it up."""
        queue.remove(member)
        self._turns += 1
        self._served.pop(member.group, None)
        self._served[member.group] = self._turns
        if len(self._served) > _MAX_GROUPS:
            del self._served[next(iter(self._served))]
        member.may_go.set()

    def _drop_one(self, among: list[PoolMember]) -> None:
        """Drop the state of the member that has been idle for longest."""
        for each in among:
            if not each.is_evaluating:
                each.drop()
                self.give_rest(each)
                self.give_share(each)
                return

    def give_rest(self, member: PoolMember) -> None:
        """Take the rest back from a member, if it has it."""
        if self._rest is member:
            self._rest, member.has_rest = None, False

    def give_share(self, member: PoolMember) -> None:
        """Take the share back from a member, if it has one."""
        if member.has_share:
            self._shares.remove(member)
            member.has_share = False


class Resources:
    """The load of intakes, and the memory of evaluations of peers' rules."""

    def __init__(self, settings: Settings) -> None:
        self.intake_load = IntakeLoad()
        self.memory = MemoryPool(settings.peer_memory_pool)


# -- Supervision of the evaluations of a link: cancellation, turns, and memory.


class CancelReason(Enum):
    """Why the evaluations of a link are cancelled."""

    PEER_LEFT = "the peer has left"
    STOPPED = "this side was stopped"


class LinkSupervisor:
    """The `Supervisor` of all evaluations of one link.

    Attributes:
        worker: the user of the processor.
        reason: why its evaluations are cancelled; None while they are not.
    """

    def __init__(self, pool: MemoryPool, group: str = "") -> None:
        self.worker = Worker(group)
        self.reason: CancelReason | None = None
        self._member = PoolMember(pool, group, self._check_cancelled, self._drop)
        self._evaluator: ExchangeEvaluator | None = None
        self._held = 0
        self._since: float | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the running evaluation and all later ones; any thread may call it."""
        if self.reason is None:
            self.reason = reason

    @property
    def seconds(self) -> float | None:
        """The seconds since the running evaluation began; None without one."""
        since = self._since
        return None if since is None else time.monotonic() - since

    def belong_to(self, group: str) -> None:
        """Take turns with another group from now on."""
        self.worker.group = group
        self._member.belong_to(group)

    def watch(self, evaluator: ExchangeEvaluator) -> None:
        """Free what this evaluator keeps between two evaluations when others need the memory."""
        self._evaluator = evaluator

    def _drop(self) -> None:
        self._held = 0
        if (evaluator := self._evaluator) is not None:
            evaluator.release()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluate inside the `with` block."""
        self._since = time.monotonic()
        try:
            self._check_cancelled()
            try:
                if not self._member.begin(wait=False):
                    with slot_lent(self._check_cancelled):
                        self._member.begin()
                yield
            finally:
                self._member.end(self._held)
        finally:
            self._since = None

    def check(self) -> None:
        """Raise if cancelled, and offer the processor to others from time to time."""
        self._check_cancelled()
        if offer_slot(self._check_cancelled):
            self._check_cancelled()

    def hold(self, total_bytes: int) -> None:
        """Take memory from the pool, or give it back."""
        if self._member.has_room(total_bytes):
            self._member.hold(total_bytes)
        else:
            with slot_lent(self._check_cancelled):
                self._member.hold(total_bytes)
        self._held = total_bytes

    def close(self) -> None:
        """Give all memory back at the end of the link."""
        self._held = 0
        self._member.leave()
        self._evaluator = None

    def _check_cancelled(self) -> None:
        if self.reason is not None:
            raise EvaluationCancelled(f"the evaluation was cancelled: {self.reason.value}")


# -- Garbage collection and memory while records move.
#
# An exchange makes millions of small values without cycles and keeps many of them for a while. To
# scan all of them again and again takes a fifth of the time and finds nothing, so garbage is
# collected less often while an exchange runs.

_RARELY: Final = (250_000, 50, 100)
"""The thresholds of `gc.set_threshold` while an exchange runs."""


_M_ARENA_MAX: Final = -8
"""The parameter M_ARENA_MAX of `mallopt` in glibc."""

_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds before each running block; the last block to end restores the first."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage less often until the end of the block.

    Blocks of several threads may overlap: the last one to end restores the thresholds.
    """
    with _lock:
        before = gc.get_threshold()
        _before.append(before)
        if before[0] and before[0] < _RARELY[0]:  # a program that turned it off keeps that
            gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before:
                gc.set_threshold(*first)


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library can.

    The arrays of a batch have very different sizes, and the holes that they leave rarely fit the
    next ones.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def keep_one_arena() -> None:
    """Let all threads allocate from one arena, where the C library can.

    Otherwise the database allocates from the arena of its thread while records are inserted in
    another, and holes in one are of no use to the other. It is for programs that are only Lace, and
    to be called before there are threads.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
