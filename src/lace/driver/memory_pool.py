"""The memory that evaluations of peers' rules share, of all links of a server.

A third of the pool is divided into equal shares, and the rest goes to one evaluation at a time.
An evaluation begins when it has a share; when it needs more, it gets the rest as well. The holder
of the rest never waits, so no evaluation waits forever, and all together never hold more than the
pool. Waiting evaluations take turns by group, such as the address of a peer, whatever number of
links a group has; a group has half of the shares at most.

A link keeps what its evaluation has made for the next one, and its share with it. It is dropped
when others need the memory while that link does not evaluate.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from lace.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MemoryPool", "PoolMember"]

SHARES: Final = 32
"""Evaluations that may run at once, each within its share."""
_SMALL_PART: Final = 3
"""The shares together are this part of the pool."""
_MANY_GROUPS: Final = 1_000
"""Groups whose last turn is remembered."""
_LOOK_SECONDS: Final = 0.1
"""How often a member that waits looks whether it is to give up."""


class PoolMember:
    """The evaluations of one link, which run one after the other, in one thread.

    Args:
        pool: what they share with others.
        group: whom they take turns with; it may change.
        check: called while they wait; raises to give up.
    """

    def __init__(self, pool: MemoryPool, group: str, check: Callable[[], None]) -> None:
        self._pool = pool
        self.group = group
        self.check = check
        self.drop: Callable[[], None] = lambda: None
        """Frees what is kept between evaluations; called in any thread, but never in one."""
        self.has_share = self.has_rest = self.is_evaluating = False

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
        """Hold this many bytes from now on: wait for the rest if they are more than a share.

        Raises:
            LimitExceeded: they are more than the pool has for one evaluation.
        """
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
    """Who holds a share, who holds the rest, and who waits for either.

    Args:
        total_bytes: what all evaluations hold together at most.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.share_bytes = total_bytes // _SMALL_PART // SHARES
        self.rest_bytes = total_bytes - SHARES * self.share_bytes
        self._changed = threading.Condition()
        self._shares: list[PoolMember] = []
        self._rest: PoolMember | None = None
        self._for_share: list[PoolMember] = []
        self._for_rest: list[PoolMember] = []
        self._served: dict[str, int] = {}
        self._turns = 0

    @property
    def holders(self) -> tuple[int, int]:
        """How many members hold a share, and how many the rest."""
        with self._changed:
            return len(self._shares), int(self._rest is not None)

    def begin(self, member: PoolMember, *, wait: bool) -> bool:
        """Wait for a share, and hold it; see `PoolMember.begin`."""
        with self._changed:
            if not member.has_share:
                if wait:
                    self._wait(self._for_share, member, self._find_share)
                elif self._for_share or not self._find_share(member):
                    return False
                self._shares.append(member)
                member.has_share = True
            member.is_evaluating = True
            return True

    def take_rest(self, member: PoolMember) -> None:
        """Wait for the rest, and hold it."""
        with self._changed:
            self._wait(self._for_rest, member, self._find_rest)
            self._rest, member.has_rest = member, True

    def end(self, member: PoolMember, total_bytes: int) -> None:
        """End an evaluation; see `PoolMember.end`."""
        with self._changed:
            member.is_evaluating = False
            if total_bytes <= self.share_bytes:
                self._give_rest(member)
            if not total_bytes:
                self._give_share(member)
            self._changed.notify_all()

    def leave(self, member: PoolMember) -> None:
        """Give everything back; see `PoolMember.leave`."""
        with self._changed:
            member.is_evaluating = False
            self._give_rest(member)
            self._give_share(member)
            self._changed.notify_all()

    def _wait(
        self,
        queue: list[PoolMember],
        member: PoolMember,
        find: Callable[[PoolMember], bool],
    ) -> None:
        """Wait in a queue until it is this member's turn and there is room for it."""
        queue.append(member)
        try:
            while not (self._is_next(queue, member) and find(member)):
                self._changed.wait(_LOOK_SECONDS)
                member.check()
        finally:
            queue.remove(member)
            self._changed.notify_all()
        self._turns += 1
        self._served[member.group] = self._turns
        if len(self._served) > _MANY_GROUPS:
            del self._served[next(iter(self._served))]

    def _is_next(self, queue: list[PoolMember], member: PoolMember) -> bool:
        """Tell whose turn it is: of the group that was served longest ago, the first."""
        able = [each for each in queue if queue is self._for_rest or self._may_share(each)]
        if not able:
            return False
        return min(able, key=lambda each: self._served.get(each.group, 0)) is member

    def _may_share(self, member: PoolMember) -> bool:
        """Tell whether its group has fewer shares than it may have, or one that can be dropped."""
        mine = [each for each in self._shares if each.group == member.group]
        return len(mine) < SHARES // 2 or not all(each.is_evaluating for each in mine)

    def _find_share(self, member: PoolMember) -> bool:
        """Tell whether there is a share for a member; what others keep may be dropped for it."""
        mine = [each for each in self._shares if each.group == member.group]
        if len(mine) >= SHARES // 2:
            return self._drop_one(mine)
        return len(self._shares) < SHARES or self._drop_one(self._shares)

    def _find_rest(self, _member: PoolMember) -> bool:
        return self._rest is None or self._drop_one([self._rest])

    def _drop_one(self, among: list[PoolMember]) -> bool:
        """Drop what a member keeps that does not evaluate; the one that kept it for longest."""
        for each in among:
            if not each.is_evaluating:
                each.drop()
                self._give_rest(each)
                self._give_share(each)
                return True
        return False

    def _give_rest(self, member: PoolMember) -> None:
        if self._rest is member:
            self._rest, member.has_rest = None, False

    def _give_share(self, member: PoolMember) -> None:
        if member.has_share:
            self._shares.remove(member)
            member.has_share = False
