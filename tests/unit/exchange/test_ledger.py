"""The ledger of requests, sets that are held, and the time that a turn may take."""

from __future__ import annotations

import pytest

from lace.base.tai import Tai
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.effects import Wake
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.result import Counters, Outcome
from lace.exchange.ticks import Timing
from lace.exchange.transfer import Ledger

ONE, TWO, THREE = (f"P.{letter * 42}0.H3" for letter in "abc")
DIGEST, OTHER = b"\x01" * 32, b"\x02" * 32
BOTH = AdvertisementSet.of([ONE, TWO], [DIGEST, DIGEST])
SECOND = 1_000_000_000
NOW = Tai("1700000000:000000000")


@pytest.mark.requirement("050-180")
def test_requests_and_answers() -> None:
    ledger = Ledger()
    ledger.ask([ONE, TWO, THREE])
    assert ledger.outstanding == 3
    ledger.take(ONE)
    ledger.miss(TWO)
    ledger.end_batch()
    ledger.accept(ONE)
    assert ledger.outstanding == 1
    assert (ledger.requested, ledger.answered) == (3, 2)
    assert list(ledger.received) == [ONE]
    assert list(ledger.not_available) == [TWO]
    for record in (ONE, TWO, "P.other"):
        with pytest.raises(InterlaceFailure) as caught:
            ledger.take(record)
        assert caught.value.failure is Failure.UNREQUESTED_RECORD
    ledger.ask([THREE])
    ledger.end_batch()
    assert ledger.noted[Failure.UNANSWERED_REQUEST] == 1
    assert not ledger.brought
    ledger.ask([])
    ledger.end_batch()


def test_so_many_not_available_are_progress() -> None:
    """Behind the limit they are still not asked for again, and are counted; nothing is kept."""
    ledger = Ledger()
    for record, is_progress in ((ONE, True), (TWO, True), (THREE, False)):
        ledger.ask([record])
        ledger.miss(record, most=2)
        assert ledger.brought is is_progress
    assert list(ledger.not_available) == [ONE, TWO]
    assert ledger.noted[Failure.NOT_AVAILABLE] == 3
    assert ledger.excluded == {ONE, TWO, THREE}


def test_not_available_holds_for_a_round_unless_the_advertisement_was_absent() -> None:
    ledger = Ledger()
    ledger.ask([ONE])
    ledger.miss(ONE)
    first = ledger.brought
    assert first
    ledger.see(BOTH)
    assert ledger.excluded == {ONE}
    ledger.see(AdvertisementSet.of([TWO], [DIGEST]))
    ledger.see(BOTH)
    assert ledger.excluded == frozenset()
    ledger.ask([ONE])
    ledger.miss(ONE)
    again = ledger.brought
    assert not again, "it was answered so in this round before"
    ledger.begin_round()
    assert ledger.excluded == frozenset()
    ledger.ask([ONE])
    ledger.miss(ONE)
    assert ledger.brought
    ledger.begin_round()
    ledger.ask([ONE])
    ledger.take(ONE)
    ledger.accept(ONE)
    assert not ledger.not_available


def test_rejected_holds_for_an_epoch_while_the_claim_is_the_same() -> None:
    ledger = Ledger()
    ledger.ask([ONE])
    ledger.take(ONE)
    ledger.reject(ONE, DIGEST, Failure.INVALID_RECORD, "why")
    assert ledger.excluded == {ONE}
    ledger.begin_round()
    ledger.see(BOTH)
    assert ledger.excluded == {ONE}
    ledger.see(AdvertisementSet())
    ledger.see(BOTH)
    assert ledger.excluded == {ONE}, "it came back with the same claim"
    ledger.see(AdvertisementSet.of([ONE], [OTHER]))
    assert ledger.excluded == frozenset()
    ledger.ask([ONE])
    ledger.take(ONE)
    ledger.reject(ONE, OTHER, Failure.CLAIMS_DIFFER)
    assert ledger.excluded == {ONE}
    assert (ledger.rejections, len(ledger.rejected)) == (2, 1)
    ledger.begin_epoch()
    assert ledger.excluded == frozenset()
    ledger.ask([ONE])
    ledger.take(ONE)
    ledger.accept(ONE)
    assert not ledger.rejected


def test_the_time_of_a_turn() -> None:
    timing = Timing(30)
    assert timing.watch(None, NOW, is_busy=False) is None
    timing.progress(NOW)
    assert not timing.is_late(NOW)
    due = NOW.shift(30 * SECOND)
    assert timing.watch("turn", NOW, is_busy=False) == due
    assert timing.watch("turn", NOW.shift(5 * SECOND), is_busy=False) == due
    assert timing.watch("turn", NOW.shift(5 * SECOND), is_busy=True) is None
    assert not timing.is_late(NOW.shift(99 * SECOND))
    assert timing.watch("turn", NOW.shift(9 * SECOND), is_busy=True) is None
    later = due.shift(7 * SECOND)
    assert timing.watch("turn", NOW.shift(12 * SECOND), is_busy=False) == later
    assert timing.is_late(later)
    assert not timing.is_late(due)
    timing.progress(NOW.shift(20 * SECOND))
    assert timing.watch("turn", NOW, is_busy=False) == NOW.shift(50 * SECOND)
    timing.watch("turn", NOW.shift(21 * SECOND), is_busy=True)
    timing.progress(NOW.shift(25 * SECOND))
    assert timing.watch("turn", NOW.shift(26 * SECOND), is_busy=False) == NOW.shift(56 * SECOND)
    assert timing.watch("next", NOW, is_busy=False) == due
    assert timing.set_alarm(due) == [Wake(due)]
    assert timing.set_alarm(due) == []
    assert timing.set_alarm(due, is_deadline=True) == [Wake(due, is_deadline=True)]
    assert timing.set_alarm(None, is_deadline=True) == [Wake(None)]
    assert timing.set_alarm(due)
    timing.woken()
    assert timing.set_alarm(due)


@pytest.mark.requirement("050-200")
def test_the_result_has_all_that_050_names() -> None:
    failure = InterlaceFailure(Failure.PEER_CLOSED, "there")
    found = Outcome(
        plan_id="E.x",
        received=(ONE,),
        rejected=((TWO, "why"),),
        failure=failure,
        counters=Counters(bytes_received=7),
    )
    assert not found.is_clean
    made = found.to_json()
    assert made["failure"] == "PEER_CLOSED"
    assert made["rejected-hashes"] == [{"hash": TWO, "reason": "why"}]
    assert set(made) >= {
        "link-id",
        "exchange-plan-id",
        "peer-verifier",
        "received-hashes",
        "rejected-hashes",
        "not-available-hashes",
        "bytes-received",
        "bytes-sent",
        "cursor-updated",
    }
    assert Outcome().is_clean
    assert Outcome().to_json()["failure"] is None
