"""A bounded side that waits for ticks: open until they have come, then closed (050-143)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange import events as happened
from lace.exchange.capabilities import MachineConfig
from lace.exchange.machine import Machine
from lace.exchange.transitions import State
from lace.link.client import LinkOptions
from lace.link.party import TickWait
from lace.link.side import Side, party_of
from tests.cli.links import make_parties, serving
from tests.link.pairing import Pairing
from tests.link.test_pairing import SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from pathlib import Path

    from lace.link.party import Party

SECOND = 1_000_000_000
START = lace.Tai("1640995200:000000000")
LATER = """\
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- Advertised(P,S), StartTAI(B), TickTAI(T), LexCompare(T,'>',B).
"""
"""Nothing is requested before the first tick."""


class World:
    """Two parties in one process, and a clock that a test moves."""

    def __init__(
        self,
        sides: tuple[lace.Lace, lace.Lace],
        select: str,
        *,
        wait_ticks: int,
        is_open: bool = True,
        skew: int = 0,
    ) -> None:
        self.seconds = 0
        self.skew = skew
        left, right = sides
        self.left = self._party(left, right, select, 0, wait_ticks=wait_ticks)
        self.right = self._party(right, left, select, 1, is_open=is_open)
        self._link = Pairing(self.left, self.right)
        self._link.start()
        self._link.run()

    def _party(
        self,
        own: lace.Lace,
        peer: lace.Lace,
        select: str,
        index: int,
        *,
        wait_ticks: int = 0,
        is_open: bool = False,
    ) -> Party:
        side = Side(own.store, own.settings, policy(peer, select), own.signing_key())

        def clock() -> lace.Tai:
            return START.shift((self.seconds - (self.skew if index else 0)) * SECOND)

        options = LinkOptions(wait_ticks=wait_ticks, is_open=is_open)
        return party_of(side, index, clock, options)

    def pass_seconds(self, count: int, *, asleep: Party | None = None) -> None:
        """Let time go by, second by second; a party that sleeps is never woken."""
        for _ in range(count):
            self.seconds += 1
            for party in (self.left, self.right):
                if party is not asleep and party.seconds_to_alarm is not None:
                    party.take(happened.Woken())
            self._link.run()

    def reason(self) -> str | None:
        """Why the waiting side has ended; None while it goes on."""
        outcome = self.left.outcome
        return None if outcome is None else outcome.reason

    def close(self) -> None:
        """Give up what is under way."""
        self.left.close()
        self.right.close()


@pytest.mark.requirement("050-143")
@pytest.mark.parametrize("ticks", [1, 3])
def test_it_closes_after_the_round_of_its_last_tick(
    sides: tuple[lace.Lace, lace.Lace], ticks: int
) -> None:
    left, right = sides
    record = right.add(plex("a"))
    world = World(sides, LATER, wait_ticks=ticks)
    assert (world.reason(), hashes(left)) == (None, set()), "a fixed point, without any tick"
    world.pass_seconds(9)
    assert (world.reason(), hashes(left)) == (None, set())
    world.pass_seconds(10 * ticks - 9 - 1)
    assert world.reason() is None
    assert hashes(left) == (set() if ticks == 1 else {record}), "with the first tick it came"
    world.pass_seconds(1)
    assert world.reason() == "at a fixed point"
    assert hashes(left) == {record}
    outcome = world.right.machine.outcome
    assert outcome is not None
    assert outcome.at_fixed_point, "to the peer it is an end while waiting"
    world.close()


@pytest.mark.requirement("050-142")
def test_without_the_option_there_is_no_tick(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    right.add(plex("a"))
    world = World(sides, LATER, wait_ticks=0)
    assert (world.reason(), hashes(left)) == ("at a fixed point", set())
    world.close()


@pytest.mark.requirement("050-143")
def test_rules_without_ticks_wait_by_the_clock(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """What is stored meanwhile still moves."""
    left, right = sides
    world = World(sides, SELECT, wait_ticks=2)
    world.pass_seconds(15)
    assert world.reason() is None
    record = right.add(plex("meanwhile"))
    world.right.take(happened.Changed())
    world.pass_seconds(4)
    assert (world.reason(), hashes(left)) == (None, {record})
    world.pass_seconds(1)
    assert world.reason() == "at a fixed point"
    world.close()


@pytest.mark.requirement("050-143")
def test_a_peer_that_does_not_go_on_ends_it(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    record = right.add(plex("a"))
    world = World(sides, SELECT, wait_ticks=2, is_open=False)
    assert world.reason() == (
        "at a fixed point; the peer ended the exchange, before the ticks that were waited for"
    )
    assert hashes(left) == {record}
    outcome = world.left.outcome
    assert outcome is not None
    assert (outcome.at_fixed_point, outcome.ticks_missed) == (True, True)
    world.close()


@pytest.mark.requirement("050-143")
def test_whoever_stops_it_waits_for_no_tick(sides: tuple[lace.Lace, lace.Lace]) -> None:
    world = World(sides, LATER, wait_ticks=2)
    world.pass_seconds(3)
    world.left.take(happened.Stopped())
    outcome = world.left.outcome
    assert outcome is not None
    assert (outcome.reason, outcome.ticks_missed) == ("at a fixed point", False)
    world.close()


@pytest.mark.requirement("050-143")
@pytest.mark.parametrize("skew", [0, 7])
def test_a_peer_that_is_never_ready_does_not_keep_it(
    sides: tuple[lace.Lace, lace.Lace], skew: int
) -> None:
    world = World(sides, LATER, wait_ticks=1, skew=skew)
    patience = 10 + skew + sides[0].settings.phase_timeout_seconds
    world.pass_seconds(patience - 1, asleep=world.right)
    assert world.reason() is None
    world.pass_seconds(1, asleep=world.right)
    assert "the peer was not ready for the tick in time" in str(world.reason())
    assert world.left.outcome is not None
    assert world.left.outcome.ticks_missed
    assert world.left.machine.state is State.CLOSED
    world.close()


@pytest.mark.requirement("050-143")
def test_a_peer_whose_clock_is_behind_is_waited_for(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    record = right.add(plex("a"))
    world = World(sides, LATER, wait_ticks=1, skew=5)
    world.pass_seconds(14)
    assert world.reason() is None
    world.pass_seconds(1)
    assert (world.reason(), hashes(left)) == ("at a fixed point", {record})
    world.close()


def test_what_makes_no_sense(sides: tuple[lace.Lace, lace.Lace], tmp_path: Path) -> None:
    left, right = sides
    operand = policy(right).operand(0)
    for count, is_open in ((0, True), (-1, True), (1, False)):
        config = MachineConfig(operand=operand, random_bytes=bytes, is_open=is_open)
        with pytest.raises(ValueError, match="waits for at least 1 tick"):
            TickWait(Machine(config), count)
    for ticks, is_open in ((-1, False), (10**7, False), (1, True)):
        with pytest.raises(lace.UsageError):
            lace.connect("tcp:h", left, policy(right), wait_ticks=ticks, open=is_open)
    with pytest.raises(lace.UsageError, match="a number of ticks"):
        lace.connect("tcp:h", left, policy(right), wait_ticks="1")  # type: ignore[arg-type]


@pytest.mark.requirement("050-143")
def test_a_real_server_and_its_ticks(tmp_path: Path) -> None:
    here, there = make_parties(tmp_path)
    here.select.write_text(LATER)
    fast = ("--set", "tick_interval_seconds=1")
    with serving(there, here, "tcp:127.0.0.1:0", "--open", *fast) as server:
        at_once = here.sync(there, server.address, *fast, "--json")
        assert (at_once.code, at_once.json()["received-hashes"]) == (0, [])
        waited = here.sync(there, server.address, *fast, "--wait-ticks", "1", "--json")
        assert (waited.code, waited.json()["reason"]) == (0, "at a fixed point"), waited.err
        assert len(waited.json()["received-hashes"]) == 5
        with lace.open(here.folder, settings={"tick_interval_seconds": 1}) as store:
            link_policy = lace.Policy(
                select=LATER, exposures=[(here.view.read_text(), there.verifier)]
            )
            store.remove(*waited.json()["received-hashes"])
            with lace.connect(server.address, store, link_policy, wait_ticks=1) as link:
                assert len(link.result(120).received) == 5
    refused = here.sync(there, "tcp:127.0.0.1:1", "--wait-ticks", "1", "--open")
    assert refused.code == 2
    assert "an open exchange waits for every tick until it is stopped" in refused.err


@pytest.mark.requirement("050-143")
def test_a_server_that_does_not_go_on_is_told_of(tmp_path: Path) -> None:
    """What was to be had is there; but nobody has waited, and a script has to see that."""
    here, there = make_parties(tmp_path)
    with serving(there, here, "tcp:127.0.0.1:0") as server:
        done = here.sync(there, server.address, "--wait-ticks", "1", "--json")
        assert done.code == 1
        told = done.json()
        assert (told["at-fixed-point"], told["ticks-missed"]) == (True, True)
        assert len(told["received-hashes"]) == 5
        said = " ".join(done.err.split())
        assert "the peer ended the exchange, before the ticks that were waited for" in said
        assert "the server has to go on for that (lace serve --open)" in said
        again = here.sync(there, server.address, "--json")
        assert (again.code, again.json()["ticks-missed"]) == (0, False)
