"""What a fixed point reads, reduced to what it needs: small tables, each made once.

A fixed point that is repeated should not read whole base tables each time, and one that is
handed to another engine should not carry them there. Each scan of another predicate
becomes one of a table of its own that has only the rows that fit and the columns that are
needed; scans that need the same share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lace.algebra.body import Condition, parts_of, replace_input, scans_of
from lace.algebra.nodes import (
    AntiJoin,
    Branch,
    CountTest,
    Filter,
    Fixpoint,
    Join,
    Project,
    RankTest,
    RelationalProgram,
    Scan,
    Unit,
)
from lace.engines.spark.relations import Relation, columns_of, pattern_of, read_scan
from lace.rules.syntax import Anonymous, Constant, PredicateKey, Variable

if TYPE_CHECKING:
    from collections.abc import Set

    from pyspark.sql import DataFrame

    from lace.algebra.nodes import Node
    from lace.engines.spark.world import World
    from lace.rules.syntax import Term

__all__ = ["Pruned", "prune_step"]


@dataclass(slots=True)
class Pruned:
    """A fixed point over tables of its own; the program has it last, behind what it counts."""

    program: RelationalProgram
    step: Fixpoint
    inputs: dict[PredicateKey, Relation] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows all its tables have."""
        return sum(relation.rows or 0 for relation in self.inputs.values())


def prune_step(world: World, step: Fixpoint) -> Pruned:
    """Return a fixed point that reads only tables of its own, which are made and counted."""
    pruning = _Pruning(world, frozenset(step.predicates))
    branches = tuple(pruning.branch(branch) for branch in step.branches)
    made = replace(step, branches=branches)
    counted = tuple(pruning.virtual_steps.values())
    program = RelationalProgram(
        (*counted, made),
        frozenset(pruning.virtual_steps),
        world.program.lines,
        world.program.distinct & frozenset(pruning.virtual_steps),
    )
    frames = [world.cut(relation.frame) for relation in pruning.inputs.values()]
    counts = world.count(frames)
    inputs = {
        key: Relation(frame, count.rows)
        for key, frame, count in zip(pruning.inputs, frames, counts, strict=True)
    }
    return Pruned(program, made, inputs)


class _Pruning:
    """The tables of one fixed point, as they are found."""

    def __init__(self, world: World, inside: Set[PredicateKey]) -> None:
        self._world = world
        self._inside = inside
        self._keys: dict[tuple[object, ...], PredicateKey] = {}
        self.inputs: dict[PredicateKey, Relation] = {}
        self.virtual_steps: dict[PredicateKey, Fixpoint] = {}

    def branch(self, branch: Branch) -> Branch:
        """Return a rule over the tables."""
        for scan, is_counted in scans_of(branch.plan):
            if is_counted and scan.predicate in self._world.virtual:
                self._add_virtual(scan.predicate)
        scans, conditions = parts_of(branch.plan.input)
        inputs: list[Node] = [self._scan(scan) for scan in scans]
        columns = tuple(dict.fromkeys(name for scan in inputs for name in scan.columns))
        node: Node = Unit()
        if inputs:
            node = Join(tuple(inputs), columns) if len(inputs) > 1 else inputs[0]
        for condition in conditions:
            node = replace_input(self._condition(condition), node, condition.columns)
        return replace(branch, plan=Project(node, branch.plan.terms))

    def _add_virtual(self, predicate: PredicateKey) -> None:
        """Take over the rules of a predicate that is counted without being made."""
        if predicate in self.virtual_steps:
            return
        branches = tuple(map(self.branch, self._world.branches[predicate]))
        self.virtual_steps[predicate] = Fixpoint((predicate,), branches, recursive=False)

    def _condition(self, condition: Condition) -> Condition:
        match condition:
            case Filter():
                return condition
            case AntiJoin():
                return replace(condition, right=self._scan(condition.right))
            case CountTest():
                return replace(condition, counted=self._counted(condition.counted))
            case RankTest():
                plain = replace(condition.plain, counted=self._counted(condition.plain.counted))
                return replace(condition, items=self._scan(condition.items), plain=plain)

    def _scan(self, scan: Scan) -> Scan:
        """Return a scan of a table with the columns that are needed, each row once."""
        if scan.predicate in self._inside:
            return scan
        terms = tuple(Variable(name) for name in scan.columns)
        world = self._world
        pattern, positions = pattern_of(scan, world.constants)
        chosen = tuple(positions[name] for name in scan.columns)
        key = self._keys.get((scan.predicate, pattern, chosen))
        if key is None:
            frame = read_scan(world.relation(scan).frame, scan, world.constants)
            frame = frame.toDF(*columns_of(len(chosen)))
            if not _is_whole(scan):
                frame = frame.distinct()
            key = self._add(scan, len(chosen), frame, (scan.predicate, pattern, chosen))
        return replace(scan, predicate=key, terms=terms)

    def _counted(self, scan: Scan) -> Scan:
        """Return a scan of a table that has a row for each fact that is counted."""
        if scan.predicate in self._world.virtual:
            return scan
        world = self._world
        pattern, _ = pattern_of(scan, world.constants)
        at = [n for n, term in enumerate(scan.terms) if not isinstance(term, Constant)]
        terms: tuple[Term, ...] = tuple(scan.terms[n] for n in at)
        key = self._keys.get((scan.predicate, pattern, "counted"))
        if key is None:
            wide = [Variable(f"V{n}") for n in at]
            every = tuple(
                term if isinstance(term, Constant) else Variable(f"V{n}")
                for n, term in enumerate(scan.terms)
            )
            whole = replace(scan, terms=every, columns=tuple(each.name for each in wide))
            frame = read_scan(world.relation(scan).frame, whole, world.constants)
            frame = frame.toDF(*columns_of(len(at)))
            key = self._add(scan, len(at), frame, (scan.predicate, pattern, "counted"))
        return replace(scan, predicate=key, terms=terms)

    def _add(
        self, scan: Scan, arity: int, frame: DataFrame, identity: tuple[object, ...]
    ) -> PredicateKey:
        # No rule can write such a name, so it is nobody else's.
        key = PredicateKey(f"{scan.predicate.name}#{len(self.inputs)}", arity)
        self._keys[identity] = key
        self.inputs[key] = Relation(frame)
        return key


def _is_whole(scan: Scan) -> bool:
    """Tell whether the columns of a scan tell all its rows apart."""
    names = {term.name for term in scan.terms if isinstance(term, Variable)}
    anonymous = any(isinstance(term, Anonymous) for term in scan.terms)
    return not anonymous and names == set(scan.columns)
