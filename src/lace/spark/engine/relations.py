"""Relations as Spark tables of numbers: how they are named, read, united and guarded.

A relation has columns `c0`, `c1` and so on of 64-bit numbers; one without arguments has one
column, `unit`, and at most one row. Rows on their way through a rule have a column for each
variable, named by its letters in hexadecimal, because Spark does not tell `Ab` from `AB`.

Steps are written as SQL where they can be: a text is one call to Java, a column object several.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow

from lace.rules.syntax import Constant, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lace.algebra.nodes import Scan
    from lace.rules.syntax import PredicateKey


UNIT: Final = "unit"
NOTHING: Final = f"0L AS {UNIT}"
"""All that is left of a row of which only the existence counts."""
Pattern: TypeAlias = "tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]"
"""Positions with the numbers that stand there, and pairs of positions with equal numbers."""
_ROW_BITS: Final = 33
"""Spark numbers the rows of each part of a table in this many bits."""
_BREACH: Final = re.compile(r"lace limit (work|derived) of rule ([0-9]{1,9})!")


@dataclass(frozen=True, slots=True)
class TableRelation:
    """A set of rows; `rows` is how many it has, None where that is not known yet.

    `most` is a number of rows that it certainly does not pass.
    """

    frame: DataFrame
    rows: int | None = None
    most: int | None = None

    @property
    def at_most(self) -> int | None:
        """The number of rows, or one that it does not pass, or None."""
        return self.most if self.rows is None else self.rows


def columns_of(arity: int) -> list[str]:
    """Return the names of the columns of a relation."""
    return [f"c{at}" for at in range(arity)] or [UNIT]


def variable_column(name: str) -> str:
    """Return the name of a variable's column."""
    return f"v{name.encode().hex()}"


def number(value: int) -> str:
    """Return a number as an expression of 64 bits."""
    return f"{int(value)}L"


def selected(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the columns of variables; without any, one that says that there is a row."""
    if not names:
        return frame.selectExpr(NOTHING)
    return frame.selectExpr(*map(variable_column, names))


def united(frames: Iterable[DataFrame]) -> DataFrame:
    """Return all rows of tables with the same columns, repeated ones too."""
    return reduce(lambda left, right: left.unionAll(right), frames)


def pattern_of(scan: Scan, constants: Mapping[str, int]) -> tuple[Pattern, dict[str, int]]:
    """Return which rows fit a scan, and the position of each variable."""
    fixed: list[tuple[int, int]] = []
    equal: list[tuple[int, int]] = []
    positions: dict[str, int] = {}
    for at, term in enumerate(scan.terms):
        if isinstance(term, Constant):
            fixed.append((at, constants[term.value]))
        elif isinstance(term, Variable):
            first = positions.setdefault(term.name, at)
            if first != at:
                equal.append((first, at))
    return (tuple(fixed), tuple(equal)), positions


def fits(pattern: Pattern) -> str | None:
    """Return the test whether a row fits a pattern; None when every row does."""
    fixed, equal = pattern
    tests = [f"c{at} = {number(value)}" for at, value in fixed]
    tests += [f"c{left} = c{right}" for left, right in equal]
    return " AND ".join(tests) or None


def read_scan(frame: DataFrame, scan: Scan, constants: Mapping[str, int]) -> DataFrame:
    """Return the rows of a relation that fit a scan, with the scan's columns."""
    pattern, positions = pattern_of(scan, constants)
    test = fits(pattern)
    if test is not None:
        frame = frame.where(test)
    if not scan.columns:
        return frame.selectExpr(NOTHING)
    return frame.selectExpr(
        *(f"c{positions[name]} AS {variable_column(name)}" for name in scan.columns)
    )


def guarded(frame: DataFrame, limit: int, kind: Literal["work", "derived"], rule: int) -> DataFrame:
    """Return the rows, and stop where one part of the table alone passes a limit.

    So a blow-up ends while it happens; what all parts have together is counted afterwards.
    """
    most = min(limit, 2**_ROW_BITS - 1)
    row = f"(monotonically_increasing_id() & {number(2**_ROW_BITS - 1)})"
    breach = f"CAST(raise_error('lace limit {kind} of rule {rule}!') AS boolean)"
    return frame.where(f"CASE WHEN {row} >= {number(most)} THEN {breach} ELSE true END")


def breach_of(error: BaseException) -> tuple[str, int] | None:
    """Return which limit a failed job went beyond, and in which rule; None for another reason."""
    found = _BREACH.search(str(error))
    return (found[1], int(found[2])) if found else None


# -- Numbers between Spark tables and this process, as Arrow columns.
#
# So is a table without rows: what Spark makes of an empty list is read by Python workers, and plans
# keep all that would be done with its rows.

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


# -- Functions over Arrow batches as steps of a DataFrame, and DataFrames without rows.
#
# PySpark's own methods for functions refuse to work where pandas is not installed, though only
# Arrow
# is used. These do the same without that demand.

_NAME: Final = "lace"


def empty_frame(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame that has no rows, and is known to have none.

    What is made of an empty list is read by Python workers, which may have to start for it, and
    plans keep all that would be done with its rows.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return session.createDataFrame(to_arrow_schema(schema).empty_table(), schema)


def map_in_arrow(
    rows: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: StructType
) -> DataFrame:
    """Return what a function makes of the Arrow batches of each partition."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.util import PythonEvalType

    made = _function(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = made(*[rows[name] for name in rows.columns])
    return ClassicDataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def cogroup_in_arrow(
    left: DataFrame,
    right: DataFrame,
    key: str,
    function: Callable[[Any, Any], Any],
    schema: StructType,
) -> DataFrame:
    """Return what a function makes of the rows of two DataFrames that agree in a column.

    The function gets two Arrow tables, one of which may be empty, and returns one.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.util import PythonEvalType

    def call(first: Any, second: Any) -> Any:  # noqa: ANN401 - Arrow has no types
        # Spark counts the parameters, and would count the `self` of an object too.
        return function(first, second)

    made = _function(call, schema, PythonEvalType.SQL_COGROUPED_MAP_ARROW_UDF)
    columns = [each[name] for each in (left, right) for name in each.columns]
    column = made(*columns)
    groups = [each.groupBy(key)._jgd for each in (left, right)]
    jdf = groups[0].flatMapCoGroupsInArrow(groups[1], column._jc)
    return ClassicDataFrame(jdf, left.sparkSession)


def _function(function: Callable[..., Any], schema: StructType, kind: int) -> Any:  # noqa: ANN401
    from pyspark.sql.udf import UserDefinedFunction

    return UserDefinedFunction(function, schema, name=_NAME, evalType=kind)
