"""Numbers between Spark tables and this process, as Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow

from lace.engines.spark.relations import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Columns", "Numbers", "collect_columns", "frame_of", "text_frame"]

Numbers: TypeAlias = "npt.NDArray[np.int64]"
Columns: TypeAlias = "tuple[list[Numbers], int]"
"""The columns of a relation, and how many rows it has."""


def collect_columns(frame: DataFrame, arity: int) -> Columns:
    """Return the rows of a relation's table as columns."""
    table = frame.toArrow()
    if not arity:
        return [], table.num_rows
    columns = [
        np.ascontiguousarray(table.column(name).to_numpy(), np.int64) for name in columns_of(arity)
    ]
    return columns, table.num_rows


def frame_of(
    session: SparkSession, columns: Sequence[npt.NDArray[np.integer]], rows: int
) -> DataFrame:
    """Return the table of a relation's columns; they have no row twice."""
    names = columns_of(len(columns))
    if not columns:
        arrays = [pyarrow.array(np.zeros(rows, np.int64))]
    else:
        arrays = [pyarrow.array(column, pyarrow.int64()) for column in columns]
    if not rows:
        return session.createDataFrame([], ", ".join(f"{name} bigint" for name in names))
    return session.createDataFrame(pyarrow.table(arrays, names=names))


def text_frame(session: SparkSession, numbers: Numbers, texts: Sequence[str]) -> DataFrame:
    """Return the table of texts by number."""
    if not len(texts):
        return session.createDataFrame([], "id bigint, text string")
    made = pyarrow.table(
        [pyarrow.array(numbers, pyarrow.int64()), pyarrow.array(texts, pyarrow.string())],
        names=["id", "text"],
    )
    return session.createDataFrame(made)
