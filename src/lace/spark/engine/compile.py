"""From an ordered plan to a Spark table: one join, test or projection for each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from lace.algebra.nodes import (
    AntiJoin,
    CountTest,
    Filter,
    Join,
    Node,
    RankTest,
    Scan,
    SemiJoin,
    Unit,
    columns_of_terms,
)
from lace.algebra.passes.order import order_joins
from lace.rules.builtins import count_bound, int_compare, lex_compare, text_shape, unequal
from lace.rules.syntax import Constant, Inequality, IntCompare, LexCompare, TextShape, Variable
from lace.spark.engine.relations import (
    NOTHING,
    guarded,
    number,
    read_scan,
    selected,
    united,
    variable_column,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from lace.algebra.nodes import Branch, Project
    from lace.rules.syntax import Operator, PredicateKey, Term, Test
    from lace.spark.engine.context import World


# -- Built-in tests as Spark columns of text: they mean what `lace.rules.builtins` says.
#
# Spark compares strings as UTF-8 bytes. Integers of any length are compared by sign, number
# of digits and digits, never as numbers.

_INTEGER: Final = r"\A-?[0-9]+\z"
_DIGITS: Final = "0123456789"


def compared(left: Column, operator: Operator, right: Column) -> Column:
    """Return the comparison of two columns."""
    match operator:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right


def is_integer(text: Column) -> Column:
    """Tell whether a text is a decimal integer."""
    return text.rlike(_INTEGER)


def integer_key(text: Column) -> Column:
    """Return what orders integers as numbers; it means something for integers only."""
    digits = F.ltrim(F.ltrim(text, F.lit("-")), F.lit("0"))
    sign = F.when(digits == "", 0).when(text.startswith("-"), -1).otherwise(1)
    turned = F.translate(digits, _DIGITS, _DIGITS[::-1])
    return F.struct(
        sign.alias("sign"),
        (sign * F.char_length(digits)).alias("length"),
        F.when(sign < 0, turned).otherwise(digits).alias("digits"),
    )


def order_key(test: LexCompare | IntCompare, text: Column) -> tuple[Column, Column]:
    """Return what a comparison orders texts by, and whether a text takes part in it."""
    if isinstance(test, IntCompare):
        return integer_key(text), is_integer(text)
    return text, F.lit(True)


def test_column(test: Test, text_of: Callable[[str], Column]) -> Column:
    """Return whether a test holds, from the texts of its variables."""

    def value(term: Term) -> Column:
        return text_of(term.name) if isinstance(term, Variable) else F.lit(_constant(term))

    match test:
        case Inequality():
            return value(test.left) != value(test.right)
        case IntCompare():
            left, right = value(test.left), value(test.right)
            ordered = compared(integer_key(left), test.operator, integer_key(right))
            return is_integer(left) & is_integer(right) & ordered
        case LexCompare():
            return compared(value(test.left), test.operator, value(test.right))
        case TextShape():
            texts = value(test.text), value(test.start), value(test.end)
            return _shape(*texts, test.delimiters.value)


def _shape(text: Column, start: Column, end: Column, delimiters: str) -> Column:
    rest = F.substring(text, F.char_length(start) + 1, F.char_length(text))
    if not delimiters:
        return F.startswith(text, start) & F.endswith(rest, end)
    # As code points, so that no delimiter means anything to a regular expression.
    inside = "".join(f"\\x{{{ord(character):X}}}" for character in delimiters)
    shape = F.lit(rf"(?s)\A[^{inside}]+[{inside}](.*)\z")
    behind = F.regexp_extract(rest, rf"(?s)\A[^{inside}]+[{inside}](.*)\z", 1)
    return F.startswith(text, start) & F.regexp_like(rest, shape) & (behind == end)


def holds_always(test: Test) -> bool:
    """Tell whether a test without variables holds."""
    match test:
        case Inequality():
            return unequal(_constant(test.left), _constant(test.right))
        case IntCompare():
            return int_compare(_constant(test.left), test.operator, _constant(test.right))
        case LexCompare():
            return lex_compare(_constant(test.left), test.operator, _constant(test.right))
        case TextShape():
            text, start, end = (_constant(term) for term in test.terms)
            return text_shape(text, start, test.delimiters.value, end)


def _constant(term: Term) -> str:
    if not isinstance(term, Constant):
        raise AssertionError("a term of a test is a variable or a constant")
    return term.value


# -- Count tests: by counting the facts of each key, or by the rank of an item in an order.
#
# A rank needs no pairs: the items are sorted by what orders them, and only as far as the
# bound asks. The plain count is kept for facts in which an item has two values of its order.

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


_EXISTS: Final = "0L AS exists"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows on their way; `most` is a number that they do not pass, if one is known."""

    frame: DataFrame
    columns: tuple[str, ...]
    most: int | None
    exact: bool = False
    """Whether the table has these columns and no others."""

    def kept(self, columns: tuple[str, ...]) -> _Rows:
        if columns and self.exact and len(columns) == len(self.columns):
            return self  # as it is: each further step of a plan has its price
        return _Rows(selected(self.frame, columns), columns, self.most, bool(columns))


def branch_rows(world: World, branch: Branch, plan: Project | None = None) -> DataFrame:
    """Return the facts that a rule makes, repeated ones too; from a plan of it, or its own."""
    ordered = order_joins(plan or branch.plan, world)
    rows = _Compiler(world, branch.rule).rows(ordered.input)
    frame = guarded(rows.frame, world.guarded_work(), "work", branch.rule)
    if not ordered.terms:
        return frame.selectExpr(NOTHING)
    return frame.selectExpr(
        *(f"{_head(world, term)} AS c{at}" for at, term in enumerate(ordered.terms))
    )


def _head(world: World, term: Variable | Constant) -> str:
    if isinstance(term, Constant):
        return number(world.constants[term.value])
    return variable_column(term.name)


def made_rows(world: World, predicate: PredicateKey) -> DataFrame:
    """Return the facts of a predicate that is only counted: each once, made when it is read."""
    made = united(branch_rows(world, branch) for branch in world.branches[predicate])
    return made if predicate in world.program.distinct else made.distinct()


class _Compiler:
    """The nodes of one rule's plan as tables."""

    def __init__(self, world: World, rule: int) -> None:
        self._world = world
        self._rule = rule

    def rows(self, node: Node) -> _Rows:
        """Return the rows of a node, with the columns that it names."""
        match node:
            case Unit():
                unit = self._world.session.range(1).selectExpr(NOTHING)
                return _Rows(unit, (), 1)
            case Scan():
                return self._scan(node)
            case Join((Unit(), right), columns):
                return self.rows(right).kept(columns)
            case Join((left, right), columns):
                return self._join(self.rows(left), self.rows(right)).kept(columns)
            case SemiJoin(left, right, columns):
                return self._semi_join(self.rows(left), self.rows(right)).kept(columns)
            case AntiJoin(left, right, columns):
                return self._anti_join(self.rows(left), self.rows(right)).kept(columns)
            case Filter(input=below, columns=columns):
                return self._filter(self.rows(below), node).kept(columns)
            case CountTest(input=below, columns=columns):
                return self._counted(self.rows(below), node).kept(columns)
            case RankTest(input=below, columns=columns):
                return self._ranked(self.rows(below), node).kept(columns)
            case _:
                raise AssertionError(f"not an ordered plan: {type(node).__name__}")

    def _scan(self, scan: Scan) -> _Rows:
        world = self._world
        frame = read_scan(world.relation(scan).frame, scan, world.constants)
        return _Rows(frame, scan.columns, world.most(scan), bool(scan.columns))

    def _small(self, rows: _Rows) -> bool:
        return rows.most is not None and rows.most <= self._world.options.broadcast_rows

    def _join(self, left: _Rows, right: _Rows) -> _Rows:
        shared = _shared(left, right)
        columns = tuple(dict.fromkeys((*left.columns, *right.columns)))
        if self._small(right) and (not self._small(left) or (right.most or 0) <= (left.most or 0)):
            other, frame = F.broadcast(right.frame), left.frame
        elif self._small(left):
            other, frame = right.frame, F.broadcast(left.frame)
        else:
            other, frame = right.frame, left.frame
        if shared:
            most = None
            made = frame.join(other, shared, "inner")
        else:
            most = None if left.most is None or right.most is None else left.most * right.most
            made = frame.crossJoin(other)
        return _Rows(self._guard(made), columns, most, left.exact and right.exact)

    def _guard(self, frame: DataFrame) -> DataFrame:
        return guarded(frame, self._world.guarded_work(), "work", self._rule)

    def _semi_join(self, left: _Rows, right: _Rows) -> _Rows:
        shared = _shared(left, right)
        if not shared:
            one = right.frame.limit(1).selectExpr(_EXISTS)
            frame = left.frame.crossJoin(F.broadcast(one)).drop("exists")
            return _Rows(frame, left.columns, left.most, left.exact)
        other = F.broadcast(right.frame) if self._small(right) else right.frame
        return _narrowed(left, left.frame.join(other, shared, "left_semi"))

    def _anti_join(self, left: _Rows, right: _Rows) -> _Rows:
        shared = _shared(left, right)
        if not shared:
            one = F.broadcast(right.frame.limit(1).selectExpr(_EXISTS))
            frame = left.frame.join(one, F.lit(True), "left_anti")
            return _Rows(frame, left.columns, left.most, left.exact)
        other = F.broadcast(right.frame) if self._small(right) else right.frame
        return _narrowed(left, left.frame.join(other, shared, "left_anti"))

    def _filter(self, rows: _Rows, node: Filter) -> _Rows:
        test = node.test
        names = columns_of_terms(test.terms)
        if not names:
            return rows if holds_always(test) else _narrowed(rows, rows.frame.where("false"))
        if isinstance(test, Inequality):  # different numbers are different texts
            differ = f"{self._number(test.left)} != {self._number(test.right)}"
            return _narrowed(rows, rows.frame.where(differ))
        frame = rows.frame
        if len(names) == 1:
            texts = self._texts(names[0])
            passing = texts.where(test_column(test, _text_column)).drop(_text_name(names[0]))
            return _narrowed(rows, self._with_texts(rows, frame, passing, names[0]))
        for name in names:
            frame = self._with_texts(rows, frame, self._texts(name), name)
        frame = frame.where(test_column(test, _text_column))
        return _Rows(frame, rows.columns, rows.most)

    def _number(self, term: Term) -> str:
        if isinstance(term, Variable | Constant):
            return _head(self._world, term)
        raise AssertionError("a test has no anonymous term")

    def _texts(self, name: str) -> DataFrame:
        """Return the table of texts with the number under the name of a variable's column."""
        return self._world.texts.frame().selectExpr(
            f"id AS {variable_column(name)}", f"text AS {_text_name(name)}"
        )

    def _with_texts(self, rows: _Rows, frame: DataFrame, texts: DataFrame, name: str) -> DataFrame:
        # Each number has one text, so this makes no row twice.
        left = F.broadcast(frame) if self._small(rows) else frame
        return left.join(texts, [variable_column(name)], "inner")

    def _counted(self, rows: _Rows, test: CountTest) -> _Rows:
        world, scan = self._world, test.counted
        if scan.predicate in world.virtual:
            facts = made_rows(world, scan.predicate)
        else:
            facts = world.relation(scan).frame
        counts = count_rows(read_scan(facts, scan, world.constants), scan)
        keys = [variable_column(name) for name in scan.columns]
        frame = meets(rows.frame, counts, keys, test)
        return _Rows(frame, rows.columns, rows.most)

    def _ranked(self, rows: _Rows, test: RankTest) -> _Rows:
        world = self._world
        items = read_scan(world.relation(test.items).frame, test.items, world.constants)
        counts = rank_counts(world, items, test)
        if counts is None:
            return self._counted(rows, test.plain)
        frame = meets(rows.frame, counts, [variable_column(test.key)], test.plain)
        return _Rows(frame, rows.columns, rows.most)


def _narrowed(rows: _Rows, frame: DataFrame) -> _Rows:
    """Return some of the rows, with the same columns."""
    return _Rows(frame, rows.columns, rows.most, rows.exact)


def _shared(left: _Rows, right: _Rows) -> list[str]:
    return [variable_column(name) for name in right.columns if name in left.columns]


def _text_name(name: str) -> str:
    return f"t{name.encode().hex()}"


def _text_column(name: str) -> Column:
    return F.col(_text_name(name))
