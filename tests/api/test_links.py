"""Links and servers of a program: what happens on them, with an event loop and without."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api.links import EventQueue
from lace.base.limits import MAX_EVENT_RECORDS, MAX_LINK_EVENTS
from lace.errors import UsageError
from lace.store.interface import StoreDamagedError
from lace.transport.faults import ListenError, TransportError
from tests.link.test_pairing import hashes, plex, policy
from tests.store.samples import flip
from tests.store.test_damage import change

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0


@pytest.fixture
def sides(sides: tuple[lace.Lace, lace.Lace]) -> tuple[lace.Lace, lace.Lace]:
    left, right = sides
    left.add_all([plex(f"left/{number}") for number in range(3)])
    right.add_all([plex(f"right/{number}") for number in range(3)])
    return left, right


def verifier(side: lace.Lace) -> str:
    key = side.signing_key()
    assert key is not None
    return str(key.verifier)


# -- without an event loop -----------------------------------------------------------------------


@pytest.mark.requirement("050-207")
def test_a_blocking_link_and_server(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    with lace.serve("tcp:127.0.0.1:0", right, policy(left), peer=verifier(left)) as serving:
        assert serving.address.startswith("tcp:127.0.0.1:")
        with lace.connect(serving.address, left, policy(right), peer=verifier(right)) as link:
            assert isinstance(link, lace.BlockingLink)
            told = list(link.events())
            result = link.result()
            assert result is link.result() is link.outcome
        assert result.at_fixed_point
        assert result.peer_verifier == verifier(right)
    assert hashes(left) == hashes(right)
    assert [each.outcome.at_fixed_point for each in serving.served if each.outcome] == [True]
    assert serving.links == 0
    kinds = [type(each) for each in told]
    assert kinds[-1] is lace.LinkEnded
    assert kinds.count(lace.LinkEnded) == kinds.count(lace.LinkAgreed) == 1
    agreed = next(each for each in told if isinstance(each, lace.LinkAgreed))
    assert (agreed.plan_id, agreed.peer_verifier) == (result.plan_id, verifier(right))
    phases = [each.phase for each in told if isinstance(each, lace.PhaseBegan)]
    assert phases[:5] == ["setup", "hello", "advertise", "request", "transfer"]
    stored = [row for each in told if isinstance(each, lace.RecordsStored) for row in each.records]
    assert {row.id for row in stored} == set(result.received)
    assert {row.coordinate for row in stored} == {f"//u//ding//right/{n}" for n in range(3)}


def test_an_open_blocking_link(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    with (
        lace.serve("tcp:127.0.0.1:0", right, policy(left), open=True) as serving,
        lace.connect(serving.address, left, policy(right), open=True) as link,
    ):
        events = link.events(SECONDS)
        rounds = (each for each in events if isinstance(each, lace.RoundEnded))
        assert next(rounds).at_fixed_point
        new = str(right.add(plex("later")))
        for event in link.events(SECONDS):
            if isinstance(event, lace.RecordsStored):
                assert [row.id for row in event.records] == [new]
                break
        assert new in left, "what is told of is stored"
        with pytest.raises(TimeoutError):
            link.result(0.01)
        link.stop()
        assert link.result(SECONDS).at_fixed_point
        assert list(link.events(SECONDS))[-1:] == [lace.LinkEnded(link.result())]
        assert list(link.events(SECONDS)) == []


def test_an_error_in_the_block_ends_it(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    before = threading.active_count()
    with lace.serve("tcp:127.0.0.1:0", right, policy(left), open=True) as serving:

        def fail() -> None:
            with lace.connect(serving.address, left, policy(right), open=True) as link:
                next(link.events())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
    assert threading.active_count() <= before + 1, "no thread of a link is left"


def test_what_cannot_be_had(sides: tuple[lace.Lace, lace.Lace], tmp_path: Path) -> None:
    left, right = sides
    with pytest.raises(TransportError), lace.connect("tcp:127.0.0.1:1", left, policy(right)):
        pass
    with lace.serve(f"unix:{tmp_path}/s", right, policy(left)) as serving:
        again = lace.serve(serving.address, right, policy(left))
        with pytest.raises(ListenError), again:
            pass
        stranger = lace.connect(serving.address, left, policy(right), peer=verifier(left))
        with pytest.raises(lace.ProtocolError), stranger as link:
            link.result()
    with pytest.raises(UsageError, match="stdio"):
        lace.serve("stdio", right, policy(left))
    with pytest.raises(UsageError, match="goes with its key"):
        lace.serve("wss:127.0.0.1:0", right, policy(left), tls_cert="x")


def test_another_policy_while_it_serves(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    nothing = lace.Policy(policy(left).select)
    with lace.serve("tcp:127.0.0.1:0", right, nothing) as serving:
        with lace.connect(serving.address, left, policy(right)) as link:
            assert len(link.result().received) == 0
        serving.renew(policy(left))
        with lace.connect(serving.address, left, policy(right)) as link:
            assert len(link.result().received) == 3


def damage(side: lace.Lace) -> None:
    """Change a byte of a record, so that it cannot be sent."""
    side.remove(*hashes(side))
    record = plex("damaged")
    side.add(record)
    raw = flip(record.bytes, len(record.bytes) - 1)
    change(side.store.folder, "UPDATE record SET bytes = ?", raw)


def test_after_the_block_of_a_link_that_ended_well(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
        with lace.connect(serving.address, left, policy(right)) as link:
            pass
        assert link.result() is link.result(0) is link.outcome
        link.stop()
        assert isinstance(list(link.events())[-1], lace.LinkEnded)


def test_after_the_block_of_a_link_that_failed(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """Its failure is raised as often as one asks, and by the block only if nobody has."""
    left, right = sides
    with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
        stranger = verifier(left)
        with (
            lace.connect(serving.address, left, policy(right), peer=stranger) as link,
            pytest.raises(lace.ProtocolError) as first,
        ):
            link.result()
        with pytest.raises(lace.ProtocolError) as later:
            link.result()
        assert later.value is first.value
        assert first.value.result is link.outcome is not None
        again = lace.connect(serving.address, left, policy(right), peer=stranger)
        with pytest.raises(lace.ProtocolError) as unasked, again as link:
            pass
        with pytest.raises(lace.ProtocolError) as later:
            link.result()
        assert later.value is unasked.value
        link.stop()


def test_after_a_block_that_was_left_with_an_error(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    with lace.serve("tcp:127.0.0.1:0", right, policy(left), open=True) as serving:
        connecting = lace.connect(serving.address, left, policy(right), open=True)
        with pytest.raises(ZeroDivisionError), connecting as link:
            raise ZeroDivisionError
        with pytest.raises(lace.ProtocolError, match="given up before its end"):
            link.result()


def test_an_error_of_the_lace_is_raised_once_by_the_block(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    damage(left)
    with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
        with (
            lace.connect(serving.address, left, policy(right)) as link,
            pytest.raises(StoreDamagedError) as caught,
        ):
            link.result()
        assert link.outcome is caught.value.result
        assert link.outcome is not None
        assert link.outcome.failure is not None
        with pytest.raises(StoreDamagedError):
            link.result()
        again = lace.connect(serving.address, left, policy(right))
        with pytest.raises(StoreDamagedError), again:
            pass  # nobody has asked, so the block says it


def test_no_other_policy_after_the_end(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as blocking:
        pass

    async def serve() -> lace.Serving:
        async with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
            return serving

    for serving in (blocking, asyncio.run(serve())):
        with pytest.raises(UsageError, match="the server has ended"):
            serving.renew(policy(left))


# -- with an event loop --------------------------------------------------------------------------


@pytest.mark.requirement("050-207")
def test_events_of_an_asynchronous_link(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    reports: list[lace.Served] = []

    async def work() -> list[lace.LinkEvent]:
        serving = lace.serve("tcp:127.0.0.1:0", right, policy(left), report=reports.append)
        async with serving, lace.connect(serving.address, left, policy(right)) as link:
            told = [event async for event in link.events()]
            assert (await link.result()).at_fixed_point
        return told

    told = asyncio.run(asyncio.wait_for(work(), SECONDS))
    assert isinstance(told[-1], lace.LinkEnded)
    assert sum(len(each.records) for each in told if isinstance(each, lace.RecordsStored)) == 3
    assert len(reports) == 1
    assert hashes(left) == hashes(right)


def test_an_error_that_was_handled_is_not_raised_again(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    damage(left)

    async def work() -> None:
        async with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
            async with lace.connect(serving.address, left, policy(right)) as link:
                with pytest.raises(StoreDamagedError) as caught:
                    await link.result()
            assert link.outcome is caught.value.result is not None
            with pytest.raises(StoreDamagedError):
                await link.result()

    asyncio.run(asyncio.wait_for(work(), SECONDS))


def test_a_server_that_is_cancelled_as_it_begins(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path
) -> None:
    """Nothing of it goes on: neither a task nor the socket."""
    left, right = sides
    address = f"unix:{tmp_path}/s"

    async def work() -> None:
        for turns in range(1, 6):
            before = asyncio.all_tasks()
            serving = lace.serve(address, right, policy(left))
            entering = asyncio.create_task(serving.__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            if not entering.cancel():
                await serving.__aexit__(None, None, None)
            await asyncio.wait([entering])
            assert asyncio.all_tasks() == before, turns
        async with lace.serve(address, right, policy(left)) as serving:
            assert serving.address == address

    asyncio.run(asyncio.wait_for(work(), SECONDS))


def test_generated_selectors(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    mine = str(next(iter(left.records("//u//ding//left/1"))).id)
    with lace.serve("tcp:127.0.0.1:0", right, policy(left)) as serving:
        wanted = lace.Policy(lace.select_record("//u//ding//right/1"))
        with lace.connect(serving.address, left, wanted) as link:
            (record,) = link.result().received
        found = left.get(record)
        assert isinstance(found, lace.Plex)
        assert found.name == "right/1"
        given = lace.Policy(lace.select_records([mine]), [lace.expose_records([mine])])
        with lace.connect(serving.address, left, given):
            pass
        assert mine in right
        with lace.connect(
            serving.address, left, lace.Policy(lace.select_prefix("u//ding"))
        ) as link:
            assert len(link.result().received) == 2
    assert len(right) == 4


# -- the queue -----------------------------------------------------------------------------------


def test_events_that_nobody_looks_at_are_counted() -> None:
    queue = EventQueue()
    for number in range(MAX_LINK_EVENTS + 7):
        queue.put(lace.PhaseBegan(str(number)))
    assert queue.take() == lace.EventsMissed(7)
    assert queue.take() == lace.PhaseBegan("7")
    while queue.take() is not None:
        pass
    assert queue.take() is None
    assert queue.wait(0) is None
    assert not queue.is_over
    queue.end()
    assert queue.wait(None) is None


def test_many_records_that_nobody_looks_at_are_told_of_in_pieces() -> None:
    """Of more than there is room for the newest stay, and the others are counted one by one."""
    queue = EventQueue()
    arrivals = tuple(lace.Arrival(id=str(number), size=1) for number in range(32_000))
    queue.put(lace.PhaseBegan("transfer"))
    queue.put(lace.RecordsStored(arrivals))
    queue.put(lace.PhaseBegan("waiting"))
    told = []
    while (event := queue.take()) is not None:
        told.append(event)
    missed, *stored, last = told
    assert last == lace.PhaseBegan("waiting")
    assert isinstance(missed, lace.EventsMissed)
    kept = [row for each in stored if isinstance(each, lace.RecordsStored) for row in each.records]
    assert MAX_LINK_EVENTS - MAX_EVENT_RECORDS <= len(kept) < MAX_LINK_EVENTS
    assert kept == list(arrivals[-len(kept) :])
    assert missed == lace.EventsMissed(32_001 - len(kept), records=32_000 - len(kept))
