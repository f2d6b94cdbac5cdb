"""All stages one after another, in one Spark session: from files to derived facts, and on.

Each stage does what is not done yet and commits by itself, so a run that was interrupted goes on
where it was. Spark is started for the first stage that has work for it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lace.spark.pipeline.advertise import advertise, is_current
from lace.spark.pipeline.derived import answer_table, check_name
from lace.spark.pipeline.evaluate import evaluate, find_answer
from lace.spark.pipeline.facts import Extracted, has_fresh_records, make_facts
from lace.spark.pipeline.ingest import Ingested, find_new, ingest
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.warehouse import not_written, told
from lace.store.file_errors import open_writer
from lace.store.intake import import_stream
from lace.store.interface import Order
from lace.store.validation import batches_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.base.limits import Settings
    from lace.spark.engine.session import Options
    from lace.spark.pipeline.advertise import Asked, Done
    from lace.spark.pipeline.derived import Evaluated
    from lace.spark.pipeline.evaluate import Question
    from lace.spark.pipeline.ingest import NewFiles
    from lace.spark.pipeline.warehouse import Job, WarehouseFolder
    from lace.store.intake import Intake, Report
    from lace.store.interface import RecordStore
    from lace.store.sqlite.snapshot import SqliteSnapshot


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
    """Run all stages."""
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


# -- Records between a lace and a warehouse: a snapshot as a file to ingest, and the way back.


def find_lace_records(
    job: Job,
    folder: Path,
    snapshot: SqliteSnapshot,
    report: Callable[[int, int], None] | None = None,
) -> NewFiles:
    """Write the records of a lace to a file of the job; returns it unless it was ingested so."""
    target = job.scratch("lace") / "lace.records"
    total = snapshot.totals().records
    with told(target):
        target.parent.mkdir(parents=True)
    with open_writer(target, lambda error: not_written(target, error)) as file:
        for number, record in enumerate(snapshot.records(order=Order.ID), 1):
            file.write(record.bytes)
            if report is not None:
                report(number, total)
    path = target.resolve()
    return find_new(job.warehouse, [path], {str(path): f"lace:{folder.resolve()}"})


def store_records(
    warehouse: WarehouseFolder,
    store: RecordStore,
    *,
    settings: Settings,
    workers: int,
    report: Report | None = None,
) -> Intake:
    """Store the records of a warehouse, each validated as an import does it; returns the counts."""
    return import_stream(
        store,
        (record.bytes for record in iterate_records(warehouse)),
        settings=settings,
        random_bytes=os.urandom,
        workers=workers,
        alone=batches_alone(settings),
        source=str(warehouse.folder),
        report=report,
    )
