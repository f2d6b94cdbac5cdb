"""Why facts hold and why they do not, over small programs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.engine.engine import evaluate
from lace.errors import LimitExceeded
from lace.query.result import Result
from lace.rules.limits import OWN_LIMITS
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram
from lace.why.why_not import MAX_INNER_RULES

if TYPE_CHECKING:
    from lace.why.explanation import Explanation

Fact = tuple[str, ...]

RULES = """#:json {"label":"whatever is not hidden"}
Selected(P) :- Have(P), not Hidden(P).
Hidden(P) :- Field(P,'Hidden',_,'yes').
Support(T) :- Selected(P), RecordLink(P,'+Link',_,'proof',T).
Support(T) :- Support(P), RecordLink(P,'+Link',_,'proof',T).
Before(P,Q) :- Field(P,'TAI',_,T), Field(Q,'TAI',_,U), LexCompare(U,'>',T).
Newest(P) :- Have(P), Cardinality(Before(P,Q),'<','1').
Same(P,P) :- Have(P), P != 'S.b'.
Kind(P,'open') :- Selected(P).
"""
FACTS: list[Fact] = [
    ("Have", "S.a"),
    ("Have", "S.b"),
    ("Field", "S.b", "Hidden", "0", "yes"),
    ("Field", "S.a", "TAI", "0", "1"),
    ("Field", "S.b", "TAI", "0", "2"),
    ("RecordLink", "S.a", "+Link", "1", "proof", "B.x"),
    ("RecordLink", "S.a", "+Link", "0", "proof", "B.x"),
    ("RecordLink", "B.x", "+Link", "0", "proof", "B.y"),
]


def result_of(rules: str, facts: list[Fact], name: str | None = "policy.lace") -> Result:
    profile = QUERY
    base = {(fact[0], len(fact) - 1) for fact in facts} - {(k.name, k.arity) for k in QUERY.base}
    if base:
        profile = QUERY.with_base(base)
    checked = Lacegram.parse(rules, profile=profile, name=name).program
    return Result(checked, evaluate(checked, facts))


@pytest.fixture(scope="module")
def result() -> Result:
    return result_of(RULES, FACTS)


def shown(found: Explanation) -> str:
    """The tree, with identifiers of rules cut short."""
    return re.sub(r"U\.[A-Za-z0-9_~]{43}", "U.…", str(found))


def test_a_derivation(result: Result) -> None:
    found = result.why("Support", "B.y")
    assert found.height == 3
    assert (
        shown(found)
        == """\
Support('B.y')
├─ by rule 4 (U.…, policy.lace:5): Support(T) :- Support(P), RecordLink(P,'+Link',_,'proof',T).
├─ Support('B.x')
│  ├─ by rule 3 (U.…, policy.lace:4): Support(T) :- Selected(P), RecordLink(P,'+Link',_,'proof',T).
│  ├─ Selected('S.a')
│  │  ├─ by rule 1 (U.…, policy.lace:2): Selected(P) :- Have(P), not Hidden(P).
│  │  │  label: "whatever is not hidden"
│  │  ├─ Have('S.a')   base fact
│  │  └─ not Hidden('S.a')   no such fact
│  └─ RecordLink('S.a','+Link','0','proof','B.x')   base fact
└─ RecordLink('B.x','+Link','0','proof','B.y')   base fact"""
    )


def test_counts_and_tests(result: Result) -> None:
    assert shown(result.why("Newest", "S.b")).splitlines()[-1] == (
        "└─ Cardinality(Before('S.b',Q),'<','1')   0 facts"
    )
    assert "└─ LexCompare('2','>','1')   holds" in str(result.why("Before", "S.a", "S.b"))
    assert "└─ 'S.a' != 'S.b'   holds" in str(result.why("Same/2", "S.a", "S.a"))


def test_a_base_fact(result: Result) -> None:
    found = result.why("Have", "S.a")
    assert found
    assert found.height == 0
    assert str(found) == "Have('S.a')   base fact"


@pytest.mark.parametrize(
    ("fact", "lines"),
    [
        (
            ("Selected", "S.b"),
            ["├─ failed: not Hidden(P)", "│  with P = 'S.b'", "└─ there is: Hidden('S.b')"],
        ),
        (
            ("Support", "B.z"),
            [
                "failed: RecordLink(P,'+Link',_,'proof',T)",
                "with T = 'B.z', P = 'S.a'",
                "nearest: RecordLink('S.a','+Link','0','proof','B.x')",
            ],
        ),
        (("Newest", "S.a"), ["failed: Cardinality(Before(P,Q),'<','1')", "found: 1 fact"]),
        (("Before", "S.b", "S.a"), ["LexCompare('1','>','2')   does not hold"]),
        (("Same", "S.a", "S.b"), ["argument 2 of Same(P,P) would be 'S.a'"]),
        (("Kind", "S.a", "shut"), ["argument 2 of Kind(P,'open') would be 'open'"]),
        (("Same", "S.b", "S.b"), ["failed: P != 'S.b'", "'S.b' != 'S.b'   does not hold"]),
        (("Have", "S.c"), ["no such base fact"]),
        (("Field", "S.a", "TAI", "0", "9"), ["nearest: Field('S.a','TAI','0','1')"]),
        (("Suport", "B.y"), ["did you mean Support/1?"]),
        (("Support", "B.y", "B.z"), ["did you mean Support/1?"]),
        (("Xyzzy",), ["no rule and no fact has the predicate Xyzzy/0"]),
        (("not a name\n", "\x00"), [r"not a name\u{a}('\u{0}')   does not hold"]),
    ],
)
def test_misses(result: Result, fact: Fact, lines: list[str]) -> None:
    found = result.why(*fact)
    assert not found
    for line in lines:
        assert line in str(found)
    json.dumps(found.to_json())


def test_a_miss_goes_on_to_the_fact_that_is_missing(result: Result) -> None:
    assert (
        shown(result.why("Kind", "S.b", "open"))
        == """\
Kind('S.b','open')   does not hold
└─ rule 8 (U.…, policy.lace:9): Kind(P,'open') :- Selected(P).
   ├─ failed: Selected(P)
   │  with P = 'S.b'
   ├─ nothing like Selected('S.b')
   └─ Selected('S.b')   does not hold
      └─ rule 1 (U.…, policy.lace:2): Selected(P) :- Have(P), not Hidden(P).
         label: "whatever is not hidden"
         ├─ failed: not Hidden(P)
         │  with P = 'S.b'
         └─ there is: Hidden('S.b')"""
    )


def test_a_fact_that_is_used_twice_is_explained_once() -> None:
    found = result_of("A(X) :- E(X).\nB(X) :- A(X).\nC(X) :- B(X), A(X).", [("E", "1")])
    lines = str(found.why("C", "1")).splitlines()
    assert lines[-1] == "└─ A('1')   see above"
    assert len(found.why("C", "1").steps) == 4


def test_the_order_of_rules_and_of_values_decides_between_equals() -> None:
    rules = "A() :- E(X,Y).\nA() :- F(X).\nB() :- F(X).\nB() :- E(X,Y)."
    found = result_of(rules, [("E", "2", "1"), ("E", "10", "2"), ("F", "1"), ("E", "10", "11")])
    first = found.why("A")
    assert [step.fact for step in first.steps] == [("A",), ("E", "10", "11")]
    assert found.why("B").steps[0].rule is not None
    assert [step.fact for step in found.why("B").steps] == [("B",), ("F", "1")]


def test_what_is_negated_and_used_is_read_as_it_is_in_the_end() -> None:
    rules = "A(X) :- E(X).\nA(X) :- A(Y), F(Y,X).\nB(X) :- F(X,_), not A(X).\nC(X,Y) :- B(X), A(Y)."
    found = result_of(rules, [("E", "1"), ("F", "1", "2"), ("F", "3", "4")]).why("C", "3", "2")
    assert found.height == 3
    assert [step.fact for step in found.steps if not step.is_base] == [
        ("C", "3", "2"),
        ("B", "3"),
        ("A", "2"),
        ("A", "1"),
    ]


def test_a_large_count_of_facts_that_are_not_kept_is_a_lower_bound() -> None:
    facts: list[Fact] = [("E", str(n)) for n in range(100)]
    found = result_of("P(X,Y) :- E(X), E(Y).\nMany() :- Cardinality(P(Q,R),'>','5').", facts)
    assert str(found.why("Many")).splitlines()[-1] == (
        "└─ Cardinality(P(Q,R),'>','5')   at least 1,000 facts"
    )


def test_many_rules_are_not_gone_through_again_and_again() -> None:
    width = 60
    rules = "".join(f"A(X) :- B(X), E('{n}').\nB(X) :- C(X), F('{n}').\n" for n in range(width))
    found = result_of(rules + "C(X) :- E(X).", [("E", "1"), ("F", "1")]).why("A", "nowhere")
    assert found.absence is not None
    assert len(found.absence.misses) == width
    inner = [miss.inner for miss in found.absence.misses if miss.inner is not None]
    assert 0 < sum(len(each.misses) for each in inner) <= MAX_INNER_RULES


def test_heights_are_kept_until_facts_change() -> None:
    found = result_of("A(X) :- E(X).\nA(X) :- A(Y), F(Y,X).", [("E", "1"), ("F", "1", "2")])
    evaluation = found._evaluation
    found.why("A", "2")
    (kept,) = set(map(id, evaluation.heights.values()))
    found.why("A", "1")
    assert {id(each) for each in evaluation.heights.values()} == {kept}
    relations = evaluation.state.relations
    key = next(each for each in relations if each.name == "F")
    relations[key] = relations[key].with_rows(relations[key].columns(), 0)
    assert found.why("A", "2")
    assert {id(each) for each in evaluation.heights.values()} == {kept}
    relations[key] = type(relations[key])(2, relations[key].parts)
    assert found.why("A", "2")
    assert {id(each) for each in evaluation.heights.values()} != {kept}


def test_an_explanation_leaves_no_trace_in_the_evaluation(result: Result) -> None:
    before = result.statistics.work, len(result.statistics.runs)
    result.why("Support", "B.y")
    result.why("Support", "B.z")
    assert (result.statistics.work, len(result.statistics.runs)) == before


def test_explaining_has_the_limits_of_an_evaluation() -> None:
    profile = QUERY.with_base([("Edge", 2)])
    rules = "R(X) :- Edge('0',X).\nR(X) :- R(Y), Edge(Y,X).\nS(X) :- R(X).\nT(X) :- S(X)."
    facts: list[Fact] = [("Edge", str(n), str(n + 1)) for n in range(50)]
    checked = Lacegram.parse(
        rules, profile=profile, limits=replace(OWN_LIMITS, max_iterations=51)
    ).program
    assert Result(checked, evaluate(checked, facts)).why("T", "50").height == 52
    work = evaluate(checked, facts).statistics.work
    tight = Lacegram.parse(
        rules, profile=profile, limits=replace(OWN_LIMITS, max_work=work + 10)
    ).program
    result = Result(tight, evaluate(tight, facts))
    with pytest.raises(LimitExceeded, match="max_work"):
        result.why("T", "50")


@pytest.mark.slow
def test_a_long_chain() -> None:
    length = 50_000
    facts: list[Fact] = [("Edge", str(n), str(n + 1)) for n in range(length)]
    result = result_of("R(X) :- Edge('0',X).\nR(X) :- R(Y), Edge(Y,X).", facts)
    found = result.why("R", str(length))
    assert found.height == length
    assert len(found.steps) == 2 * length
    assert len(str(found).splitlines()) < 500
    assert len(json.dumps(found.to_json())) > length
    assert not result.why("R", str(length + 1))


def test_few_among_many_are_found_at_once() -> None:
    facts: list[Fact] = [("Name", f"a{n}", f"n{n}") for n in range(3000)]
    facts += [("Have", f"a{n}") for n in range(3000)] + [("Name", "zz", "n1500")]
    rules = "Clash() :- Name(A,N), Name(B,N), A != B.\nNone() :- Name(A,N), Name(B,N), Have(N)."
    result = result_of(rules, facts)
    assert [step.fact for step in result.why("Clash").steps] == [
        ("Clash",),
        ("Name", "a1500", "n1500"),
        ("Name", "zz", "n1500"),
    ]
    found = result.why("None")
    assert found.absence is not None
    assert found.absence.misses[0].item == "Have(N)"
