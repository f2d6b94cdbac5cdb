"""The search for bindings of a body, least first; derivations and lookups are built on it.

Variables get their values in the order in which the positive atoms name them, and each
its values in the order of their texts. The values to try come from the atom that has
the fewest, and where they are many, only those that the engine finds in some binding;
the other atoms confirm them. So the first binding found is the least one, and little more
is looked at than is needed to find it.

Apart from `why_not`: derivations search for bindings too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lace.algebra.lower import from_goal, lower_rule
from lace.algebra.nodes import Branch, CountTest, Fixpoint, RelationalProgram, Scan, Unit
from lace.algebra.passes.prune import prune_columns
from lace.columns.keys import distinct_ids
from lace.columns.relation import EVERYTHING, Relation
from lace.engine.state import bounded_counts
from lace.engine.steps import Frame, run_plan
from lace.rules.builtins import (
    cardinality_holds,
    count_bound,
    int_compare,
    lex_compare,
    text_shape,
    unequal,
)
from lace.rules.syntax import (
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    PredicateKey,
    Rule,
    TextShape,
    TrueAtom,
    Variable,
    quote,
)
from lace.why.explanation import Condition, RuleReference, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.algebra.nodes import Project
    from lace.columns.dictionary import Ids
    from lace.columns.index import Index, Slots
    from lace.columns.relation import Selection
    from lace.engine.derivation_depth import Heights, Ranked
    from lace.engine.state import EvaluationState
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom, Term, Test


# -- Items of a rule's body under one binding of texts: their values, their text, their tests.

Binding: TypeAlias = "Mapping[str, str]"


def value_of(term: Term, binding: Binding) -> str | None:
    """Return the value of a term, None when it is free."""
    match term:
        case Constant():
            return term.value
        case Variable():
            return binding.get(term.name)
        case Anonymous():
            return None


def variables_of(item: BodyAtom) -> tuple[str, ...]:
    """Return the variables of an item of a body, each once, in their order."""
    match item:
        case NegatedAtom() | Cardinality():
            terms: Sequence[Term] = item.atom.terms
        case TrueAtom():
            terms = ()
        case _:
            terms = item.terms
    return tuple(dict.fromkeys(term.name for term in terms if isinstance(term, Variable)))


def unify(atom: Atom, values: Sequence[str]) -> tuple[dict[str, str], int | None]:
    """Return the binding that makes an atom a fact, and the first position that forbids it."""
    binding: dict[str, str] = {}
    for at, (term, value) in enumerate(zip(atom.terms, values, strict=True)):
        if isinstance(term, Variable):
            binding.setdefault(term.name, value)
        if value_of(term, binding) not in (value, None):
            return binding, at
    return binding, None


def instance_of(item: BodyAtom, binding: Binding) -> str:
    """Return an item as text, with values in the place of the variables that have one."""

    def fill(term: Term) -> str:
        value = value_of(term, binding)
        return str(term) if value is None else quote(value)

    def fill_atom(atom: Atom) -> str:
        return f"{atom.name}({','.join(map(fill, atom.terms))})"

    match item:
        case Atom():
            return fill_atom(item)
        case NegatedAtom(atom):
            return f"not {fill_atom(atom)}"
        case Cardinality(atom, operator, bound):
            return f"Cardinality({fill_atom(atom)},'{operator}','{bound}')"
        case Inequality(left, right):
            return f"{fill(left)} != {fill(right)}"
        case IntCompare(left, operator, right):
            return f"IntCompare({fill(left)},'{operator}',{fill(right)})"
        case LexCompare(left, operator, right):
            return f"LexCompare({fill(left)},'{operator}',{fill(right)})"
        case TextShape(text, start, delimiters, end):
            return f"TextShape({fill(text)},{fill(start)},{delimiters},{fill(end)})"
        case TrueAtom():
            return "true"


def test_holds(test: Test, binding: Binding) -> bool:
    """Tell whether a built-in test holds; its variables all have values."""

    def value(term: Term) -> str:
        found = value_of(term, binding)
        if found is None:
            raise AssertionError("the checks refuse a test of something free")
        return found

    match test:
        case Inequality(left, right):
            return unequal(value(left), value(right))
        case IntCompare(left, operator, right):
            return int_compare(value(left), operator, value(right))
        case LexCompare(left, operator, right):
            return lex_compare(value(left), operator, value(right))
        case TextShape(text, start, delimiters, end):
            return text_shape(value(text), value(start), delimiters.value, value(end))


# -- Which values of a variable are worth trying: those that the engine finds in whole bindings.
#
# A search that goes value by value would try many in vain where few take part in any
# binding. The engine tells them all at once, on whole columns. It knows nothing of
# heights, so a value that survives is not yet certain.


class Survivors:
    """Questions to the engine about the bindings of some items of a body."""

    def __init__(self, state: EvaluationState, rule: int, items: Sequence[BodyAtom]) -> None:
        self._state = state
        self._rule = rule
        self._items = tuple(items)
        self._used = frozenset(name for item in items for name in variables_of(item))
        self._plans: dict[tuple[str, ...], Project] = {}

    def values(self, name: str, binding: Binding) -> Ids | None:
        """Return the values that a variable has in bindings that go on from a given one.

        None when the engine cannot be asked, since a value has no number.
        """
        state = self._state
        bound = [each for each in binding if each in self._used]
        numbers = [state.dictionary.find(binding[each]) for each in bound]
        if not all(0 <= number < state.size for number in numbers):
            return None
        saved = state.goal
        state.budget.rule = self._rule
        try:
            state.goal = Relation.of([np.array([each], np.int32) for each in numbers], 1)
            plan = state.compiled(self._plan((*bound, name)))
            found = [
                distinct_ids(frame.columns[name], state.size) for frame in run_plan(plan, state)
            ]
        finally:
            state.goal = saved
        return np.unique(np.concatenate([np.empty(0, np.int32), *found]))

    def _plan(self, names: tuple[str, ...]) -> Project:
        """Return the plan from values of all these variables but the last to those of the last."""
        found = self._plans.get(names)
        if found is None:
            head = Atom("Asked", tuple(map(Variable, names)))
            branch = Branch(self._rule, head.key, lower_rule(Rule(head, self._items)))
            asked = from_goal(branch, tuple(range(len(names) - 1)))
            asked = replace(asked, terms=(Variable(names[-1]),))
            step = Fixpoint((head.key,), (replace(branch, plan=asked),), recursive=False)
            pruned = prune_columns(RelationalProgram((step,), frozenset(), ()))
            found = self._plans[names] = pruned.steps[0].branches[0].plan
        return found


_Trial: TypeAlias = "tuple[Iterator[str], Atom]"
MANY_VALUES = 64
"""Values from which on the engine is asked first which of them are worth trying."""


class Search:
    """A search for bindings of some items of a rule, those of all atoms that bind among them.

    A variable that no positive atom names is left open: it is counted over.
    """

    def __init__(self, lookups: Lookups, rule: int, items: Sequence[BodyAtom]) -> None:
        self._lookups = lookups
        self._rule = rule
        self._survivors = Survivors(lookups.state, rule, items)
        self._items = tuple(items)
        self._kept: dict[tuple[str, ...], list[list[BodyAtom]]] = {}
        self._atoms = [item for item in items if isinstance(item, Atom)]
        self._atoms_with: dict[str, list[Atom]] = {}
        for atom in self._atoms:
            for name in dict.fromkeys(variables_of(atom)):
                self._atoms_with.setdefault(name, []).append(atom)
        self._names = tuple(
            dict.fromkeys(name for atom in self._atoms for name in variables_of(atom))
        )

    def bindings(self, given: Binding, below: int | None = None) -> Iterator[dict[str, str]]:
        """Yield each binding that goes on from a given one, with facts below a height only."""
        names = [name for name in self._names if name not in given]
        checks = self._checks(tuple(names))
        binding = dict(given)
        if not all(self._lookups.holds(item, binding, below) for item in checks[0]):
            return
        if not names:
            yield binding
            return
        trials = [self._trial(names[0], binding, below)]
        while trials:
            level = len(trials)
            values, source = trials[-1]
            for value in values:
                binding[names[level - 1]] = value
                if all(
                    self._lookups.holds(item, binding, below)
                    for item in checks[level]
                    if item is not source
                ):
                    break
            else:
                trials.pop()
                binding.pop(names[level - 1], None)
                continue
            if level == len(names):
                yield dict(binding)
            else:
                trials.append(self._trial(names[level], binding, below))

    def _checks(self, names: tuple[str, ...]) -> list[list[BodyAtom]]:
        """Return what to ask once this many variables have values."""
        found = self._kept.get(names)
        if found is None:
            found = self._kept[names] = self._new_checks(names)
        return found

    def _new_checks(self, names: Sequence[str]) -> list[list[BodyAtom]]:
        level = {name: number for number, name in enumerate(names, 1)}
        checks: list[list[BodyAtom]] = [[] for _ in range(len(names) + 1)]
        for item in self._items:
            levels = sorted({level.get(name, 0) for name in variables_of(item)} - {0})
            if isinstance(item, Atom) and levels:
                for number in levels:
                    checks[number].append(item)
            else:
                checks[max(levels, default=0)].append(item)
        for each in checks:  # what is quick to tell first
            each.sort(key=_cost)
        return checks

    def _trial(self, name: str, binding: Binding, below: int | None) -> _Trial:
        """Return the values to try for a variable, and the atom that they come from."""
        lookups = self._lookups
        found = [(lookups.matches(atom, binding, below), atom) for atom in self._atoms_with[name]]
        matches, atom = min(found, key=lambda each: each[0].most)
        at = atom.terms.index(Variable(name))
        (column,), rows = matches.columns((at,))
        state = lookups.state
        state.budget.rule = self._rule
        state.budget.spend(rows)
        if rows > 1:
            column = distinct_ids(column, state.size)
        if len(column) > MANY_VALUES and len(self._items) > 1:
            surviving = self._survivors.values(name, binding)
            if surviving is not None:
                column = np.intersect1d(column, surviving, assume_unique=True)
        return iter(sorted(state.dictionary.texts(column))), atom


def _cost(item: BodyAtom) -> int:
    kinds = ("Inequality", "IntCompare", "LexCompare", "TextShape", "Atom", "NegatedAtom")
    name = type(item).__name__
    return kinds.index(name) if name in kinds else len(kinds)


# -- Single questions to finished relations: which facts fit an atom under a binding.
#
# Rules run on whole columns; explanations ask about one binding at a time. A binding has
# texts, so it may hold values that no fact has.

EXACT_COUNT: Final = 1000
"""Facts up to which a count of facts that are not kept is always exact."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one part of a relation, by their places in the order of an index."""

    selection: Selection
    index: Index | None
    first: int
    last: int

    def rows(self, before: int | None) -> Slots:
        """Return the rows' numbers, only those before some row if one is given."""
        rows: Slots = np.arange(self.first, self.last)
        if self.index is not None:
            rows = self.index.rows_at(rows)
        return rows if before is None else rows[rows < before]


@dataclass(frozen=True, slots=True)
class Matches:
    """The facts that agree with an atom where it has values.

    `equal` are pairs of positions that the atom wants to be equal as well; `before` is
    where the rows that count end.
    """

    pieces: tuple[_Piece, ...]
    equal: tuple[tuple[int, int], ...]
    before: int | None

    @property
    def most(self) -> int:
        """No fewer than there are."""
        return sum(piece.last - piece.first for piece in self.pieces)

    def columns(self, positions: tuple[int, ...]) -> tuple[list[Ids], int]:
        """Return the values at some positions, and how many rows there are."""
        found: list[list[Ids]] = []
        count = 0
        for piece in self.pieces:
            rows = piece.rows(self.before)
            for left, right in self.equal:
                column = piece.selection.column
                rows = rows[column(left)[rows] == column(right)[rows]]
            count += len(rows)
            found.append([piece.selection.column(at)[rows] for at in positions])
        if len(found) == 1:
            return found[0], count
        empty = [np.empty(0, np.int32)]
        return [
            np.concatenate(empty + [each[at] for each in found]) for at in range(len(positions))
        ], count

    def count(self) -> int:
        """Return how many facts match."""
        return self.most if not self.equal and self.before is None else self.columns(())[1]

    def exist(self) -> bool:
        """Tell whether any fact matches."""
        return self.count() > 0


_NOTHING: Final = Matches((), (), None)


class Lookups:
    """Questions to the relations of a state; with heights, also to facts below a height."""

    def __init__(
        self, state: EvaluationState, ranked: Mapping[PredicateKey, Ranked] | None = None
    ) -> None:
        self.state = state
        self._ranked = ranked or {}

    def matches(self, atom: Atom, binding: Binding, below: int | None = None) -> Matches:
        """Return the facts that fit an atom under a binding, those below a height if given."""
        positions: list[int] = []
        values: list[int] = []
        free: dict[str, int] = {}
        equal: list[tuple[int, int]] = []
        for at, term in enumerate(atom.terms):
            value = value_of(term, binding)
            if value is not None:
                number = self.state.dictionary.find(value)
                if not 0 <= number < self.state.size:
                    return _NOTHING
                positions.append(at)
                values.append(number)
            elif isinstance(term, Variable):
                first = free.setdefault(term.name, at)
                if first != at:
                    equal.append((first, at))
        relation, before = self._relation(atom.key, below)
        pieces = _pieces(relation, tuple(positions), values, self.state.size)
        self.state.budget.spend(1 + len(pieces))
        return Matches(tuple(pieces), tuple(equal), before)

    def _relation(self, key: PredicateKey, below: int | None) -> tuple[Relation, int | None]:
        ranked = self._ranked.get(key) if below is not None else None
        if ranked is None or below is None:
            return self._all(key), None
        return ranked.relation, ranked.below(below)

    def height(self, key: PredicateKey, values: Sequence[str]) -> int | None:
        """Return the height of a fact that holds; None for one that does not."""
        numbers = [self.state.dictionary.find(value) for value in values]
        if not all(0 <= number < self.state.size for number in numbers):
            return None
        ranked = self._ranked.get(key)
        relation = self._all(key) if ranked is None else ranked.relation
        pieces = _pieces(relation, tuple(range(key.arity)), numbers, self.state.size)
        if not pieces:
            return None
        return 0 if ranked is None else ranked.height(int(pieces[0].rows(None)[0]))

    def _all(self, key: PredicateKey) -> Relation:
        return self.state.relations.get(key) or Relation(key.arity)

    def texts(self, atom: Atom, matches: Matches) -> list[Fact]:
        """Return the facts that match, in no order."""
        columns, rows = matches.columns(tuple(range(len(atom.terms))))
        self.state.budget.spend(rows)
        return [(atom.name, *values) for values in self.state.dictionary.rows(columns, rows)]

    def least(self, atom: Atom, binding: Binding, below: int | None = None) -> Fact | None:
        """Return the fact that fits an atom and comes first as text."""
        values = [value_of(term, binding) for term in atom.terms]
        matches = self.matches(atom, binding, below)
        if None in values:
            return min(self.texts(atom, matches), default=None)
        return (atom.name, *(each or "" for each in values)) if matches.exist() else None

    def count(self, item: Cardinality, binding: Binding) -> tuple[int, bool]:
        """Return how many facts an item counts, and whether that is exact or a lower bound."""
        if item.atom.key not in self.state.virtual:
            return self.matches(item.atom, binding).count(), True
        bound = [name for name in variables_of(item) if name in binding]
        numbers = [self.state.dictionary.find(binding[name]) for name in bound]
        if not all(0 <= number < self.state.size for number in numbers):
            return 0, True
        scan = Scan(item.atom.key, item.atom.terms, tuple(bound), -1)
        test = CountTest(Unit(), scan, item.operator, item.bound, tuple(bound))
        enough = _enough(item)
        columns = {
            name: np.array([number], np.int32) for name, number in zip(bound, numbers, strict=True)
        }
        found = int(bounded_counts(self.state, test, Frame(1, columns), enough)[0])
        return min(found, enough), found < enough

    def holds(self, item: BodyAtom, binding: Binding, below: int | None = None) -> bool:
        """Tell whether an item holds under a binding of all variables that it needs."""
        match item:
            case Atom():
                return self.matches(item, binding, below).exist()
            case NegatedAtom(atom):
                return not self.matches(atom, binding).exist()
            case Cardinality():
                count, _ = self.count(item, binding)
                return cardinality_holds(count, item.operator, item.bound)
            case TrueAtom():
                return True
            case _:
                return test_holds(item, binding)


def _pieces(
    relation: Relation, positions: tuple[int, ...], values: list[int], size: int
) -> list[_Piece]:
    made: list[_Piece] = []
    for selection in relation.select(EVERYTHING):
        if not positions:
            made.append(_Piece(selection, None, 0, selection.rows))
            continue
        index = selection.index(positions, size)
        (slot,) = index.find([np.array([value], np.int32) for value in values])
        if slot >= 0:
            made.append(
                _Piece(selection, index, int(index.starts[slot]), int(index.starts[slot + 1]))
            )
    return made


def _enough(item: Cardinality) -> int:
    """Return up to where to count: so far that the answer is certain, and further if cheap."""
    return max(count_bound(item.bound) + 1, EXACT_COUNT)


# -- Derivations: the shortest way from base facts to a fact, the same one every time.
#
# The height of a fact is least over all its derivations. Of those that reach it the one
# by the first rule is taken, and of its bindings the least; where a rule says `_`, the
# least fact that fits.


def derive(
    checked: CheckedProgram, state: EvaluationState, heights: Heights, fact: Fact
) -> tuple[Step, ...]:
    """Return the steps of the derivation of a fact that holds, each fact once.

    They stand in the order of a tree that is read from the top down, so each fact comes
    before those that it follows from the first time.
    """
    maker = _Maker(checked, Lookups(state, heights.ranked))
    steps: dict[Fact, Step] = {}
    waiting = [fact]
    while waiting:
        wanted = waiting.pop()
        if wanted in steps:
            continue
        step = steps[wanted] = maker.step(wanted)
        waiting += [each.fact for each in reversed(step.conditions) if each.fact is not None]
    return tuple(steps.values())


class _Maker:
    """Makes single steps."""

    def __init__(self, checked: CheckedProgram, lookups: Lookups) -> None:
        self._checked = checked
        self._lookups = lookups
        self._searches: dict[int, Search] = {}
        self._texts: dict[int, str] = {}
        self._references: dict[int, RuleReference] = {}

    def step(self, fact: Fact) -> Step:
        """Return how a fact that holds was made."""
        name, *values = fact
        key = PredicateKey(name, len(values))
        positions = self._checked.dependencies.rules_for(key)
        if not positions:
            return Step(fact)
        height = self._lookups.height(key, values)
        if height is None:
            raise AssertionError(f"there is no fact of {key} to derive")
        for position in positions:
            rule = self._checked.rules[position]
            given, clash = unify(rule.head, values)
            if clash is not None:
                continue
            binding = next(self._search(position).bindings(given, height), None)
            if binding is not None:
                conditions = tuple(self._condition(item, binding, height) for item in rule.body)
                return Step(fact, height, self._reference(position), conditions)
        raise AssertionError(f"no rule gives a fact of {key} that holds")

    def _search(self, position: int) -> Search:
        found = self._searches.get(position)
        if found is None:
            rule = self._checked.rules[position]
            found = self._searches[position] = Search(self._lookups, position, rule.body)
        return found

    def _reference(self, position: int) -> RuleReference:
        found = self._references.get(position)
        if found is None:
            found = self._references[position] = RuleReference.of(self._checked, position)
        return found

    def _condition(self, item: BodyAtom, binding: Binding, height: int) -> Condition:
        text, instance = self._text(item), instance_of(item, binding)
        match item:
            case Atom():
                return Condition("fact", text, instance, self._fact(item, binding, height))
            case NegatedAtom():
                return Condition("not", text, instance)
            case Cardinality():
                count, exact = self._lookups.count(item, binding)
                return Condition("count", text, instance, count=count, exact=exact)
            case TrueAtom():
                return Condition("true", text, instance)
            case _:
                return Condition("test", text, instance)

    def _fact(self, atom: Atom, binding: Binding, height: int) -> Fact:
        """Return the fact that met an atom; a binding of all its terms leaves no choice."""
        values = [value_of(term, binding) for term in atom.terms]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            return (atom.name, *known)
        found = self._lookups.least(atom, binding, height)
        if found is None:
            raise AssertionError("a binding was found without its facts")
        return found

    def _text(self, item: BodyAtom) -> str:
        found = self._texts.get(id(item))
        if found is None:
            found = self._texts[id(item)] = str(item)
        return found
