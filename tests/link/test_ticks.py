"""Ticks in the driver: what rules read as TickTAI in each loop, and what is announced (G54d)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.link import evaluator
from lace.link.side import Side, run_exchange
from lace.policy.enforcement import Enforcement
from tests.link.clocks import SOON, START, Clock, after, exchanging
from tests.link.test_pairing import EVERYTHING, hashes, plex, policy

if TYPE_CHECKING:
    from lace.policy.enforcement import Permissions
    from tests.link.pairing import OpenPair

Sides = tuple[lace.Lace, lace.Lace]

ADVERTISED = "SelectAdvertised(P,S) :- Advertised(P,S).\n"
AT_TWENTY = f"SelectHave(P) :- Have(P), TickTAI(T), LexCompare(T,'>=','{after(20)}').\n{ADVERTISED}"
UNTIL_TWENTY = (
    f"SelectHave(P) :- Have(P), not Late('yes').\n{ADVERTISED}"
    f"Late('yes') :- TickTAI(T), LexCompare(T,'>=','{after(20)}').\n"
)
AT_START = f"SelectHave(P) :- Have(P), TickTAI(T), StartTAI(T).\n{ADVERTISED}"
ASKING_AT_TWENTY = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), TickTAI(T), "
    f"LexCompare(T,'>=','{after(20)}').\n"
)


class Read:
    """The runtime facts that each side evaluated with, as they were in its base."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks: dict[int, list[frozenset[str]]] = {0: [], 1: []}
        self.starts: set[frozenset[str]] = set()
        read = self

        class Noted(Enforcement):
            def evaluate(self) -> Permissions:
                found = {
                    key.name: frozenset(
                        row[0] for row in self.base.dictionary.rows(held.columns(), held.rows)
                    )
                    for key, held in self.base.relations.items()
                    if key.name in ("TickTAI", "StartTAI")
                }
                read.ticks[self.executable.index].append(found["TickTAI"])
                read.starts.add(found["StartTAI"])
                return super().evaluate()

        monkeypatch.setattr(evaluator, "Enforcement", Noted)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """What the two sides evaluated with."""
    return Read(monkeypatch)


def policies(
    sides: Sides, select: str, theirs: str | None = None
) -> tuple[lace.Policy, lace.Policy]:
    left, right = sides
    return policy(right, select), policy(left, theirs or select)


def is_waiting(exchange: OpenPair) -> bool:
    return all(party.report is not None for party in exchange.parties)


@pytest.mark.requirement("050-132", "050-133", "050-139", "050-141")
def test_a_record_moves_when_both_clocks_have_reached_its_tick(sides: Sides, read: Read) -> None:
    left, right = sides
    here, there = Clock(), Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, AT_TWENTY), (here, there)) as (exchange, told):
        assert exchange.wait_until(lambda: is_waiting(exchange), SOON)
        assert not hashes(right)
        here.set(25)
        assert exchange.wait_until(lambda: told[0].ready == [after(20)], SOON)
        assert read.ticks[0][-1] == {START}, "one side alone does not move the tick"
        there.set(10)
        assert exchange.wait_until(lambda: read.ticks[0][-1] == {after(10)}, SOON), "the smaller"
        assert not hashes(right)
        there.set(20)
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)
    assert read.starts == {frozenset({START})}
    for at in (0, 1):
        each = [next(iter(facts)) for facts in read.ticks[at]]
        assert all(len(facts) == 1 for facts in read.ticks[at]), "the old tick is gone"
        assert each == sorted(each)
        assert each[0] == START
        assert each == [str(tick) for tick in told[at].ticks]
        assert told[at].ready == sorted(set(told[at].ready))
    assert set(told[0].ticks) == set(told[1].ticks) == {START, after(10), after(20)}


@pytest.mark.requirement("050-141", "050-195")
@pytest.mark.parametrize("select", [UNTIL_TWENTY, AT_START])
def test_what_ends_with_a_tick_is_withdrawn(sides: Sides, read: Read, select: str) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, select), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)

        def known() -> int:
            loops = exchange.parties[1].machine._loops
            return -1 if loops is None else len(loops.states.theirs)

        assert exchange.wait_until(lambda: known() == 1, SOON)
        clock.set(20)
        assert exchange.wait_until(lambda: known() == 0, SOON)
        left.add(plex("second"))
        assert exchange.wait_until(lambda: told[0].ticks[-1:] == [after(20)], SOON)
    assert hashes(right) == {first}
    assert all(len(facts) == 1 for at in (0, 1) for facts in read.ticks[at])


@pytest.mark.requirement("050-139", "050-172")
def test_what_is_asked_for_may_depend_on_a_tick(sides: Sides) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    made = policies(sides, EVERYTHING, ASKING_AT_TWENTY)
    with exchanging(sides, made, (clock, clock)) as (exchange, _):
        assert exchange.wait_until(lambda: is_waiting(exchange), SOON)
        assert not hashes(right)
        clock.set(20)
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)


@pytest.mark.requirement("050-134")
def test_nobody_announces_ticks_that_no_rule_reads(sides: Sides, read: Read) -> None:
    left, right = sides
    clock = Clock()
    left.add(plex("first"))
    with exchanging(sides, policies(sides, EVERYTHING), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)
        assert exchange.wait_until(lambda: is_waiting(exchange), SOON)
        clock.set(100)
        assert not exchange.wait_until(lambda: bool(told[0].ready or told[1].ready), 1.5)
    assert {tick for at in (0, 1) for tick in read.ticks[at]} == {frozenset({START})}


@pytest.mark.requirement("050-142")
def test_a_bounded_side_announces_no_tick_and_holds_it_at_the_start(
    sides: Sides, read: Read
) -> None:
    left, right = sides
    left.add(plex("first"))
    here = Clock()
    made = policies(sides, AT_TWENTY)
    with exchanging(sides, made, (here, Clock(30)), is_open=(False, True)) as (exchange, told):
        assert exchange.wait_until(lambda: exchange.parties[0].machine.is_closed, SOON)
    assert told[0].ready == []
    assert {tick for at in (0, 1) for tick in read.ticks[at]} == {frozenset({after(30)})}
    assert hashes(right) == {str(each) for each in hashes(left)}, "StartTAI is the larger of both"


@pytest.mark.requirement("050-105", "050-133", "050-142")
@pytest.mark.parametrize(("ahead", "moves"), [(19, False), (20, True)])
def test_the_first_tick_is_the_start(sides: Sides, read: Read, ahead: int, *, moves: bool) -> None:
    left, right = sides
    first = left.add(plex("first"))
    made = [
        Side(each.store, each.settings, chosen, each.signing_key())
        for each, chosen in zip(sides, policies(sides, AT_TWENTY), strict=True)
    ]
    assert run_exchange(made[0], made[1], Clock(ahead))
    assert hashes(right) == ({first} if moves else set())
    assert {tick for at in (0, 1) for tick in read.ticks[at]} == {frozenset({after(ahead)})}


@pytest.mark.requirement("050-141")
def test_what_was_kept_is_of_its_tick(sides: Sides, read: Read) -> None:
    """A later exchange begins with another tick, and evaluates again."""
    left, right = sides
    first = left.add(plex("first"))
    made = [
        Side(each.store, each.settings, chosen, each.signing_key())
        for each, chosen in zip(sides, policies(sides, AT_TWENTY), strict=True)
    ]
    for _ in range(2):
        assert run_exchange(made[0], made[1], Clock())
        assert not hashes(right)
    assert run_exchange(made[0], made[1], Clock(20))
    assert hashes(right) == {first}


@pytest.mark.requirement("050-140")
def test_a_clock_that_is_set_back_takes_no_tick_back(sides: Sides, read: Read) -> None:
    left, right = sides
    clock = Clock()
    first = left.add(plex("first"))
    with exchanging(sides, policies(sides, AT_TWENTY), (clock, clock)) as (exchange, told):
        assert exchange.wait_until(lambda: is_waiting(exchange), SOON)
        clock.set(20)
        assert exchange.wait_until(lambda: hashes(right) == {first}, SOON)
        clock.set(-3600)
        second = left.add(plex("second"))
        assert exchange.wait_until(lambda: hashes(right) == {first, second}, SOON)
        assert told[0].ticks[-1] == after(20)
    for at in (0, 1):
        assert told[at].ready == [after(20)]
        assert told[at].ticks == sorted(told[at].ticks)


@pytest.mark.requirement("050-138", "050-139")
def test_a_clock_that_jumps_ahead_is_held_by_the_other(sides: Sides) -> None:
    """It announces the tick that it has reached; the smaller of the two counts."""
    left, right = sides
    here, there = Clock(), Clock()
    left.add(plex("first"))
    with exchanging(sides, policies(sides, AT_TWENTY), (here, there)) as (exchange, told):
        assert exchange.wait_until(lambda: is_waiting(exchange), SOON)
        here.set(10**9 + 3)
        assert exchange.wait_until(lambda: told[0].ready == [after(10**9)], SOON)
        there.set(10)
        assert exchange.wait_until(lambda: told[0].ticks[-1] == after(10), SOON)
        assert not hashes(right)
        there.set(20)
        assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)
        assert told[0].ticks[-1] == after(20)
