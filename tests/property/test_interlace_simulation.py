"""Simulated exchanges: whatever the schedule, nothing unsafe happens and it comes to an end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.exchange import events as happened
from lace.exchange.capabilities import Capabilities
from lace.exchange.failures import Failure
from tests.profiles import examples
from tests.simulator.policies import EXPOSURES, Selector, pool, secrets
from tests.simulator.traces import begin, replay, save
from tests.simulator.world import Plan, World, is_waiting, some_world

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.property

GROUPS = examples(7, least=2)
FAULTY_GROUPS = examples(20, least=2)
"""Groups with faults, where most can go wrong."""
SEEDS = 10
"""Seeds in one group."""


@pytest.fixture(autouse=True)
def _give_back() -> Iterator[None]:
    """Free the worlds of a test: their sides refer to each other, and hold large tables."""
    yield
    gc.collect()


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
        world.check_advertised()
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


class Trouble:
    """Whatever else happens in a world: stores and policies change, links break."""

    def __init__(self, world: World, changes: float, breaks: float, renewals: float) -> None:
        self._world = world
        self._changes, self._breaks, self._renewals = changes, breaks, renewals

    def __call__(self) -> None:
        world = self._world
        if world.rnd.random() < self._changes:
            world.disturb()
        if not world.is_cut and world.rnd.random() < self._breaks:
            world.cut()
        if world.rnd.random() < self._renewals:
            world.renew()


@pytest.mark.parametrize("group", range(FAULTY_GROUPS))
def test_exchanges_with_faults(group: int) -> None:
    """Stores change, links break; afterwards an undisturbed exchange comes to an end."""
    for seed in seeds(group):
        world = some_world(seed)
        rnd = world.rnd
        trouble = Trouble(world, rnd.choice((0.0, 0.05, 0.2)), rnd.choice((0.0, 0.01, 0.05)), 0.0)
        for _ in range(rnd.randrange(1, 3)):
            world.connect()
            world.settle(trouble)
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
            world.patience = rnd.randrange(1, 6)
            if rnd.random() < 0.3:
                world.renew()
            world.disturb()
            world.settle(Trouble(world, rnd.choice((0.05, 0.5)), 0.0, 0.003))
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
        world.check_advertised()
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


def test_a_saved_trace_replays(tmp_path: Path) -> None:
    """The same events at the same times give the same effects, out of a file as well."""
    for seed in range(examples(10)):
        world = begin(seed)
        world.settle(Trouble(world, 1.0, 0.0, 0.0))
        for side in world.sides:
            path = tmp_path / f"{side.name}.trace"
            save(path, seed, side)
            assert replay(path) == len(side.trace) > 3


REPLAY = (
    "import sys, pathlib; from tests.simulator.traces import replay; "
    "print(replay(pathlib.Path(sys.argv[1])))"
)


@pytest.mark.slow
def test_a_saved_trace_replays_in_another_process(tmp_path: Path) -> None:
    """Sets have another order there; a trace that was changed does not replay."""
    world = begin(3)
    world.settle(Trouble(world, 1.0, 0.0, 0.0))
    path, side = tmp_path / "saved", world.sides[0]
    save(path, 3, side)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    root = Path(__file__).parents[2]

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", REPLAY, str(path)]
        return subprocess.run(
            command, check=False, cwd=root, env=environment, capture_output=True, text=True
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(side.trace)
    text = path.read_text()
    last = text.rindex("fixed point")
    path.write_text(text[:last] + "fixed Point" + text[last + len("fixed point") :])
    assert "AssertionError: event" in run().stderr


BAITS = (
    "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).",
    "SelectHave(P) :- Have(P), not Secret('yes').\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    "Secret('yes') :- Have(Q), Field(Q,'Group',_,'x').",
    "SelectHave(P) :- Have(P), Cardinality(Have(_),'<','12').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), Cardinality(Have(_),'<','12').",
    "SelectHave(P) :- Have(P), Field(P,'Name',_,N), Cardinality(Named(N,_),'<','2').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S).\nNamed(N,P) :- Have(P), Field(P,'Name',_,N).",
    "SelectHave(P) :- Have(P), Field(Q,'Group',_,'x'), Have(Q).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S).",
)
LOCAL = (
    "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).",
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'u').\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u').",
)


@pytest.mark.requirement("050-32", "050-238")
@pytest.mark.parametrize("bait", BAITS)
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_is_hidden_does_not_show_on_the_wire(bait: str, local: str, mode: int) -> None:
    """Two stores that differ outside the view only: every byte that leaves is the same."""
    for seed in range(examples(2, least=1)):
        made = []
        for extra in ((), secrets()[:1], secrets()):
            world = hidden_world(seed, bait, local, mode)
            world.kept[0].store.update({each.hash_text: each for each in extra})
            finish_in_turns(world)
            made.append(world.sides[0].transcript)
        assert made[0] == made[1] == made[2]


def hidden_world(seed: int, bait: str, local: str, mode: int) -> World:
    """A world in which the first side shows one group to the second, which baits it."""
    world = some_world(seed)
    means = replace(Capabilities(), mode=mode, offer_all=seed % 2 == 0)
    world.plan = Plan(
        selectors=(Selector("local", local), Selector("bait", bait)),
        exposures=(EXPOSURES[1], EXPOSURES[0]),
        capabilities=(means, means),
        has_keys=(True, True),
        is_open=(True, True),
    )
    return world


def finish_in_turns(world: World) -> None:
    """Run an exchange on a fixed schedule, with changes at fixed places, and end it."""
    world.connect()
    a, b = world.sides
    a.is_strict = b.is_strict = False
    for news in (pool()[:0], pool()[3:6], pool()[15:17]):
        for record in news:
            if record.hash_text in a.store:
                del a.store[record.hash_text]
            else:
                a.store[record.hash_text] = record
        if news:
            a.happen(happened.Changed(), world.now(a))
        world.run()
    a.happen(happened.Stopped(), world.now(a))
    world.settle()
    assert a.outcome is not None
    assert a.outcome.failure is None
    assert a.outcome.at_fixed_point
