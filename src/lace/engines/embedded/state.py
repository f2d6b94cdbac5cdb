"""The state of an evaluation: numbers, relations, plans; what steps ask for while they run."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lace.algebra.body import count_atoms, scans_of
from lace.algebra.deltas import from_change, from_goal, places
from lace.algebra.nodes import Version
from lace.algebra.passes.order import order_joins
from lace.engines import costs
from lace.engines.embedded.counting import Counting
from lace.engines.embedded.index import PAIRED_BYTES
from lace.engines.embedded.keys import RowSet, stretches_of
from lace.engines.embedded.planning import compile_plan, pattern_of
from lace.engines.embedded.relation import EVERYTHING, ColumnPart, Relation
from lace.engines.embedded.steps import run_plan
from lace.engines.embedded.verdicts import Verdicts
from lace.rules.syntax import Variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.algebra.nodes import Branch, CountTest, Project, RankTest, RelationalProgram, Scan
    from lace.engines.budget import Budget
    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.engines.embedded.frames import Frame
    from lace.engines.embedded.index import Index, Members
    from lace.engines.embedded.keys import Flags
    from lace.engines.embedded.relation import Pattern, Selection
    from lace.engines.embedded.steps import Plan
    from lace.rules.syntax import PredicateKey

__all__ = ["GOAL", "WHOLE", "Relations", "Rows", "State"]

Relations: TypeAlias = "dict[PredicateKey, Relation]"
Rows: TypeAlias = "tuple[tuple[Ids, ...], int]"
WHOLE: Final = -2
"""The plan of a rule that starts from no change."""
GOAL: Final = -1
"""The plan of a rule that starts from the facts asked about."""
_MOST_FLAG_BYTES: Final = 2**20
"""What the sets of derived rows take together for flags before they have many rows."""
_NEW_PLAN_BITS: Final = 3
"""A plan is made again when a relation has grown or shrunk by this power of two."""


_VALUE_BYTES: Final = 4
_PIECE_BYTES: Final = 512
"""What arrays of facts take beside their values, and whatever refers to them."""
_INDEX_BYTES: Final = 40
"""What a row takes while an index is made of it: its key, the order, where each key begins."""


@dataclass(slots=True)
class _Planned:
    """A plan, and how large what it reads was when its joins were ordered."""

    reads: tuple[PredicateKey, ...]
    sizes: list[int] = field(default_factory=list)
    plan: Plan | None = None


class State:
    """Everything that an evaluation knows.

    `relations` has what scans read; `sets` has the rows of derived relations, by which
    duplicates are found; `changed` has what a plan that starts from a change reads, `goal`
    the facts that one asks about, `sliced` the rows to take for one place of a body.
    `virtual` are the predicates whose facts are not made, because they are only counted;
    `places` has what `lace.algebra.deltas.places` says of each rule.
    """

    def __init__(
        self,
        program: RelationalProgram,
        dictionary: Texts,
        size: int,
        relations: Relations,
        budget: Budget,
        verdicts: Verdicts | None = None,
    ) -> None:
        self.program = program
        self.dictionary = dictionary
        self.size = size
        self.relations = relations
        self.sets: dict[PredicateKey, RowSet] = {}
        self.changed: Mapping[PredicateKey, Relation] = {}
        self.found_bytes = 0
        """Bytes of facts that are found, and in no relation yet."""
        self.pieces = 0
        """How many times facts were found; each time they are arrays of their own."""
        self.goal: Relation | None = None
        self.sliced: tuple[int, Relation] | None = None
        self.virtual = set(program.counted)
        self.budget = budget
        self.verdicts = verdicts or Verdicts(dictionary, size)
        # Held by what it belongs to alone: what a state has may be large, and goes with it.
        self.counting = Counting(weakref.proxy(self))
        self.branches: dict[PredicateKey, list[Branch]] = {}
        for step in program.steps:
            for branch in step.branches:
                self.branches.setdefault(branch.predicate, []).append(branch)
        self.places: dict[int, tuple[tuple[Scan, bool], ...]] = {
            branch.rule: tuple(places(branch.plan))
            for step in program.steps
            for branch in step.branches
        }
        self._plans: dict[tuple[int, int], _Planned] = {}

    def copy(self) -> State:
        """Return a state that goes its own way from here; it shares all that never changes."""
        made = State(
            self.program,
            self.dictionary,
            self.size,
            dict(self.relations),
            self.budget,
            self.verdicts,
        )
        made.virtual = set(self.virtual)
        made._plans = self._plans
        return made

    def derived_set(self, predicate: PredicateKey) -> RowSet:
        """Return the rows of a derived predicate, as a set."""
        found = self.sets.get(predicate)
        if found is None:
            flags = sum(each.flag_bytes for each in self.sets.values())
            fits = self.size**predicate.arity <= _MOST_FLAG_BYTES - flags
            found = self.sets[predicate] = RowSet(
                predicate.arity, self.size, may_flag=fits, look=self.budget.check
            )
            present = self._all(predicate)
            columns = present.columns()
            for stretch in stretches_of(present.rows):
                self.budget.check()
                rows = stretch.stop - stretch.start
                found.add(tuple(column[stretch] for column in columns), rows)
        return found

    def clear(self, predicate: PredicateKey) -> None:
        """Forget all facts of a derived predicate."""
        self.relations[predicate] = Relation(predicate.arity)
        self.sets.pop(predicate, None)

    def relation(self, scan: Scan) -> Relation:
        """Return the rows that a scan reads."""
        if scan.version is Version.ALL:
            if self.sliced is not None and scan.occurrence == self.sliced[0]:
                return self.sliced[1]
            return self._all(scan.predicate)
        if scan.version is Version.CHANGED:
            return self.changed[scan.predicate]
        if self.goal is None:
            raise AssertionError("a plan for a goal runs with a goal")
        return self.goal

    def _all(self, predicate: PredicateKey) -> Relation:
        found = self.relations.get(predicate)
        if found is None:
            found = self.relations[predicate] = Relation(predicate.arity)
        return found

    def selections(self, scan: Scan, pattern: Pattern) -> list[Selection]:
        """Return the rows that a scan reads and that fit a pattern, part by part."""
        relation = self.relation(scan)
        if self.budget.is_weighted and pattern is not EVERYTHING:
            compared = len(pattern.constants) + len(pattern.equal)
            for part in relation.parts:
                if not part.has(pattern):
                    self.budget.charge(
                        costs.STEP + costs.SELECTED * compared * part.rows, 2 * part.rows
                    )
                    rows = part.select(pattern).rows
                    self.budget.charge(
                        costs.CELL * rows, _VALUE_BYTES * (1 + relation.arity) * rows
                    )
        return relation.select(pattern)

    def index(self, selection: Selection, positions: tuple[int, ...]) -> Index:
        """Return rows by their values at some positions; what it costs to make is counted."""
        if self.budget.is_weighted and not selection.has_index(positions):
            rows, paired = selection.rows, max(0, len(positions) - 2)
            units = costs.SORTED + costs.SET_COLUMN * paired
            size = min(self.size, 32 * rows) * 5 + (_INDEX_BYTES + PAIRED_BYTES * paired) * rows
            self.budget.charge(costs.STEP + units * rows, size)
        return selection.index(positions, self.size, self.budget.check)

    def members(self, selection: Selection, position: int) -> Members:
        """Return the set of values at a position; what it costs to make is counted."""
        if self.budget.is_weighted and not selection.has_members(position):
            rows = selection.rows
            self.budget.charge(
                costs.STEP + costs.SORTED * rows,
                min(self.size, 32 * rows) + 3 * _VALUE_BYTES * rows,
            )
        return selection.members(position, self.size, self.budget.check)

    def held_bytes(self, base: Mapping[PredicateKey, Relation]) -> int:
        """Return about what this holds beside base facts: what it made, sets and access paths."""
        made = sum(each.bytes for each in self.sets.values()) + self.counting.size
        for key, relation in self.relations.items():
            if base.get(key) is not relation:
                parts = (part for part in relation.parts if isinstance(part, ColumnPart))
                # A fact is in its relation, and as long as a fixed point runs among the new ones.
                made += sum(part.bytes + part.column_bytes for part in parts)
        for relation in self.changed.values():
            parts = (part for part in relation.parts if isinstance(part, ColumnPart))
            made += sum(part.bytes for part in parts)
        return made + self.found_bytes + _PIECE_BYTES * self.pieces

    def count_mask(self, test: CountTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a count test holds."""
        return self.counting.count_mask(test, frame)

    def rank_mask(self, test: RankTest, frame: Frame) -> Flags:
        """Tell for which rows of a frame a rank test holds."""
        return self.counting.rank_mask(test, frame)

    # What the order of joins is chosen by.

    def rows(self, scan: Scan) -> int:
        """Return how many rows a scan has."""
        pattern = pattern_of(scan, self.dictionary)[0]
        return sum(selection.rows for selection in self.selections(scan, pattern))

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        """Return how many different values a scan has in a column; the most, of several."""
        pattern, positions = pattern_of(scan, self.dictionary)
        return max(
            sum(
                self.members(selection, positions[name]).count
                for selection in self.selections(scan, pattern)
            )
            for name in columns
        )

    def plan(self, branch: Branch, start: int = WHOLE) -> Plan:
        """Return the steps of a rule, from all facts or from a change at one place."""
        key = (branch.rule, start)
        found = self._plans.get(key)
        if found is None:
            reads = tuple(dict.fromkeys(scan.predicate for scan, _ in scans_of(branch.plan)))
            found = self._plans[key] = _Planned(reads)
        sizes = [self._all(read).rows.bit_length() // _NEW_PLAN_BITS for read in found.reads]
        if found.plan is None or found.sizes != sizes:
            self.budget.rule = branch.rule
            found.plan = self.compiled(self._starting(branch, start))
            found.sizes = sizes
        return found.plan

    def compiled(self, plan: Project) -> Plan:
        """Return the steps of a plan that is not kept."""
        self.budget.charge(costs.ATOM * (1 + count_atoms(plan)))
        return compile_plan(order_joins(plan, self).input, self.dictionary)

    def _starting(self, branch: Branch, start: int) -> Project:
        if start == WHOLE:
            return branch.plan
        return from_goal(branch) if start == GOAL else from_change(branch.plan, start)

    def heads(self, branch: Branch, plan: Plan) -> Iterator[Rows]:
        """Run a plan of a rule; yields the facts that it makes, repeated ones too."""
        self.budget.rule = branch.rule
        self.budget.charge(costs.APPLICATION)
        terms = branch.plan.terms
        for frame in run_plan(plan, self):
            columns = tuple(
                frame.columns[term.name]
                if isinstance(term, Variable)
                else np.full(frame.rows, self.dictionary.intern(term.value), np.int32)
                for term in terms
            )
            rows = frame.rows
            del frame  # the receiver of the facts decides how long they are held
            yield columns, rows
            del columns
