"""What an evaluation on Spark knows: relations, the numbers of constants, sizes, limits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lace.algebra.nodes import Version
from lace.engines.spark.relations import (
    Relation,
    breach_of,
    fits,
    pattern_of,
    united,
)
from lace.engines.spark.transfer import frame_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from lace.algebra.nodes import Branch, RelationalProgram, Scan
    from lace.engines.budget import Budget
    from lace.engines.spark.options import Options
    from lace.engines.spark.relations import Pattern
    from lace.rules.limits import RuleLimits
    from lace.rules.syntax import PredicateKey

__all__ = ["MADE", "Count", "Texts", "World"]

MADE: Final = "made"
"""The column that tells how often a row was made."""
_UNKNOWN: Final = 2**30
"""About how many rows a relation has of which nothing is known."""
_CONSTANT_SHARE: Final = 8
"""One row in this many has a certain value in a column, about."""


class Texts(Protocol):
    """The texts behind numbers."""

    def frame(self) -> DataFrame:
        """Return the table of them, `id` and `text`."""
        ...

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        ...

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        ...

    def of(self, numbers: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of numbers, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows a table has, and how many were made before repeated ones went."""

    rows: int
    made: int


class World:
    """The state of one evaluation.

    `virtual` are the predicates that are counted without being made; `changed` has what a
    plan that starts from a change reads.
    """

    def __init__(
        self,
        session: SparkSession,
        program: RelationalProgram,
        texts: Texts,
        constants: Mapping[str, int],
        limits: RuleLimits,
        budget: Budget,
        options: Options,
    ) -> None:
        self.session = session
        self.program = program
        self.texts = texts
        self.constants = constants
        self.limits = limits
        self.budget = budget
        self.options = options
        self.relations: dict[PredicateKey, Relation] = {}
        self.changed: dict[PredicateKey, Relation] = {}
        self.virtual: set[PredicateKey] = set(program.counted)
        self.branches: dict[PredicateKey, list[Branch]] = {}
        self.sizes: dict[tuple[PredicateKey, Pattern], int] = {}
        for step in program.steps:
            for branch in step.branches:
                self.branches.setdefault(branch.predicate, []).append(branch)

    def relation(self, scan: Scan) -> Relation:
        """Return what a scan reads."""
        if scan.version is Version.CHANGED:
            return self.changed[scan.predicate]
        found = self.relations.get(scan.predicate)
        if found is None:
            found = self.relations[scan.predicate] = self.empty(scan.predicate.arity)
        return found

    def empty(self, arity: int) -> Relation:
        """Return a relation without rows."""
        return Relation(frame_of_rows(self.session, (), arity), 0)

    def remaining_work(self) -> int:
        """Return how many rows may still be made."""
        return max(0, self.limits.max_work - self.budget.statistics.work)

    def guarded_work(self) -> int:
        """Return from how many rows on a job is to stop while it makes them.

        It is the next power of two, so that the plans of most rounds have the same number in them.
        What is above the limit and below it is refused when the rows are counted.
        """
        return min(self.limits.max_work, 1 << self.remaining_work().bit_length())

    # What the order of joins is chosen by.

    def rows(self, scan: Scan) -> int:
        """Return how many rows a scan has, about."""
        pattern, _ = pattern_of(scan, self.constants)
        if scan.version is Version.ALL:
            counted = self.sizes.get((scan.predicate, pattern))
            if counted is not None:
                return counted
        most = self.relation(scan).at_most
        fixed, equal = pattern
        share: int = _CONSTANT_SHARE ** (len(fixed) + len(equal))
        return (_UNKNOWN if most is None else most) // share

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        """Return how many different values a scan has in some of its columns, about."""
        return max(1, self.rows(scan) // (1 if columns else _CONSTANT_SHARE))

    def most(self, scan: Scan) -> int | None:
        """Return a number of rows that a scan certainly does not pass, if one is known."""
        pattern, _ = pattern_of(scan, self.constants)
        if scan.version is Version.ALL and (scan.predicate, pattern) in self.sizes:
            return self.sizes[scan.predicate, pattern]
        return self.relation(scan).at_most

    # Jobs.

    def cut(self, frame: DataFrame) -> DataFrame:
        """Return a table that knows nothing of how it was made, so that plans stay short."""
        with self.watching():
            if self.options.cuts == "local":
                return frame.localCheckpoint(eager=False)
            return frame.checkpoint(eager=True)

    def cut_counting(
        self, frame: DataFrame, counts: Mapping[str, str]
    ) -> tuple[DataFrame, Mapping[str, int]]:
        """Cut a table in one job that also counts, by expressions of aggregates."""
        seen = Observation()
        observed = frame.observe(
            seen, *(F.expr(f"{each} AS {name}") for name, each in counts.items())
        )
        with self.watching():
            if self.options.cuts == "local":
                made = observed.localCheckpoint(eager=True)
            else:
                made = observed.checkpoint(eager=True)
        found = seen.get
        return made, {name: found.get(name) or 0 for name in counts}

    def count(self, frames: Sequence[DataFrame], *, made: bool = False) -> list[Count]:
        """Count the rows of several tables in one job; `made` if they tell how often."""
        if not frames:
            return []
        parts = [
            frame.selectExpr(
                f"{number} AS number",
                "count(1) AS rows",
                f"sum({MADE if made else 1}) AS {MADE}",
            )
            for number, frame in enumerate(frames)
        ]
        with self.watching():
            found = {row["number"]: row for row in united(parts).collect()}
        return [
            Count(found[number]["rows"], found[number][MADE] or 0) for number in range(len(frames))
        ]

    def count_patterns(self, scans: Iterable[Scan]) -> None:
        """Count the rows that fit scans of base predicates, all in one job."""
        asked: dict[PredicateKey, list[Pattern]] = {}
        for scan in scans:
            pattern, _ = pattern_of(scan, self.constants)
            found = asked.setdefault(scan.predicate, [])
            if any(pattern) and pattern not in found:
                found.append(pattern)
        parts: list[DataFrame] = []
        for number, (key, patterns) in enumerate(asked.items()):
            if patterns and key in self.relations:
                tests = [fits(pattern) for pattern in patterns]
                counts = ", ".join(f"count_if({test})" for test in tests if test is not None)
                frame = self.relations[key].frame
                parts.append(frame.selectExpr(f"{number} AS number", f"array({counts}) AS n"))
        if not parts:
            return
        with self.watching():
            found_rows = united(parts).collect()
        keys = list(asked)
        for row in found_rows:
            key = keys[row["number"]]
            for pattern, rows in zip(asked[key], row["n"], strict=True):
                self.sizes[key, pattern] = rows

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turn the failure of a job that went beyond a limit into the error that says so."""
        try:
            yield
        except PySparkException as error:
            breach = breach_of(error)
            if breach is None:
                raise
            kind, rule = breach
            self.budget.rule = rule
            if kind == "work":
                self.budget.spend(self.remaining_work() + 1)
            (predicate,) = {
                branch.predicate
                for branches in self.branches.values()
                for branch in branches
                if branch.rule == rule
            }
            self.budget.check_derived(predicate, self.limits.max_derived_facts + 1)
            raise AssertionError("a limit that was passed is told") from error
