"""What an evaluation on Spark knows: relations, the numbers of constants, sizes, limits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lace.algebra.nodes import Version
from lace.base.limits import SPARK_BROADCAST_ROWS
from lace.spark.engine.relations import (
    TableRelation,
    breach_of,
    fits,
    frame_of,
    frame_of_rows,
    pattern_of,
    text_frame,
    united,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from lace.algebra.nodes import Branch, RelationalProgram, Scan
    from lace.engine.budget import Budget
    from lace.rules.limits import RuleLimits
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.relations import Numbers, Pattern
    from lace.spark.engine.session import Options


MADE: Final = "made"
"""The column that tells how often a row was made."""
_UNKNOWN: Final = 2**30
"""About how many rows a relation has of which nothing is known."""
_CONSTANT_SHARE: Final = 8
"""One row in this many has a certain value in a column, about."""


class TextTable(Protocol):
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
        texts: TextTable,
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
        self.relations: dict[PredicateKey, TableRelation] = {}
        self.changed: dict[PredicateKey, TableRelation] = {}
        self.virtual: set[PredicateKey] = set(program.counted)
        self.branches: dict[PredicateKey, list[Branch]] = {}
        self.sizes: dict[tuple[PredicateKey, Pattern], int] = {}
        for step in program.steps:
            for branch in step.branches:
                self.branches.setdefault(branch.predicate, []).append(branch)

    def relation(self, scan: Scan) -> TableRelation:
        """Return what a scan reads."""
        if scan.version is Version.CHANGED:
            return self.changed[scan.predicate]
        found = self.relations.get(scan.predicate)
        if found is None:
            found = self.relations[scan.predicate] = self.empty(scan.predicate.arity)
        return found

    def empty(self, arity: int) -> TableRelation:
        """Return a relation without rows."""
        return TableRelation(frame_of_rows(self.session, (), arity), 0)

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


# -- Where the texts of numbers come from: a table, with the texts that only rules have.

_MOST_LISTED: Final = 1000
"""Texts that are looked for one by one, without a join."""


class TableTexts:
    """A table of texts, `id` and `text`; every text stands in it once."""

    def __init__(
        self,
        session: SparkSession,
        table: DataFrame,
        next_number: int | None = None,
        *,
        broadcast_rows: int = SPARK_BROADCAST_ROWS,
    ) -> None:
        self._broadcast_rows = broadcast_rows
        self._session = session
        self._table = table.select("id", "text")
        self._next = next_number

    def frame(self) -> DataFrame:
        """Return the table."""
        return self._table

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        if not texts:
            return {}
        if len(texts) <= _MOST_LISTED:
            found = self._table.where(F.col("text").isin(list(texts))).toArrow()
        else:
            asked = text_frame(self._session, np.arange(len(texts)), texts).select("text")
            asked = self._sent(asked, len(texts))
            found = self._table.join(asked, ["text"], "left_semi").toArrow()
        return dict(zip(found["text"].to_pylist(), found["id"].to_pylist(), strict=True))

    def _sent(self, frame: DataFrame, rows: int) -> DataFrame:
        """Return a table to join with; a small one is sent to every executor."""
        return F.broadcast(frame) if rows <= self._broadcast_rows else frame

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        if self._next is None:
            (found,) = self._table.agg(F.max("id").alias("most")).collect()
            self._next = 0 if found["most"] is None else found["most"] + 1
        return self._next

    def of(self, numbers: Numbers) -> list[str]:
        """Return the texts of numbers, in their order."""
        asked = np.unique(numbers)
        wanted = frame_of(self._session, [asked], len(asked)).select(F.col("c0").alias("id"))
        wanted = self._sent(wanted, len(asked))
        table = self._table.join(wanted, ["id"], "inner").toArrow()
        ids = table.column("id").to_numpy()
        order = np.argsort(ids)
        texts = table.column("text").to_pylist()
        at = order[np.searchsorted(ids, numbers, sorter=order)]
        return [texts[position] for position in at.tolist()]


class ExtendedTexts:
    """Texts with those that only the rules of one evaluation have; these get numbers behind."""

    def __init__(self, session: SparkSession, base: TextTable, constants: Sequence[str]) -> None:
        self._session = session
        self._base = base
        found = dict(base.find(constants))
        missing = [text for text in dict.fromkeys(constants) if text not in found]
        first = base.next_number() if missing else 0
        self._own = {text: first + at for at, text in enumerate(missing)}
        self.constants: Mapping[str, int] = found | self._own
        self._first = first if missing else None
        self._frame: DataFrame | None = None

    @property
    def added(self) -> Mapping[str, int]:
        """All texts that rules brought, with their numbers."""
        before = self._base.added if isinstance(self._base, ExtendedTexts) else {}
        return {**before, **self._own}

    def frame(self) -> DataFrame:
        """Return the table of all of them."""
        if self._frame is None:
            self._frame = self._base.frame()
            if self._own:
                numbers = np.fromiter(self._own.values(), np.int64, len(self._own))
                more = text_frame(self._session, numbers, list(self._own))
                self._frame = self._frame.unionAll(more.select("id", "text"))
        return self._frame

    def of(self, numbers: Numbers) -> list[str]:
        """Return the texts of numbers, in their order."""
        if self._first is None:
            return self._base.of(numbers)
        is_base = numbers < self._first
        base = iter(self._base.of(numbers[is_base]) if is_base.any() else [])
        added = list(self._own)
        return [
            next(base) if known else added[value - self._first]
            for known, value in zip(is_base.tolist(), numbers.tolist(), strict=True)
        ]

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        own = {text: self._own[text] for text in texts if text in self._own}
        return own | dict(self._base.find([text for text in texts if text not in own]))

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        return self._base.next_number() + len(self._own)
