"""Facts of this process through Spark: columns of numbers in, columns of numbers out.

A session is opened for it, unless this process has one, and the answer is collected before
the session ends.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from lace.columns.dictionary import Dictionary, fingerprints_of
from lace.columns.relation import Relation
from lace.engine.budget import Budget
from lace.engine.engine import Evaluation
from lace.engine.state import EvaluationState
from lace.errors import EngineError
from lace.record.hash_rows import decode_hashes
from lace.spark.engine.session import LOCAL_MASTER, open_session, shuffle_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.algebra.nodes import RelationalProgram
    from lace.columns.dictionary import Fingerprints, Ids
    from lace.engine.budget import Statistics
    from lace.record.hash_rows import Octets
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.fixpoint import Handover
    from lace.spark.engine.relations import Columns, Numbers
    from lace.spark.engine.session import Options


_NUMBER_BYTES = 8


class SparkFailedError(EngineError):
    """A job failed on Spark."""


class LocalTexts:
    """The texts of numbers that this process knows."""

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
        from lace.spark.engine.relations import text_frame

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
    """Return the facts of predicates, and the texts of the numbers that the rules brought."""
    with open_session(LOCAL_MASTER) as session, _checkpoints(session, options), _telling():
        from lace.spark.engine.engine import evaluate_tables
        from lace.spark.engine.relations import collect_columns, frame_of

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


# -- Evaluating over columns of 64-bit numbers in this process: what a larger engine hands over.
#
# The numbers are another engine's. They are numbered again, densely, and the embedded engine
# asks for a text only where a test needs one.


class _HandedTexts:
    """Texts by dense number, for those numbers that came along."""

    def __init__(
        self,
        numbers: Numbers,
        constants: Mapping[str, int],
        texts: Callable[[Numbers], list[str]],
    ) -> None:
        self._numbers = numbers
        self._constants = constants
        self._texts = texts
        self._known: list[str | None] = [None] * len(numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that it does not have."""
        given = np.array([self._constants.get(text, -1) for text in texts], np.int64)
        at = np.searchsorted(self._numbers, given)
        return np.where(given >= 0, at, -1).astype(np.int32)

    def find_hashes(self, rows: Octets) -> Ids:
        """Return the numbers of record hashes, -1 for one that it does not have."""
        return self.find(decode_hashes(rows))

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers."""
        known, asked = self._known, ids.tolist()
        missing = sorted({at for at in asked if known[at] is None})
        if missing:  # asked for together, and once: each time may be a job of its own
            found = self._texts(self._numbers[missing])
            for at, text in zip(missing, found, strict=True):
                known[at] = text
        return [text for at in asked if (text := known[at]) is not None]

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return what `fingerprints_of` gives for the texts of numbers."""
        return fingerprints_of(self.texts(ids))


def evaluate_columns(
    checked: CheckedProgram,
    program: RelationalProgram,
    inputs: Mapping[PredicateKey, Columns],
    *,
    constants: Mapping[str, int],
    texts: Callable[[Numbers], list[str]],
    wanted: Iterable[PredicateKey],
    statistics: Statistics,
) -> dict[PredicateKey, Columns]:
    """Return the facts of predicates, in the numbers of the caller.

    See `lace.spark.engine.fixpoint.Handover`, which this is.
    """
    given = [np.fromiter(constants.values(), np.int64, len(constants))]
    given += [column for columns, _ in inputs.values() for column in columns]
    numbers = np.unique(np.concatenate(given))
    relations = {
        key: Relation.of(
            [np.searchsorted(numbers, column).astype(np.int32) for column in columns], rows
        )
        for key, (columns, rows) in inputs.items()
    }
    dictionary = Dictionary(_HandedTexts(numbers, constants, texts))
    budget = Budget(checked, statistics)
    state = EvaluationState(program, dictionary, max(1, len(numbers)), relations, budget)
    evaluation = Evaluation(checked, state)
    asked = list(wanted)
    evaluation.run(asked)
    made: dict[PredicateKey, Columns] = {}
    for key in asked:
        found = evaluation.relation(key)
        made[key] = [numbers[column] for column in found.columns()], found.rows
    return made
