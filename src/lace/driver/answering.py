"""Who answers a machine's questions about a store, whatever store it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lace.driver.evaluator import Known
    from lace.engines.budget import Supervisor
    from lace.engines.embedded.exchange_facts import ClaimTable
    from lace.interlacing.effects import Describe, Evaluate
    from lace.interlacing.events import Described, Evaluated
    from lace.interlacing.negotiation import Terms
    from lace.policy.compile import Executable
    from lace.store.exchange_store import ExchangeStore

__all__ = ["Evaluator", "EvaluatorMaker"]


class Evaluator(Protocol):
    """What answers a machine's questions, for one epoch."""

    @property
    def position(self) -> tuple[int, int]:
        """Up to which record and removal of the store the last answer goes."""
        ...

    @property
    def is_resting(self) -> bool:
        """Whether all of it is as it was kept."""
        ...

    def evaluate(self, effect: Evaluate) -> Evaluated:
        """Answer what may be sent and requested now."""
        ...

    def describe(self, effect: Describe) -> Described:
        """Answer what advertisements of records say."""
        ...

    def claims(self) -> ClaimTable | None:
        """Return what the peer claims, to be kept."""
        ...

    def state(self) -> str | None:
        """Return the name of the state that the last answer is for; None if it has none."""
        ...

    def release(self) -> None:
        """Free what the peer's rules have made; any thread may call it, between two questions."""
        ...


class EvaluatorMaker(Protocol):
    """Makes an evaluator; its arguments are those of `StoreEvaluator`."""

    def __call__(
        self,
        store: ExchangeStore,
        executable: Executable,
        terms: Terms,
        *,
        transport: str,
        encrypted: bool,
        max_value_bytes: int,
        max_line_bytes: int | None,
        known: Known | None = None,
        supervisor: Supervisor | None = None,
    ) -> Evaluator:
        """Return what answers the questions of an epoch."""
        ...
