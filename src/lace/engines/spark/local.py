"""Facts of this process through Spark: columns of numbers in, columns of numbers out.

A session is opened for it, unless this process has one, and the answer is collected before
the session ends.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lace.engines.spark.session import LOCAL_MASTER, open_session, shuffle_partitions
from lace.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.engines.budget import Statistics
    from lace.engines.spark.handing import Handover
    from lace.engines.spark.options import Options
    from lace.engines.spark.transfer import Columns, Numbers
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["LocalTexts", "SparkFailedError", "collect_answer"]

_NUMBER_BYTES = 8


class SparkFailedError(EngineError):
    """A job failed on Spark."""


class LocalTexts:
    """The texts of numbers that this process knows.

    Args:
        used: the numbers that facts have, each once.
        size: a number from which on no text has one.
        texts: gives the texts of numbers.
        find: gives the numbers of texts, below 0 for one that has none.
    """

    def __init__(
        self,
        used: Numbers,
        size: int,
        texts: Callable[[Numbers], list[str]],
        find: Callable[[Sequence[str]], Sequence[int]],
    ) -> None:
        self._used = used
        self._size = size
        self._find = find
        self.of = texts
        self.session: SparkSession | None = None

    def frame(self) -> DataFrame:
        """Return the table of the texts that facts have."""
        from lace.engines.spark.transfer import text_frame

        if self.session is None:
            raise AssertionError("texts become a table in a session")
        return text_frame(self.session, self._used, self.of(self._used))

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        found = zip(texts, self._find(texts), strict=True)
        return {text: int(number) for text, number in found if number >= 0}

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        return self._size


def collect_answer(
    checked: CheckedProgram,
    inputs: Mapping[PredicateKey, Columns],
    counts: Mapping[PredicateKey, int],
    texts: LocalTexts,
    wanted: Sequence[PredicateKey],
    *,
    options: Options | None,
    statistics: Statistics | None,
    handover: Handover,
) -> tuple[dict[PredicateKey, Columns], dict[int, str]]:
    """Return the facts of predicates, and the texts of the numbers that the rules brought.

    Raises:
        LimitExceeded: it goes beyond a limit; there is no part of an answer.
        EngineError: there is no Spark or no Java, or a job failed.
    """
    with open_session(LOCAL_MASTER) as session, _checkpoints(session, options), _telling():
        from lace.engines.spark.engine import evaluate_tables
        from lace.engines.spark.transfer import collect_columns, frame_of

        texts.session = session
        size = sum(rows * max(1, len(columns)) for columns, rows in inputs.values())
        shuffle_partitions(session, size * _NUMBER_BYTES)
        tables = evaluate_tables(
            session,
            checked,
            {key: frame_of(session, columns, rows) for key, (columns, rows) in inputs.items()},
            texts,
            counts=counts,
            predicates=wanted,
            options=options,
            statistics=statistics,
            handover=handover,
        )
        made = collect_columns({key: each.frame for key, each in tables.relations.items()})
        texts.session = None
        return made, {number: text for text, number in tables.added.items()}


@contextmanager
def _checkpoints(session: SparkSession, options: Options | None) -> Iterator[None]:
    """Give intermediate tables that are files a place, until the answer is here."""
    if options is None or options.cuts != "reliable":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="lace-cuts-", ignore_cleanup_errors=True) as folder:
        session.sparkContext.setCheckpointDir(folder)
        yield


@contextmanager
def _telling() -> Iterator[None]:
    """Turn a job's failure into an error of Lace's own."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SparkFailedError(
            f"Spark failed: {lines[0][:200]}", hint="use the engine embedded, or try again"
        ) from error
