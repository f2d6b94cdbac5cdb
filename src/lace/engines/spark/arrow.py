"""Functions over Arrow batches as steps of a DataFrame, and DataFrames without rows.

PySpark's own methods for functions refuse to work where pandas is not installed, though only Arrow
is used. These do the same without that demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["cogroup_in_arrow", "empty_frame", "map_in_arrow"]

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
