"""Policy tests: files that say what a policy must allow, and what it must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.limits import DEFAULT_SETTINGS, Settings
from lace.policytests.differences import Names
from lace.policytests.model import PolicyTests
from lace.policytests.reader import find_test_files, read_tests
from lace.policytests.run import CaseOutcome, Coverage, FileCoverage, Runner
from lace.policytests.tables import PolicyTestError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CaseOutcome",
    "Coverage",
    "FileCoverage",
    "Names",
    "PolicyTestError",
    "PolicyTests",
    "Runner",
    "find_test_files",
    "read_tests",
    "run_tests",
]


def run_tests(
    tests: PolicyTests | str,
    *,
    settings: Settings = DEFAULT_SETTINGS,
    coverage: Coverage | None = None,
    wanted: str = "",
) -> Iterator[CaseOutcome]:
    """Run the cases of a test file, and yield the outcome of each.

    Args:
        tests: the file, or its path.
        settings: the limits of rules.
        coverage: notes which rules made a fact.
        wanted: only the cases that have this in their names.

    Raises:
        PolicyTestError: the file has faults; no case is run.
    """
    found = read_tests(tests) if isinstance(tests, str) else tests
    runner = Runner(found, settings, Coverage() if coverage is None else coverage)
    for case in found.cases:
        if wanted in case.name:
            yield runner.run(case)
