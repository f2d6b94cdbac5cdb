"""Engines against an answer-set solver: one answer for every program and all facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from lace.engine.engine import evaluate
from lace.facts.lines import format_fact, parse_fact
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from tests.differential.clingo_programs import evaluate_with_clingo
from tests.oracle.naive_engine import evaluate_naively
from tests.profiles import examples
from tests.property import lacegrams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

    Rows = Mapping[PredicateKey, frozenset[tuple[str, ...]]]
    Evaluate = Callable[[CheckedProgram, list[Fact]], Rows]


def evaluate_embedded(program: CheckedProgram, facts: list[Fact]) -> Rows:
    evaluation = evaluate(program, facts)
    return {key: frozenset(evaluation.texts(key)) for key in program.derived}


ENGINES: dict[str, Evaluate] = {"reference": evaluate_naively, "embedded": evaluate_embedded}
"""Every engine that must agree with the solver."""

PROGRAMS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "programs.json").read_text("utf-8")
)
EXAMPLES = examples(300)
every_engine = pytest.mark.parametrize("engine", ENGINES)


def checked(text: str, facts: list[Fact]) -> CheckedProgram:
    profile = QUERY.with_base({(fact[0], len(fact) - 1) for fact in facts})
    return check_source(text, profile=profile)


# Programs that pass the checks: what makes a random one unsafe or unstratified is mended.

BASE = ("E", "F", "G")
PLAIN = st.sampled_from(["x", "10", "9", "links/bob.msg"])


def mended(rule: lacegrams.Rule, default: lacegrams.Term) -> lacegrams.Rule:
    """Put a constant where `_` cannot stand, and bind by `E` each variable that is not."""
    (name, head), body = rule

    def named(term: lacegrams.Term) -> lacegrams.Term:
        return default if term[0] == "any" else term

    items: list[lacegrams.Item] = []
    for item in body:
        match item:
            case ("ne", left, right):
                items.append(("ne", named(left), named(right)))
            case ("lex" as kind, left, operator, right):
                items.append((kind, named(left), operator, named(right)))
            case ("shape", text, start, delimiters, end):
                items.append(("shape", named(text), named(start), delimiters, named(end)))
            case _:
                items.append(item)
    tested = [term for item in items for term in lacegrams.tested(item)]
    tested += [term for item in items if item[0] == "not" for term in item[1][1]]
    bound = {n for item in items if item[0] == "pos" for n in lacegrams.named(item[1][1])}
    loose = dict.fromkeys(lacegrams.named((*head, *tested)))
    items += [("pos", ("E", (("var", each),))) for each in loose if each not in bound]
    return (name, head), tuple(items)


def constants(program: lacegrams.Program) -> set[str]:
    found = {text for (_, head), _ in program for kind, text in head if kind == "const"}
    for _, body in program:
        for item in body:
            terms = item[1][1] if item[0] in {"pos", "not", "card"} else lacegrams.tested(item)
            found.update(text for kind, text in terms if kind == "const")
    return found


# Few predicates, variables and values, so that rules often fire and feed one another.

ARITIES = {"A": 1, "B": 2, "C": 2, "D": 0, "E": 2, "F": 1, "G": 3}
few = st.sampled_from(["X", "Y", "Z"]).map(lambda name: ("var", name))
plain = PLAIN.map(lambda value: ("const", value))
often = st.one_of(*[few] * 8, st.just(("any", "")), plain)


def lively_atoms(names: str, terms: st.SearchStrategy[lacegrams.Term]) -> st.SearchStrategy[Any]:
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.tuples(*[terms] * ARITIES[name]))
    )


tests: st.SearchStrategy[lacegrams.Item] = st.one_of(
    st.tuples(st.just("not"), lively_atoms("ABCDEFG", often)),
    st.tuples(
        st.just("card"),
        lively_atoms("ABCDEFG", often),
        lacegrams.OPERATORS,
        st.sampled_from(["0", "1", "2", "003"]),
    ),
    st.tuples(st.just("ne"), few, often),
    st.tuples(st.just("int"), few, lacegrams.OPERATORS, few),
    st.tuples(st.just("lex"), few, lacegrams.OPERATORS, often),
    st.tuples(
        st.just("shape"),
        few,
        st.sampled_from(["", "links/", "-"]).map(lambda value: ("const", value)),
        st.sampled_from(["", "./", "b"]),
        st.one_of(few, st.sampled_from(["", "msg", "a"]).map(lambda value: ("const", value))),
    ),
)
lively_rules = st.tuples(
    lively_atoms("ABBCCD", st.one_of(few, few, few, plain)),
    st.tuples(
        st.lists(
            st.tuples(st.just("pos"), lively_atoms("ABCEEEFFGG", often)), min_size=1, max_size=3
        ),
        st.lists(tests, max_size=2),
    ).flatmap(lambda parts: st.permutations([*parts[0], *parts[1]]).map(tuple)),
)
lively: st.SearchStrategy[lacegrams.Program] = st.lists(lively_rules, min_size=2, max_size=8).map(
    tuple
)


@st.composite
def programs_with_facts(draw: st.DrawFn) -> tuple[str, list[Fact]]:
    """Return a legal program and facts whose values it mentions often."""
    program: lacegrams.Program = ()
    for rule in draw(st.one_of(lively, lively, lacegrams.programs.filter(bool))):
        more = (*program, mended(rule, ("const", draw(PLAIN))))
        if lacegrams.is_safe(more[-1]) and lacegrams.is_stratified(more):
            program = more
    pool = st.one_of(PLAIN, PLAIN, st.sampled_from([*sorted(constants(program)), "-3", "007"]))
    read = {("E", 1)} | {
        (item[1][0], len(item[1][1]))
        for _, body in program
        for item in body
        if item[0] in {"pos", "not", "card"} and item[1][0] in BASE
    }
    facts: list[Fact] = []
    for name, arity in sorted(read):
        rows = draw(st.lists(st.tuples(*[pool] * arity), min_size=arity * 3, max_size=12))
        facts += [(name, *row) for row in sorted(set(rows))]
    return lacegrams.canonical(program), facts


@every_engine
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_programs_of_the_vectors(engine: str, number: int) -> None:
    facts = [parse_fact(line.encode()) for line in PROGRAMS[number]["facts"]]
    program = checked(PROGRAMS[number]["rules"], facts)
    result = evaluate_with_clingo(program, facts)
    derived = [format_fact((key.name, *row)) for key, rows in result.items() for row in rows]
    assert sorted(derived) == sorted(PROGRAMS[number]["derived"])
    assert ENGINES[engine](program, facts) == result


@pytest.mark.property
@pytest.mark.slow
@pytest.mark.requirement("030-61", "030-62", "030-63", "030-86", "030-87")
@every_engine
@settings(max_examples=EXAMPLES)
@given(case=programs_with_facts())
@example(case=("A('a\"b\\\\','\u2028') :- E(X), X != 'é'.", [("E", "\\n"), ("E", 'q"')]))
@example(case=("A() :- Cardinality(G(),'>=','1').\nB() :- not A().", [("G",)]))
@example(case=("A(X) :- E(X), Cardinality(E(X,_),'<','9999999999').\nA(X,X) :- A(X).", [("E", "")]))
def test_generated_programs(engine: str, case: tuple[str, list[Fact]]) -> None:
    text, facts = case
    program = checked(text, facts)
    result = evaluate_with_clingo(program, facts)
    event(f"derived facts: {sum(map(len, result.values())).bit_length()} bits")
    assert ENGINES[engine](program, facts) == result
