"""A wall clock that is set during an exchange: timeouts do not heed it, and hellos do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange import events as happened
from lace.exchange.failures import Failure
from lace.exchange.transitions import State
from lace.link.client import LinkOptions
from lace.link.session import LinkSession
from lace.link.side import Side, party_of
from lace.transport.duplex import Proven
from tests.link.clocks import START, Clock, Told
from tests.link.pairing import Pairing
from tests.link.test_pairing import EVERYTHING, SELECT, hashes, plex, policy
from tests.link.test_session import SECONDS, connected

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.exchange.result import Outcome
    from lace.transport.duplex import ByteStream

Sides = tuple[lace.Lace, lace.Lace]
HOUR = 3600 * 10**9


class Leaping:
    """A clock that jumps with every reading."""

    def __init__(self, step: int) -> None:
        self._at, self._step = START, step

    def __call__(self) -> lace.Tai:
        self._at = self._at.shift(self._step)
        return self._at


def session(
    here: lace.Lace,
    peer: lace.Lace,
    index: int,
    stream: ByteStream,
    clock: Callable[[], lace.Tai],
) -> LinkSession:
    side = Side(here.store, here.settings, policy(peer, SELECT), here.signing_key())
    return LinkSession(party_of(side, index, clock, proven=stream.proven), stream)


@pytest.mark.requirement("050-235")
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_an_exchange_goes_on_while_the_clock_leaps(sides: Sides, step: int) -> None:
    left, right = sides
    theirs = set(right.add_all([plex(f"n/{number}", data=bytes(9000)) for number in range(600)]))
    settings = {"max_clock_skew_seconds": 10**9}

    async def run(here: lace.Lace, there: lace.Lace) -> tuple[Outcome, Outcome]:
        served: list[Outcome] = []

        async def serve(stream: ByteStream) -> None:
            served.append(await session(there, left, 1, stream, Leaping(step)).run())

        async with connected("tcp:127.0.0.1:0", serve) as stream:
            outcome = await session(here, right, 0, stream, Leaping(step)).run()
        return outcome, served[0]

    with (
        lace.open(left.store.folder, settings=settings) as here,
        lace.open(right.store.folder, settings=settings) as there,
    ):
        outcome, served = asyncio.run(asyncio.wait_for(run(here, there), SECONDS))
    assert (outcome.failure, served.failure) == (None, None)
    assert outcome.at_fixed_point
    assert hashes(left) == theirs
    assert served.counters.loops == 2, "a batch is not cut short either"


@pytest.mark.requirement("050-235")
def test_a_silent_peer_is_late_though_the_clock_goes_back(sides: Sides) -> None:
    left, right = sides

    async def serve(stream: ByteStream) -> None:
        while await stream.read(65536):
            pass

    async def run(here: lace.Lace) -> Outcome:
        async with connected("tcp:127.0.0.1:0", serve) as stream:
            return await session(here, right, 0, stream, Leaping(-HOUR)).run()

    with lace.open(left.store.folder, settings={"phase_timeout_seconds": 1}) as here:
        outcome = asyncio.run(asyncio.wait_for(run(here), SECONDS))
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PHASE_TIMEOUT


@pytest.mark.requirement("050-235")
def test_a_deadline_is_one_of_the_steady_clock(sides: Sides) -> None:
    left, right = sides
    wall, steady = Clock(), Clock()
    side = Side(left.store, left.settings, policy(right, SELECT), left.signing_key())
    party = party_of(side, 0, wall, proven=Proven(transport="tcp"), steady=steady)
    party.take(happened.Started())
    assert party.seconds_to_alarm == 30
    wall.set(10**6)
    assert not party.take_alarm()
    wall.set(-(10**6))
    steady.set(29.5)
    assert party.seconds_to_alarm == 0.5
    assert not party.take_alarm()
    steady.set(30)
    assert party.take_alarm()
    assert not party.take_alarm(), "it is told once"
    party.take(happened.Woken())
    assert party.machine.outcome is not None
    assert party.machine.outcome.failure is not None
    assert party.machine.outcome.failure.failure is Failure.PHASE_TIMEOUT
    party.close()


@pytest.mark.requirement("050-103", "050-196")
@pytest.mark.parametrize(("seconds", "fails"), [(300, False), (301, True), (-301, True)])
def test_a_skew_that_has_come_meanwhile_ends_it_before_anything_is_evaluated(
    sides: Sides, seconds: int, *, fails: bool
) -> None:
    """A new epoch compares the clocks again."""
    left, right = sides
    clocks = Clock(), Clock()
    left.add(plex("first"))
    told = Told(), Told()
    parties = [
        party_of(
            Side(each.store, each.settings, policy(other, EVERYTHING), each.signing_key()),
            at,
            clocks[at],
            LinkOptions(is_open=True),
            observer=told[at],
        )
        for at, (each, other) in enumerate(((left, right), (right, left)))
    ]
    link = Pairing(*parties)
    link.start()
    link.run()
    assert [party.machine.state for party in parties] == [State.WAITING] * 2
    assert len(hashes(right)) == 1
    before = [len(each.ticks) for each in told]
    clocks[1].set(seconds)
    renewed = policy(right, SELECT)
    parties[0].take(happened.Renewed(renewed.operand(0), renewed.exposures))
    link.run()
    assert all(party.machine.is_closed is fails for party in parties)
    for party, each, count in zip(parties, told, before, strict=True):
        assert (len(each.ticks) > count) is not fails
        if fails:
            outcome = party.machine.outcome
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.failure in (Failure.CLOCK_SKEW, Failure.PEER_CLOSED)
        party.close()
    if fails:
        failures = {party.machine.outcome.failure.failure for party in parties}  # type: ignore[union-attr]
        assert Failure.CLOCK_SKEW in failures
