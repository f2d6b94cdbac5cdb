"""Why a fact holds in an evaluation, or what each rule lacks to give it.

The body of a rule is gone through as it is written; a condition waits until its
variables have values. The first item that no binding passes is the one that failed.
Of the bindings that come as far as that, the least ones are looked at for a near miss.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from lace.columns.relation import EVERYTHING, Relation
from lace.engine.derivation_depth import finished_state, heights_for
from lace.rules.findings import closest
from lace.rules.syntax import Atom, Cardinality, NegatedAtom, PredicateKey, Variable
from lace.why.explanation import Absence, Explanation, Miss, RuleReference, Step
from lace.why.search import Lookups, Search, derive, instance_of, unify, value_of, variables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.engine.engine import Evaluation
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom, Rule
    from lace.why.explanation import MissKind
    from lace.why.search import Binding


SAMPLED_BINDINGS: Final = 32
"""Bindings that are looked at for the nearest miss, at most."""
MAX_DEPTH: Final = 2
"""How often the absence of a fact is explained by that of another."""
MAX_INNER_RULES: Final = 200
"""Rules that are gone through for the absence of other facts than the one asked about."""


def find_absence(checked: CheckedProgram, lookups: Lookups, fact: Fact) -> Absence:
    """Return why a fact does not hold."""
    name, *values = fact
    key = PredicateKey(name, len(values))
    if checked.dependencies.is_derived(key):
        return _Finder(checked, lookups).absence(fact, MAX_DEPTH)
    relations = lookups.state.relations
    if (key in relations and relations[key].rows) or key in checked.profile.base:
        _, nearest = _nearest(lookups, key, values, ())
        return Absence(fact, "base", nearest=nearest)
    return Absence(fact, "unknown", suggestion=_suggestion(checked, lookups, key))


def _suggestion(checked: CheckedProgram, lookups: Lookups, key: PredicateKey) -> str | None:
    """Return the known predicate most like one that is not known."""
    given = {each for each, relation in lookups.state.relations.items() if relation.rows}
    known = given | set(checked.derived) | checked.profile.base
    names = {each.name for each in known}
    name = key.name if key.name in names else closest(key.name, names)
    arities = [each.arity for each in known if each.name == name]
    if name is None:
        return None
    return f"{name}/{min(arities, key=lambda arity: (abs(arity - key.arity), arity))}"


class _Finder:
    """Finds why derived facts do not hold; each fact is explained once."""

    def __init__(self, checked: CheckedProgram, lookups: Lookups) -> None:
        self._checked = checked
        self._lookups = lookups
        self._seen: set[Fact] = set()
        self._left = MAX_INNER_RULES

    def absence(self, fact: Fact, depth: int) -> Absence:
        """Return what each rule of a fact's predicate lacks."""
        self._seen.add(fact)
        rules = self._checked.dependencies.rules_for(PredicateKey(fact[0], len(fact) - 1))
        return Absence(fact, "rules", tuple(self._miss(rule, fact, depth) for rule in rules))

    def _miss(self, position: int, fact: Fact, depth: int) -> Miss:
        lookups, rule = self._lookups, self._checked.rules[position]
        reference = RuleReference.of(self._checked, position)
        given, clash = unify(rule.head, fact[1:])
        if clash is not None:
            expected = value_of(rule.head.terms[clash], given)
            text = str(rule.head)
            return Miss(reference, "head", text, text, argument=clash + 1, expected=expected)
        order = _as_written(rule, set(given))
        for number, at in enumerate(order):
            items = [rule.body[each] for each in order[: number + 1]]
            if next(Search(lookups, position, items).bindings(given), None) is None:
                reached = Search(lookups, position, items[:-1]).bindings(given)
                sample = list(islice(reached, SAMPLED_BINDINGS))
                return self._failed(reference, at, rule.body[at], sample, depth)
        raise AssertionError("a rule gives a fact that does not hold")

    def _failed(
        self,
        reference: RuleReference,
        at: int,
        item: BodyAtom,
        sample: Sequence[Binding],
        depth: int,
    ) -> Miss:
        """Return the miss of an item that no binding passes; these came as far as that."""
        binding, nearest, count, exact, inner = sample[0], None, None, True, None
        kind: MissKind = "test"
        read: Atom | None = None
        match item:
            case Atom():
                kind, read = "fact", item
                binding, nearest = _nearest_of(self._lookups, item, sample)
                inner = self._inner(item, binding, depth - 1)
            case NegatedAtom(atom):
                kind, read = "not", atom
                nearest = self._lookups.least(atom, binding)
            case Cardinality(atom):
                kind, read = "count", atom
                count, exact = self._lookups.count(item, binding)
            case _:
                pass
        return Miss(
            reference,
            kind,
            str(item),
            instance_of(item, binding),
            position=at,
            binding=tuple(binding.items()),
            nearest=nearest,
            count=count,
            exact=exact,
            inner=inner,
            predicate=None if read is None else read.key,
            values=() if read is None else tuple(value_of(term, binding) for term in read.terms),
        )

    def _inner(self, atom: Atom, binding: Binding, depth: int) -> Absence | None:
        """Return why the fact that an atom asks for does not hold, if it asks for one fact."""
        values = [value_of(term, binding) for term in atom.terms]
        fact = (atom.name, *(value for value in values if value is not None))
        rules = len(self._checked.dependencies.rules_for(atom.key))
        if None in values or fact in self._seen or not rules or depth < 0 or rules > self._left:
            return None
        self._left -= rules
        return self.absence(fact, depth)


def _as_written(rule: Rule, bound: set[str]) -> list[int]:
    """Return the positions of a body in the order to go through them.

    A condition comes where it is written, or as soon as its variables have values.
    """
    binding = {name for atom in rule.positive_atoms() for name in variables_of(atom)}
    order: list[int] = []
    waiting: list[int] = []
    for at, item in enumerate(rule.body):
        waiting.append(at)
        if isinstance(item, Atom):
            bound |= set(variables_of(item))
            waiting.remove(at)
            order.append(at)
        ready = [
            each for each in waiting if binding.intersection(variables_of(rule.body[each])) <= bound
        ]
        order += ready
        waiting = [each for each in waiting if each not in ready]
    return order


def _nearest_of(
    lookups: Lookups, atom: Atom, sample: Sequence[Binding]
) -> tuple[Binding, Fact | None]:
    """Return the binding under which some fact comes nearest to an atom, and that fact."""
    best: tuple[int, Binding, Fact | None] = 0, sample[0], None
    for binding in sample:
        first: dict[str, int] = {}
        equal: list[tuple[int, int]] = []
        values = [value_of(term, binding) for term in atom.terms]
        for at, term in enumerate(atom.terms):
            if isinstance(term, Variable) and values[at] is None:
                earlier = first.setdefault(term.name, at)
                if earlier != at:
                    equal.append((earlier, at))
        agreed, fact = _nearest(lookups, atom.key, values, equal)
        if agreed > best[0]:
            best = agreed, binding, fact
    return best[1], best[2]


def _nearest(
    lookups: Lookups,
    key: PredicateKey,
    values: Sequence[str | None],
    equal: Sequence[tuple[int, int]],
) -> tuple[int, Fact | None]:
    """Return in how many places some fact agrees at most, and the first such fact as text."""
    state = lookups.state
    numbers = [None if value is None else state.dictionary.find(value) for value in values]
    most, found = 0, None
    for selection in state.relations.get(key, Relation(key.arity)).select(EVERYTHING):
        state.budget.spend(selection.rows)
        agreed = np.zeros(selection.rows, np.int32)
        for at, number in enumerate(numbers):
            if number is not None and number >= 0:
                agreed += selection.column(at) == number
        for left, right in equal:
            agreed += selection.column(left) == selection.column(right)
        here = int(agreed.max())
        if here == 0 or here < most:
            continue
        rows = np.flatnonzero(agreed == here)
        columns = [selection.column(at)[rows] for at in range(key.arity)]
        least: Fact = (key.name, *min(state.dictionary.rows(columns, len(rows))))
        found = least if found is None or here > most else min(found, least)
        most = here
    return most, found


# -- Why a fact holds in an evaluation, or why it does not.


def explain_fact(evaluation: Evaluation, key: PredicateKey, values: Sequence[str]) -> Explanation:
    """Explain a fact, whether it holds or not.

    The same rules over the same facts give the same explanation, in whatever order the
    facts came.
    """
    fact = (key.name, *values)
    evaluation.run([key])
    lookups = Lookups(finished_state(evaluation))
    if lookups.height(key, values) is None:
        return Explanation(fact, absence=find_absence(evaluation.checked, lookups, fact))
    if not evaluation.checked.dependencies.is_derived(key):
        return Explanation(fact, (Step(fact),))
    heights = heights_for(evaluation, key)
    steps = derive(evaluation.checked, finished_state(evaluation), heights, fact)
    return Explanation(fact, steps)
