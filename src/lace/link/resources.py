"""What the links of one server share: processor, memory for evaluations, load of intakes.

A server owns one `Resources` and gives it to each of its links; a link without a server has its
own. Nothing of it is global to the process, and every part may be used from any thread.
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


# -- The memory that evaluations of peers' rules share, of all links of a server.
#
# A third of the pool is divided into equal shares, and the rest goes to one evaluation at a time.
# An evaluation begins when it has a share; when it needs more, it gets the rest as well. The holder
# of the rest never waits, so no evaluation waits forever, and all together never hold more than the
# pool. Waiting evaluations take turns by group, such as the address of a peer, whatever number of
# links a group has; a group has half of the shares at most.
#
# A link keeps what its evaluation has made for the next one, and its share with it. It is dropped
# when others need the memory while that link does not evaluate.

SHARES: Final = 32
"""Evaluations that may run at once, each within its share."""
_SMALL_PART: Final = 3
"""The shares together are this part of the pool."""
_MANY_GROUPS: Final = 1_000
"""Groups whose last turn is remembered."""
_LOOK_SECONDS: Final = 0.1
"""How often a member that waits looks whether it is to give up."""


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
        """Frees what is kept between evaluations; called in any thread, but never in one."""
        self.has_share = self.has_rest = self.is_evaluating = False
        self.may_go = threading.Event()
        """Set when it has what it waits for."""

    def belong_to(self, group: str) -> None:
        """Take turns with another group from now on."""
        self._pool.move(self, group)

    def begin(self, *, wait: bool = True) -> bool:
        """Begin an evaluation: wait for a share, unless this member has one.

        Returns:
            Whether it has one; False only for one that does not wait.
        """
        return self._pool.begin(self, wait=wait)

    def has_room(self, total_bytes: int) -> bool:
        """Tell whether this many bytes can be held without waiting for others."""
        return self.has_rest or total_bytes <= self._pool.share_bytes

    def hold(self, total_bytes: int) -> None:
        """Hold this many bytes from now on: wait for the rest if they are more than a share."""
        if not self.has_room(total_bytes):
            self._pool.take_rest(self)
        if total_bytes > self._pool.share_bytes + self._pool.rest_bytes:
            raise LimitExceeded(
                f"an evaluation of a peer's rules would hold {total_bytes:,} bytes",
                limit="peer_memory_pool",
                allowed=self._pool.total_bytes,
                observed=total_bytes,
                rule="X3",
            )

    def end(self, total_bytes: int) -> None:
        """End an evaluation that keeps this many bytes."""
        self._pool.end(self, total_bytes)

    def leave(self) -> None:
        """Give everything back: nothing is kept."""
        self._pool.leave(self)


class MemoryPool:
    """Who holds a share, who holds the rest, and who waits for either."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.share_bytes = total_bytes // _SMALL_PART // SHARES
        self.rest_bytes = total_bytes - SHARES * self.share_bytes
        self._guard = threading.RLock()
        self._shares: list[PoolMember] = []
        self._rest: PoolMember | None = None
        self._for_share: list[PoolMember] = []
        self._for_rest: list[PoolMember] = []
        self._served: dict[str, int] = {}
        self._turns = 0

    @property
    def holders(self) -> tuple[int, int]:
        """How many members hold a share, and how many the rest."""
        with self._guard:
            return len(self._shares), int(self._rest is not None)

    def move(self, member: PoolMember, group: str) -> None:
        """Move a member to another group; see `PoolMember.belong_to`."""
        with self._guard:
            member.group = group
            self._hand_out()

    def begin(self, member: PoolMember, *, wait: bool) -> bool:
        """Wait for a share, and hold it; see `PoolMember.begin`."""
        with self._guard:
            if member.has_share:
                member.is_evaluating = True
                return True
            if not wait and self._for_share:
                return False
            self._queue(self._for_share, member)
            if not wait:
                self._leave_queue(self._for_share, member)
                return member.has_share
        self._wait(self._for_share, member)
        return True

    def take_rest(self, member: PoolMember) -> None:
        """Wait for the rest, and hold it."""
        with self._guard:
            self._queue(self._for_rest, member)
        self._wait(self._for_rest, member)

    def end(self, member: PoolMember, total_bytes: int) -> None:
        """End an evaluation; see `PoolMember.end`."""
        with self._guard:
            member.is_evaluating = False
            if total_bytes <= self.share_bytes:
                self._give_rest(member)
            if not total_bytes:
                self._give_share(member)
            self._hand_out()

    def leave(self, member: PoolMember) -> None:
        """Give everything back; see `PoolMember.leave`."""
        with self._guard:
            member.is_evaluating = False
            self._give_rest(member)
            self._give_share(member)
            self._hand_out()

    def _queue(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Put a member into a queue; it may have its turn at once."""
        member.may_go.clear()
        queue.append(member)
        self._hand_out()

    def _leave_queue(self, queue: list[PoolMember], member: PoolMember) -> None:
        if member in queue:
            queue.remove(member)

    def _wait(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Wait until a member of a queue has had its turn."""
        try:
            while not member.may_go.wait(_LOOK_SECONDS):
                member.check()
        except BaseException:
            with self._guard:
                self._leave_queue(queue, member)
                if member.may_go.is_set():  # it had its turn meanwhile
                    if queue is self._for_rest:
                        self._give_rest(member)
                    else:
                        member.is_evaluating = False
                        self._give_share(member)
                self._hand_out()
            raise

    def _hand_out(self) -> None:
        """Give what is free to those who wait, and drop for them what others keep."""
        while self._serve_share() or self._serve_rest():
            pass

    def _serve_share(self) -> bool:
        """Give a share to the member whose turn it is; tells whether there was one for it."""
        if not self._for_share:
            return False
        counts = Counter(each.group for each in self._shares)
        idle = {each.group for each in self._shares if not each.is_evaluating}
        if len(self._shares) >= SHARES and not idle:
            return False
        full = {group for group, count in counts.items() if count >= SHARES // 2}
        member = self._find_next(self._for_share, full - idle)
        if member is None:
            return False
        if member.group in full:
            self._drop_one([each for each in self._shares if each.group == member.group])
        elif len(self._shares) >= SHARES:
            self._drop_one(self._shares)
        self._shares.append(member)
        member.has_share = member.is_evaluating = True
        self._serve(self._for_share, member)
        return True

    def _serve_rest(self) -> bool:
        """Give the rest to the member whose turn it is; tells whether it was there for it."""
        member = self._find_next(self._for_rest, frozenset())
        if member is None or (self._rest is not None and self._rest.is_evaluating):
            return False
        if self._rest is not None:
            self._drop_one([self._rest])
        self._rest, member.has_rest = member, True
        self._serve(self._for_rest, member)
        return True

    def _find_next(self, queue: list[PoolMember], full: AbstractSet[str]) -> PoolMember | None:
        """Return whose turn it is: of the group that was served longest ago, the first."""
        able = (each for each in queue if each.group not in full)
        return min(able, key=lambda each: self._served.get(each.group, 0), default=None)

    def _serve(self, queue: list[PoolMember], member: PoolMember) -> None:
        """Note that a member has had its turn, and wake it up."""
        queue.remove(member)
        self._turns += 1
        self._served.pop(member.group, None)
        self._served[member.group] = self._turns
        if len(self._served) > _MANY_GROUPS:
            del self._served[next(iter(self._served))]
        member.may_go.set()

    def _drop_one(self, among: list[PoolMember]) -> None:
        """Drop what a member keeps that does not evaluate; the one that kept it for longest."""
        for each in among:
            if not each.is_evaluating:
                each.drop()
                self._give_rest(each)
                self._give_share(each)
                return

    def _give_rest(self, member: PoolMember) -> None:
        if self._rest is member:
            self._rest, member.has_rest = None, False

    def _give_share(self, member: PoolMember) -> None:
        if member.has_share:
            self._shares.remove(member)
            member.has_share = False


class Resources:
    """The shared parts.

    Attributes:
        intake_load: which links hold records that are to be stored.
        memory: what evaluations of peers' rules hold.
    """

    def __init__(self, settings: Settings) -> None:
        self.intake_load = IntakeLoad()
        self.memory = MemoryPool(settings.peer_memory_pool)


# -- Watching the evaluations of a link: they can be stopped, take turns, and share memory.


class CancelReason(Enum):
    """Why the evaluations of a link are stopped."""

    PEER_LEFT = "the peer has left"
    STOPPED = "this side was stopped"


class LinkSupervisor:
    """The `Supervisor` of all evaluations of one link.

    Attributes:
        worker: what computes for the link.
        reason: why its evaluations are stopped; None while they are not.
    """

    def __init__(self, pool: MemoryPool, group: str = "") -> None:
        self.worker = Worker(group)
        self.reason: CancelReason | None = None
        self._member = PoolMember(pool, group, self._check_cancelled, self._drop)
        self._evaluator: ExchangeEvaluator | None = None
        self._held = 0
        self._since: float | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Stop the evaluation that runs, and all later ones; any thread may call it."""
        if self.reason is None:
            self.reason = reason

    @property
    def seconds(self) -> float | None:
        """For how long an evaluation has been under way; None without one. Any thread may ask."""
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
        """Stop if that is wished, and let others compute from time to time."""
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
        """Give all memory back: the link has ended, and holds nothing that evaluated for it."""
        self._held = 0
        self._member.leave()
        self._evaluator = None

    def _check_cancelled(self) -> None:
        if self.reason is not None:
            raise EvaluationCancelled(f"the evaluation was cancelled: {self.reason.value}")


# -- Memory while records move: fewer searches for garbage, and less that is held for nothing.
#
# An exchange makes millions of small values without cycles and keeps many of them for a
# while. Looking through all of them again and again finds nothing and takes a fifth of the
# time; so while one runs, that is done less often. Garbage is still collected.

_RARELY: Final = (250_000, 50, 100)
"""New values between two searches of the young; of those, between two of the older; of all."""


_M_ARENA_MAX: Final = -8
"""What the C library of GNU calls the setting."""

_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds before each of the blocks that run now; the first is put back at last."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage less often than usual, until the end of the block.

    Blocks of several threads may overlap: the last one to end puts things back.
    """
    with _lock:
        before = gc.get_threshold()
        _before.append(before)
        if before[0] and before[0] < _RARELY[0]:  # who has turned it off, or down, keeps that
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
    """Give back to the system what was freed since, where its library can do that.

    The arrays of a batch are of very different sizes, and the holes that they leave are
    rarely of use to the next ones.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def keep_one_arena() -> None:
    """Have all threads of this process take memory from one place, where its library can do that.

    Else a thread has a place of its own: what the database keeps comes from there while records
    are inserted beside, and holes in one place are of no use to the other. It is for programs
    that are Lace alone, and to be called before there are threads.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
