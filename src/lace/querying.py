"""Rules over the facts of a store: asked once, or kept up to date as records come and go.

A `StoreSession` holds what one open lace has learned: the numbers of texts, the access
paths into its facts, the answers of the programs asked so far. Each question is answered
for the state of the store at that moment; what changed since the last one is worked out
from the change alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.engines.embedded.records import RecordBase
from lace.engines.embedded.segment_journal import SegmentDamagedError
from lace.engines.embedded.session import Session
from lace.facts.extract import record_facts
from lace.store.sqlite.fact_state import all_as_tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.engines.embedded.budget import Clock, Statistics
    from lace.engines.embedded.engine import Evaluation
    from lace.facts.lines import Fact
    from lace.record.validate import ValidRecord
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.store.sqlite.fact_state import FactState
    from lace.store.sqlite.snapshot import SqliteSnapshot
    from lace.store.sqlite.store import SqliteStore

__all__ = ["StoreSession", "evaluate_snapshot"]

_MAX_CHANGE: Final = 50_000
"""Records that may have come or gone for a session to follow; beyond, it starts anew."""


class StoreSession:
    """Evaluations over the facts of a store, which follow its records."""

    def __init__(
        self, store: SqliteStore, *, max_value_bytes: int, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._max_value_bytes = max_value_bytes
        self._clock = clock
        self._records: RecordBase | None = None
        self._session: Session | None = None
        self._high_water = 0
        self._removal_sequence = 0

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
        try:
            return self._evaluate(checked, wanted, statistics)
        except SegmentDamagedError:
            self._forget()
            self._store.discard_segments()
            return self._evaluate(checked, wanted, statistics)

    def _evaluate(
        self,
        checked: CheckedProgram,
        predicates: list[PredicateKey] | None,
        statistics: Statistics | None,
    ) -> Evaluation:
        session = self._refresh(statistics)
        return session.evaluate(checked, predicates, statistics).copy()

    def forget_answers(self) -> None:
        """Forget the answers, and keep everything else."""
        if self._session is not None:
            self._session.forget()

    def _forget(self) -> None:
        self._records = self._session = None

    def _refresh(self, statistics: Statistics | None) -> Session:
        if self._records is None or self._session is None:
            return self._open()
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
            sequence = counters.removal_sequence or 0
            behind = (self._high_water, self._removal_sequence)
            if behind == (counters.high_water, sequence):
                return self._session
            if max(counters.high_water - behind[0], sequence - behind[1]) <= _MAX_CHANGE:
                try:
                    self._follow(self._records, self._session, snapshot)
                except BaseException:
                    self._forget()  # what is half done is not built upon
                    raise
                self._high_water, self._removal_sequence = counters.high_water, sequence
                return self._session
        return self._open()

    def _open(self) -> Session:
        self._forget()
        with self._store.fact_snapshot() as (_snapshot, state):
            self._records = _record_base(state, self._max_value_bytes)
            self._high_water, self._removal_sequence = state.high_water, state.removal_sequence
        self._session = Session(self._records.base, self._clock)
        return self._session

    def _follow(self, records: RecordBase, session: Session, snapshot: SqliteSnapshot) -> None:
        """Bring the session up to date with a snapshot."""
        gone = list(dict.fromkeys(text for _, text in snapshot.removals(self._removal_sequence)))
        gone = [text for text, here in zip(gone, records.has(gone), strict=True) if here]
        gone = [text for text in gone if not snapshot.has(text)]
        new = list(snapshot.records(after=self._high_water))
        known = records.has([record.hash_text for record in new])
        come = [record for record, here in zip(new, known, strict=True) if not here]
        session.update(records.change(_facts(come, self._max_value_bytes), gone))


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
            session = Session(_record_base(state, max_value_bytes).base)
            return session.evaluate(checked, wanted, statistics)
        except SegmentDamagedError:
            if last_try:
                raise
            store.discard_segments()
    raise AssertionError("the last try returns or raises")


def _record_base(state: FactState, max_value_bytes: int) -> RecordBase:
    return RecordBase(
        state.segments,
        state.removed,
        _facts(state.tail, max_value_bytes),
        max_value_bytes=max_value_bytes,
    )


def _facts(records: Iterable[ValidRecord], max_value_bytes: int) -> Iterator[Fact]:
    for record in records:
        yield from record_facts(record, max_value_bytes=max_value_bytes)
