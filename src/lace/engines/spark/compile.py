"""From an ordered plan to a Spark table: one join, test or projection for each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
from lace.engines.spark.builtins import holds_always, test_column
from lace.engines.spark.counting import count_rows, meets, rank_counts
from lace.engines.spark.relations import (
    NOTHING,
    guarded,
    number,
    read_scan,
    selected,
    united,
    variable_column,
)
from lace.rules.syntax import Constant, Inequality, Variable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lace.algebra.nodes import Branch, Project
    from lace.engines.spark.world import World
    from lace.rules.syntax import PredicateKey, Term

__all__ = ["branch_rows", "made_rows"]

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
