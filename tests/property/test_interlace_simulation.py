"""Simulated exchanges: whatever the schedule, nothing unsafe happens and it comes to an end."""

from __future__ import annotations

import os
import random

import pytest

from lace.interlace import events as happened
from lace.interlace.machine import Machine
from lace.interlace.failures import Failure
from dataclasses import replace
from tests.simulator.world import World, is_waiting, some_world

pytestmark = pytest.mark.property

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
GROUPS = 200 if IS_DEEP else 10
SEEDS = 10
"""Seeds in one group."""


def finish(world: World) -> None:
    """An exchange without faults or changes ends, both sides agree why, and all is said."""
    world.connect()
    world.settle()
    assert world.is_over, [side.machine.state for side in world.sides]
    a, b = (side.outcome for side in world.sides)
    assert a is not None
    assert b is not None
    assert a.failure is None, a.reason
    assert b.failure is None, b.reason
    assert a.reason == b.reason
    world.check_accounts()
    if a.at_fixed_point:
        world.check_fixed_point()
    else:
        steady = all(each.is_steady and not each.is_timed for each in world.plan.selectors)
        assert not steady, a.reason


def seeds(group: int) -> range:
    return range(group * SEEDS, (group + 1) * SEEDS)


@pytest.mark.parametrize("group", range(GROUPS))
def test_bounded_exchanges(group: int) -> None:
    for seed in seeds(group):
        world = some_world(seed)
        finish(world)
        finish(world)  # once more, with what was kept


@pytest.mark.parametrize("group", range(GROUPS))
def test_exchanges_with_faults(group: int) -> None:
    """Stores change, links break; afterwards an undisturbed exchange comes to an end."""
    for seed in seeds(group):
        world = some_world(seed)
        rnd = world.rnd
        trouble = rnd.choice((0.0, 0.02, 0.1))
        breaks = rnd.choice((0.0, 0.01, 0.05))

        def between() -> None:
            if rnd.random() < trouble:
                world.disturb()
            if not world.is_cut and rnd.random() < breaks:
                world.cut()

        for _ in range(rnd.randrange(1, 3)):
            world.connect()
            world.settle(between)
            assert world.is_over
            for side in world.sides:
                assert side.outcome is not None
                failure = side.outcome.failure
                assert failure is None or failure.failure is Failure.PEER_CLOSED, failure
                assert failure is None or world.is_cut, failure
            world.check_accounts()
            if rnd.random() < 0.3:
                rnd.choice(world.kept).cursors.clear()
        finish(world)


@pytest.mark.parametrize("group", range(GROUPS))
def test_open_exchanges(group: int) -> None:
    """Records come and go, time passes, policies change; every pause is a fixed point."""
    for seed in seeds(group):
        world = some_world(seed, is_open=(True, seed % 4 != 0))
        rnd = world.rnd
        world.connect()
        world.settle()
        for _ in range(rnd.randrange(1, 4)):
            if world.is_over:
                break
            check_pause(world)
            world.patience = rnd.randrange(6)
            trouble = rnd.choice((0.05, 0.5))

            def between(trouble: float = trouble) -> None:
                if rnd.random() < trouble:
                    world.disturb()
                if rnd.random() < 0.003:
                    world.renew()

            if rnd.random() < 0.3:
                world.renew()
            world.disturb()
            world.settle(between)
            world.wait(rnd.choice((0, 3, 8)))
        stop(world)


def check_pause(world: World) -> None:
    """Both sides wait, and say the same of what they reached."""
    assert is_waiting(world), [side.machine.state for side in world.sides]
    a, b = (side.reports[-1] for side in world.sides)
    assert a.reason == b.reason
    assert len(world.sides[0].reports) == len(world.sides[1].reports)
    if a.at_fixed_point:
        world.check_fixed_point()
    else:
        assert not all(each.is_steady for each in world.plan.selectors)


def stop(world: World) -> None:
    """Whoever runs one side ends it; the other ends cleanly too."""
    if not world.is_over:
        check_pause(world)
        side = world.rnd.choice(world.sides)
        side.happen(happened.Stopped(), world.now(side))
        world.settle()
    assert world.is_over
    a, b = (side.outcome for side in world.sides)
    assert a is not None
    assert b is not None
    assert a.failure is None, a.reason
    assert b.failure is None, b.reason
    assert a.at_fixed_point == b.at_fixed_point
    world.check_accounts()


def test_a_trace_replays() -> None:
    """The same events at the same times give the same effects."""
    for seed in range(30):
        world = some_world(seed, is_open=(True, True))
        starts = world.rnd.getstate()
        world.connect()
        world.settle(lambda world=world: world.disturb())  # type: ignore[misc]
        world.rnd.setstate(starts)
        for side in world.sides:
            random_bytes = random.Random(world.rnd.getrandbits(32)).randbytes
            machine = Machine(replace(side.config, random_bytes=random_bytes))
            for event, now, effects in side.trace:
                assert machine.receive(event, now) == effects
