"""Count tests: by counting the facts of each key, or by the rank of an item in an order.

A rank needs no pairs: the items are sorted by what orders them, and only as far as the
bound asks. The plain count is kept for facts in which an item has two values of its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from lace.engines.spark.builtins import compared, order_key
from lace.engines.spark.relations import variable_column
from lace.rules.builtins import count_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from lace.algebra.nodes import CountTest, RankTest, Scan
    from lace.engines.spark.world import World
    from lace.rules.syntax import IntCompare, LexCompare, Operator

__all__ = ["count_rows", "meets", "rank_counts"]

_FACTS: Final = "facts"
_LARGE: Final = 2**62
_MOST_SORTED: Final = 2**31 - 2
"""The most rows that Spark takes from the front of an order."""


def count_rows(facts: DataFrame, scan: Scan) -> DataFrame:
    """Return how many facts there are for each key of a counted scan; one row if it has none."""
    keys = [variable_column(name) for name in scan.columns]
    if not keys:
        return facts.agg(F.count(F.lit(1)).alias(_FACTS))
    return facts.groupBy(keys).agg(F.count(F.lit(1)).alias(_FACTS))


def meets(frame: DataFrame, counts: DataFrame, keys: Sequence[str], test: CountTest) -> DataFrame:
    """Return the rows whose count meets the bound of a test; a key without a count has none."""
    if keys:
        joined = frame.join(counts, list(keys), "left_outer")
    else:
        joined = frame.crossJoin(F.broadcast(counts))
    found = F.coalesce(F.col(_FACTS), F.lit(0))
    return joined.where(compared(found, test.operator, F.lit(count_bound(test.bound))))


def rank_counts(world: World, items: DataFrame, test: RankTest) -> DataFrame | None:
    """Return how many items come behind each item, under the name of the test's key.

    None is returned when an item has two values to order by. A count above the bound may be
    any number above it.
    """
    item, by = variable_column(test.item), variable_column(test.by)
    items = items.distinct()
    twice = items.groupBy(item).agg(F.count(F.lit(1)).alias(_FACTS)).where(F.col(_FACTS) > 1)
    with world.watching():
        if twice.limit(1).collect():
            return None
    made = items.withColumn("ahead", F.lit(0).cast("long")).withColumn(
        "tied", F.lit(0).cast("long")
    )
    if test.ahead is not None:
        made = _count_ahead(world, made, by, test.ahead, count_bound(test.plain.bound))
    if test.tied is not None:
        made = _count_tied(world, made, item, by, test.tied)
    count = (F.col("ahead") + F.col("tied")).alias(_FACTS)
    return made.select(F.col(item).alias(variable_column(test.key)), count)


def _count_ahead(
    world: World, items: DataFrame, by: str, test: LexCompare | IntCompare, bound: int
) -> DataFrame:
    """Count for each item the items whose value compares so with its own.

    Of the different values only those at the front can have a count within the bound: behind
    this many values there are at least as many items.
    """
    key, takes_part = order_key(test, F.col("text"))
    numbered = items.join(_texts(world, by), [by], "inner")
    numbered = numbered.select(
        *items.columns, F.when(takes_part, key).alias("key"), takes_part.alias("valid")
    )
    counted = numbered.where("valid").groupBy("key").agg(F.count(F.lit(1)).alias("same"))
    order = _order("key", test.operator)
    front = counted.orderBy(order).limit(min(bound + 2, _MOST_SORTED))
    before = Window.orderBy(order).rowsBetween(Window.unboundedPreceding, -1)
    sums = front.select("key", F.coalesce(F.sum("same").over(before), F.lit(0)).alias("sum"))
    ranked = numbered.join(sums, ["key"], "left_outer")
    ahead = F.when(~F.col("valid"), F.lit(0)).otherwise(F.coalesce("sum", F.lit(_LARGE // 2)))
    return ranked.select(
        *(name for name in items.columns if name != "ahead"), ahead.cast("long").alias("ahead")
    )


def _count_tied(
    world: World, items: DataFrame, item: str, by: str, test: LexCompare | IntCompare
) -> DataFrame:
    """Count for each item those of the same value that compare so with it."""
    key, takes_part = order_key(test, F.col("text"))
    numbered = items.join(_texts(world, item), [item], "inner")
    numbered = numbered.withColumns({"valid": takes_part, "key": F.when(takes_part, key)})
    within = Window.partitionBy(by, "valid").orderBy(_order("key", test.operator))
    tied = F.when(F.col("valid"), F.rank().over(within) - 1).otherwise(F.lit(0))
    return numbered.select(
        *(name for name in items.columns if name != "tied"), tied.cast("long").alias("tied")
    )


def _order(name: str, operator: Operator) -> Column:
    """Return the order in which those that are counted for an item come before it."""
    return F.col(name).desc() if operator == ">" else F.col(name).asc()


def _texts(world: World, column: str) -> DataFrame:
    return world.texts.frame().select(F.col("id").alias(column), "text")
