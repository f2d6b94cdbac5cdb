"""Programs with their facts and all that follows from them: every engine gives these answers.

The answers in `programs.json` come from an independent reading of the language and agree
with those of an answer-set solver.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.engine.engine import evaluate
from lace.facts.lines import format_fact, parse_fact
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram
from tests.oracle.naive_engine import evaluate_naively

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

    Rows = Mapping[PredicateKey, frozenset[tuple[str, ...]]]

PROGRAMS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "programs.json").read_text("utf-8")
)


def evaluate_embedded(program: CheckedProgram, facts: list[Fact]) -> Rows:
    evaluation = evaluate(program, facts)
    return {key: frozenset(evaluation.texts(key)) for key in program.derived}


ENGINES: dict[str, Callable[[CheckedProgram, list[Fact]], Rows]] = {
    "reference": evaluate_naively,
    "embedded": evaluate_embedded,
}


@pytest.mark.requirement(
    "030-34", "030-35", "030-36", "030-59", "030-61", "030-62", "030-86", "030-87"
)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs(number: int, engine: str) -> None:
    program = PROGRAMS[number]
    facts = [parse_fact(line.encode()) for line in program["facts"]]
    profile = QUERY.with_base({(fact[0], len(fact) - 1) for fact in facts})
    lacegram = Lacegram.parse(program["rules"], profile=profile)
    result = ENGINES[engine](lacegram.program, facts)
    derived = [format_fact((key.name, *row)) for key, rows in result.items() for row in rows]
    assert sorted(derived) == sorted(program["derived"])


@pytest.mark.requirement("030-57", "030-66")
def test_recursion_ends() -> None:
    rules = Lacegram.parse(
        "Reach(X,Y) :- Edge(X,Y).\nReach(X,Z) :- Reach(X,Y), Edge(Y,Z).",
        profile=QUERY.with_base([("Edge", 2)]),
    )
    ring = [("Edge", str(node), str((node + 1) % 5)) for node in range(5)]
    (rows,) = evaluate_naively(rules.program, ring).values()
    assert rows == {(str(a), str(b)) for a in range(5) for b in range(5)}


@pytest.mark.requirement("030-59", "030-86")
@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("A() :- Cardinality(G(),'>=','1').", True),
        ("A() :- not G().", False),
        ("A() :- E(_), not E('x').", False),
        ("A() :- E('x'), Cardinality(E('x'),'<','1').", False),
    ],
)
def test_a_rule_without_variables(text: str, holds: bool) -> None:
    facts = [("G",), ("E", "x")]
    rules = Lacegram.parse(text, profile=QUERY.with_base([("G", 0), ("E", 1)]))
    (rows,) = evaluate_naively(rules.program, facts).values()
    assert rows == ({()} if holds else set())
