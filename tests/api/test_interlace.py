"""`lace.interlace` with its options: all fields, differing claims, and an exchange that goes on."""

from __future__ import annotations

import inspect
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange import events as happened
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.machine import Machine
from lace.store import interface as watching
from lace.store.interface import StoreUnavailableError
from lace.store.sqlite.store import SqliteStore
from tests.link.test_pairing import SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.exchange.effects import Effect
    from lace.link.side import Round
    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission

SOON = 30.0


@pytest.fixture
def sides(sides: tuple[lace.Lace, lace.Lace]) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    yield sides
    assert not watching._watchers


def test_the_function_takes_four_and_some_options() -> None:
    names = list(inspect.signature(lace.interlace).parameters.values())
    assert [each.name for each in names if each.kind is each.POSITIONAL_OR_KEYWORD] == [
        "left", "right", "left_policy", "right_policy",
    ]  # fmt: skip
    assert {each.name: each.default for each in names if each.kind is each.KEYWORD_ONLY} == {
        "open": False, "offer_all": False, "store_differing": False, "receipts": False,
    }  # fmt: skip


# -- options -----------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the fields that are advertised."""
    names: set[str] = set()
    receive = Machine.receive

    def noting(self: Machine, event: happened.Event, *now: lace.Tai) -> list[Effect]:
        if isinstance(event, happened.BlockReceived):
            names.update(fact[3] for fact in event.facts if fact[0] == "AdvertisedField")
        return receive(self, event, *now)

    monkeypatch.setattr(Machine, "receive", noting)
    return names


@pytest.mark.requirement("050-124", "050-125")
@pytest.mark.parametrize("offer_all", [False, True])
def test_all_fields_are_offered_where_that_is_asked_for(
    sides: tuple[lace.Lace, lace.Lace], told: set[str], *, offer_all: bool
) -> None:
    left, right = sides
    right.add(plex("n/1"))
    done = lace.interlace(left, right, policy(right), policy(left), offer_all=offer_all)
    assert len(done.left.received) == 1
    every = {"Group", "App", "Name", "TAI", "Type", "Data-Length"}
    assert told == (every if offer_all else {"Group"})


@pytest.mark.requirement("050-124", "050-125")
def test_all_fields_are_offered_where_settings_say_so(
    sides: tuple[lace.Lace, lace.Lace], told: set[str]
) -> None:
    """Over any transport: as `--set offer_all_fields=1` and in lace.toml."""
    sides[1].add(plex("n/1"))
    with ExitStack() as stack:
        left, right = (
            stack.enter_context(lace.open(each.store.folder, settings={"offer_all_fields": 1}))
            for each in sides
        )
        with (
            lace.serve("tcp:127.0.0.1:0", right, policy(left)) as server,
            lace.connect(server.address, left, policy(right)) as link,
        ):
            done = link.result()
    assert len(done.received) == 1
    assert told == {"Group", "App", "Name", "TAI", "Type", "Data-Length"}


@pytest.mark.requirement("050-45")
@pytest.mark.parametrize("by_settings", [False, True])
@pytest.mark.parametrize("store_differing", [False, True])
def test_records_whose_claims_differ_are_stored_where_that_is_asked_for(
    sides: tuple[lace.Lace, lace.Lace],
    monkeypatch: pytest.MonkeyPatch,
    *,
    store_differing: bool,
    by_settings: bool,
) -> None:
    """X1, with a peer whose advertisements leave out a field."""
    left, right = sides
    record = right.add(plex("n/1"))
    from lace.link.evaluator import StoreEvaluator

    made = StoreEvaluator._advertisements

    def silent(self: StoreEvaluator, *given: object) -> list[object]:
        found = made(self, *given)  # type: ignore[arg-type]
        return [type(each)(each.record, each.fields[:1]) for each in found]

    monkeypatch.setattr(StoreEvaluator, "_advertisements", silent)
    select = """\
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- Advertised(P,S), not Hidden(P).
Hidden(P) :- AdvertisedField(P,S,'Name',_,N), AdvertisedField(P,S,'App',_,'no').
"""
    given = policy(right, select), policy(left, select)
    if by_settings:
        left = lace.open(left.store.folder, settings={"store_differing": int(store_differing)})
        done = lace.interlace(left, right, *given)
    else:
        done = lace.interlace(left, right, *given, store_differing=store_differing)
    assert (record in left) is store_differing
    assert dict(done.left.noted) == ({} if store_differing else {Failure.CLAIMS_DIFFER: 1})


# -- the transport -----------------------------------------------------------------------------


@pytest.mark.requirement("050-27", "060-116")
@pytest.mark.parametrize("asking", [0, 1], ids=["left", "right"])
@pytest.mark.parametrize("transport", ["memory", "stdio"])
@pytest.mark.parametrize("is_open", [False, True], ids=["bounded", "open"])
def test_both_sides_know_that_the_transport_is_memory(
    sides: tuple[lace.Lace, lace.Lace], asking: int, transport: str, *, is_open: bool
) -> None:
    """A side that selects only over one transport gets records over that one alone."""
    sides[1 - asking].add(plex("a"))
    only = SELECT.replace("Advertised(P,S),", f"Advertised(P,S), Transport('{transport}'),")
    policies = [policy(sides[1]), policy(sides[0])]
    policies[asking] = policy(sides[1 - asking], only)
    if is_open:
        with lace.interlace(*sides, *policies, open=True) as exchange:
            assert next(exchange.events(SOON)).outcome.at_fixed_point
            done = exchange.stop()
    else:
        done = lace.interlace(*sides, *policies)
    assert done
    assert len(sides[asking]) == (1 if transport == "memory" else 0)


# -- an exchange that goes on --------------------------------------------------------------------


@pytest.mark.requirement("050-194", "050-195")
def test_an_open_exchange_goes_on_until_it_is_stopped(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    first = left.add(plex("a"))
    with lace.interlace(left, right, policy(right), policy(left), open=True) as exchange:
        events = exchange.events(SOON)
        until(events, "right", 1)
        before = exchange.is_running, exchange.result
        assert before == (True, None)
        second = right.add(plex("b"))
        until(events, "left", 1)
        third = left.add(plex("c"))
        until(events, "right", 2)
        done = exchange.stop()
        assert done
        assert exchange.result is done is exchange.stop()
        assert all(each.outcome.at_fixed_point for each in events)
    assert not exchange.is_running
    assert hashes(left) == hashes(right) == {first, second, third}
    assert set(done.right.received) == {first, third}
    assert done.left.received == (second,)
    assert not [each for each in threading.enumerate() if each.name.startswith("lace-open")]


def until(events: Iterator[Round], side: str, received: int) -> None:
    """Take rounds until a side has received so many records."""
    for each in events:
        if each.side == side and len(each.outcome.received) >= received:
            assert each.outcome.at_fixed_point
            return
    raise AssertionError("it did not come about")


def test_the_end_of_a_block_stops_it_also_after_an_error(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    with (
        pytest.raises(KeyError),
        lace.interlace(left, right, policy(right), policy(left), open=True) as exchange,
    ):
        raise KeyError
    assert not exchange.is_running
    assert exchange.result is not None


@pytest.mark.parametrize("by", ["stop", "result", "block"])
def test_an_open_exchange_that_fails_says_so(sides: tuple[lace.Lace, lace.Lace], by: str) -> None:
    left, right = sides
    strict = lace.Policy(select=SELECT, lowering="encrypted-v1")
    exchange = lace.interlace(left, right, strict, policy(left), open=True)
    assert list(exchange.events(SOON)) == []
    asking: dict[str, Callable[[], object]] = {
        "stop": exchange.stop,
        "result": lambda: exchange.result,
        "block": lambda: exchange.__exit__(None, None, None),
    }
    with pytest.raises(InterlaceFailure) as caught:
        asking[by]()
    assert caught.value.failure is Failure.PLAN_MISMATCH


@pytest.mark.requirement("050-227")
def test_a_lace_that_fails_while_it_goes_on(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    admit = SqliteStore.admit

    def full(self: SqliteStore, records: list[ValidRecord]) -> Admission:
        if self.folder == left.store.folder:
            raise StoreUnavailableError(f"no space is left for {self.path}")
        return admit(self, records)

    monkeypatch.setattr(SqliteStore, "admit", full)
    exchange = lace.interlace(left, right, policy(right), policy(left), open=True)
    right.add(plex("a"))
    for _ in exchange.events(SOON):
        pass
    with pytest.raises(StoreUnavailableError, match="the left lace: no space is left"):
        exchange.stop()


def test_few_rounds_wait_to_be_looked_at(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lace.link.side.MAX_ROUNDS", 1)
    left, right = sides
    left.add(plex("a"))
    exchange = lace.interlace(left, right, policy(right), policy(left), open=True)
    until = time.monotonic() + SOON
    while len(hashes(right)) != 1 and time.monotonic() < until:
        time.sleep(0.01)
    exchange.stop()
    assert len(list(exchange.events())) <= 1
