"""What an evaluation may cost, and what it did cost: limits, work and statistics.

Everything counted here is a number of rows, so the same program over the same facts
stops at the same place every time. Time is only shown, never decided by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from lace.errors import EngineError, LimitExceeded
from lace.facts.catalogue import BASE_PREDICATES, FactClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.rules.limits import RuleLimits
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = [
    "Budget",
    "Cancellation",
    "Clock",
    "EvaluationCancelled",
    "Run",
    "Statistics",
    "Supervisor",
    "split_counts",
]

Clock = Callable[[], int]
"""Gives nanoseconds, from any moment on."""


_MOST_RUNS: Final = 100_000
"""Applications of rules that are noted one by one."""


_VALUE_BYTES: Final = 4
"""Bytes of a value in a column."""
_SET_BYTES: Final = 8
"""Bytes of a row in the set by which repeated ones are found, about."""
_APART: Final = frozenset(
    name for name, found in BASE_PREDICATES.items() if found.fact_class is not FactClass.RECORD
)


def split_counts(counts: Mapping[PredicateKey, int]) -> tuple[int, int]:
    """Return how many base facts there are, and how many runtime and advertisement facts."""
    apart = sum(rows for key, rows in counts.items() if key.name in _APART)
    return sum(counts.values()) - apart, apart


def _no_clock() -> int:
    return 0


@dataclass(slots=True)
class Run:
    """One application of a rule: in which iteration, rows visited, facts made, facts new."""

    rule: int
    iteration: int
    visited: int = 0
    made: int = 0
    new: int = 0
    nanoseconds: int = 0


@dataclass(slots=True)
class Statistics:
    """What was done so far, readable at any time, also after a limit stopped the run.

    `applications` counts them all; `runs` has the first of them one by one, and of the
    later ones one sum for each rule, so that it does not grow for ever.
    """

    clock: Clock = _no_clock
    runs: list[Run] = field(default_factory=list)
    applications: int = 0
    work: int = 0
    _sums: dict[int, Run] = field(default_factory=dict)

    def begin(self, rule: int, iteration: int) -> Run:
        """Note that a rule is being applied; its time is negative until it ends."""
        self.applications += 1
        run = self._sums.get(rule)
        if run is None:
            run = Run(rule, iteration)
            self.runs.append(run)
            if self.applications > _MOST_RUNS:
                self._sums[rule] = run
        run.iteration = iteration
        run.visited -= self.work
        run.nanoseconds -= self.clock()
        return run

    def end(self, run: Run) -> None:
        """Note that the application is over."""
        run.visited += self.work
        run.nanoseconds += self.clock()


class EvaluationCancelled(EngineError):
    """An evaluation was stopped from outside; there is no part of an answer."""


class Supervisor(Protocol):
    """Whoever watches evaluations from outside: stops them, lets others run, counts memory.

    One supervisor may watch many evaluations in one thread after the other, such as all
    evaluations of a link. Both methods are called in the thread that evaluates, between two
    steps; steps take well under a second. They may wait, and they may raise: an error of
    theirs ends the evaluation and reaches its caller. Nothing of a supervisor is counted as
    work, so that what an evaluation decides does not depend on it.
    """

    def check(self) -> None:
        """Do what is due between two steps; raises `EvaluationCancelled` to stop."""
        ...

    def hold(self, total_bytes: int) -> None:
        """Take note of how many bytes the evaluation of a peer's rules holds from now on.

        Called with more before they are allocated, and with fewer once they are free; what
        an evaluation keeps for the next one is still held when it ends. Rules of one's own
        report nothing.
        """
        ...


class Cancellation:
    """The supervisor that only stops: `cancel` may be called from any thread, at any time.

    >>> cancellation = Cancellation()
    >>> cancellation.check()
    >>> cancellation.cancel()
    >>> cancellation.is_cancelled
    True
    """

    def __init__(self) -> None:
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Stop every evaluation that this watches at its next check, now and later."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise `EvaluationCancelled` once `cancel` was called."""
        if self._is_cancelled:
            raise EvaluationCancelled("the evaluation was cancelled")

    def hold(self, total_bytes: int) -> None:
        """Allow any number of bytes."""


class Budget:
    """The limits of one evaluation, and the work done in it.

    Args:
        program: the rules, which error messages name.
        statistics: where work is noted.
        limits: other limits than those of the rules.
        supervisor: is asked at every counted operation.
    """

    def __init__(
        self,
        program: CheckedProgram,
        statistics: Statistics,
        limits: RuleLimits | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._program = program
        self.supervisor = supervisor
        self._limits = limits or program.limits
        self.statistics = statistics
        self.rule = 0
        self._rows: dict[PredicateKey, int] = {}
        self._bytes = 0

    def spend(self, rows: int) -> None:
        """Count rows that are about to be visited.

        Raises:
            LimitExceeded: they are more than may be visited; they have not been yet.
            EvaluationCancelled: whoever watches this evaluation stops it.
        """
        self.check()
        work = self.statistics.work + rows
        if work > self._limits.max_work:
            raise self._exceeded(
                f"would visit {work:,} rows in this evaluation",
                "max_work",
                self._limits.max_work,
                work,
                "X3",
            )
        self.statistics.work = work

    def check(self) -> None:
        """Let the supervisor do what is due: it may wait, and it may stop the evaluation."""
        if self.supervisor is not None:
            self.supervisor.check()

    def allows(self, rows: int) -> bool:
        """Tell whether so many rows may still be visited."""
        return self.statistics.work + rows <= self._limits.max_work

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Do something without counting it as work: it only tells what work would be."""
        before = self.statistics.work
        try:
            yield
        finally:
            self.statistics.work = before

    def check_derived(self, predicate: PredicateKey, rows: int) -> None:
        """Refuse more facts of a predicate, or of all together, than may be kept."""
        if rows > self._limits.max_derived_facts:
            raise self._exceeded(
                f"would make {rows:,} facts of {predicate}",
                "max_derived_facts",
                self._limits.max_derived_facts,
                rows,
                "G18",
            )
        self.hold(predicate, rows)
        if self._bytes > self._limits.max_derived_bytes:
            raise self._exceeded(
                f"makes {predicate} facts, and all facts made would take {self._bytes:,} bytes",
                "max_derived_bytes",
                self._limits.max_derived_bytes,
                self._bytes,
                "X3",
            )

    def hold(self, predicate: PredicateKey, rows: int) -> None:
        """Note how many facts of a derived predicate there are."""
        size = _SET_BYTES + _VALUE_BYTES * predicate.arity
        self._bytes += size * (rows - self._rows.get(predicate, 0))
        self._rows[predicate] = rows

    def check_iterations(self, predicate: PredicateKey, iterations: int) -> None:
        """Refuse more passes over a stratum than are allowed."""
        self.check()
        if iterations > self._limits.max_iterations:
            raise self._exceeded(
                f"still makes new {predicate} facts after {self._limits.max_iterations:,} passes",
                "max_iterations",
                self._limits.max_iterations,
                iterations,
                "G18",
            )

    def check_base(self, ordinary: int, runtime: int) -> None:
        """Refuse more base facts, or more runtime facts, than an evaluation takes."""
        for count, limit, what in (
            (ordinary, "max_base_facts", "base"),
            (runtime, "max_runtime_facts", "runtime"),
        ):
            allowed: int = getattr(self._limits, limit)
            if count > allowed:
                raise LimitExceeded(
                    f"there are {count:,} {what} facts",
                    limit=limit,
                    allowed=allowed,
                    observed=count,
                    rule="G18",
                )

    def _exceeded(
        self, what: str, limit: str, allowed: int, observed: int, decision: str
    ) -> LimitExceeded:
        program = self._program
        number, identifier = self.rule + 1, program.rule_ids[self.rule]
        of_part = ""
        if program.written is not None:
            written = program.written[self.rule]
            number, identifier, of_part = written.number, written.id, f" of {written.part}"
        return LimitExceeded(
            f"rule {number}{of_part} ({identifier}) {what}",
            limit=self._limits.setting(limit),
            allowed=allowed,
            observed=observed,
            rule=decision,
            place=program.place(self.rule),
        )
