"""Requests for what was not advertised: answered from the frozen send set alone (G54)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.exchange import effects as wanted
from lace.exchange.capabilities import Capabilities, ExchangeLimits
from lace.exchange.failures import Failure
from lace.exchange.transitions import State
from tests.simulator.bent import bent_world, first_block
from tests.simulator.policies import secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from tests.simulator.side import Side
    from tests.simulator.world import World

ABSENT = "P." + "0" * 43 + ".H3"
MODES = pytest.mark.parametrize("mode", [0, 1, 2])


def probed(*records: str, mode: int = 0, loops: int = 3) -> tuple[Side, World]:
    """A side whose peer has asked for records that were not advertised to it."""
    limits = ExchangeLimits(max_loop_iterations=loops)

    def add(facts: tuple[Fact, ...]) -> Iterable[Fact]:
        return [*facts, *(("MayRequest", record) for record in records)]

    world = bent_world(
        first_block("MayRequest", add),
        mode=mode,
        means=Capabilities(limits=limits),
    )
    a = world.sides[0]
    for record in secrets():
        a.store[record.hash_text] = record
    world.run()
    return a, world


def answers_of(side: Side) -> list[bytes]:
    """The batches that a side sent."""
    return [block for block in side.transcript if b"NotAvailable" in block]


@MODES
@pytest.mark.requirement("050-179", "050-226")
def test_an_unknown_request_is_answered_not_available(mode: int) -> None:
    a, _ = probed(ABSENT, "Q.x.H9", mode=mode)
    (answer,) = answers_of(a)
    assert answer == f"NotAvailable('{ABSENT}')\nNotAvailable('Q.x.H9')\n\n".encode()
    assert a.outcome is not None
    assert dict(a.outcome.noted)[Failure.UNADVERTISED_REQUEST] == 2
    assert Failure.NOT_AVAILABLE not in dict(a.outcome.noted)


@MODES
@pytest.mark.requirement("050-179")
def test_hidden_and_absent_answer_alike_without_a_look_into_the_store(mode: int) -> None:
    """All that a side does, and all that it says, is the same but for the name itself."""
    hidden = secrets()[0].hash_text
    found = []
    for record in (hidden, ABSENT):
        a, _ = probed(record, mode=mode)
        assert hidden in a.store
        assert ABSENT not in a.store
        said = b"".join(a.transcript).replace(record.encode(), b"?")
        done = [
            (type(event).__name__, [type(effect).__name__ for effect in effects])
            for event, _now, effects in a.trace
        ]
        batches = [
            effect
            for _event, _now, effects in a.trace
            for effect in effects
            if isinstance(effect, wanted.SendBatch)
        ]
        assert all(record not in each.records for each in batches)
        found.append((said, done))
    assert found[0] == found[1]


@pytest.mark.parametrize(("length", "answered"), [(1008, True), (1009, False), (1010, False)])
def test_a_request_whose_answer_has_no_line_is_deferred(length: int, answered: bool) -> None:
    """The line of NotAvailable is two bytes longer than that of MayRequest."""
    record = f"P.{'x' * (length - 5)}.H9"
    assert len(record) == length
    a, _ = probed(record)
    assert bool(answers_of(a)) == answered
    assert a.outcome is not None
    assert a.outcome.failure is None or a.outcome.failure.failure is not Failure.EVALUATION_ERROR


def test_a_list_of_strangers_alone_is_answered_without_an_evaluation() -> None:
    hidden = secrets()[0].hash_text
    world = bent_world(lambda item: [item], mode=0, ours=slice(0, 4), theirs=slice(0, 4))
    a = world.sides[0]
    for record in secrets():
        a.store[record.hash_text] = record
    while a.machine.state is not State.REQUESTING:
        assert world.step()
    loops = a.machine._loops
    assert loops is not None
    (effect,) = loops.block((("MayRequest", hidden),), world.now(a))
    assert effect == wanted.SendBatch((), (hidden,), 128 * 2**20, 10)
    assert loops.transfer.is_asked
