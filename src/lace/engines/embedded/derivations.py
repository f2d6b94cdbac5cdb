"""Derivations: the shortest way from base facts to a fact, the same one every time.

The height of a fact is least over all its derivations. Of those that reach it the one
by the first rule is taken, and of its bindings the least; where a rule says `_`, the
least fact that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.engines.embedded.items import instance_of, unify, value_of
from lace.engines.embedded.lookups import Lookups
from lace.engines.embedded.search import Search
from lace.engines.explanation import Condition, RuleReference, Step
from lace.rules.syntax import Atom, Cardinality, NegatedAtom, PredicateKey, TrueAtom

if TYPE_CHECKING:
    from lace.engines.embedded.heights import Heights
    from lace.engines.embedded.items import Binding
    from lace.engines.embedded.state import State
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import BodyAtom

__all__ = ["derive"]


def derive(checked: CheckedProgram, state: State, heights: Heights, fact: Fact) -> tuple[Step, ...]:
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
