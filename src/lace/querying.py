"""Rules over the facts of a store: asked once, or kept up to date as records come and go.

A `StoreSession` holds what one open lace has learned: the numbers of texts, the access
paths into its facts, the answers of the programs asked so far. Each question is answered
for the state of the store at that moment; what changed since the last one is worked out
from the change alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.engines.embedded.segment_journal import SegmentDamagedError
from lace.engines.embedded.session import Session
from lace.following import StoreFollower, record_base
from lace.store.sqlite.fact_state import all_as_tail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.engines.budget import Clock, Statistics
    from lace.engines.embedded.engine import Evaluation
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.store.sqlite.snapshot import SqliteSnapshot
    from lace.store.sqlite.store import SqliteStore

__all__ = ["StoreSession", "evaluate_snapshot"]


class StoreSession:
    """Evaluations over the facts of a store, which follow its records."""

    def __init__(
        self, store: SqliteStore, *, max_value_bytes: int, clock: Clock | None = None
    ) -> None:
        self._follower = StoreFollower(
            store, lambda base: Session(base, clock), max_value_bytes=max_value_bytes
        )

    def evaluate(
        self,
        checked: CheckedProgram,
        predicates: Iterable[PredicateKey] | None = None,
        statistics: Statistics | None = None,
    ) -> Evaluation:
        """Return the answer for the store as it is now; later changes do not reach it.

        Raises:
            LimitExceeded: it would go beyond a limit; there is no part of an answer.
        """
        wanted = None if predicates is None else list(predicates)
        return self._follower.ask(
            checked,
            question=lambda session: session.evaluate(checked, wanted, statistics).copy(),
        )


def evaluate_snapshot(
    store: SqliteStore,
    snapshot: SqliteSnapshot,
    checked: CheckedProgram,
    predicates: Iterable[PredicateKey] | None = None,
    statistics: Statistics | None = None,
    *,
    max_value_bytes: int,
) -> Evaluation:
    """Return the answer for one state of a store, whatever came later.

    Raises:
        LimitExceeded: it would go beyond a limit; there is no part of an answer.
    """
    wanted = None if predicates is None else list(predicates)
    for last_try in (False, True):
        store.segments.open()
        state = store.segments.facts(snapshot, as_it_is=True) or all_as_tail(snapshot)
        try:
            session = Session(record_base(state, max_value_bytes).base)
            return session.evaluate(checked, wanted, statistics)
        except SegmentDamagedError:
            if last_try:
                raise
            store.discard_segments()
    raise AssertionError("the last try returns or raises")
