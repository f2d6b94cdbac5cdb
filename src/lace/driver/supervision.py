"""Watching the evaluations of a link: they can be stopped, take turns, and share memory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from lace.driver.memory_pool import PoolMember
from lace.engines.budget import EvaluationCancelled
from lace.store.slots import Worker, offer_slot, slot_lent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.driver.memory_pool import MemoryPool

__all__ = ["CancelReason", "LinkSupervisor"]


def _nothing() -> None:
    """Free nothing."""


class CancelReason(Enum):
    """Why the evaluations of a link are stopped."""

    PEER_LEFT = "the peer has left"
    STOPPED = "this side was stopped"


class LinkSupervisor:
    """The `Supervisor` of all evaluations of one link.

    Args:
        pool: the memory that it shares with other links.
        group: whom the link takes turns with, such as all links of one address.

    Attributes:
        worker: what computes for the link.
        reason: why its evaluations are stopped; None while they are not.
    """

    def __init__(self, pool: MemoryPool, group: str = "") -> None:
        self.worker = Worker(group)
        self.reason: CancelReason | None = None
        self._member = PoolMember(pool, group, self._check_cancelled)
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

    def when_dropped(self, drop: Callable[[], None]) -> None:
        """Say how to free what is kept between two evaluations."""

        def free() -> None:
            self._held = 0
            drop()

        self._member.drop = free

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluate inside the `with` block.

        Raises:
            EvaluationCancelled: it is stopped, before it begins or later.
        """
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
        self._member.drop = _nothing

    def _check_cancelled(self) -> None:
        if self.reason is not None:
            raise EvaluationCancelled(f"the evaluation was cancelled: {self.reason.value}")
