"""Explanations against a slow, plain reading of what a shortest derivation and a miss are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.engine.engine import evaluate
from lace.query.result import Result
from lace.rules import builtins
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram
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
    TextShape,
    TrueAtom,
    Variable,
)
from lace.why import search
from lace.why.why_not import SAMPLED_BINDINGS
from tests.oracle.naive_engine import evaluate_naively
from tests.property import derivations, evaluations
from tests.property import lacegrams as plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.rules.syntax import BodyAtom, Rule, Term
    from lace.why.explanation import Explanation, Miss, Step

pytestmark = pytest.mark.property

Fact = tuple[str, ...]
Binding = dict[str, str]
Made = tuple[plain.Program, list[Fact]]
DENSE = derivations.dense_worlds()
WIDE = st.one_of(
    st.tuples(evaluations.programs(), evaluations.facts()),
    st.tuples(evaluations.order_programs(), evaluations.facts()),
)


class World:
    """A program, its facts and all that follows, with the least height of each fact."""

    def __init__(self, program: plain.Program, facts: Sequence[Fact]) -> None:
        profile = QUERY.with_base(evaluations.BASE)
        self.checked = Lacegram.parse(plain.canonical(program), profile=profile).program
        self.facts = list(facts)
        self.derived: set[Fact] = {
            (key.name, *row)
            for key, rows in evaluate_naively(self.checked, facts).items()
            for row in rows
        }
        self.known = {*facts, *self.derived}
        self.heights = self._heights()

    def _heights(self) -> dict[Fact, int]:
        heights = dict.fromkeys(self.facts, 0)
        height = 0
        while True:
            height += 1
            below = set(heights)
            new = {
                filled(rule.head, binding)
                for rule in self.checked.rules
                for binding in self.solve(rule.body, {}, below)
            } - below
            if not new:
                return heights
            heights.update(dict.fromkeys(new, height))

    def result(self, facts: Iterable[Fact] | None = None) -> Result:
        return Result(self.checked, evaluate(self.checked, self.facts if facts is None else facts))

    def solve(
        self, items: Sequence[BodyAtom], given: Binding, positive: Iterable[Fact]
    ) -> list[Binding]:
        """All bindings that make items true, in order; positive atoms read some facts only."""
        atoms = [item for item in items if isinstance(item, Atom)]
        found = [dict(given)]
        for atom in atoms:
            found = [
                more
                for binding in found
                for fact in positive
                if (more := matched(atom, fact, binding)) is not None
            ]
        names = list(dict.fromkeys(n for atom in atoms for n in names_of(atom.terms)))
        unique = {tuple(b[n] for n in names): b for b in found if self.conditions_hold(items, b)}
        return [unique[key] for key in sorted(unique)]

    def conditions_hold(self, items: Iterable[BodyAtom], binding: Binding) -> bool:
        return all(self.holds(item, binding) for item in items if not isinstance(item, Atom))

    def holds(self, item: BodyAtom, binding: Binding) -> bool:
        def value(term: Term) -> str:
            return term.value if isinstance(term, Constant) else binding[str(term)]

        match item:
            case Atom():
                return bool(self.matching(item, binding))
            case NegatedAtom(atom):
                return not self.matching(atom, binding)
            case Cardinality(atom, operator, bound):
                count = len(self.matching(atom, binding))
                return builtins.cardinality_holds(count, operator, bound)
            case Inequality(left, right):
                return value(left) != value(right)
            case IntCompare(left, operator, right):
                return builtins.int_compare(value(left), operator, value(right))
            case LexCompare(left, operator, right):
                return builtins.lex_compare(value(left), operator, value(right))
            case TextShape(text, start, delimiters, end):
                return builtins.text_shape(value(text), value(start), delimiters.value, value(end))
            case TrueAtom():
                return True

    def matching(self, atom: Atom, binding: Binding) -> set[Fact]:
        return {fact for fact in self.known if matched(atom, fact, binding) is not None}


def matched(atom: Atom, fact: Fact, binding: Binding) -> Binding | None:
    if fact[0] != atom.name or len(fact) - 1 != len(atom.terms):
        return None
    more = dict(binding)
    for term, value in zip(atom.terms, fact[1:], strict=True):
        match term:
            case Constant() if term.value != value:
                return None
            case Variable() if more.setdefault(term.name, value) != value:
                return None
    return more


def names_of(terms: Iterable[Term]) -> list[str]:
    return [term.name for term in terms if isinstance(term, Variable)]


def filled(atom: Atom, binding: Binding) -> Fact:
    values = [t.value if isinstance(t, Constant) else binding[str(t)] for t in atom.terms]
    return (atom.name, *values)


def head_binding(rule: Rule, fact: Fact) -> Binding | None:
    return matched(rule.head, fact, {})


@pytest.fixture(scope="module", params=[0, 64], autouse=True)
def _many_values(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether the engine narrows a search must not matter to what is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MANY_VALUES", request.param)
        yield


@given(DENSE, st.data())
def test_what_holds_has_a_shortest_derivation(made: Made, data: st.DataObject) -> None:
    check_all_that_holds(*made, data)


@given(WIDE, st.data())
def test_what_holds_by_wider_rules(made: Made, data: st.DataObject) -> None:
    check_all_that_holds(*made, data)


def check_all_that_holds(program: plain.Program, facts: list[Fact], data: st.DataObject) -> None:
    world = World(program, facts)
    result = world.result()
    assert world.derived <= set(world.heights)
    for fact in sorted(world.derived):
        found = result.why(*fact)
        assert found
        assert found.fact == fact
        assert found.height == world.heights[fact]
        check_derivation(world, found)
    other = world.result(data.draw(st.permutations(facts)))
    for fact in sorted(world.derived, reverse=True):
        assert other.why(*fact) == result.why(*fact)


def check_derivation(world: World, found: Explanation) -> None:
    assert len({step.fact for step in found.steps}) == len(found.steps)
    reached = {found.fact}
    for step in found.steps:
        assert step.fact in reached
        assert step.height == world.heights[step.fact]
        if step.rule is None:
            assert step.fact in world.facts
            assert not step.conditions
        else:
            check_step(world, step)
        for condition in step.conditions:
            if condition.fact is not None:
                assert found.step(condition.fact).height < step.height
                reached.add(condition.fact)
    json.dumps(found.to_json())
    assert str(found).startswith(found.fact[0])
    assert found._repr_html_().startswith("<div")


def check_step(world: World, step: Step) -> None:
    """A step is the first rule and the least binding that reach the height of its fact."""
    below = {fact for fact, height in world.heights.items() if height < step.height}
    givers = [
        (number, rule, solved)
        for number, rule in enumerate(world.checked.rules, 1)
        if (given := head_binding(rule, step.fact)) is not None
        and (solved := world.solve(rule.body, given, below))
    ]
    number, rule, solved = givers[0]
    assert step.rule is not None
    assert (step.rule.number, step.rule.text) == (number, world.checked.lines[number - 1])
    assert step.rule.id == world.checked.rule_ids[number - 1]
    assert len(step.conditions) == len(rule.body)
    for item, condition in zip(rule.body, step.conditions, strict=True):
        assert condition.text == str(item)
        if isinstance(item, Atom):
            fits = {f for f in below if matched(item, f, solved[0]) is not None}
            assert condition.fact == min(fits)
        elif isinstance(item, Cardinality):
            assert condition.exact
            assert condition.count == len(world.matching(item.atom, solved[0]))


@given(DENSE, st.data())
def test_what_does_not_hold_has_a_miss_for_each_rule(made: Made, data: st.DataObject) -> None:
    check_what_does_not_hold(*made, data)


@given(WIDE, st.data())
def test_what_does_not_hold_by_wider_rules(made: Made, data: st.DataObject) -> None:
    check_what_does_not_hold(*made, data)


def check_what_does_not_hold(
    program: plain.Program, facts: list[Fact], data: st.DataObject
) -> None:
    world = World(program, facts)
    result = world.result()
    other = world.result(data.draw(st.permutations(facts)))
    value = st.one_of(evaluations.VALUES, evaluations.NUMBERS, st.just("nowhere"))
    for key in world.checked.derived:
        fact = (key.name, *(data.draw(value) for _ in range(key.arity)))
        found = result.why(*fact)
        assert found.holds is (fact in world.derived)
        if not found.holds:
            check_absence(world, found)
            assert other.why(*fact) == found


def check_absence(world: World, found: Explanation) -> None:
    assert found.absence is not None
    assert not found.steps
    key = PredicateKey(found.fact[0], len(found.fact) - 1)
    numbers = [n for n, rule in enumerate(world.checked.rules, 1) if rule.head.key == key]
    assert [miss.rule.number for miss in found.absence.misses] == numbers
    for miss in found.absence.misses:
        check_miss(world, world.checked.rules[miss.rule.number - 1], found.fact, miss)
    json.dumps(found.to_json())
    assert "does not hold" in str(found)


def check_miss(world: World, rule: Rule, fact: Fact, miss: Miss) -> None:
    given = head_binding(rule, fact)
    if given is None:
        assert miss.kind == "head"
        assert miss.argument is not None
        assert fact[miss.argument] != miss.expected
        terms = rule.head.terms
        term = terms[miss.argument - 1]
        first = fact[terms.index(term) + 1]
        assert miss.expected == (term.value if isinstance(term, Constant) else first)
        return
    order = walk(rule, given)
    for number in range(len(order)):
        before = [rule.body[at] for at in order[:number]]
        if not world.solve([*before, rule.body[order[number]]], given, world.known):
            break
    else:
        raise AssertionError("the rule gives it")
    assert miss.position == order[number]
    failed = rule.body[miss.position]
    assert miss.item == str(failed)
    bindings = world.solve(before, given, world.known)
    assert dict(miss.binding) in bindings
    if isinstance(failed, Atom) and len(bindings) <= SAMPLED_BINDINGS:
        check_nearest(world, failed, bindings, miss)
    if isinstance(failed, NegatedAtom):
        assert miss.nearest == min(world.matching(failed.atom, dict(miss.binding)))
    if isinstance(failed, Cardinality):
        assert miss.count == len(world.matching(failed.atom, dict(miss.binding)))


def walk(rule: Rule, given: Binding) -> list[int]:
    """The order in which a body is gone through: conditions as soon as they can be asked."""
    binds: dict[str, int] = dict.fromkeys(given, -1)
    for at, item in enumerate(rule.body):
        if isinstance(item, Atom):
            for name in names_of(item.terms):
                binds.setdefault(name, at)

    def ready(at: int) -> tuple[int, bool, int]:
        item = rule.body[at]
        match item:
            case Atom() | TrueAtom():
                names: list[str] = []
            case NegatedAtom() | Cardinality():
                names = names_of(item.atom.terms)
            case _:
                names = names_of(item.terms)
        latest = max((binds.get(name, -1) for name in names), default=-1)
        return max(at, latest), not isinstance(item, Atom), at

    return sorted(range(len(rule.body)), key=ready)


def check_nearest(world: World, atom: Atom, bindings: list[Binding], miss: Miss) -> None:
    def agreed(fact: Fact, binding: Binding) -> int:
        first: Binding = {}
        count = 0
        for term, value in zip(atom.terms, fact[1:], strict=True):
            match term:
                case Anonymous():
                    continue
                case Constant():
                    count += term.value == value
                case Variable() if term.name in binding:
                    count += binding[term.name] == value
                case Variable() if term.name in first:
                    count += first[term.name] == value
                case Variable():
                    first[term.name] = value
        return count

    same = [fact for fact in world.known if (fact[0], len(fact) - 1) == atom.key]
    most = max((agreed(f, b) for f in same for b in bindings), default=0)
    if not most:
        assert miss.nearest is None
        return
    chosen = dict(miss.binding)
    assert miss.nearest == min(fact for fact in same if agreed(fact, chosen) == most)
