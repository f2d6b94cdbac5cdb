"""Errors: their text, their exit codes, and that they survive a pipe between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from lace import errors
from lace.errors import LaceError, LimitExceeded, Place, RecordError, SettingError, UsageError
from lace.record.ids import IdError


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place(), ""),
        (Place(source="a.lace"), "a.lace"),
        (Place(source="a.lace", line=7), "a.lace:7"),
        (Place(source="a.lace", line=7, column=13), "a.lace:7:13"),
        (Place(line=7, column=13), "7:13"),
        (Place(column=13), ""),
        (Place(offset=0), "byte 0"),
        (Place(source="f", offset=12), "f: byte 12"),
        (Place(source="f", line=1, offset=12), "f:1: byte 12"),
    ],
)
def test_place(place: Place, text: str) -> None:
    assert str(place) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LaceError("it broke"), "it broke"),
        (LaceError("it broke", rule="020-15"), "it broke [020-15]"),
        (LaceError("it broke", hint="mend it"), "it broke; mend it"),
        (LaceError("it broke", place=Place()), "it broke"),
        (
            LaceError(
                "it broke",
                rule="020-15",
                place=Place("p.lace", 7, 13),
                hint="bind V",
            ),
            "p.lace:7:13: it broke [020-15]; bind V",
        ),
    ],
)
def test_order_is_place_what_rule_remedy(error: LaceError, text: str) -> None:
    assert str(error) == text


def test_a_limit_names_its_setting() -> None:
    error = LimitExceeded("too long", limit="max_value_bytes", allowed=10, observed=11)
    assert (error.limit, error.allowed, error.observed) == ("max_value_bytes", 10, 11)
    assert str(error) == (
        "too long; the limit is max_value_bytes=10; raise it with --set max_value_bytes=N"
    )
    assert str(LimitExceeded("too long", limit="x", allowed=1, hint="no")) == "too long; no"


@pytest.mark.parametrize(
    "error",
    [
        RecordError("bad", rule="010-cut", place=Place("f", offset=3), hint="look"),
        LimitExceeded("too long", limit="l", allowed=1, observed=2, rule="020-15"),
        IdError("no id", rule="020-01"),
        SettingError("no such setting"),
    ],
)
def test_errors_cross_process_boundaries_whole(error: LaceError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.args == error.args
        assert vars(twin) == vars(error)
        assert twin.exit_code == error.exit_code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("LaceError", 1),
        ("RecordError", 1),
        ("RuleError", 1),
        ("PolicyError", 1),
        ("LimitExceeded", 1),
        ("UsageError", 2),
        ("SettingError", 2),
        ("StoreError", 3),
        ("EngineError", 3),
        ("ProtocolError", 4),
    ],
)
def test_exit_codes(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


def test_a_setting_error_is_wrong_usage() -> None:
    assert issubclass(SettingError, UsageError)
