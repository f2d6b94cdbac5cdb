"""What commands do beside a lace, called by a program: policy tests, rules, the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lace.api import open_lace
from lace.api.doctor import MISSING, PROBLEM, examine_lace, examine_machine
from lace.api.policytests import Coverage, run_tests
from lace.api.rules import check_source, format_graph, format_source

if TYPE_CHECKING:
    from pathlib import Path

RULES = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\n"
TESTS = """\
rules = "paths.lace"
facts = ["Edge('a','b')"]
[[case]]
name = "one step"
derived = { "Path/2" = [["a", "b"]] }
[[case]]
name = "wrong"
derived = { "Path/2" = [["a", "x"]] }
"""


def test_the_machine_and_a_lace_are_examined(tmp_path: Path) -> None:
    checks = list(examine_machine(os.environ))
    assert {"Python", "platform", "apsw"} <= {check.name for check in checks}
    place = tmp_path / "lace"
    open_lace(place).close()
    found = list(examine_lace(place, lambda: open_lace(place, read_only=True)))
    assert [check.name for check in found][:2] == ["lace", "segments"]
    assert not [check for check in found if check.state in (MISSING, PROBLEM)]


def test_policy_tests_are_run(tmp_path: Path) -> None:
    (tmp_path / "paths.lace").write_text(RULES, "utf-8")
    path = tmp_path / "paths.lacetest.toml"
    path.write_text(TESTS, "utf-8")
    coverage = Coverage()
    found = {each.case.name: each.is_ok for each in run_tests(str(path), coverage=coverage)}
    assert found == {"one step": True, "wrong": False}
    assert (coverage.fired, coverage.total) == (1, 2)
    assert [each.case.name for each in run_tests(str(path), wanted="step")] == ["one step"]


def test_rules_are_formatted_and_drawn() -> None:
    assert format_source("A(P):-Have( P ).") == "A(P) :- Have(P).\n"
    assert "A/1" in format_graph(check_source("A(P) :- Have(P)."))
