"""The Spark engine's front: tables of numbers in, tables of numbers out.

`evaluate_tables` runs the same relational program as the embedded engine. Predicates that are
asked for, or read more than once, are kept as tables; the others are part of the plans that
read them. Nothing is collected but counts, what is handed over, and what a caller collects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lace.algebra.lower import lower_program, needed_steps, step_numbers
from lace.algebra.nodes import (
    AntiJoin,
    Branch,
    Condition,
    CountTest,
    Filter,
    Fixpoint,
    Join,
    Project,
    RankTest,
    RelationalProgram,
    Scan,
    Unit,
    columns_of_terms,
    parts_of,
    replace_input,
    scans_of,
)
from lace.engine.budget import Budget, Statistics, split_counts
from lace.rules.syntax import (
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    NegatedAtom,
    PredicateKey,
    Variable,
)
from lace.spark.engine.compile import branch_rows
from lace.spark.engine.context import MADE, ExtendedTexts, World
from lace.spark.engine.fixpoint import hand_over, run_rounds
from lace.spark.engine.relations import (
    TableRelation,
    columns_of,
    guarded,
    pattern_of,
    read_scan,
    united,
)
from lace.spark.engine.session import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from pyspark.sql import DataFrame, SparkSession

    from lace.algebra.nodes import Node
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Term
    from lace.spark.engine.context import TextTable
    from lace.spark.engine.fixpoint import Handover


# -- What a fixed point reads, reduced to what it needs: small tables, each made once.
#
# A fixed point that is repeated should not read whole base tables each time, and one that is
# handed to another engine should not carry them there. Each scan of another predicate
# becomes one of a table of its own that has only the rows that fit and the columns that are
# needed; scans that need the same share it.


@dataclass(slots=True)
class Pruned:
    """A fixed point over tables of its own; the program has it last, behind what it counts."""

    program: RelationalProgram
    step: Fixpoint
    inputs: dict[PredicateKey, TableRelation] = field(default_factory=dict)

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
        key: TableRelation(frame, count.rows)
        for key, frame, count in zip(pruning.inputs, frames, counts, strict=True)
    }
    return Pruned(program, made, inputs)


class _Pruning:
    """The tables of one fixed point, as they are found."""

    def __init__(self, world: World, inside: Set[PredicateKey]) -> None:
        self._world = world
        self._inside = inside
        self._keys: dict[tuple[object, ...], PredicateKey] = {}
        self.inputs: dict[PredicateKey, TableRelation] = {}
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
        self.inputs[key] = TableRelation(frame)
        return key


def _is_whole(scan: Scan) -> bool:
    """Tell whether the columns of a scan tell all its rows apart."""
    names = {term.name for term in scan.terms if isinstance(term, Variable)}
    anonymous = any(isinstance(term, Anonymous) for term in scan.terms)
    return not anonymous and names == set(scan.columns)


class Tables(Mapping[str, "DataFrame"]):
    """The answer: a table of numbers for each predicate that was asked for, by `Name/arity`.

    `texts` has the texts of all numbers, those included that only rules have (`added`).
    """

    def __init__(
        self, relations: Mapping[PredicateKey, TableRelation], texts: ExtendedTexts
    ) -> None:
        self.relations = relations
        self.texts = texts
        self._frames = {str(key): relation.frame for key, relation in relations.items()}

    def __getitem__(self, predicate: str) -> DataFrame:
        return self._frames[predicate]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def added(self) -> Mapping[str, int]:
        """The texts that had no number before, and the numbers that they got."""
        return self.texts.added

    def rows(self, predicate: str) -> int:
        """Return how many facts a predicate has."""
        (found,) = [each for key, each in self.relations.items() if str(key) == predicate]
        if found.rows is None:
            raise AssertionError("what was asked for has been counted")
        return found.rows


def evaluate_tables(
    session: SparkSession,
    checked: CheckedProgram,
    inputs: Mapping[PredicateKey, DataFrame],
    texts: TextTable,
    *,
    counts: Mapping[PredicateKey, int] | None = None,
    predicates: Iterable[PredicateKey] | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
    handover: Handover | None = None,
) -> Tables:
    """Evaluate checked rules over tables."""
    program = lower_program(checked)
    extended = ExtendedTexts(session, texts, _constants(checked))
    budget = Budget(checked, statistics or Statistics())
    world = World(
        session,
        program,
        extended,
        extended.constants,
        checked.limits,
        budget,
        options or Options(),
    )
    evaluation = _Evaluation(world, checked, handover)
    evaluation.load(inputs, counts)
    derived = step_numbers(program)
    wanted = list(derived) if predicates is None else [key for key in predicates if key in derived]
    evaluation.run(wanted)
    return Tables({key: world.relations[key] for key in wanted}, extended)


def evaluate_programs(
    session: SparkSession,
    programs: Sequence[CheckedProgram],
    inputs: Mapping[PredicateKey, DataFrame],
    texts: TextTable,
    *,
    predicates: Iterable[PredicateKey],
    counts: Mapping[PredicateKey, int] | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
    handover: Handover | None = None,
) -> Tables:
    """Evaluate programs that read what those before them make, each within its own limits.

    A program gets the facts of those predicates that it may read, and no others: the rules
    of a peer see nothing but their view. Of work each has its own budget.
    """
    given = dict(inputs)
    wanted = set(predicates)
    found: dict[PredicateKey, TableRelation] = {}
    sizes = None if counts is None else dict(counts)
    known = ExtendedTexts(session, texts, ())
    for at, program in enumerate(programs):
        later = {key for each in programs[at + 1 :] for key in each.required_base}
        own = Statistics()
        read = {key: frame for key, frame in given.items() if key in program.required_base}
        tables = evaluate_tables(
            session,
            program,
            read,
            known,
            counts=None if sizes is None else {key: sizes[key] for key in read},
            predicates=[key for key in program.derived if key in wanted | later],
            options=options,
            statistics=own,
            handover=handover,
        )
        if statistics is not None:
            statistics.work += own.work
        known = tables.texts
        found |= tables.relations
        given |= {key: relation.frame for key, relation in tables.relations.items()}
        if sizes is not None:
            sizes |= {key: tables.rows(str(key)) for key in tables.relations}
    return Tables({key: each for key, each in found.items() if key in wanted}, known)


def _constants(checked: CheckedProgram) -> list[str]:
    """Return the constants of rules that are compared as numbers, or that heads have."""
    terms: list[Term] = []
    for rule in checked.rules:
        terms += rule.head.terms
        for part in rule.body:
            match part:
                case Atom() | Inequality():
                    terms += part.terms
                case NegatedAtom() | Cardinality():
                    terms += part.atom.terms
                case _:
                    pass
    return list(dict.fromkeys(term.value for term in terms if isinstance(term, Constant)))


class _Evaluation:
    """One evaluation: fixed point after fixed point."""

    def __init__(self, world: World, checked: CheckedProgram, handover: Handover | None) -> None:
        self._world = world
        self._checked = checked
        self._handover = handover
        self._uncounted: dict[PredicateKey, DataFrame] = {}
        self._reads: Counter[PredicateKey] = Counter()
        self._base_rows = 0

    def load(
        self, inputs: Mapping[PredicateKey, DataFrame], counts: Mapping[PredicateKey, int] | None
    ) -> None:
        """Take base facts in, and refuse too many."""
        world = self._world
        frames = {key: frame.toDF(*columns_of(key.arity)) for key, frame in inputs.items()}
        if counts is None:
            counted = world.count(list(frames.values()))
            counts = {key: count.rows for key, count in zip(frames, counted, strict=True)}
        world.budget.check_base(*split_counts(counts))
        self._base_rows = sum(counts[key] for key in frames)
        for key, frame in frames.items():
            world.relations[key] = TableRelation(frame, counts[key])

    def run(self, wanted: list[PredicateKey]) -> None:
        """Make the facts of some predicates."""
        world, program = self._world, self._world.program
        world.virtual.difference_update(wanted)
        if self._handover is not None and self._base_rows <= world.options.small_rows:
            self._hand_over_all(wanted)
            return
        steps = [program.steps[number] for number in needed_steps(program, wanted, world.virtual)]
        self._look_ahead(program, steps, wanted)
        for step in steps:
            if step.recursive:
                self._settle()
                self._recursive(step)
            else:
                self._plain(step)
                if self._base_rows > world.options.small_rows:
                    self._settle()
        self._settle()

    def _look_ahead(
        self, program: RelationalProgram, steps: list[Fixpoint], wanted: list[PredicateKey]
    ) -> None:
        """Note how often each predicate is read, and how long the scans of base facts are."""
        world = self._world
        branches = [branch for step in steps for branch in step.branches]
        branches += [branch for key in world.virtual for branch in world.branches[key]]
        scans = [scan for branch in branches for scan, _ in scans_of(branch.plan)]
        self._reads.update(scan.predicate for scan in scans)
        self._reads.update(dict.fromkeys(wanted, 2))
        for step in steps:
            if step.recursive:
                self._reads.update(dict.fromkeys(step.predicates, 2))
        if self._base_rows > world.options.small_rows:
            derived = step_numbers(program)
            world.count_patterns(scan for scan in scans if scan.predicate not in derived)

    def _hand_over_all(self, wanted: list[PredicateKey]) -> None:
        world = self._world
        if self._handover is None:
            raise AssertionError("there is an engine to hand over to")
        inputs = dict(world.relations)
        hand_over(world, self._checked, world.program, inputs, wanted, self._handover)

    def _recursive(self, step: Fixpoint) -> None:
        world = self._world
        pruned = prune_step(world, step)
        if self._handover is not None and pruned.rows <= world.options.handover_rows:
            hand_over(
                world, self._checked, pruned.program, pruned.inputs, step.predicates, self._handover
            )
            return
        world.relations.update(pruned.inputs)
        run_rounds(world, pruned.step)
        for key in pruned.inputs:
            del world.relations[key]

    def _plain(self, step: Fixpoint) -> None:
        """Make the facts of a predicate, or the plan of them for the one place that reads it."""
        world = self._world
        (key,) = step.predicates
        rows = united(branch_rows(world, branch) for branch in step.branches)
        if key in world.program.distinct:
            rows = rows.selectExpr("*", f"1L AS {MADE}")
        else:
            rows = rows.groupBy(columns_of(key.arity)).agg(F.expr(f"count(1) AS {MADE}"))
        most = self._most(step)
        limit = world.limits.max_derived_facts
        rows = guarded(rows, limit, "derived", step.branches[0].rule)
        if self._reads[key] < 2 and most is not None and most <= limit:
            world.relations[key] = TableRelation(rows.select(columns_of(key.arity)), None, most)
            return
        kept = world.cut(rows)
        self._uncounted[key] = kept
        world.relations[key] = TableRelation(kept.select(columns_of(key.arity)), None, most)

    def _most(self, step: Fixpoint) -> int | None:
        """Return a number of facts that a predicate certainly does not pass, if one is known."""
        found = [self._most_of(branch) for branch in step.branches]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None

    def _most_of(self, branch: Branch) -> int | None:
        """Return the rows of the shortest scan that alone says all that a head does."""
        scans, _ = parts_of(branch.plan.input)
        head = set(columns_of_terms(branch.plan.terms))
        if not head:
            return 1
        lengths = [self._world.most(scan) for scan in scans if head.issubset(scan.columns)]
        return min((each for each in lengths if each is not None), default=None)

    def _settle(self) -> None:
        """Count what was made and not counted yet, and hold it against the limits."""
        world = self._world
        counts = world.count(list(self._uncounted.values()), made=True)
        for key, count in zip(self._uncounted, counts, strict=True):
            rule = world.branches[key][0].rule
            world.budget.rule = rule
            run = world.budget.statistics.begin(rule, 1)
            world.budget.spend(count.made)
            run.made += count.made
            run.new += count.rows
            world.budget.statistics.end(run)
            world.budget.check_derived(key, count.rows)
            frame = world.relations[key].frame
            world.relations[key] = TableRelation(frame, count.rows)
        self._uncounted.clear()
