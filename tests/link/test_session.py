"""Exchanges over real streams: the same results as in one process, whatever the binding."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import pytest

import lace
from lace.api import now
from lace.exchange.failures import Failure
from lace.iltp import resources
from lace.iltp.address import parse_address
from lace.iltp.items import PREFACE, PUZZLE_PIECE, WriteError
from lace.link.client import LinkOptions
from lace.link.messages import BlockMessage, Outbound
from lace.link.resources import collecting_rarely
from lace.link.session import LinkSession
from lace.link.side import Side, party_of
from lace.rules.program import check_canonical, check_source
from lace.store.interface import StoreBusyError
from lace.store.sqlite.snapshot import SqliteSnapshot
from lace.store.sqlite.store import SqliteStore
from lace.transport.duplex import DuplexStream, Proven
from lace.transport.listening import connect, listen
from tests.link.test_pairing import EVERYTHING, SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from lace.errors import LaceError
    from lace.exchange.result import Outcome
    from lace.link.messages import Message
    from lace.rules.limits import RuleLimits
    from lace.rules.program import CheckedProgram
    from lace.transport.duplex import ByteStream

SECONDS = 60.0
BINDINGS = ["tcp:127.0.0.1:0", "unix", "ws:127.0.0.1:0"]


def session(
    here: lace.Lace, peer: lace.Lace, index: int, stream: ByteStream, *, is_open: bool = False
) -> LinkSession:
    side = Side(here.store, here.settings, policy(peer, SELECT), here.signing_key())
    options = LinkOptions(is_open=is_open)
    return LinkSession(party_of(side, index, now, options, proven=stream.proven), stream)


@asynccontextmanager
async def connected(
    text: str, serve: Callable[[ByteStream], Awaitable[None]]
) -> AsyncIterator[ByteStream]:
    async with await listen(parse_address(text, for_serving=True), serve) as listener:
        yield await connect(parse_address(str(listener.address)))
        await listener.finish()


def exchange(left: lace.Lace, right: lace.Lace, text: str) -> tuple[Outcome, Outcome]:
    """Let the left one connect to the right one."""
    served: list[Outcome] = []

    async def serve(stream: ByteStream) -> None:
        served.append(await session(right, left, 1, stream).run())

    async def run() -> Outcome:
        async with connected(text, serve) as stream:
            return await session(left, right, 0, stream).run()

    outcome = asyncio.run(asyncio.wait_for(run(), SECONDS))
    return outcome, served[0]


@pytest.mark.parametrize("binding", BINDINGS)
def test_two_laces_converge(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path, binding: str
) -> None:
    left, right = sides
    address = f"unix:{tmp_path}/s" if binding == "unix" else binding
    mine = set(left.add_all([plex(f"left/{number}") for number in range(300)]))
    theirs = set(right.add_all([plex(f"right/{number}", data=bytes(9000)) for number in range(90)]))
    private = right.add(plex("secret", group="private"))
    for wanted in (theirs, set()):
        outcome, served = exchange(left, right, address)
        assert (outcome.failure, served.failure) == (None, None)
        assert outcome.at_fixed_point
        assert served.at_fixed_point
        assert set(outcome.received) == wanted
    assert hashes(left) == mine | theirs
    assert hashes(right) == mine | theirs | {private}


def test_both_send_more_than_any_buffer_holds(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    large = bytes(200_000)
    for number in range(40):
        left.add(plex(f"left/{number}", data=large))
        right.add(plex(f"right/{number}", data=large))
    outcome, served = exchange(left, right, BINDINGS[0])
    assert (outcome.failure, served.failure) == (None, None)
    assert len(hashes(left)) == len(hashes(right)) == 80


def answered_with(
    left: lace.Lace, right: lace.Lace, raw: bytes, *, then_wait: bool = False
) -> Outcome:
    """Run the left one against a peer that sends some bytes and ends."""

    async def serve(stream: ByteStream) -> None:
        await stream.write(raw)
        if then_wait:
            while await stream.read(65536):
                pass

    async def run() -> Outcome:
        async with connected(BINDINGS[0], serve) as stream:
            return await session(left, right, 0, stream).run()

    return asyncio.run(asyncio.wait_for(run(), SECONDS))


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        (b"", Failure.MALFORMED_BLOCK),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Failure.MALFORMED_BLOCK),
        (PREFACE + b"ExchangeOperand('1'", Failure.PEER_CLOSED),
        (PREFACE, Failure.PEER_CLOSED),
        (PREFACE + b"nonsense\n\n", Failure.MALFORMED_BLOCK),
        (PREFACE + b"# a comment\n\n", Failure.MALFORMED_BLOCK),
    ],
    ids=["nothing", "HTTP", "cut", "preface only", "no fact", "empty setup"],
)
def test_bytes_that_are_no_exchange(
    sides: tuple[lace.Lace, lace.Lace], raw: bytes, failure: Failure
) -> None:
    left, right = sides
    outcome = answered_with(left, right, raw)
    assert outcome.failure is not None
    assert outcome.failure.failure in {failure, Failure.PEER_CLOSED}


def test_long_rules_of_a_peer_that_has_left_are_not_checked(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    checked: list[bytes] = []

    def count(body: bytes, *, limits: RuleLimits) -> CheckedProgram:
        checked.append(body)
        return check_canonical(body, limits=limits)

    monkeypatch.setattr(resources, "check_canonical", count)
    many = "\n".join(f"Rule{number}(P) :- Have(P)." for number in range(1_000))
    rules = check_source(many)
    body = rules.canonical.encode()
    raw = PREFACE + PUZZLE_PIECE + f"{rules.id} lacegram\n".encode() + body + b"\n\nnonsense\n\n"
    outcome = answered_with(left, right, raw, then_wait=True)
    assert outcome.failure is not None
    assert checked.count(body) == 1, "one that is there has its rules checked"
    monkeypatch.setattr(DuplexStream, "peer_has_left", property(lambda _: True))
    outcome = answered_with(left, right, raw, then_wait=True)
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PEER_CLOSED
    assert checked.count(body) == 1


def test_a_failure_of_this_side_is_shown_as_such(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    right.add(plex("there"))
    found: list[LaceError | None] = []

    def fail(*_: object, **__: object) -> None:
        raise StoreBusyError("the store is busy")

    async def serve(stream: ByteStream) -> None:
        await session(right, left, 1, stream).run()

    async def run() -> None:
        async with connected(BINDINGS[0], serve) as stream:
            made = session(left, right, 0, stream)
            found.append(made.error)
            await made.run()
            found.append(made.error)

    monkeypatch.setattr(SqliteStore, "admit", fail)
    asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert found[0] is None
    assert isinstance(found[1], StoreBusyError)


def test_a_peer_that_says_nothing_is_given_up(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]
) -> None:
    _, right = sides
    with lace.open(tmp_path / "left", settings={"phase_timeout_seconds": 1}) as left:
        outcome = answered_with(left, right, PREFACE, then_wait=True)
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PHASE_TIMEOUT


def test_an_open_exchange_carries_on_what_comes(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    running: list[LinkSession] = []

    async def serve(stream: ByteStream) -> None:
        running.append(session(right, left, 1, stream, is_open=True))
        await running[-1].run()

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def run() -> Outcome:
        async with connected(BINDINGS[0], serve) as stream:
            here = session(left, right, 0, stream, is_open=True)
            going = asyncio.create_task(here.run())
            for number in range(3):
                left.add(plex(f"left/{number}"))
                here.look()
                await until(lambda: hashes(right) == hashes(left))
                right.add(plex(f"right/{number}"))  # noticed without being told
                await until(lambda: hashes(right) == hashes(left))
            here.stop()
            return await going

    outcome = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcome.failure is None
    assert outcome.at_fixed_point
    assert len(outcome.received) == 3


def cut_off(left: lace.Lace, right: lace.Lace, is_time: Callable[[LinkSession], bool]) -> Outcome:
    """Run an exchange whose right side dies at some moment; returns what the left side says."""

    async def serve(stream: ByteStream) -> None:
        there = session(right, left, 1, stream)
        running = asyncio.create_task(there.run())
        while not is_time(there) and not running.done():
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    async def run() -> Outcome:
        async with connected(BINDINGS[0], serve) as stream:
            return await session(left, right, 0, stream).run()

    outcome = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PEER_CLOSED
    return outcome


def test_a_link_that_is_cut_loses_nothing(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """050-223: what was validated stays; a second run completes the set."""
    left, right = sides
    wanted = set(right.add_all([plex(f"n/{number}", data=bytes(500_000)) for number in range(70)]))

    outcome = cut_off(left, right, lambda there: there.sent >= 1_000_000)
    assert hashes(left) == set(outcome.received) < wanted
    again, _ = exchange(left, right, BINDINGS[0])
    assert again.failure is None
    assert hashes(left) == wanted
    assert left.verify().damaged == 0


class _Broken:
    """A stream whose bytes are no records any more from some point on."""

    def __init__(self, stream: ByteStream, after: int) -> None:
        self._stream, self._left = stream, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    async def read(self, size: int) -> bytes:
        data = await self._stream.read(size)
        whole, self._left = data[: self._left], max(0, self._left - len(data))
        return whole + b"\xff" * (len(data) - len(whole))


@pytest.mark.requirement("050-227")
def test_records_that_came_before_the_framing_was_lost_are_stored(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """They wait for others, to be validated together; what comes next must not lose them."""
    left, right = sides
    wanted = set(right.add_all([plex(f"n/{number}", data=bytes(9_000)) for number in range(70)]))

    async def serve(stream: ByteStream) -> None:
        await session(right, left, 1, stream).run()

    async def run() -> Outcome:
        async with connected(BINDINGS[0], serve) as stream:
            broken = cast("ByteStream", _Broken(stream, 400_000))
            return await session(left, right, 0, broken).run()

    outcome = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.FRAMING_LOST
    assert len(outcome.received) > 30
    assert hashes(left) == set(outcome.received) < wanted


def test_a_peer_that_takes_nothing_is_given_up(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]
) -> None:
    """A peer that has asked for much and then neither reads nor leaves holds nobody for ever."""
    left, _ = sides
    outcomes: list[Outcome] = []

    class Stuck:
        """A stream that takes no more once records begin to be sent."""

        def __init__(self, stream: ByteStream) -> None:
            self._stream = stream
            self._written = 0

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

        async def write(self, data: bytes) -> None:
            self._written += len(data)
            if self._written > 300_000:
                await asyncio.Event().wait()
            await self._stream.write(data)

    with lace.open(tmp_path / "slow", settings={"phase_timeout_seconds": 1}) as slow:
        slow.add_all([plex(f"n/{number}", data=bytes(20_000)) for number in range(50)])
        key = lace.SigningKey.generate()
        slow.keys.add(key)
        slow.keys.set_default(key.verifier)

        async def serve(stream: ByteStream) -> None:
            stuck = cast("ByteStream", Stuck(stream))
            outcomes.append(await session(slow, left, 1, stuck).run())

        async def run() -> Outcome:
            async with connected(BINDINGS[0], serve) as stream:
                return await session(left, slow, 0, stream).run()

        theirs = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.failure is Failure.PHASE_TIMEOUT
    assert theirs.failure is not None
    assert theirs.failure.failure is Failure.PEER_CLOSED


def test_a_peer_that_goes_while_records_are_sent_to_it(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """It has sent its own batch, so that nothing more is awaited from it."""
    left, right = sides
    left.add_all([plex(f"n/{number}", data=bytes(200_000)) for number in range(40)])

    cut_off(left, right, lambda there: there.received >= 500_000)


def test_another_policy_begins_a_new_epoch(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    right.add_all([plex("public"), plex("more", group="private")])
    running: list[LinkSession] = []

    async def serve(stream: ByteStream) -> None:
        running.append(session(right, left, 1, stream, is_open=True))
        await running[-1].run()

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def run() -> tuple[Outcome, str]:
        async with connected(BINDINGS[0], serve) as stream:
            here = session(left, right, 0, stream, is_open=True)
            going = asyncio.create_task(here.run())
            await until(lambda: len(left) == 1)
            assert here.status.received > 0
            for side, link, peer in ((left, here, right), (right, running[0], left)):
                wide = policy(peer, EVERYTHING)
                link.renew(wide.operand(0 if side is left else 1), wide.exposures)
            await until(lambda: len(left) == 2)
            here.stop()
            return await going, here.status.state.value

    outcome, state = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcome.failure is None
    assert outcome.at_fixed_point
    assert state == "closed"


def test_garbage_is_collected_as_before_once_all_sessions_have_ended() -> None:
    before = gc.get_threshold()
    first, second = collecting_rarely(), collecting_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() != before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_store_that_fails_while_records_are_sent(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange ends on both sides, and this one says what could not be read."""
    left, right = sides
    right.add_all([plex(f"n/{number}") for number in range(20)])

    def failing(_: SqliteSnapshot, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        if identifiers:
            raise lace.StoreError("record 3 is damaged")
        return iter(())

    monkeypatch.setattr(SqliteSnapshot, "bytes_of", failing)
    outcome, served = exchange(left, right, BINDINGS[0])
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PEER_CLOSED
    assert "record 3 is damaged" in str(served.failure)
    with pytest.raises(lace.StoreError, match="record 3 is damaged"):
        lace.interlace(left, right, policy(right), policy(left))


def test_what_cannot_be_said_ends_both_sides(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out is broken while the way in is not: nobody may wait for the other for ever."""
    left, right = sides
    pieces = Outbound.pieces

    def breaking(self: Outbound, message: Message) -> Iterator[bytes]:
        if isinstance(message, BlockMessage) and any(
            fact[0] == "HelloExchangePlan" for fact in message.effect.facts
        ):
            raise WriteError("a line that no stream carries", rule="060-144")
        return pieces(self, message)

    monkeypatch.setattr(Outbound, "pieces", breaking)
    outcome, served = exchange(left, right, BINDINGS[0])
    for each in (outcome, served):
        assert each.failure is not None
    assert "a line that no stream carries" in f"{outcome.reason}{served.reason}"


def test_a_fault_while_writing_is_not_kept_quiet(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides

    def breaking(_self: Outbound, _message: Message) -> Iterator[bytes]:
        raise ZeroDivisionError("a fault of the program")

    monkeypatch.setattr(Outbound, "pieces", breaking)
    with pytest.raises(ZeroDivisionError):
        answered_with(left, right, b"", then_wait=True)


def test_a_cancelled_session_leaves_no_view_of_the_store(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """A view that stays open would keep the log from being written back."""
    left, right = sides
    left.add_all([plex(f"left/{number}", data=bytes(100_000)) for number in range(400)])

    async def serve(stream: ByteStream) -> None:
        await session(right, left, 1, stream).run()

    async def run() -> None:
        async with connected(BINDINGS[0], serve) as stream:
            sending = session(left, right, 0, stream)
            running = asyncio.create_task(sending.run())
            while not sending.status.records_sent:
                await asyncio.sleep(0.001)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert 0 < sending.status.records_sent < 400
            kept.append(sending)

    kept: list[LinkSession] = []
    asyncio.run(asyncio.wait_for(run(), SECONDS))
    left.add(plex("later"))
    left.store.close()
    assert not left.store.path.with_name(left.store.path.name + "-wal").exists()


def test_an_ipv6_host_takes_turns_as_one(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """Its turns are counted as its connections are: it has a whole /64 to itself."""
    left, _ = sides
    side = Side(left.store, left.settings, policy(left, SELECT), left.signing_key())
    groups = []
    for place in ("2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1", "192.0.2.1"):
        party = party_of(side, 1, now, proven=Proven(transport="tcp", place=place))
        groups.append(party.supervisor.worker.group)
        party.close()
    assert groups == ["2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.1"]
