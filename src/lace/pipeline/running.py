"""All stages one after another, in one Spark session: from files to derived facts, and on.

Each stage does what is not done yet and commits by itself, so a run that was interrupted goes on
where it was. Spark is started for the first stage that has work for it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lace.pipeline.advertise import advertise, is_current
from lace.pipeline.derived import answer_table, check_name
from lace.pipeline.evaluate import evaluate, find_answer
from lace.pipeline.facts import Extracted, has_fresh_records, make_facts
from lace.pipeline.ingest import Ingested, find_new, ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.engines.spark.options import Options
    from lace.pipeline.advertise import Done
    from lace.pipeline.derived import Evaluated
    from lace.pipeline.evaluate import Question
    from lace.pipeline.states import Asked
    from lace.pipeline.warehouse import Job

__all__ = ["Ran", "Work", "run_stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run is to do.

    Attributes:
        paths: the files to ingest, absolute.
        max_data_bytes: larger data of a record is a fault.
        name: what to call the answer.
        question: the rules, and what is wanted of them.
        options: how the engine goes about it.
        asked: what to advertise; None for nothing.

    Raises:
        UsageError: the name, or that of a predicate, cannot name a table.
    """

    paths: Sequence[Path]
    max_data_bytes: int
    name: str
    question: Question
    options: Options | None = None
    asked: Asked | None = None

    def __post_init__(self) -> None:
        for key in self.question.predicates:
            answer_table(check_name(self.name), key)


@dataclass(frozen=True, slots=True)
class Ran:
    """What the stages of a run did; `advertised` is None where nothing was to be advertised."""

    ingested: Ingested
    extracted: Extracted
    evaluated: Evaluated
    advertised: Done | None = None


def run_stages(job: Job, work: Work, opening: Callable[[], AbstractContextManager[Any]]) -> Ran:
    """Run all stages.

    Args:
        job: the writer's hold of the warehouse.
        work: what to do.
        opening: opens a Spark session; called once at most, and not where there is nothing to do.

    Raises:
        LimitExceeded: the evaluation goes beyond a limit; what stands before it is committed.
        UsageError: a file cannot be read.
        WarehouseDamagedError: a file of the warehouse is damaged.
        StoreUnavailableError: the disk is full.
        SparkJobError: Spark failed.
    """
    with ExitStack() as stack:
        run = _Run(job, work, opening, stack)
        return Ran(run.ingest(), run.facts(), run.evaluate(), run.advertise())


class _Run:
    """One run, and its Spark session from the first stage on that has work for it."""

    def __init__(
        self,
        job: Job,
        work: Work,
        opening: Callable[[], AbstractContextManager[Any]],
        stack: ExitStack,
    ) -> None:
        self._job, self._work = job, work
        self._opening, self._stack = opening, stack
        self._session: Any = None

    def _started(self) -> Any:  # noqa: ANN401 - PySpark's own
        if self._session is None:
            self._session = self._stack.enter_context(self._opening())
        return self._session

    def ingest(self) -> Ingested:
        """Take in the files that are new."""
        new = find_new(self._job.warehouse, self._work.paths)
        if not new.files:
            return Ingested(skipped=new.skipped)
        limit = self._work.max_data_bytes
        return ingest(self._started(), self._job, new, max_data_bytes=limit)

    def facts(self) -> Extracted:
        """Make the facts of the records that have none."""
        if not has_fresh_records(self._job.warehouse.manifest):
            return Extracted(0, 0, 0)
        return make_facts(self._started(), self._job)

    def evaluate(self) -> Evaluated:
        """Answer the question, unless it has its answer."""
        work = self._work
        known = find_answer(self._job.warehouse, work.name, work.question)
        if known is not None:
            return known
        return evaluate(self._started(), self._job, work.name, work.question, options=work.options)

    def advertise(self) -> Done | None:
        """Advertise what is asked for."""
        asked = self._work.asked
        if asked is None:
            return None
        return is_current(self._job.warehouse, asked) or advertise(
            self._started(), self._job, asked
        )
