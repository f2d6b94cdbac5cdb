"""Policy tests: files that say what a policy must allow, and what it must not."""

from __future__ import annotations

from lace.policytests.differences import Names
from lace.policytests.model import PolicyTests
from lace.policytests.reader import find_test_files, read_tests
from lace.policytests.run import CaseOutcome, Coverage, FileCoverage, Runner
from lace.policytests.tables import PolicyTestError

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
]
