"""The counters of an exchange."""

from __future__ import annotations

from dataclasses import asdict

from lace.exchange.result import Counters


def test_nothing_is_counted_before_it_happens() -> None:
    assert all(value == 0 for value in asdict(Counters()).values())
