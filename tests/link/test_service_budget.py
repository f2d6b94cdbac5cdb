"""The time and bytes of one batch hold, whatever the size of records and the speed of peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.machine import Machine
from lace.link.events import Claims, PartyObserver
from lace.link.messages import BatchEnd, Records
from lace.link.side import Side, party_of
from tests.link.test_pairing import SELECT, plex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.link.party import Party

pytestmark = pytest.mark.requirement("050-178")
MIB = 2**20
SECOND = 1_000_000_000


class Clock:
    """A clock that goes on as bytes are taken."""

    def __init__(self) -> None:
        self.at = lace.Tai("1700000000:000000000")
        self.looks = 0

    def __call__(self) -> lace.Tai:
        self.looks += 1
        return self.at

    def pass_by(self, nanoseconds: int) -> None:
        self.at = self.at.shift(nanoseconds)


def batch(
    party: Party, clock: Clock, effect: wanted.SendBatch, *, bytes_a_second: int
) -> happened.BatchSent:
    """Take the whole batch at some speed; returns what the machine is told."""
    told: list[happened.Event] = []
    with pytest.MonkeyPatch.context() as patch:

        def receive(event: happened.Event, *_now: lace.Tai) -> list[wanted.Effect]:
            told.append(event)
            return []

        patch.setattr(party.machine, "receive", receive)
        party._do(effect)
        for message in party.messages():
            if isinstance(message, Records):
                size = sum(map(len, message.records))
                clock.pass_by(size * SECOND // bytes_a_second)
        assert isinstance(message, BatchEnd)
    (sent,) = told
    assert isinstance(sent, happened.BatchSent)
    return sent


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "lace") as made:
        yield made


def party(opened: lace.Lace, clock: Clock) -> Party:
    side = Side(opened.store, opened.settings, lace.Policy(select=SELECT), None)
    return party_of(side, 0, clock, steady=clock)


@pytest.mark.parametrize(("data", "count"), [(MIB, 40), (5_000, 4_000)])
def test_a_batch_to_a_slow_peer_ends_with_its_seconds(
    opened: lace.Lace, data: int, count: int
) -> None:
    """A mebibyte a second, and ten seconds: within one second of it, and not sooner."""
    records = opened.add_all([plex(f"n/{number}", data=bytes(data)) for number in range(count)])
    clock = Clock()
    side = party(opened, clock)
    began = clock.at
    sent = batch(side, clock, wanted.SendBatch(tuple(records), (), 2**40, 10), bytes_a_second=MIB)
    assert len(sent.sent) < count
    assert not sent.unavailable
    passed = (clock.at.nanoseconds - began.nanoseconds) / SECOND
    assert 10 <= passed <= 11.1


def test_a_slow_disk_counts_as_well(opened: lace.Lace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at while a piece is being loaded."""
    records = opened.add_all([plex(f"n/{number}", data=bytes(300_000)) for number in range(40)])
    clock = Clock()
    side = party(opened, clock)
    reading = side._store.snapshot

    class Slow:
        def __init__(self) -> None:
            self._inner = reading()

        def __enter__(self) -> Slow:
            self._snapshot = self._inner.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self._inner.__exit__(*error)  # type: ignore[arg-type]

        def bytes_of(self, wanted_records: tuple[str, ...]) -> object:
            for found in self._snapshot.bytes_of(wanted_records):
                clock.pass_by(SECOND // 2)
                yield found

    monkeypatch.setattr(side._store, "snapshot", Slow)
    sent = batch(side, clock, wanted.SendBatch(tuple(records), (), 2**40, 10), bytes_a_second=2**40)
    assert 20 <= len(sent.sent) <= 22


@pytest.mark.parametrize("seconds", [0, 10])
def test_at_least_one_record_is_sent(opened: lace.Lace, seconds: int) -> None:
    records = opened.add_all([plex(f"n/{number}", data=bytes(MIB)) for number in range(3)])
    clock = Clock()
    effect = wanted.SendBatch(tuple(records), (), 0, seconds)
    assert len(batch(party(opened, clock), clock, effect, bytes_a_second=1).sent) == 1


def test_small_records_do_not_cost_a_look_each(opened: lace.Lace) -> None:
    records = opened.add_all([plex(f"n/{number}") for number in range(2_000)])
    clock = Clock()
    effect = wanted.SendBatch(tuple(records), (), 2**40, 10)
    assert len(batch(party(opened, clock), clock, effect, bytes_a_second=2**40).sent) == 2_000
    assert clock.looks < 20


def test_what_is_told_as_sent_is_what_the_budget_allowed(
    opened: lace.Lace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a record behind the budget nor one that is not here any more is among it."""
    records = tuple(str(opened.add(plex(f"n/{number}", data=b"x" * 900))) for number in range(8))
    claims = Claims()
    side = Side(opened.store, opened.settings, lace.Policy(select=SELECT), None)
    noting = PartyObserver()
    monkeypatch.setattr(noting, "done", claims.note)
    made = party_of(side, 0, Clock(), observer=noting)
    effect = wanted.SendBatch(records, (), most_bytes=2_500, most_seconds=10)
    monkeypatch.setattr(Machine, "receive", lambda _self, _event, *_now: [])
    opened.remove(records[0])
    made._do(effect)
    claims.note(effect, None)
    sent = [raw for each in made.messages() if isinstance(each, Records) for raw in each.records]
    assert 0 < len(sent) < 7
    assert claims.sent == {str(lace.parse_record(bytes(raw)).id) for raw in sent}
    assert claims.asked == set(records)
