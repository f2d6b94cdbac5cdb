"""Rules over the facts of a store: asked once, or kept up to date as records come and go.

A `StoreSession` holds what one open lace has learned: the numbers of texts, the access
paths into its facts, the answers of the programs asked so far. Each question is answered
for the state of the store at that moment; what changed since the last one is worked out
from the change alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from lace.base.arguments import check_argument
from lace.base.limits import MAX_LINE_BYTES
from lace.columns.segment_journal import SegmentDamagedError
from lace.engine.budget import Statistics
from lace.engine.engine import EvaluationSession, evaluate
from lace.engine.factbase import FactBase
from lace.engine.field_histogram import distinct_names, strange_names, uses_names
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.source import facts_of
from lace.query.evaluate import check_engine, check_limited, find_predicates
from lace.query.result import AnswerLostError, Result
from lace.rules.limits import limits_of
from lace.store.sqlite.fact_state import all_as_tail
from lace.store.sqlite.snapshot import SqliteSnapshot
from lace.store.store_view import StoreFollower, record_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.algebra.nodes import Answer
    from lace.base.limits import Settings
    from lace.engine.budget import Clock, Supervisor
    from lace.engine.engine import Evaluation
    from lace.errors import Finding
    from lace.facts.lines import Fact
    from lace.query.evaluate import Rules
    from lace.rules.limits import Limits
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.store.interface import Snapshot
    from lace.store.sqlite.store import SqliteStore


Answered = TypeVar("Answered")


class StoreSession:
    """Evaluations over the facts of a store, which follow its records."""

    def __init__(
        self, store: SqliteStore, *, max_value_bytes: int, clock: Clock | None = None
    ) -> None:
        self._clock = clock
        self._session: EvaluationSession | None = None
        self._supervisor: Supervisor | None = None
        self._follower = StoreFollower(store, self._begin, max_value_bytes=max_value_bytes)

    def _begin(self, base: FactBase) -> EvaluationSession:
        self._session = EvaluationSession(base, self._clock, self._supervisor)
        return self._session

    def evaluate(
        self,
        checked: CheckedProgram,
        predicates: Iterable[PredicateKey] | None = None,
        statistics: Statistics | None = None,
        supervisor: Supervisor | None = None,
    ) -> Evaluation:
        """Return the answer for the store as it is now; later changes do not reach it."""
        wanted = None if predicates is None else list(predicates)
        self._supervisor = supervisor
        if self._session is not None:
            self._session.supervisor = supervisor
        return self._follower.ask(
            checked,
            question=lambda session: session.evaluate(checked, wanted, statistics).copy(),
        )


def retried(store: SqliteStore, ask: Callable[[], Answered]) -> Answered:
    """Return an answer; damaged segments are discarded, and the question is asked once more."""
    try:
        return ask()
    except (AnswerLostError, SegmentDamagedError):
        store.discard_segments()
        return ask()


def ask_store(
    store: SqliteStore, question: Callable[[FactBase], Answered], *, max_value_bytes: int
) -> Answered:
    """Return the answer to a question about the facts of a store at this moment."""

    def ask() -> Answered:
        with store.fact_snapshot() as (snapshot, state):
            if max_value_bytes < MAX_LINE_BYTES:  # values that are stored are looked at again
                base = FactBase(max_value_bytes=max_value_bytes)
                base.change(facts_of(snapshot, RECORD_PREDICATES))
            else:
                base = record_base(state, max_value_bytes).base
        return question(base)

    return retried(store, ask)


def _base_facts(snapshot: Snapshot, wanted: Iterable[PredicateKey]) -> Iterator[Fact]:
    """Yield the record facts of some predicates; no others are in a lace."""
    for name, arity in wanted:
        for values in snapshot.iterate(name):
            if len(values) == arity:
                yield (name, *values)


def find_strange_names(
    store: SqliteStore, programs: Iterable[CheckedProgram], lines: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Return a warning for each field name, group and app of rules that no record here has."""
    wanted = [program for program in programs if uses_names(program)]
    if not wanted:
        return ()

    def ask(base: FactBase) -> tuple[Finding, ...]:
        return tuple(found for program in wanted for found in strange_names(base, program, lines))

    return ask_store(store, ask, max_value_bytes=MAX_LINE_BYTES)


def find_strange_names_among(
    facts: Iterable[Fact], programs: Iterable[CheckedProgram]
) -> tuple[Finding, ...]:
    """Return the same warnings for facts that are read once, in constant memory.

    The facts are those of all records; they are read only if rules use names.
    """
    wanted = [program for program in programs if uses_names(program)]
    if not wanted:
        return ()
    base = FactBase(max_value_bytes=MAX_LINE_BYTES)
    base.change(distinct_names(facts))
    return tuple(found for program in wanted for found in strange_names(base, program))


class StoreQuestions:
    """Questions to one open lace: the rules are checked, and an engine answers."""

    def __init__(self, store: SqliteStore, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._session: StoreSession | None = None

    def ask(
        self,
        rules: Rules,
        engine: str = "embedded",
        predicates: Iterable[str] | None = None,
        statistics: Statistics | None = None,
        snapshot: SqliteSnapshot | None = None,
        supervisor: Supervisor | None = None,
        *,
        limits: Limits | None = None,
    ) -> Result:
        """Return what follows from rules, for one state of the store or for the present one."""
        check_engine(engine)
        checked = check_limited(rules, limits=limits, default=limits_of(self._settings))
        if statistics is not None:
            check_argument(statistics, Statistics, "statistics are a Statistics")
        if snapshot is not None:
            check_argument(
                snapshot, SqliteSnapshot, "snapshot is a state of the lace", "take store.snapshot()"
            )
        wanted = None if predicates is None else find_predicates(checked, predicates)
        max_value_bytes = checked.limits.max_value_bytes
        answer: Answer
        if engine == "spark":
            answer = self._on_spark(checked, wanted, statistics, snapshot)
        elif max_value_bytes < MAX_LINE_BYTES:  # then values that are stored are looked at again
            with self._store.snapshot() if snapshot is None else nullcontext(snapshot) as state:
                facts = _base_facts(state, checked.required_base)
                answer = evaluate(
                    checked, facts, predicates=wanted, statistics=statistics, supervisor=supervisor
                )
        elif snapshot is not None:
            answer = retried(
                self._store,
                lambda: self._session_of(snapshot, supervisor, max_value_bytes).evaluate(
                    checked, wanted, statistics
                ),
            )
        else:
            if self._session is None:
                self._session = StoreSession(self._store, max_value_bytes=max_value_bytes)
            answer = self._session.evaluate(checked, wanted, statistics, supervisor)
        return Result(checked, answer, self._discard_segments)

    def _discard_segments(self) -> None:
        self._session = None
        self._store.discard_segments()

    def _session_of(
        self, snapshot: SqliteSnapshot, supervisor: Supervisor | None, max_value_bytes: int
    ) -> EvaluationSession:
        """Return evaluations over one state of the store, whatever came later."""
        segments = self._store.segments
        segments.open()
        state = segments.facts(snapshot, as_it_is=True) or all_as_tail(snapshot)
        return EvaluationSession(record_base(state, max_value_bytes).base, supervisor=supervisor)

    def _on_spark(
        self,
        checked: CheckedProgram,
        predicates: list[PredicateKey] | None,
        statistics: Statistics | None,
        snapshot: SqliteSnapshot | None,
    ) -> Answer:
        from lace.query.distributed import evaluate_base, evaluate_facts
        from lace.spark.engine.session import options_of

        options = options_of(self._settings)
        if snapshot is not None:
            facts = _base_facts(snapshot, checked.required_base)
            return evaluate_facts(
                checked, facts, predicates=predicates, statistics=statistics, options=options
            )
        return ask_store(
            self._store,
            lambda base: evaluate_base(
                checked, base, predicates=predicates, statistics=statistics, options=options
            ),
            max_value_bytes=checked.limits.max_value_bytes,
        )
