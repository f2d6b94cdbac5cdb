"""What an evaluation may cost, and what it did cost: limits, work and statistics.

Everything counted here is a number of rows or of bytes that follows from them, so the same
program over the same facts stops at the same place every time. In a peer's rules a row counts
for what its step costs (`lace.engines.costs`), and the memory that they take is counted. The
processor's time is a backstop for them: what is counted stops them first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from lace.engines import costs
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


_MEASURED_BYTES: Final = 2**22
"""Bytes that are allocated before it is measured again what is kept."""
_REPORTED_BYTES: Final = 2**20
"""By how much memory changes before the supervisor is told."""
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


def _no_bytes() -> int:
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

    `work` is in rows for rules of one's own, and in units of `lace.engines.costs` for a
    peer's; of these, `most_bytes` is what they held at once. `applications` counts them all;
    `runs` has the first of them one by one, and of the later ones one sum for each rule, so
    that it does not grow for ever.
    """

    clock: Clock = _no_clock
    runs: list[Run] = field(default_factory=list)
    applications: int = 0
    work: int = 0
    most_bytes: int = 0
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


class _CpuTime:
    """The time that processors have spent on the evaluation so far, by its thread."""

    def __init__(self) -> None:
        self._spent = 0
        self._thread = threading.get_ident()
        self._since = time.thread_time_ns()

    def spent(self) -> int:
        """Return nanoseconds; an evaluation that continues in another thread starts from zero."""
        now, thread = time.thread_time_ns(), threading.get_ident()
        if thread == self._thread:
            self._spent += now - self._since
        self._thread, self._since = thread, now
        return self._spent


@dataclass(slots=True)
class _Memory:
    """The bytes of an evaluation: kept when measured, allocated since, held by steps."""

    measure: Callable[[], int] = _no_bytes
    kept: int = 0
    since: int = 0
    held: int = 0
    taken: int = 0
    reported: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.since + self.held


class EvaluationCancelled(EngineError):
    """An evaluation was stopped from outside; there is no part of an answer."""


class Supervisor(Protocol):
    """A watcher of evaluations: stops them, lets others run, counts memory.

    One supervisor may watch many evaluations in one thread after the other, such as all
    evaluations of a link. Both methods are called in the thread that evaluates, between two
    steps; steps take well under a second. They may wait, and they may raise: an error of
    theirs ends the evaluation and reaches its caller. Nothing that a supervisor does is
    counted as work. An evaluation that it ended leaves no state to start from, so the next
    one is a whole evaluation: its answer is the same, but its work is not that of an update,
    and a limit may stop the one and not the other.
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
        self.is_weighted = self._limits.of_peer
        """Whether the rules are a peer's: then costs and memory are counted, too."""
        self._cpu = _CpuTime()
        self._memory = _Memory()

    def spend(self, rows: int, units: int = 0, size: int = 0) -> None:
        """Count rows that are about to be visited.

        Args:
            rows: how many; for rules of one's own they are the work.
            units: what they count for in a peer's rules, beside the step itself.
            size: bytes that are about to be allocated for them.

        Raises:
            LimitExceeded: they are more than may be visited; they have not been yet.
            EvaluationCancelled: the supervisor of this evaluation stops it.
        """
        self.check()
        if self.is_weighted:
            rows = costs.STEP + units
            self.reserve(size)
        self._work(rows)

    def charge(self, units: int, size: int = 0) -> None:
        """Count what a peer's rules cost beside the rows that they visit.

        Raises:
            LimitExceeded: it is more than they may cost; it has not been done yet.
            EvaluationCancelled: the supervisor of this evaluation stops it.
        """
        if self.is_weighted:
            self.check()
            self.reserve(size)
            self._work(units)
        elif self.supervisor is not None:
            self.supervisor.check()

    def _work(self, more: int) -> None:
        work = self.statistics.work + more
        if work > self._limits.max_work:
            unit = "units of work" if self.is_weighted else "rows"
            raise self._exceeded(
                f"would {'do' if self.is_weighted else 'visit'} {work:,} {unit} in this evaluation",
                "max_work",
                self._limits.max_work,
                work,
                "X3",
            )
        self.statistics.work = work

    def check(self) -> None:
        """Let the supervisor do what is due: it may wait, and it may stop the evaluation.

        Raises:
            LimitExceeded: a peer's rules have used the time of a processor that they have.
        """
        if self.supervisor is not None:
            self.supervisor.check()
        if self.is_weighted:
            seconds = self._cpu.spent() // 1_000_000_000
            if seconds >= self._limits.max_cpu_seconds:
                raise self._exceeded(
                    f"has used {seconds:,} s of a processor",
                    "max_cpu_seconds",
                    self._limits.max_cpu_seconds,
                    seconds,
                    "X3",
                )

    # -- memory --------------------------------------------------------------------------------

    def measure_by(self, measure: Callable[[], int]) -> None:
        """Say how to find out what is kept at a moment: access paths, facts made, tables."""
        self._memory.measure = measure

    def reserve(self, size: int) -> None:
        """Count bytes that a peer's rules are about to allocate.

        They count until it is next measured what is kept: at every few megabytes, and before
        a limit is said to be reached.

        Raises:
            LimitExceeded: it would be more than they may allocate.
        """
        if not self.is_weighted or not size:
            return
        memory = self._memory
        memory.since += size
        if memory.since > _MEASURED_BYTES or memory.total > self._limits.max_memory:
            memory.since = size
            memory.kept = memory.measure()
        self._check_memory()

    def hold(self, size: int) -> None:
        """Count bytes that a plan holds while it runs on; a negative size gives them back."""
        if self.is_weighted and size:
            memory = self._memory
            memory.held += size
            if size > 0:
                if memory.total > self._limits.max_memory:  # it was reserved to be made, too
                    memory.since, memory.kept = 0, memory.measure()
                self._check_memory()

    @contextmanager
    def temporaries(self) -> Iterator[None]:
        """See that all bytes taken in the `with` block are free at its end."""
        memory = self._memory
        before, memory.taken = memory.taken, 0
        try:
            yield
        finally:
            memory.held -= memory.taken
            memory.taken = before

    def take(self, size: int) -> None:
        """Count bytes that a peer's rules allocate for as long as `temporaries` says."""
        if self.is_weighted:
            self._memory.taken += size
            self._memory.held += size
            self._check_memory()

    def _check_memory(self) -> None:
        total = self._memory.total
        self.statistics.most_bytes = max(self.statistics.most_bytes, total)
        if total > self._limits.max_memory:
            raise self._exceeded(
                f"would hold {total:,} bytes",
                "max_memory",
                self._limits.max_memory,
                total,
                "X3",
            )
        if abs(total - self._memory.reported) > _REPORTED_BYTES:
            self._report(total)

    def _report(self, total: int) -> None:
        if self.supervisor is not None and total != self._memory.reported:
            self._memory.reported = total
            self.supervisor.hold(total)

    def settle(self) -> None:
        """Report what is still held at the end of an evaluation of a peer's rules."""
        if self.is_weighted:
            self._memory.since, self._memory.kept = 0, self._memory.measure()
            self._memory.reported = -1
            self._report(self._memory.total)

    def allows(self, rows: int) -> bool:
        """Return whether this number of rows may still be visited."""
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
        self.note_derived(predicate, rows)
        if self._bytes > self._limits.max_derived_bytes:
            raise self._exceeded(
                f"makes {predicate} facts, and all facts made would take {self._bytes:,} bytes",
                "max_derived_bytes",
                self._limits.max_derived_bytes,
                self._bytes,
                "X3",
            )

    def note_derived(self, predicate: PredicateKey, rows: int) -> None:
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
