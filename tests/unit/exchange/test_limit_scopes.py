"""What limits count: a loop, a direction, idle loops, a turn, or what text 050 says (X0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.exchange import capabilities, hello
from lace.exchange import events as happened
from lace.exchange.capabilities import SECOND, Capabilities, ExchangeLimits
from lace.exchange.failures import Failure
from lace.exchange.transitions import State
from tests.simulator.bent import bent_world
from tests.store.samples import plex, valid

if TYPE_CHECKING:
    from tests.simulator.side import Item, Side
    from tests.simulator.world import World

LETTER = pytest.mark.parametrize("literal", [0, 1])


def honest(item: Item) -> list[Item]:
    """Bend nothing."""
    return [item]


def failure_of(side: Side) -> Failure | None:
    """Why an exchange failed, if it did."""
    assert side.outcome is not None
    return None if side.outcome.failure is None else side.outcome.failure.failure


def add_one(world: World, number: int) -> int:
    """Let the second side store a record more; the bytes of it."""
    side = world.sides[1]
    (record,) = valid(plex("links/1", at=1_700_000_000 + number, data=f"more {number}"))
    side.store[record.hash_text] = record
    side.happen(happened.Changed(), world.now(side))
    world.run()
    return len(record.bytes)


@LETTER
@pytest.mark.requirement("050-231")
def test_summaries_count_for_a_loop_or_for_the_exchange(
    literal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (capabilities, hello):
        monkeypatch.setattr(module, "LIMIT_FLOORS", {})
    limits = ExchangeLimits(max_partition_summaries=12, literal_limits=literal)
    means = Capabilities(limits=limits)
    world = bent_world(
        honest, mode=1, is_open=True, means=means, ours=slice(0, 0), theirs=slice(0, 4)
    )
    world.run()
    for number in range(6):
        add_one(world, number)
    a = world.sides[0]
    if literal:
        assert failure_of(a) is Failure.SUMMARY_LIMIT
        assert a.outcome is not None
        assert "12 partition summaries" in str(a.outcome.failure)
    else:
        assert a.machine.state is State.WAITING
        assert len(a.store) == 6


@LETTER
@pytest.mark.requirement("050-233")
def test_bytes_count_for_each_direction_or_for_both_together(literal: int) -> None:
    """Each direction moves less than the limit, both together more."""
    limits = ExchangeLimits(max_total_transferred_bytes=2**30, literal_limits=literal)
    free = bent_world(honest, means=Capabilities(limits=limits))
    free.run()
    moved = [side.outcome.counters.bytes_sent for side in free.sides if side.outcome]
    assert min(moved) > 0
    limits = ExchangeLimits(max_total_transferred_bytes=max(moved), literal_limits=literal)
    world = bent_world(honest, means=Capabilities(limits=limits))
    world.run()
    found = {failure_of(side) for side in world.sides}
    assert found == ({Failure.TRANSFER_LIMIT} if literal else {None})


@LETTER
@pytest.mark.requirement("050-234")
def test_idle_loops_count_or_all_of_them(literal: int) -> None:
    """With one record a transfer, there are more loops with a record than the limit."""
    limits = ExchangeLimits(max_loop_iterations=3, service_budget_bytes=1, literal_limits=literal)
    world = bent_world(honest, means=Capabilities(limits=limits))
    world.run()
    a = world.sides[0]
    assert failure_of(a) is None
    assert a.outcome is not None
    assert a.outcome.at_fixed_point == (not literal)
    loops = a.outcome.counters.loops
    assert loops == 3 if literal else loops > 3


@LETTER
@pytest.mark.requirement("050-235")
def test_the_timeout_holds_for_a_turn_or_for_a_phase(literal: int) -> None:
    """A peer that takes its time in every turn, never as long as the timeout."""
    limits = ExchangeLimits(phase_timeout_seconds=30, literal_limits=literal)
    world = bent_world(honest, means=Capabilities(limits=limits))
    a, b = world.sides
    while not a.machine.is_closed:
        for side in world.sides:
            while not side.is_quiet:
                side.work(world.now(side))
        if a.inbox and isinstance(a.inbox[0], happened.BlockReceived) and a.machine.takes_input:
            world.clock += 20 * SECOND
            if a.alarm is not None and world.now(a) >= a.alarm:
                a.happen(happened.Woken(), world.now(a))
        a.take(world.now(a))
        b.take(world.now(b))
    while not a.is_quiet:
        a.work(world.now(a))
    assert failure_of(a) is (Failure.PHASE_TIMEOUT if literal else None)


@LETTER
@pytest.mark.requirement("050-235")
def test_bytes_that_arrive_renew_the_time_of_a_turn_not_of_a_phase(literal: int) -> None:
    limits = ExchangeLimits(literal_limits=literal)
    world = bent_world(honest, means=Capabilities(limits=limits))
    a = world.sides[0]
    while a.machine.state is not State.TRANSFERRING or not a.is_quiet:
        assert world.step()
    deadline = a.alarm
    assert deadline is not None
    world.clock += 20 * SECOND
    a.happen(happened.Progressed(), world.now(a))
    a.work(world.now(a))
    assert a.alarm is not None
    assert (a.alarm == deadline) == bool(literal)


@pytest.mark.requirement("050-233")
def test_bytes_count_anew_in_each_round() -> None:
    """Each round moves less than the limit, all of them together several times as much."""
    probe = bent_world(honest, is_open=True, ours=slice(0, 0), theirs=slice(0, 0))
    probe.run()
    size = add_one(probe, 0)
    limits = ExchangeLimits(max_total_transferred_bytes=size + size // 2)
    world = bent_world(
        honest,
        is_open=True,
        ours=slice(0, 0),
        theirs=slice(0, 0),
        means=Capabilities(limits=limits),
    )
    world.run()
    for number in range(4):
        add_one(world, number)
    a = world.sides[0]
    assert a.outcome is None
    assert a.machine.state is State.WAITING
    assert len(a.store) == 4


@pytest.mark.requirement("050-234")
def test_idle_loops_count_anew_in_each_round() -> None:
    """A peer that defers once in every round: idle loops of earlier rounds are forgotten."""
    left = 0

    def defer_first(item: Item) -> list[Item]:
        nonlocal left
        if isinstance(item, bytes) and left:
            left -= 1
            return []
        return [item]

    world = bent_world(
        defer_first,
        is_open=True,
        ours=slice(0, 0),
        theirs=slice(0, 0),
        means=Capabilities(limits=ExchangeLimits(max_loop_iterations=2)),
    )
    world.run()
    a = world.sides[0]
    for number in range(4):
        left = 1
        add_one(world, number)
        assert len(a.store) == number + 1
    assert a.machine.state is State.WAITING
    assert all(report.at_fixed_point for report in a.reports)
