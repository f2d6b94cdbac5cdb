"""Ticks: both sides compute the same, and none of them ever goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base.tai import Tai
from lace.exchange.ticks import TickState, aligned_tick, is_aligned, start_ticks

pytestmark = pytest.mark.property

START = Tai("1640995200:000000007")
SECOND = 10**9
intervals = st.integers(SECOND, 100 * SECOND)
steps = st.lists(
    st.tuples(st.sampled_from(["tick", "ask", "loop"]), st.integers(0, 1), st.integers(0, 10**12)),
    max_size=30,
)


@given(intervals, st.integers(-(10**12), 10**14))
def test_the_aligned_tick_is_the_last_one_reached(interval: int, passed: int) -> None:
    now = START.shift(passed)
    tick = aligned_tick(START, interval, now)
    assert is_aligned(START, interval, tick)
    assert tick >= START
    assert tick <= max(now, START)
    assert tick.shift(interval) > now


@given(intervals, steps)
def test_two_sides_agree(interval: int, actions: list[tuple[str, int, int]]) -> None:
    """Each side sees what both did, in the order of either direction."""
    sides = [start_ticks(START, interval), start_ticks(START, interval)]
    for action, who, clock in actions:
        before = list(sides)
        if action == "tick":
            _tick(sides, who, START.shift(clock))
        elif action == "ask":
            sides[who] = sides[who].ask()
            sides[1 - who] = sides[1 - who].hear_request()
        else:
            sides = [side.begin_loop() for side in sides]
        assert sides[0].tick == sides[1].tick
        assert (sides[0].rises, sides[0].both_ready) == (sides[1].rises, sides[1].both_ready)
        for old, new in zip(before, sides, strict=True):
            assert old.tick <= new.tick <= min(new.local_ready, new.peer_ready)
            assert old.local_ready <= new.local_ready


def _tick(sides: list[TickState], who: int, now: Tai) -> None:
    due = sides[who].due(now)
    if due is not None:
        sides[who] = sides[who].announce(due)
        sides[1 - who] = sides[1 - who].hear(due)
    # What is said out of turn is heard and changes nothing.
    assert sides[1 - who].hear(START.shift(-1)) == sides[1 - who]
