"""Bytes of a stream as events of a machine."""

from __future__ import annotations

import pytest

from lace.exchange import events as happened
from lace.exchange.failures import InterlaceFailure
from lace.link.messages import PROGRESS_BYTES, Inbound
from lace.record.model import Blob
from tests.unit.iltp.streams import HEAD


@pytest.mark.requirement("050-221", "050-235")
def test_every_mebibyte_is_told_as_progress() -> None:
    inbound = Inbound(max_block_bytes=64 * 2**20, max_data_bytes=2**20)
    inbound.feed(HEAD)
    assert isinstance(inbound.next_event(is_batch=False), happened.BlockReceived)
    line = b"MayRequest('P.%08d.H3')\n"
    half = b"".join(line % number for number in range(PROGRESS_BYTES // 2 // len(line % 0) + 1))
    for number in range(6):
        inbound.feed(half)
        event = inbound.next_event(is_batch=False)
        assert event == (happened.Progressed() if number % 2 else None)
    assert inbound.received == len(HEAD) + 6 * len(half)


@pytest.mark.requirement("050-222", "050-229")
@pytest.mark.parametrize(
    ("is_early", "limit"), [(True, "max_setup_block_size"), (False, "max_fact_block_size")]
)
def test_a_block_above_its_limit_is_told_by_the_name_of_the_limit(
    is_early: bool, limit: str
) -> None:
    inbound = Inbound(max_block_bytes=60_000, max_early_bytes=30_000, max_data_bytes=2**20)
    inbound.feed(HEAD)
    inbound.next_event(is_batch=False, is_early=True)
    line = b"MayRequest('P.%08d.H3')\n"
    inbound.feed(b"".join(line % number for number in range(25_000 // len(line % 0))))
    assert inbound.next_event(is_batch=False, is_early=is_early) is None
    inbound.feed(b"".join(line % number for number in range(60_000 // len(line % 0))))
    with pytest.raises(InterlaceFailure) as caught:
        inbound.next_event(is_batch=False, is_early=is_early)
    assert limit in f"{caught.value} {caught.value.hint}"


def test_the_first_rules_name_themselves() -> None:
    """A module comes with the block that names it."""
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=2**20)
    inbound.feed(HEAD)
    block = inbound.next_event(is_batch=False, is_early=True)
    assert isinstance(block, happened.BlockReceived)
    assert set(block.modules) == {fact[2] for fact in block.facts if fact[0] == "ExchangeOperand"}


@pytest.mark.requirement("060-102")
def test_the_end_is_told_once() -> None:
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=2**20)
    inbound.feed(HEAD)
    inbound.next_event(is_batch=False)
    ended = [inbound.has_ended]
    inbound.feed(b"")
    assert inbound.next_event(is_batch=False) == happened.Ended()
    ended.append(inbound.has_ended)
    assert ended == [False, True]
    assert inbound.next_event(is_batch=False) is None


def test_a_record_above_the_limit_is_lost_among_those_that_come() -> None:
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=10)
    inbound.feed(HEAD)
    inbound.next_event(is_batch=False)
    records = [Blob(b"x" * size).bytes for size in (10, 11, 9)]
    inbound.feed(b"".join(each + b"\n" for each in records) + b"\n")
    found = [inbound.next_event(is_batch=True) for _ in range(4)]
    whole = [list(each.records) for each in found if isinstance(each, happened.RecordsReceived)]
    assert [[raw.data for raw in each] for each in whole] == [[records[0]], [records[2]]]
    assert found[1] == happened.RecordLost(Blob(b"x" * 11).id, len(records[1]))
    assert found[3] == happened.BatchEnded(4)


def test_facts_where_records_are_due_are_a_block() -> None:
    """A TickReady alone may come there; whatever else it is, the machine refuses it."""
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=10)
    inbound.feed(HEAD)
    inbound.next_event(is_batch=False)
    inbound.feed(b"TickReady('1700000000:000000000')\n\n")
    event = inbound.next_event(is_batch=True)
    assert isinstance(event, happened.BlockReceived)
    assert event.facts == (("TickReady", "1700000000:000000000"),)


def test_records_are_handed_on_in_groups_of_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Blob(bytes([number]) * 50).bytes for number in range(4)]
    monkeypatch.setattr("lace.link.messages.GROUP_BYTES", 2 * len(records[0]))
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=100)
    inbound.feed(HEAD)
    inbound.next_event(is_batch=False)
    inbound.feed(b"".join(each + b"\n" for each in records) + b"\n")
    groups = [inbound.next_event(is_batch=True) for _ in range(2)]
    assert [len(each.records) for each in groups if isinstance(each, happened.RecordsReceived)] == [
        2,
        2,
    ]
