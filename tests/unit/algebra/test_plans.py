"""What rules are lowered to, and in which order joins are done: plans/*.plan, word for word.

A file has rules, then `--- program` and the relational program, then `--- order` and the
ordered plan of each rule. `# Name/arity rows` lines before the rules say how large
relations are; what is not named has 100 rows. Rows are unique in every column.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.algebra.lower import from_change, from_goal, lower_program, places
from lace.algebra.nodes import explain, explain_plan
from lace.algebra.passes.order import order_joins
from lace.rules.profiles import QUERY
from lace.rules.program import check_source

if TYPE_CHECKING:
    from lace.algebra.nodes import Scan
    from lace.rules.program import CheckedProgram

PLANS = sorted((Path(__file__).parent / "plans").glob("*.plan"))
BASE = [("E", 2), ("F", 1), ("G", 3), ("N", 1), ("Item", 2)]


class Sizes:
    """Estimates from a table."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def rows(self, scan: Scan) -> int:
        return self._sizes.get(str(scan.predicate), 100)

    def distinct(self, scan: Scan, columns: tuple[str, ...]) -> int:
        return self.rows(scan)


def read(path: Path) -> tuple[CheckedProgram, Sizes, str, str]:
    rules, program, order = (
        part.strip("\n")
        for part in path.read_text("utf-8").replace("--- order", "--- program").split("--- program")
    )
    sizes = {
        words[1]: int(words[2])
        for line in rules.splitlines()
        if line.startswith("# ") and len(words := line.split()) == 3 and words[2].isdigit()
    }
    return check_source(rules, profile=QUERY.with_base(BASE)), Sizes(sizes), program, order


def ordered(program: CheckedProgram, sizes: Sizes) -> str:
    lowered = lower_program(program)
    return "\n".join(
        line
        for step in lowered.steps
        for branch in step.branches
        for line in explain_plan(order_joins(branch.plan, sizes))
    )


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans(path: Path) -> None:
    program, sizes, expected, order = read(path)
    assert explain(lower_program(program)) == expected
    assert str(lower_program(program)) == expected
    assert ordered(program, sizes) == order


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_order_of_atoms_does_not_matter(path: Path) -> None:
    program, sizes, _, _ = read(path)
    shuffle = random.Random(7)
    for _ in range(5):
        lines = []
        for rule in program.rules:
            body = list(rule.body)
            shuffle.shuffle(body)
            lines.append(f"{rule.head} :- {', '.join(map(str, body))}.")
        other = check_source("\n".join(lines), profile=QUERY.with_base(BASE))
        assert kinds(ordered(other, sizes)) == kinds(ordered(program, sizes))


def kinds(text: str) -> list[str]:
    """Equal conditions may change places; scans and their order may not."""
    return [line for line in text.splitlines() if "scan" in line or "project" in line]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_from_changes_start_there(path: Path) -> None:
    program, sizes, _, _ = read(path)
    for step in lower_program(program).steps:
        for branch in step.branches:
            for scan, _ in places(branch.plan):
                plan = order_joins(from_change(branch.plan, scan.occurrence), sizes)
                assert sum("Δ" in line for line in explain_plan(plan)) == 1
            goal = order_joins(from_goal(branch), sizes)
            assert sum("scan ?" in line for line in explain_plan(goal)) == 1
