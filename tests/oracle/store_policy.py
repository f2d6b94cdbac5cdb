"""A compiled policy over the facts of a store, which follows its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.columns.segment_journal import SegmentDamagedError
from lace.policy.enforcement import Enforcement
from lace.store.store_view import StoreFollower

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.engine.budget import Clock, Supervisor
    from lace.engine.factbase import FactBase
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.enforcement import Permissions
    from lace.store.sqlite.store import SqliteStore

__all__ = ["StorePolicy"]


class StorePolicy:
    """A compiled policy over the facts of a store, which follows its records."""

    def __init__(
        self,
        executable: Executable,
        store: SqliteStore,
        *,
        max_value_bytes: int,
        clock: Clock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.executable = executable
        self._clock = clock
        self._supervisor = supervisor
        self._enforcement: Enforcement | None = None
        self._follower = StoreFollower(store, self._begin, max_value_bytes=max_value_bytes)

    def _begin(self, base: FactBase) -> Enforcement:
        if self._enforcement is None:
            self._enforcement = Enforcement(self.executable, base, self._clock, self._supervisor)
        else:
            self._enforcement.take_base(base)
        return self._enforcement

    @property
    def their_work(self) -> int:
        """The rows that the peer's operand has visited so far."""
        return self._enforcement.their_work if self._enforcement is not None else 0

    def evaluate(self, public: Iterable[Fact]) -> Permissions:
        """Return what may be sent and requested now.

        Args:
            public: what the peer advertises, and the runtime facts.

        Raises:
            LimitExceeded: an operand or the view would go beyond a limit.
        """

        def ask(enforcement: Enforcement) -> Permissions:
            try:
                enforcement.set_public(public)
                return enforcement.evaluate()
            except SegmentDamagedError:
                self._enforcement = None  # the enclave stands on texts that are damaged
                raise

        return self._follower.ask(self.executable.view, self.executable.ours, question=ask)
