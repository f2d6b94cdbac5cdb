"""When a side that is to end does so: with its round, else with its phase, else at once."""

from __future__ import annotations

import pytest

from lace.exchange.events import Stopped
from lace.link import events as wishes
from lace.link.events import PHASE_SECONDS, ROUND_SECONDS, LinkControl


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(wishes, "time", made)
    return made


def stopped() -> LinkControl:
    made = LinkControl()
    made.stop()
    return made


@pytest.mark.parametrize("phase", ["setup", "hello", None])
def test_outside_of_a_round_it_ends_at_once(clock: Clock, phase: str | None) -> None:
    assert clock.now
    assert isinstance(stopped().take(phase), Stopped)


def test_a_round_is_finished(clock: Clock) -> None:
    wish = stopped()
    for phase in ("advertise", "request", "transfer"):
        clock.now += 1
        assert wish.take(phase) is None
    assert isinstance(wish.take(None), Stopped)


def test_a_long_round_ends_with_its_phase(clock: Clock) -> None:
    wish = stopped()
    assert wish.take("advertise") is None
    clock.now += ROUND_SECONDS + 1
    assert wish.take("advertise") is None
    assert isinstance(wish.take("request"), Stopped)


def test_a_peer_that_stretches_a_phase_does_not_keep_it_running(clock: Clock) -> None:
    wish = stopped()
    assert wish.take("transfer") is None
    clock.now += ROUND_SECONDS + PHASE_SECONDS - 0.001
    assert wish.take("transfer") is None
    clock.now += 0.002
    assert isinstance(wish.take("transfer"), Stopped)


def test_to_be_stopped_twice_puts_nothing_off(clock: Clock) -> None:
    wish = stopped()
    assert wish.take("transfer") is None
    clock.now += ROUND_SECONDS + PHASE_SECONDS + 1
    wish.stop()
    assert isinstance(wish.take("transfer"), Stopped)
