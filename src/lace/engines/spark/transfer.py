"""Numbers between Spark tables and this process, as Arrow columns.

So is a table without rows: what Spark makes of an empty list is read by Python workers, and plans
keep all that would be done with its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow

from lace.engines.spark.relations import columns_of, number, united

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.rules.syntax import PredicateKey

__all__ = ["Columns", "Numbers", "collect_columns", "frame_of", "frame_of_rows", "text_frame"]

Numbers: TypeAlias = "npt.NDArray[np.int64]"
Columns: TypeAlias = "tuple[list[Numbers], int]"
"""The columns of a relation, and how many rows it has."""
_TABLE: Final = "table"


def collect_columns(frames: Mapping[PredicateKey, DataFrame]) -> dict[PredicateKey, Columns]:
    """Return the rows of relations as columns: those of all tables in one job."""
    if not frames:
        return {}
    names = columns_of(max(key.arity for key in frames))
    parts = [
        frame.selectExpr(
            f"{number(at)} AS {_TABLE}",
            *(name if name in columns_of(key.arity) else f"0L AS {name}" for name in names),
        )
        for at, (key, frame) in enumerate(frames.items())
    ]
    table = united(parts).toArrow()
    tables, *values = (
        np.ascontiguousarray(table.column(name).to_numpy(), np.int64) for name in (_TABLE, *names)
    )
    made: dict[PredicateKey, Columns] = {}
    for at, key in enumerate(frames):
        rows = np.flatnonzero(tables == at)
        made[key] = [column[rows] for column in values[: key.arity]], len(rows)
    return made


def frame_of(
    session: SparkSession, columns: Sequence[npt.NDArray[np.integer]], rows: int
) -> DataFrame:
    """Return the table of a relation's columns; they have no row twice."""
    names = columns_of(len(columns))
    if not columns:
        arrays = [pyarrow.array(np.zeros(rows, np.int64))]
    else:
        arrays = [pyarrow.array(column, pyarrow.int64()) for column in columns]
    return session.createDataFrame(pyarrow.table(arrays, names=names))


def frame_of_rows(session: SparkSession, rows: Sequence[Sequence[int]], arity: int) -> DataFrame:
    """Return the table of a relation's rows, each of which is there once."""
    columns = [np.fromiter((row[at] for row in rows), np.int64, len(rows)) for at in range(arity)]
    return frame_of(session, columns, len(rows))


def text_frame(session: SparkSession, numbers: Numbers, texts: Sequence[str]) -> DataFrame:
    """Return the table of texts by number."""
    made = pyarrow.table(
        [pyarrow.array(numbers, pyarrow.int64()), pyarrow.array(texts, pyarrow.string())],
        names=["id", "text"],
    )
    return session.createDataFrame(made)
