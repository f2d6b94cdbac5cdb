"""The shared tick: alignment, readiness of both sides, and the tick of each loop."""

from __future__ import annotations

import pytest

from lace.base.tai import Tai
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.ticks import TickState, aligned_tick, is_aligned, start_ticks

SECOND = 1_000_000_000
START = Tai("1640995200:500000000")
INTERVAL = 10 * SECOND
LAST = Tai("9999999999:999999999")


def after(seconds: float) -> Tai:
    return START.shift(int(seconds * SECOND))


def started() -> TickState:
    return start_ticks(START, INTERVAL)


@pytest.mark.parametrize(
    ("now", "tick"),
    [(-5, 0), (0, 0), (9.999999999, 0), (10, 10), (10.000000001, 10), (25, 20), (1e6, 1e6)],
)
def test_aligned_ticks(now: float, tick: float) -> None:
    found = aligned_tick(START, INTERVAL, after(now))
    assert found == after(tick)
    assert is_aligned(START, INTERVAL, found)


def test_alignment_counts_every_nanosecond() -> None:
    assert is_aligned(START, INTERVAL, after(30))
    assert not is_aligned(START, INTERVAL, after(30).shift(1))
    assert not is_aligned(START, INTERVAL, after(-10))
    odd = 1_000_000_007
    assert aligned_tick(START, odd, START.shift(3 * odd + 5)) == START.shift(3 * odd)


def test_everything_starts_at_the_start() -> None:
    state = started()
    assert {state.local_ready, state.peer_ready, state.tick, state.next_tick} == {START}
    assert not state.rises
    assert not state.both_ready
    assert state.begin_loop() == state
    for interval in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            start_ticks(START, interval)


def test_when_to_announce() -> None:
    state = started()
    assert state.due(after(9)) is None
    assert state.due(after(-100)) is None
    assert state.due(after(25)) == after(20)
    assert state.next_due == after(10)
    state = state.announce(after(20))
    assert state.due(after(29)) is None
    assert state.due(after(30)) == after(30)
    assert state.next_due == after(30)
    assert state.announce(after(20)) == state
    for wrong in (after(10), after(25)):
        with pytest.raises(ValueError, match="no tick to announce"):
            state.announce(wrong)
    assert start_ticks(LAST, INTERVAL).next_due is None


def test_what_the_peer_says() -> None:
    state = started().hear(after(20))
    assert state.peer_ready == after(20)
    for ignored in (after(10), after(25), after(-10), after(20).shift(-1)):
        assert state.hear(ignored) == state
    assert state.hear(after(20)) == state
    assert state.hear(after(30)).peer_ready == after(30)


@pytest.mark.parametrize("text", ["", "1640995200", "1640995200:5", START + "\n", "\x1b" * 200])
def test_malformed_text_aborts(text: str) -> None:
    with pytest.raises(InterlaceFailure) as caught:
        started().hear(text)
    assert (caught.value.failure, caught.value.rule) == (Failure.MALFORMED_BLOCK, "G40")
    assert "\x1b" not in str(caught.value)


def test_the_tick_of_a_loop_is_what_both_said_by_their_requests_of_the_loop_before() -> None:
    state = started().begin_loop()
    state = state.announce(after(20)).ask()
    state = state.hear(after(10)).hear_request()
    late = state.hear(after(40)).announce(after(50))
    assert late.next_tick == after(10)
    assert late.rises
    assert late.tick == START
    second = late.begin_loop()
    assert second.tick == after(10)
    assert not second.rises
    assert second.both_ready
    third = second.ask().hear_request().begin_loop()
    assert third.tick == after(40)
    assert not third.both_ready
    assert third.begin_loop().tick == after(40)


def test_one_side_alone_does_not_move_the_tick() -> None:
    state = started().hear(after(1000)).hear_request().ask().begin_loop()
    assert (state.tick, state.both_ready) == (START, False)
    state = started().announce(after(1000)).hear_request().ask().begin_loop()
    assert (state.tick, state.both_ready) == (START, False)
