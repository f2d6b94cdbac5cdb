"""Mutants have names that last, samples are even, and the published page reaches the goal."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.mutation.__main__ import SAMPLE, SEED
from tests.mutation.mutants import (
    PACKAGES,
    Mutant,
    defined_names,
    find_mutants,
    mutated_tree,
    sample_mutants,
)
from tests.mutation.reach import Reach
from tests.mutation.report import GOAL, HEAD, PAGE, format_page, read_equivalents

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''\
"""A module."""
LIMIT = 3

class A:
    def least(self, values, other):
        """Find one."""
        found = []
        for value in values:
            if value < LIMIT and not value == other:
                found.append(value + 1)
                continue
            self.count += 1
        if len(found) > LIMIT:
            raise ValueError(f"{len(found) + 1} are too many")
        return min(found, key=lambda each: pow(each, 2))
'''
CHANGES = {
    ("", "3", "4"),
    ("", "3", "2"),
    ("A.least()", "value < LIMIT", "value <= LIMIT"),
    ("A.least()", "value < LIMIT and (not value == other)", "value < LIMIT or not value == other"),
    ("A.least()", "not value == other", "value == other"),
    ("A.least()", "value == other", "value != other"),
    ("A.least()", "found.append(value + 1)", "pass"),
    ("A.least()", "value + 1", "value - 1"),
    ("A.least()", "1", "2"),
    ("A.least()", "1", "0"),
    ("A.least()", "continue", "break"),
    ("A.least()", "self.count += 1", "self.count -= 1"),
    ("A.least()", "self.count += 1", "pass"),
    ("A.least()", "len(found) > LIMIT", "len(found) >= LIMIT"),
    ("A.least()", "raise ValueError(f'{len(found) + 1} are too many')", "pass"),
    ("A.least()", "return min(found, key=lambda each: pow(each, 2))", "return None"),
    ("A.least()", "pow(each, 2)", "pow(2, each)"),
    ("A.least()", "2", "3"),
    ("A.least()", "2", "1"),
}


def mutants_of(source: str) -> list[Mutant]:
    return find_mutants("src/lace/rules/example.py", source)


def test_every_kind_of_fault() -> None:
    found = {(each.scope, each.before, each.after) for each in mutants_of(SOURCE)}
    assert found == CHANGES


@pytest.mark.parametrize("number", range(len(mutants_of(SOURCE))))
def test_a_mutant_is_another_program_with_one_change(number: int) -> None:
    import ast

    mutant = mutants_of(SOURCE)[number]
    before, after = ast.unparse(ast.parse(SOURCE)), ast.unparse(mutated_tree(SOURCE, mutant))
    changed = [
        (one, other)
        for one, other in zip(before.split("\n"), after.split("\n"), strict=True)
        if one != other
    ]
    assert len(changed) == 1
    compile(mutated_tree(SOURCE, mutant), "example", "exec")


def test_names_survive_shifted_lines() -> None:
    shifted = SOURCE.replace("LIMIT = 3", "# a comment\n\nLIMIT = 3").replace(
        "        found = []", "\n        found = []"
    )
    names = [each.name for each in mutants_of(SOURCE)]
    assert names == [each.name for each in mutants_of(shifted)]
    assert len(set(names)) == len(names)
    assert names[0] == "rules.example:<module>: 3 → 4"


def test_names_that_a_statement_defines() -> None:
    source = "A = 1\nB = [A + each for each in (1, 2)]\nC: int = B\nD = 7\n"
    source += "class E:\n    f: int = A\n    g: int = D\n"
    assert defined_names(source, 1) == {"A", "B", "C"}
    assert defined_names(source, 2) == {"B", "C"}
    assert defined_names(source, 4) == {"D"}
    assert defined_names(source, 7) == {"E", "g"}
    assert defined_names(SOURCE, 5) == {"A", "least"}


def test_each_test_has_its_turn_before_one_runs_with_all_its_parameters(tmp_path: Path) -> None:
    own, far = "tests/unit/rules/test_example.py::", "tests/conformance/test_far.py::"
    near = "tests/unit/rules/test_near.py::"
    seconds = {f"{own}test_own[{number}]": 0.5 for number in range(9)}
    seconds |= {f"{near}test_many[{number}]": 0.01 + number / 1000 for number in range(9)}
    seconds |= {f"{near}test_other": 0.1, f"{far}test_last": 0.2, f"{far}test_long": 99.0}
    path = tmp_path / "reach.json"
    tests: dict[str, object] = {name: (each, [0]) for name, each in seconds.items()}
    functions = ["src/lace/rules/example.py:A.least"]
    path.write_text(
        json.dumps({"functions": functions, "tests": tests | {"unfit": (None, [])}}), "utf-8"
    )
    mutant = next(each for each in mutants_of(SOURCE) if each.scope)
    chosen = [name for name, _ in Reach(path, 30.0).tests_of(mutant)]
    assert chosen == [
        *(f"{own}test_own[{number}]" for number in range(9)),
        f"{near}test_many[0]",
        f"{near}test_other",
        *(f"{near}test_many[{number}]" for number in range(1, 9)),
        f"{far}test_last",
    ]
    assert len(Reach(path, 4.6).tests_of(mutant)) == 16, "as many as fit"


def test_samples_are_even_and_the_same_each_time() -> None:
    packages = ("facts", "algebra", "policy")
    sample = sample_mutants(packages, 20, "a seed")
    assert Counter(each.package for each in sample) == {"facts": 7, "algebra": 7, "policy": 6}
    assert sample == sample_mutants(packages, 20, "a seed")
    assert sample != sample_mutants(packages, 20, "another")
    smaller = sample_mutants(packages, 8, "a seed")
    assert {each.name for each in smaller} <= {each.name for each in sample}


def test_the_page_is_made_of_the_outcomes() -> None:
    sample = sample_mutants(["facts"], 16, "a seed")
    outcomes = {each.name: "killed" for each in sample}
    outcomes[sample[0].name] = "equivalent"
    outcomes[sample[-1].name] = "survived"
    page = format_page("a seed", sample, outcomes, {sample[0].name: "a bound that is never met"})
    for name in ("facts", "all"):
        assert f"| {name} | 16 | 14 | 1 | 1 |" in page
    assert f"- `` {sample[0].name} ``: a bound that is never met" in page
    assert f"## Survived\n\n- `` {sample[-1].name} ``\n" in page


def test_the_published_page_reaches_the_goal() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    figures = {name: [int(each) for each in cells] for name, *cells in rows}
    total = figures.pop("all")
    assert list(figures) == list(PACKAGES)
    assert [sum(column) for column in zip(*figures.values(), strict=True)] == total
    for sampled, *outcomes in [*figures.values(), total]:
        assert sum(outcomes) == sampled
    sampled, killed, equivalent, survived = total
    assert sampled == SAMPLE == 400
    assert page.startswith(HEAD.format(goal=GOAL, sample=SAMPLE, seed=SEED) + "| package |")
    assert 100 * (killed + equivalent) >= GOAL * sampled
    lists = page.partition("## Survived")[2].partition("## Equivalent")
    assert lists[0].count("\n- ``") == survived
    assert lists[2].count("\n- ``") == equivalent


def test_every_equivalent_has_its_reason() -> None:
    known = read_equivalents()
    for name, reason in known.items():
        assert re.fullmatch(r"[a-z_.0-9]+:[^:]+: .+ → .+", name, re.DOTALL), name
        assert len(reason.split()) > 3, name
    listed = re.findall(r"^- `` (.+?) ``: (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {name: known.get(name) for name, _ in listed} == dict(listed)
