"""Exposures that read this side's clock: "until Friday", "from Friday on", "thirty days" (G05b)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange import effects as wanted
from lace.exchange.transitions import State
from lace.link import evaluator
from lace.link.client import LinkOptions
from lace.link.events import PartyObserver
from lace.link.session import LinkSession
from lace.link.side import Side, party_of, run_exchange
from lace.policy.enforcement import Enforcement
from tests.link.clocks import SOON, START, Clock, Told, after, exchanging
from tests.link.pairing import Pairing
from tests.link.test_pairing import EVERYTHING, hashes, plex, policy
from tests.link.test_session import SECONDS, connected

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.transport.duplex import ByteStream
    from tests.link.pairing import OpenPair

Sides = tuple[lace.Lace, lace.Lace]

FRIDAY = 3600
UNTIL = (
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), _LocalTAI(T), "
    f"LexCompare(T,'<','{after(FRIDAY)}').\n"
)
FROM = UNTIL.replace("'<'", "'>='")


def policies(sides: Sides, expose: str) -> tuple[lace.Policy, lace.Policy]:
    """The left one exposes by the clock, the right one everything."""
    left, right = sides
    return policy(right, EVERYTHING, expose), policy(left, EVERYTHING)


def advertised(exchange: OpenPair, side: int) -> Callable[[], int]:
    """How many records a side knows the other to advertise."""

    def count() -> int:
        loops = exchange.parties[side].machine._loops
        return -1 if loops is None else len(loops.states.theirs)

    return count


@pytest.mark.requirement("020-45", "050-38", "050-195")
def test_until_friday(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, UNTIL), (clock, clock)) as (exchange, _):
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)
        clock.set(FRIDAY - 1)
        second = left.add(plex("second"))
        assert exchange.wait_until(lambda: hashes(right) == {first, second}, SOON)
        known = advertised(exchange, 1)
        assert exchange.wait_until(lambda: known() == 2, SOON)
        clock.set(FRIDAY)
        assert exchange.wait_until(lambda: known() == 0, SOON), "it is told at once"
        left.add(plex("third"))
        late = right.add(plex("from the right"))
        assert exchange.wait_until(lambda: late in hashes(left), SOON), "the exchange goes on"
        assert exchange.wait_until(lambda: known() == 0, SOON)
    assert hashes(right) == {first, second, late}


def test_from_friday_on_without_a_new_record(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, FROM), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: exchange.parties[0].report is not None, SOON)
        clock.set(FRIDAY - 0.001)
        expected = after(FRIDAY - 10)
        assert exchange.wait_until(lambda: told[0].local[-1] == expected, SOON), "it is floored"
        assert not hashes(right)
        clock.set(FRIDAY)
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)


def test_an_age_is_told_by_a_record_that_says_until_when(sides: Sides) -> None:
    """Thirty days: the record carries the instant, and the rule compares it with the clock."""
    left, _right = sides
    clock = Clock()
    shown = (
        "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Until',_,U), _LocalTAI(T), "
        "LexCompare(T,'<',U).\n"
    )
    month = 30 * 86_400
    short, long = (
        lace.Plex(group="u", app="d", name=f"n/{n}", data=b"x", tai=START, headers=[("Until", u)])
        for n, u in ((1, after(60)), (2, after(month)))
    )
    left.add_all([short, long])
    with exchanging(sides, policies(sides, shown), (clock, clock)) as (exchange, _):
        known = advertised(exchange, 1)
        assert exchange.wait_until(lambda: known() == 2, SOON)
        clock.set(60)
        assert exchange.wait_until(lambda: known() == 1, SOON)
        clock.set(month)
        assert exchange.wait_until(lambda: known() == 0, SOON)


def test_no_loop_begins_when_nothing_changes(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    left.add(plex("first"))
    with exchanging(sides, policies(sides, UNTIL), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)
        assert exchange.wait_until(lambda: advertised(exchange, 0)() == 1, SOON)
        machines = [party.machine for party in exchange.parties]
        assert exchange.wait_until(
            lambda: all(machine.state is State.WAITING for machine in machines), SOON
        )
        before = exchange.counters
        for seconds in (10, 20, 1000):
            clock.set(seconds)
            assert exchange.wait_until(lambda: told[0].local[-1] == clock.at, SOON)
        assert exchange.counters == before
        looked = len(told[0].local)
        assert not exchange.wait_until(lambda: False, 1.5)
        assert len(told[0].local) == looked, "a clock that stands still is not looked at again"
        assert not told[1].local or set(told[1].local) <= {START}, "nobody there reads it"


@pytest.mark.requirement("050-107")
def test_the_tick_interval_of_the_peer_has_no_influence(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    shown = FROM.replace(after(FRIDAY), after(10))
    stretched: tuple[dict[str, object], dict[str, object]] = ({}, {"tick_interval_seconds": 86_400})
    with exchanging(sides, policies(sides, shown), (clock, clock), settings=stretched) as (
        exchange,
        told,
    ):
        assert exchange.wait_until(lambda: exchange.parties[0].report is not None, SOON)
        loops = exchange.parties[0].machine._loops
        assert loops is not None
        assert loops.terms.tick_interval == 86_400 * 10**9
        clock.set(10)
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)
        assert told[0].local[-1] == after(10)


def test_a_clock_that_is_set_back_opens_nothing_again(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, UNTIL), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)
        known = advertised(exchange, 1)
        clock.set(FRIDAY)
        assert exchange.wait_until(lambda: known() == 0, SOON)
        clock.set(0)
        left.add(plex("second"))
        late = right.add(plex("from the right"))
        assert exchange.wait_until(lambda: late in hashes(left), SOON)
        assert told[0].local == sorted(told[0].local)
        assert known() == 0
    assert hashes(right) == {first, late}


@pytest.mark.requirement("050-17", "050-179")
def test_what_is_no_longer_exposed_when_it_is_sent_is_not_available(sides: Sides) -> None:
    left, right = sides
    first = left.add(plex("first"))
    clocks = Clock(), Clock()
    ours, theirs = policies(sides, UNTIL)
    told = Told()

    class Asked(PartyObserver):
        def done(self, effect: wanted.Effect, answer: object) -> None:
            request = (("MayRequest", first),)
            if isinstance(effect, wanted.SendBlock) and effect.facts[:1] == request:
                clocks[0].set(FRIDAY)  # between its advertisement and its sending

    observers = told, Asked()
    parties = [
        party_of(
            Side(each.store, each.settings, made, each.signing_key()),
            at,
            clocks[at],
            observer=observers[at],
        )
        for at, (each, made) in enumerate(zip(sides, (ours, theirs), strict=True))
    ]
    link = Pairing(*parties)
    link.start()
    link.run()
    outcome = parties[1].machine.outcome
    assert outcome is not None
    assert outcome.failure is None
    assert outcome.not_available == (first,)
    assert not hashes(right)
    assert told.batches[0].records == ()
    assert told.batches[0].unavailable == (first,)
    for party in parties:
        party.close()


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_what_was_kept_of_an_exchange_is_of_its_time(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, *, is_asked_again: bool
) -> None:
    """A later exchange evaluates again: the state of the earlier one was that of another time."""
    left, right = sides
    begun: list[str] = []

    class Counted(Enforcement):
        def __init__(self, *arguments: object, **named: object) -> None:
            begun.append("a side")
            super().__init__(*arguments, **named)  # type: ignore[arg-type] # as they come

    monkeypatch.setattr(evaluator, "Enforcement", Counted)
    first = left.add(plex("first"))
    ours, theirs = policies(sides, FROM)
    made = [
        Side(each.store, each.settings, chosen, each.signing_key())
        for each, chosen in zip(sides, (ours, theirs), strict=True)
    ]
    assert run_exchange(made[0], made[1], Clock())
    begun.clear()
    assert run_exchange(made[0], made[1], Clock(9 if is_asked_again else FRIDAY))
    assert hashes(right) == (set() if is_asked_again else {first})
    assert bool(begun) is not is_asked_again


def test_until_friday_on_a_stream(sides: Sides) -> None:
    """The same with the driver of `lace serve` and `lace sync`, over TCP."""
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    ours, theirs = policies(sides, UNTIL)

    def session(here: lace.Lace, made: lace.Policy, index: int, stream: ByteStream) -> LinkSession:
        side = Side(here.store, here.settings, made, here.signing_key())
        options = LinkOptions(is_open=True)
        return LinkSession(party_of(side, index, clock, options, proven=stream.proven), stream)

    running: list[LinkSession] = []

    async def serve(stream: ByteStream) -> None:
        running.append(session(left, ours, 1, stream))
        await running[0].run()

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def run() -> None:
        async with connected("tcp:127.0.0.1:0", serve) as stream:
            here = session(right, theirs, 0, stream)
            ending = asyncio.create_task(here.run())

            def known() -> int:
                loops = here._party.machine._loops
                return -1 if loops is None else len(loops.states.theirs)

            await until(lambda: hashes(right) == {first})
            clock.set(FRIDAY)
            await until(lambda: known() == 0)
            here.stop()
            assert (await ending).failure is None

    asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert hashes(right) == {first}
