"""Spark's side of the engine benchmarks: one process, one warm session, tables on disk.

As a program it tells its steps: `python -m benchmarks.spark_side RECORDS`. Processor time is
that of this process and of the Java process, in milliseconds, among the counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow
from pyarrow import parquet

from benchmarks.corpus import FOLDER
from benchmarks.measure import Steps
from benchmarks.workload_facts import columns_of
from benchmarks.workloads import GOALS, PROGRAMS, VERSION, describe
from lace.engine.budget import Statistics
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey, parse_predicate
from lace.spark.engine import engine
from lace.spark.engine.context import TableTexts
from lace.spark.engine.engine import evaluate_tables
from lace.spark.engine.local import evaluate_columns
from lace.spark.engine.session import Options, open_session, shuffle_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lace.spark.engine.engine import Tables
    from lace.spark.engine.session import Cuts

WORKLOADS: Final = ("W1", "W2", "W3")
_ARITIES: Final = {"Have": 1, "Field": 4, "RecordLink": 5}


def tables_of(size: int) -> Path:
    """Return the folder of the tables of so many records; they are made once."""
    folder = FOLDER / f"spark-{VERSION}-{size}"
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    columns = columns_of(describe(size))
    for name, relation in columns.relations.items():
        arrays = [pyarrow.array(column, pyarrow.int64()) for column in relation]
        made = pyarrow.table(arrays, names=[f"c{at}" for at in range(len(arrays))])
        parquet.write_table(made, folder / f"{name}.parquet", row_group_size=2**18)
    numbers = pyarrow.array(range(len(columns.dictionary)), pyarrow.int64())
    texts = pyarrow.table([numbers, pyarrow.array(columns.dictionary)], names=["id", "text"])
    parquet.write_table(texts, folder / "texts.parquet", row_group_size=2**18)
    (folder / "done").touch()
    return folder


@contextmanager
def _handing() -> Iterator[list[float]]:
    """Give the seconds of each handing over: collecting, evaluating and making tables again."""
    module: Any = engine
    whole, seconds = module.hand_over, list[float]()

    def timed(*arguments: Any) -> None:  # noqa: ANN401 - handed on as they are
        start = time.perf_counter()
        whole(*arguments)
        seconds.append(time.perf_counter() - start)

    module.hand_over = timed
    try:
        yield seconds
    finally:
        module.hand_over = whole


class _Side:
    """The tables of one size in a session."""

    def __init__(self, session: SparkSession, folder: Path, steps: Steps) -> None:
        self._session = session
        self._steps = steps
        gateway: Any = session.sparkContext._gateway
        self._java = gateway.proc.pid
        self._inputs = {
            PredicateKey(name, arity): session.read.parquet(str(folder / f"{name}.parquet"))
            for name, arity in _ARITIES.items()
        }
        self._texts = TableTexts(session, session.read.parquet(str(folder / "texts.parquet")))

    def evaluate(self, workload: str, step: str, options: Options | None = None) -> int:
        """Evaluate a workload; tells the iterations that Spark went through."""
        checked = check_source(PROGRAMS[workload], profile=QUERY)
        goal = parse_predicate(GOALS[workload])
        statistics = Statistics()
        with self._measured(step), _handing() as handed:
            found: Tables = evaluate_tables(
                self._session,
                checked,
                self._inputs,
                self._texts,
                predicates=[goal],
                options=options,
                statistics=statistics,
                handover=evaluate_columns,
            )
        self._steps.count(f"{step} goal", found.rows(str(goal)))
        self._steps.count(f"{step} handed ms", round(sum(handed) * 1e3))
        return max((run.iteration for run in statistics.runs), default=0)

    @contextmanager
    def _measured(self, step: str) -> Iterator[None]:
        before = self._cpu()
        with self._steps.step(step):
            yield
        self._steps.count(f"{step} cpu ms", round((self._cpu() - before) * 1e3))

    def _cpu(self) -> float:
        with open(f"/proc/{self._java}/stat") as file:  # noqa: PTH123 - not a file of ours
            fields = file.read().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(size: int) -> None:
    """Measure all workloads once in a session that has done each of them at a small size."""
    steps = Steps()
    small, folder = tables_of(4000), tables_of(size)
    with open_session("local[2]") as session, tempfile.TemporaryDirectory() as kept:
        session.sparkContext.setCheckpointDir(kept)
        warm = _Side(session, small, Steps())
        for workload in WORKLOADS:
            warm.evaluate(workload, workload, Options(small_rows=0))
        side = _Side(session, folder, steps)
        shuffle_partitions(session, folder.joinpath("Field.parquet").stat().st_size)
        for workload in WORKLOADS:
            side.evaluate(workload, workload)
        ways: tuple[Cuts, ...] = ("local", "reliable")
        for cuts in ways:
            options = Options(small_rows=0, handover_rows=0, cuts=cuts)
            warm.evaluate("W2", "W2", options)
            rounds = side.evaluate("W2", cuts, options)
            steps.count(f"{cuts} rounds", rounds)
    steps.tell()


if __name__ == "__main__":
    main(int(sys.argv[1]))
