"""Recursive fixed points on the cluster: each round looks only at what the round before found.

All predicates of a fixed point are in one table, told apart by a column, so a round is one
job however many they are. After each round the new rows are cut off from how they were made;
tables of earlier rounds are put together now and then, so plans stay short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql import functions as F

from lace.algebra.lower import from_change, places
from lace.spark.engine.compile import branch_rows
from lace.spark.engine.context import MADE
from lace.spark.engine.relations import (
    NOTHING,
    UNIT,
    TableRelation,
    collect_columns,
    columns_of,
    frame_of,
    guarded,
    number,
    united,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

    from lace.algebra.nodes import Branch, Fixpoint, RelationalProgram
    from lace.engine.budget import Statistics
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.context import World
    from lace.spark.engine.relations import Columns, Numbers


_TAG: Final = "predicate"
_KNOWN: Final = "known"
_MOST_PIECES: Final = 8
"""Tables of earlier rounds that are kept apart."""


@dataclass(frozen=True, slots=True)
class _Piece:
    frame: DataFrame
    rows: int


def run_rounds(world: World, step: Fixpoint) -> None:
    """Make all facts of a recursive fixed point; its relations are in the world then."""
    _Rounds(world, step).run()


class _Rounds:
    """The rounds of one fixed point."""

    def __init__(self, world: World, step: Fixpoint) -> None:
        self._world = world
        self._step = step
        self._width = max(key.arity for key in step.predicates)
        self._columns = columns_of(self._width)
        if len(step.predicates) > 1:
            self._columns = [_TAG, *self._columns]
        self._pieces: list[_Piece] = []
        self._totals = dict.fromkeys(step.predicates, 0)
        self._first_rule: dict[PredicateKey, int] = {}
        for branch in reversed(step.branches):
            self._first_rule[branch.predicate] = branch.rule

    def run(self) -> None:
        """Go on until there is nothing new."""
        world, inside = self._world, frozenset(self._step.predicates)
        found = [
            self._packed(branch, branch_rows(world, branch))
            for branch in self._step.branches
            if not any(scan.predicate in inside for scan, _ in places(branch.plan))
        ]
        iteration = 1
        while found:
            changed = self._keep(united(found), iteration)
            if not changed:
                break
            iteration += 1
            world.budget.check_iterations(changed[0], iteration)
            found = [
                self._packed(branch, branch_rows(world, branch, from_change(branch.plan, at)))
                for branch in self._step.branches
                for at in self._starts(branch, changed)
            ]
        self._publish()
        world.changed.clear()

    def _starts(self, branch: Branch, changed: list[PredicateKey]) -> list[int]:
        return [
            scan.occurrence
            for scan, positive in places(branch.plan)
            if positive and scan.predicate in changed
        ]

    def _packed(self, branch: Branch, frame: DataFrame) -> DataFrame:
        """Return the facts of a predicate as rows of the common table."""
        arity = branch.predicate.arity
        if self._columns == columns_of(arity):
            return frame
        columns = [f"c{at}" for at in range(arity)]
        columns += [f"0L AS c{at}" for at in range(arity, self._width)]
        if not self._width:
            columns = [UNIT]
        tag = self._step.predicates.index(branch.predicate)
        return frame.selectExpr(f"{number(tag)} AS {_TAG}", *columns)

    def _unpacked(self, frame: DataFrame, predicate: PredicateKey) -> DataFrame:
        if _TAG in self._columns:
            tag = self._step.predicates.index(predicate)
            frame = frame.where(f"{_TAG} = {number(tag)}")
        elif self._columns == columns_of(predicate.arity):
            return frame
        if not predicate.arity:
            return frame.selectExpr(NOTHING)
        return frame.selectExpr(*columns_of(predicate.arity))

    def _keep(self, found: DataFrame, iteration: int) -> list[PredicateKey]:
        """Keep what is new of what was found; returns the predicates that have new facts."""
        world = self._world
        rows = found.groupBy(self._columns).agg(F.expr(f"count(1) AS {MADE}"))
        if self._pieces:
            known = united(piece.frame for piece in self._pieces)
            known = known.selectExpr("*", f"true AS {_KNOWN}")
            if sum(piece.rows for piece in self._pieces) <= world.options.broadcast_rows:
                known = F.broadcast(known.coalesce(1))  # one task instead of many small ones
            rows = rows.join(known, self._columns, "left_outer")
        else:
            rows = rows.selectExpr("*", f"CAST(NULL AS boolean) AS {_KNOWN}")
        rule = self._step.branches[0].rule
        rows, counts = self._cut(guarded(rows, world.limits.max_derived_facts, "derived", rule))
        for predicate, (new, made) in counts.items():
            self._note(predicate, new, made, iteration)
        changed = [predicate for predicate, (new, _) in counts.items() if new]
        if changed:
            fresh = rows.where(f"{_KNOWN} IS NULL").selectExpr(*self._columns)
            total = sum(new for new, _ in counts.values())
            if total <= world.options.broadcast_rows:
                fresh = fresh.coalesce(1)
            self._pieces.append(_Piece(fresh, total))
            self._put_together()
            world.changed = {
                predicate: TableRelation(self._unpacked(fresh, predicate), counts[predicate][0])
                for predicate in changed
            }
            self._publish()
        return changed

    def _cut(self, found: DataFrame) -> tuple[DataFrame, dict[PredicateKey, tuple[int, int]]]:
        """Cut a table; tell for each predicate how many facts are new, and how often all were made.

        That is one job: the counts come with what it makes.
        """
        asked: dict[str, str] = {}
        for tag in range(len(self._step.predicates)):
            of = f"{_TAG} = {number(tag)}" if _TAG in self._columns else "true"
            asked[f"new{tag}"] = f"count_if({_KNOWN} IS NULL AND {of})"
            asked[f"made{tag}"] = f"sum(CASE WHEN {of} THEN {MADE} ELSE 0L END)"
        rows, counts = self._world.cut_counting(found, asked)
        return rows, {
            predicate: (counts[f"new{tag}"], counts[f"made{tag}"])
            for tag, predicate in enumerate(self._step.predicates)
            if counts[f"made{tag}"] or _TAG not in self._columns
        }

    def _note(self, predicate: PredicateKey, rows: int, made: int, iteration: int) -> None:
        """Hold what a round did against the limits."""
        budget = self._world.budget
        budget.rule = self._first_rule[predicate]
        run = budget.statistics.begin(budget.rule, iteration)
        budget.spend(made)
        run.made += made
        run.new += rows
        budget.statistics.end(run)
        self._totals[predicate] += rows
        budget.check_derived(predicate, self._totals[predicate])

    def _put_together(self) -> None:
        """Make one table of many small ones, so that no row is moved often."""
        if len(self._pieces) <= _MOST_PIECES:
            return
        last = self._pieces.pop()
        small = [last]
        while self._pieces and self._pieces[-1].rows <= 2 * sum(each.rows for each in small):
            small.append(self._pieces.pop())
        if len(small) == 1:
            small.append(self._pieces.pop())
        parts = int(self._world.session.conf.get("spark.sql.shuffle.partitions") or 1)
        together = united(piece.frame for piece in small).coalesce(parts)
        self._pieces.append(_Piece(self._world.cut(together), sum(each.rows for each in small)))

    def _publish(self) -> None:
        """Let scans read all that is known so far."""
        world = self._world
        for predicate in self._step.predicates:
            if self._pieces:
                known = united(piece.frame for piece in self._pieces)
                relation = TableRelation(self._unpacked(known, predicate), self._totals[predicate])
            else:
                relation = world.empty(predicate.arity)
            world.relations[predicate] = relation


# -- Handing a fixed point, or a whole program, to an engine in this process.
#
# Recursion over a small table takes an engine in memory milliseconds a round, and a cluster a
# job. So where what a fixed point reads fits, it is collected, evaluated here and given back
# as tables. The engine that does it is the caller's: engines do not know each other.


class Handover(Protocol):
    """An engine of this process that evaluates over columns of numbers."""

    def __call__(
        self,
        checked: CheckedProgram,
        program: RelationalProgram,
        inputs: Mapping[PredicateKey, Columns],
        *,
        constants: Mapping[str, int],
        texts: Callable[[Numbers], list[str]],
        wanted: Iterable[PredicateKey],
        statistics: Statistics,
    ) -> Mapping[PredicateKey, Columns]:
        """Return the facts of the predicates that are wanted."""
        ...


def hand_over(
    world: World,
    checked: CheckedProgram,
    program: RelationalProgram,
    inputs: Mapping[PredicateKey, TableRelation],
    wanted: Iterable[PredicateKey],
    handover: Handover,
) -> None:
    """Let another engine make the facts of predicates; their relations are in the world then."""
    with world.watching():
        columns = collect_columns({key: relation.frame for key, relation in inputs.items()})
    made = handover(
        checked,
        program,
        columns,
        constants=world.constants,
        texts=world.texts.of,
        wanted=wanted,
        statistics=world.budget.statistics,
    )
    for key, (found, rows) in made.items():
        world.relations[key] = TableRelation(frame_of(world.session, found, rows), rows)
