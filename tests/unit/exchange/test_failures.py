"""The table of failures, and the error that carries one of them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import lace
from lace.errors import LaceError, Place, ProtocolError
from lace.exchange.failures import Action, Failure, InterlaceFailure, limit_failure

# 050's own table, copied: condition and action.
TABLE = {
    "peer verifier mismatch": "abort",
    "exchange plan identifier mismatch": "abort",
    "unsupported record format": "abort",
    "unsupported advertisement field schema": "abort",
    "malformed fact block": "abort",
    "malformed exchange module": "abort",
    "exchange-plan compilation failure": "abort",
    "malformed prepared policy": "abort",
    "malformed partition summary": "abort",
    "advertisement list root mismatch": "abort",
    "phase timeout": "abort",
    "oversized fact block": "abort",
    "transfer limit exceeded": "abort with partial result",
    "record response with no current outstanding requested hash": "abort",
    "record validation failure for a requested hash": "reject record and continue",
    "requested hash no longer sendable": "continue",
}


def test_the_table_of_050_comes_first_and_whole() -> None:
    rows = list(Failure)[: len(TABLE)]
    assert {row.condition: row.action.value for row in rows} == TABLE
    assert [row.rule for row in rows] == [f"050-{number}" for number in range(211, 227)]


def test_rows_are_distinct_and_complete() -> None:
    rows = list(Failure)
    assert len({row.condition for row in rows}) == len(rows) == len(Failure.__members__)
    for row in rows:
        assert row.rule
        assert row.exit_code in (0, 1, 3, 4)
        assert (row.exit_code == 0) is (row.action is Action.CONTINUE)


def test_what_closes_the_stream() -> None:
    assert [action.is_abort for action in Action] == [True, True, False, False, False]


@pytest.mark.requirement("050-210")
def test_every_row_is_used_and_tested() -> None:
    """A row that nothing raises or notes, or that no test names, is not in the table."""
    root = Path(lace.__file__).parent
    sources = [path.read_text("utf-8") for path in root.rglob("*.py")]
    tests = [path.read_text("utf-8") for path in Path(__file__).parents[2].rglob("test_*.py")]
    for row in Failure:
        name = re.compile(rf"Failure\.{row.name}\b")
        assert any(map(name.search, sources)), f"{row.name} is never raised or noted"
        assert any(map(name.search, tests)), f"no test names {row.name}"


def test_an_error_carries_its_row() -> None:
    error = InterlaceFailure(
        Failure.PLAN_MISMATCH, "E.a here", place=Place("hello", 3), hint="compare"
    )
    assert isinstance(error, ProtocolError)
    assert (error.failure, error.detail) == (Failure.PLAN_MISMATCH, "E.a here")
    assert str(error) == ("hello:3: exchange plan identifier mismatch: E.a here [050-212]; compare")
    assert error.exit_code == 4
    assert InterlaceFailure(Failure.PHASE_TIMEOUT).message == "phase timeout"
    assert InterlaceFailure(Failure.BAD_CLAIM, rule="040-42").rule == "040-42"


@pytest.mark.parametrize("failure", Failure)
def test_each_has_its_exit_code_also_in_another_process(failure: Failure) -> None:
    error = pickle.loads(pickle.dumps(InterlaceFailure(failure, "detail")))  # noqa: S301  our own
    assert isinstance(error, LaceError)
    assert isinstance(error, InterlaceFailure)
    assert error.failure is failure
    assert error.exit_code == failure.exit_code
    assert InterlaceFailure.exit_code == 4


def test_a_limit_is_named() -> None:
    error = limit_failure(Failure.SUMMARY_LIMIT, "9 came", limit="max_x", allowed=8)
    assert str(error) == (
        "too many partition summaries: 9 came [050-231]; "
        "the limit is max_x=8; raise it with --set max_x=N"
    )
    agreed = limit_failure(Failure.SUMMARY_LIMIT, "9", limit="max_x", allowed=8, agreed=True)
    assert agreed.hint == "the limit is max_x=8; raise it on both sides with --set max_x=N"
