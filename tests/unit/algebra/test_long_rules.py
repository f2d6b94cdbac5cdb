"""Long bodies: planning takes little more for each atom, and nothing follows nodes by recursion."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lace.algebra.lower import lower_program
from lace.algebra.passes.order import order_joins
from lace.engine.budget import Statistics
from lace.engine.engine import EvaluationSession, evaluate
from lace.engine.factbase import FactBase
from lace.errors import LimitExceeded, RuleError
from lace.query.evaluate import evaluate_rules
from lace.rules.canonical import canonical_text
from lace.rules.limits import OWN_LIMITS, PEER_LIMITS
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.source import format_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lace.algebra.nodes import Scan
    from lace.rules.program import CheckedProgram

PROFILE = QUERY.with_base({("Item", 1), ("Item", 2), ("Edge", 2)})
LONG = replace(OWN_LIMITS, max_rule_line_bytes=2**24, max_atoms=10**6)
FACTS = [("Item", "a"), ("Item", "a", "1"), ("Edge", "a", "a")]
BODIES: dict[str, Callable[[int], str]] = {
    "one atom again": lambda n: ", ".join(["Item(X)"] * n),
    "constants": lambda n: "Item(X), " + ", ".join(f"Item(X,'{at}')" for at in range(n)),
    "a chain": lambda n: "Edge(X,X0), " + ", ".join(f"Edge(X{at},X{at + 1})" for at in range(n)),
    "parts apart": lambda n: "Item(X), " + ", ".join(f"Item(X{at})" for at in range(n)),
    "inequalities": lambda n: "Item(X), " + ", ".join(f"X != '{at}'" for at in range(n)),
    "shapes": lambda n: "Item(X), " + ", ".join(f"TextShape(X,'','','{at}')" for at in range(n)),
    "negations": lambda n: "Item(X), " + ", ".join(f"not Edge(X,'{at}')" for at in range(n)),
    "counts": lambda n: (
        "Item(X), " + ", ".join(f"Cardinality(Edge(X,_),'<','{at + 2}')" for at in range(n))
    ),
    "parts that tests connect": lambda n: (
        "Item(X), "
        + ", ".join(f"Item(X{at})" for at in range(n // 2))
        + ", "
        + ", ".join(f"LexCompare(X{at},'<=',X{at + 1})" for at in range(n // 2 - 1))
    ),
}


def checked(body: str, head: str = "A(X)") -> CheckedProgram:
    return check_source(f"{head} :- {body}.", profile=PROFILE, limits=LONG)


class Counted:
    """Estimates that count how often they are asked."""

    def __init__(self) -> None:
        self.asked = 0

    def rows(self, scan: Scan) -> int:
        self.asked += 1
        return len(scan.terms)

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        self.asked += 1
        return len(columns)


def operations(body: str) -> tuple[int, int]:
    """Return how many lines of Python planning a rule runs, and what it asks of sizes."""
    program = checked(body)
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    estimates = Counted()
    before = sys.gettrace()
    sys.settrace(count)
    try:
        lowered = lower_program(program)
        order_joins(lowered.steps[0].branches[0].plan, estimates)
    finally:
        sys.settrace(before)
    return lines, estimates.asked


@pytest.mark.parametrize("kind", BODIES)
def test_planning_grows_with_the_body_and_not_with_its_square(kind: str) -> None:
    few, many = (operations(BODIES[kind](n)) for n in (100, 400))
    assert many[0] < 6 * few[0]
    assert many[1] <= 6 * max(few[1], 1)


@pytest.mark.parametrize("kind", BODIES)
def test_thousands_of_atoms_are_planned_explained_and_evaluated_without_recursion(
    kind: str,
) -> None:
    body = BODIES[kind](3000)
    program = checked(body)
    lowered = lower_program(program)
    text = str(lowered)
    assert text.count("\n") >= 1500
    assert canonical_text(program.rules) == program.canonical
    assert format_source(f"A(X) :- {body}.", limits=LONG)
    result = evaluate_rules(f"A(X) :- {body}.", FACTS, limits=LONG)
    few = evaluate_rules(f"A(X) :- {BODIES[kind](30)}.", FACTS, limits=LONG)
    assert result["A/1"] == few["A/1"]


def test_why_of_a_long_rule() -> None:
    for kind in ("a chain", "negations", "parts apart"):
        result = evaluate_rules(f"A(X) :- {BODIES[kind](1500)}.", FACTS, limits=LONG)
        assert "A('a')" in str(result.why("A", "a"))


def test_a_recursive_rule_of_many_atoms_has_few_plans() -> None:
    again = ", ".join(["P(X,Y)"] * 200)
    rules = f"P(X,Y) :- Edge(X,Y).\nP(X,Z) :- {again}, Edge(Y,Z)."
    facts = [("Edge", f"{at}", f"{(at + 1) % 7}") for at in range(7)]
    program = check_source(rules, profile=PROFILE, limits=LONG)
    found = evaluate(program, facts)
    (key,) = program.derived
    assert found.count(key) == 49
    assert len(found.state._plans) < 10
    session = EvaluationSession()
    session.change(facts[:5])
    assert session.evaluate(program).count(key) == 15
    session.change(facts[5:])
    assert session.evaluate(program).count(key) == 49
    session.change([], facts[5:])
    assert sorted(session.evaluate(program).texts(key)) == sorted(
        evaluate(program, facts[:5]).texts(key)
    )


@pytest.mark.requirement("030-119")
def test_planning_is_charged_to_a_peer() -> None:
    work = []
    for atoms in (100, 400):
        body = BODIES["a chain"](atoms)
        program = check_source(f"A(X) :- {body}.", profile=PROFILE, limits=PEER_LIMITS)
        statistics = Statistics()
        base = FactBase(max_value_bytes=1024)
        base.change([("Edge", "a", "b")])
        EvaluationSession(base).evaluate(program, None, statistics)
        work.append(statistics.work)
    assert 3 * work[0] < work[1] < 6 * work[0]
    tight = replace(PEER_LIMITS, max_work=work[0])
    program = check_source(f"A(X) :- {BODIES['a chain'](400)}.", profile=PROFILE, limits=tight)
    with pytest.raises(LimitExceeded, match="peer_max_work"):
        evaluate(program, [("Edge", "a", "b")])


@pytest.mark.requirement("030-119")
def test_atoms_of_a_rule_are_limited_and_the_finding_says_where() -> None:
    body = ", ".join(["Item(X)"] * 1025)
    text = f"B(X) :- Item(X).\nA(X) :- {body}."
    with pytest.raises(RuleError) as caught:
        check_source(text, profile=PROFILE, limits=PEER_LIMITS)
    (finding,) = caught.value.findings
    assert "the body of the rule has 1,025 atoms" in finding.message
    assert "peer_max_atoms=1024" in (finding.hint or "")
    assert (finding.place.line, finding.place.column) == (2, 9 + 1024 * len("Item(X), "))
    assert check_source(text, profile=PROFILE).rules
    fits = f"A(X) :- {', '.join(['Item(X)'] * 1024)}."
    assert check_source(fits, profile=PROFILE, limits=PEER_LIMITS).rules


@pytest.mark.parametrize("atom", ["Item(X)", "X != 'a'", "not Edge(X,X)", "TextShape(X,'','','')"])
def test_a_hundred_thousand_atoms_of_ones_own_end_in_a_finding(atom: str) -> None:
    text = f"A(X) :- Item(X), {', '.join([atom] * 100_000)}."
    with pytest.raises(RuleError, match="max_rule_line_bytes"):
        check_source(text, profile=PROFILE)
    wide = replace(OWN_LIMITS, max_rule_line_bytes=2**24)
    with pytest.raises(RuleError, match="max_atoms=16384"):
        check_source(text, profile=PROFILE, limits=wide)
