"""Every row of 050's table of failures, provoked in a whole exchange, and what follows from it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest

from lace.base import b64a
from lace.errors import PolicyError
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.capabilities import Capabilities, ExchangeLimits
from lace.exchange.failures import Action, Failure
from lace.exchange.machine import Machine
from lace.exchange.transitions import State
from lace.policy.compile import Compiler
from lace.record.model import plex_payload, seal_payload, write_record
from lace.record.validate import frame_record
from tests.simulator.bent import bent_world, each_record, first_block
from tests.simulator.policies import START
from tests.simulator.side import _FACTS
from tests.store.samples import blob, flip, forged, key, plex, seal, tai

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.exchange.result import Outcome
    from lace.record.validate import ValidRecord
    from tests.simulator.side import Item, Side
    from tests.simulator.world import World

requirement = pytest.mark.requirement
Facts: TypeAlias = "tuple[tuple[str, ...], ...]"
OTHER = "V." + "A" * 42 + "0.H3"
ROOT = b64a.encode(b"\x07" * 32)


@dataclass(frozen=True)
class Held:
    """Bytes that a side has and advertises, whatever they are."""

    hash_text: str
    bytes: bytes


def hold(side: Side, raw: bytes, record: str | None = None) -> str:
    """Let a side have bytes under the hash that they claim, or under another; advertised bare."""
    record = frame_record(raw).claimed if record is None else record
    side.store[record] = cast("ValidRecord", Held(record, raw))
    _FACTS[record] = [("Have", record)]
    return record


def honest(item: Item) -> list[Item]:
    return [item]


def swapped(name: str, at: int, value: str) -> Callable[[Facts], Facts]:
    """Change one value of the facts of a predicate."""
    return lambda facts: tuple(
        (*fact[:at], value, *fact[at + 1 :]) if fact[0] == name else fact for fact in facts
    )


def bent(name: str, change: Callable[[Facts], Facts], **means: object) -> World:
    return bent_world(first_block(name, change), **means)  # type: ignore[arg-type]


# -- one exchange for each row -----------------------------------------------------------------


def peer_mismatch() -> World:
    world = bent_world(honest)
    side = world.sides[0]
    side.machine = Machine(replace(side.config, expected=frozenset({OTHER})))
    side.effects.clear()
    side.happen(happened.Started(), world.now(side))
    return world


def malformed_module() -> World:
    def bend(item: Item) -> list[Item]:
        if isinstance(item, happened.BlockReceived) and item.modules:
            return [replace(item, modules=dict.fromkeys(item.modules, b"no rules"))]
        return [item]

    return bent_world(bend)


def plan_failed() -> World:
    world = bent_world(honest)
    side = world.sides[0]
    side.machine = Machine(replace(side.config, lowering="no-such-v1"))
    side.effects.clear()
    side.happen(happened.Started(), world.now(side))
    return world


def phase_timeout() -> World:
    world = bent_world(honest)
    side = world.sides[0]
    while side.machine.state is not State.REQUESTING:
        assert world.step()
    side.inbox.clear()
    while not side.is_quiet:
        side.work(world.now(side))
    assert side.alarm is not None
    side.happen(happened.Woken(), side.alarm)
    return world


def oversized_block() -> World:
    """More advertisements than a block of the least size has room for."""
    limits = ExchangeLimits(max_fact_block_size=2**20)
    world = bent_world(honest, mode=0, selector="all", means=Capabilities(limits=limits))
    rnd = random.Random(8)
    for _ in range(10_000):
        hold(world.sides[0], b"", f"B.{b64a.encode(rnd.randbytes(32))}.H3")
    return world


def transfer_limit() -> World:
    limits = ExchangeLimits(max_total_transferred_bytes=700, service_budget_bytes=0)
    return bent_world(honest, means=Capabilities(limits=limits))


ABORTS: dict[Failure, Callable[[], World]] = {
    Failure.PEER_MISMATCH: peer_mismatch,
    Failure.PLAN_MISMATCH: lambda: bent(
        "HelloExchangePlan", swapped("HelloExchangePlan", 1, f"E.{ROOT}")
    ),
    Failure.NO_COMMON_FORMAT: lambda: bent(
        "HelloExchangePlan", swapped("HelloRecordFormat", 1, "H9")
    ),
    Failure.SCHEMA_UNMET: lambda: bent(
        "HelloExchangePlan", swapped("HelloAdvertisedField", 1, "Other")
    ),
    Failure.MALFORMED_BLOCK: lambda: bent("MayRequest", lambda facts: (*facts, ("Other", "x"))),
    Failure.MALFORMED_MODULE: malformed_module,
    Failure.PLAN_FAILED: plan_failed,
    Failure.MALFORMED_POLICY: lambda: bent_world(honest),
    Failure.MALFORMED_SUMMARY: lambda: bent(
        "AdvertisementPartition", swapped("AdvertisementPartition", 2, "many")
    ),
    Failure.ROOT_MISMATCH: lambda: bent(
        "AdvertisementPartition", swapped("AdvertisementPartition", 3, ROOT)
    ),
    Failure.PHASE_TIMEOUT: phase_timeout,
    Failure.OVERSIZED_BLOCK: oversized_block,
    Failure.TRANSFER_LIMIT: transfer_limit,
    Failure.UNREQUESTED_RECORD: lambda: bent_world(each_record(lambda raw: [raw, raw])),
}


def ended(side: Side) -> Outcome:
    assert side.outcome is not None, side.machine.state
    return side.outcome


@requirement("050-211", "050-212", "050-213", "050-214", "050-215", "050-216", "050-217")
@requirement("050-218", "050-219", "050-220", "050-221", "050-222", "050-223", "050-224")
@requirement("050-210", "050-227")
@pytest.mark.parametrize("failure", ABORTS, ids=lambda failure: failure.name)
def test_a_row_that_aborts(failure: Failure, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a bare close: the peer is told nothing, and what was stored stays."""
    if failure is Failure.MALFORMED_POLICY:

        def refuse(*_values: object, **_names: object) -> None:
            raise PolicyError("not for this viewer")

        monkeypatch.setattr(Compiler, "compile", refuse)
    world = ABORTS[failure]()
    side = world.sides[0]
    before = set(side.store)
    world.run()
    outcome = ended(side)
    assert outcome.failure is not None, outcome.reason
    assert outcome.failure.failure is failure, outcome.reason
    assert outcome.failure.exit_code == failure.exit_code
    assert failure.action.is_abort
    assert not outcome.at_fixed_point
    *_, (_, _, last) = [step for step in side.trace if step[2]]
    assert [type(each) for each in last if not isinstance(each, wanted.SendBatch)] == [wanted.Close]
    assert before <= set(side.store)
    assert set(outcome.received) <= set(side.store)
    if failure.action is Action.ABORT_PARTIAL:
        assert outcome.received, "a partial result"
    # All that the peer sees of it is an end.
    other = ended(world.sides[1])
    assert other.failure is not None
    assert other.failure.failure in (failure, Failure.PEER_CLOSED)


def test_each_row_that_aborts_is_provoked() -> None:
    rows = list(Failure)[:16]
    assert [row for row in rows if row.action.is_abort] == list(ABORTS)


# -- the rows that go on -----------------------------------------------------------------------


def bad_signature() -> bytes:
    return forged(seal(plex("links/1", at=START, data="sealed")))


def bad_embedded_hash() -> bytes:
    inner = blob("inner").bytes
    return write_record(
        "P", plex_payload("u", "a", "n", tai(START), (), flip(inner, len(inner) - 1))
    )[1]


def bad_structure() -> bytes:
    good = plex("n", at=START)
    return write_record("P", good.bytes.partition(b"\n")[2].replace(b"App: ", b"Apt: ", 1))[1]


def zero_signature() -> bytes:
    good = plex("n", at=START)
    return write_record("S", seal_payload(str(key(1).verifier), "0" * 86, good.bytes))[1]


def bad_hash() -> bytes:
    raw = blob("something").bytes
    return flip(raw, len(raw) - 1)


@requirement("050-184", "050-185", "050-225")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (bad_hash, "byte 6: .* does not match its payload"),
        (bad_structure, "found 'Apt' where 'App' should be"),
        (bad_embedded_hash, "byte 111: .* does not match its payload"),
        (bad_signature, "the signature is not one by"),
        (zero_signature, "the signature is not one by"),
    ],
    ids=["hash", "structure", "embedded hash", "signature", "signature of zeros"],
)
def test_a_record_that_is_not_valid(make: Callable[[], bytes], why: str) -> None:
    """It was advertised and requested by its very hash; it is rejected, and the round goes on."""
    world = bent_world(honest, selector="all")
    a, b = world.sides
    record = hold(b, make())
    world.run()
    outcome = ended(a)
    assert outcome.failure is None
    assert outcome.at_fixed_point
    ((rejected, reason),) = outcome.rejected
    assert rejected == record
    assert re.search(why, reason), reason
    assert outcome.noted == ((Failure.INVALID_RECORD, 1),)
    assert outcome.to_json()["noted"] == {"INVALID_RECORD": 1}
    assert record not in a.store
    assert a.asked.count(record) == 1
    assert len(outcome.received) > 3, "all the others came"


@requirement("050-226")
def test_a_requested_hash_that_is_no_longer_sendable() -> None:
    world = bent_world(honest, selector="all")
    a, b = world.sides
    while b.machine.state is not State.REQUESTING or not b.inbox:
        assert world.step()
    gone = next(each for each in b.store if each not in a.store)
    del b.store[gone]
    world.run()
    outcome = ended(a)
    assert outcome.failure is None
    assert outcome.at_fixed_point
    assert outcome.not_available == (gone,)
    assert outcome.noted == ((Failure.NOT_AVAILABLE, 1),)
    assert ended(b).noted == ((Failure.NOT_AVAILABLE, 1),), "who reports it notes it as well"
    assert len(outcome.received) > 3
