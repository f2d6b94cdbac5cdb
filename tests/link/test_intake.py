"""Records that arrive: validated here or beside, stored together, nothing said too early."""

from __future__ import annotations

import os
import resource
import threading
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import UsageError
from lace.exchange.events import Admitted, Validated
from lace.link.events import PartyObserver
from lace.link.intake import FEW_RECORDS, IntakeLoad, LinkIntake, Receipts, choose_receipt_key
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record
from lace.store import validation
from lace.store.interface import Admission, watching
from lace.store.keys import KeyRing
from lace.store.sqlite.store import SqliteStore
from lace.store.validation import ValidationProcess
from tests.link.clocks import START
from tests.store.samples import blob, flip, forged, key, mixed, plex, seal, valid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lace.exchange.events import Event


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "l", settings={"import_batch_records": 40}) as made:
        yield made


class Stored(PartyObserver):
    """How many records each transaction stored."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def stored(self, records: Sequence[ValidRecord]) -> None:
        """Take note of a transaction."""
        self.counts.append(len(records))


def drain(intake: LinkIntake) -> list[Event]:
    found: list[Event] = []
    while done := intake.work(wait=True):
        found += done
        for event in done:
            if isinstance(event, Validated):
                valid = [each for each in event.outcomes if isinstance(each, ValidRecord)]
                intake.admit(valid)
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_everything_is_answered_in_order(opened: lace.Lace, workers: int) -> None:
    intake = LinkIntake(opened.store, opened.settings, os.urandom, workers)
    raws = [record.bytes for record in mixed(100)]
    raws[7] = flip(raws[7], len(raws[7]) - 1)
    raws[60] = forged(seal(plex("forged"), 1))
    frames = [frame_record(raw) for raw in raws]
    told: list[int] = []
    with watching(opened.store.folder, lambda: told.append(len(opened))):
        for start in range(0, len(frames), 10):
            intake.validate(frames[start : start + 10], further=FEW_RECORDS)
        found = drain(intake)
    intake.close()
    validated = [event for event in found if isinstance(event, Validated)]
    assert [len(event.outcomes) for event in validated] == [10] * 10
    outcomes = [each for event in validated for each in event.outcomes]
    bad = [at for at, each in enumerate(outcomes) if isinstance(each, str)]
    assert bad == [7, 60]
    for raw, outcome in zip(raws, outcomes, strict=True):
        assert isinstance(outcome, str) or outcome.bytes == raw
    admitted = [event.stored for event in found if isinstance(event, Admitted)]
    assert sum(admitted) == 98
    assert len(opened) == len(set(raws)) - 2
    assert told[-1] == len(opened)
    assert 2 <= len(told) <= 4, "few large transactions"


def test_valid_records_wait_for_those_that_follow(opened: lace.Lace) -> None:
    """Few are not stored alone while more are on their way, unless there is nothing else to do."""
    intake = LinkIntake(opened.store, opened.settings, os.urandom)
    frames = [frame_record(record.bytes) for record in mixed(30)]
    intake.validate(frames[:10], further=20)
    (event,) = intake.work()
    assert isinstance(event, Validated)
    intake.admit([each for each in event.outcomes if isinstance(each, ValidRecord)])
    assert intake.watch() is None, "nothing is being validated elsewhere"
    assert intake.work() == []
    assert len(opened) == 0
    assert intake.work(wait=True) == [Admitted(10)]
    intake.validate(frames[10:], further=0)
    (event,) = intake.work()
    assert isinstance(event, Validated)
    intake.admit([each for each in event.outcomes if isinstance(each, ValidRecord)])
    assert intake.work() == [Admitted(20)], "nothing follows"
    intake.close()


def test_each_group_is_answered_with_its_own_number(opened: lace.Lace) -> None:
    intake = LinkIntake(opened.store, opened.settings, os.urandom)
    records = valid(*mixed(6))
    for group in (records[:1], records[1:3], records[3:]):
        intake.admit(group)
    assert intake.work(wait=True) == [Admitted(1), Admitted(2), Admitted(3)]
    intake.close()


def test_what_was_stored_does_not_count_for_the_next_transaction(opened: lace.Lace) -> None:
    """Records are stored when a transaction is full, and an earlier one leaves nothing in it."""
    settings = replace(opened.settings, import_batch_records=2)
    intake = LinkIntake(opened.store, settings, os.urandom)
    intake._further = 1  # so that few records wait for more
    records = valid(*(plex(str(number)) for number in range(4)))
    intake.admit(records[:2])
    assert intake.work() == [Admitted(2)]
    intake.admit(records[2:3])
    assert intake.work() == [], "one of two"
    is_full = [intake.is_full]
    intake.admit(records[3:])
    is_full.append(intake.is_full)
    assert is_full == [False, True]
    assert intake.work() == [Admitted(1), Admitted(1)]
    intake.close()


@pytest.mark.parametrize(("count", "stored"), [(19, False), (20, True)])
def test_half_of_a_transaction_is_stored_while_the_last_are_validated(
    opened: lace.Lace, monkeypatch: pytest.MonkeyPatch, count: int, stored: bool
) -> None:
    """With less, there would be a transaction more for little; 40 are a full one here."""
    intake = LinkIntake(opened.store, opened.settings, os.urandom)
    last = [frame_record(plex("last").bytes)]
    intake.validate(last)
    monkeypatch.setattr(type(intake._pool), "is_ready", property(lambda pool: False))
    intake.admit(valid(*(plex(str(number)) for number in range(count))))
    assert intake.work() == [], "while something else may come, there is no hurry"
    (event,) = intake.work(wait=True)
    assert isinstance(event, Admitted if stored else Validated)
    intake.close()


@pytest.mark.requirement("050-208", "050-209")
def test_receipts_are_stored_with_what_they_are_for(opened: lace.Lace) -> None:
    """In the same transaction, and they are no records of the peer's."""
    receipts = Receipts(opened.store, key(2), 2, lambda: START, os.urandom)
    receipts.sender = str(key(1).verifier)
    heard = Stored()
    intake = LinkIntake(
        opened.store, opened.settings, os.urandom, receipts=receipts, observer=heard
    )
    records = valid(*(plex(str(number)) for number in range(4)))
    intake.admit(records[:1])
    assert intake.work(wait=True) == [Admitted(1, 1, 0)]
    intake.admit(records[:1])  # has its receipt
    intake.admit(records[1:2])
    intake.admit(records[2:])  # above the limit
    assert intake.work(wait=True) == [Admitted(1), Admitted(1), Admitted(2, 1, 2)]
    assert heard.counts == [1, 4]
    assert len(opened) == 6
    intake.close()


def test_small_batches_start_no_process(opened: lace.Lace, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open exchange brings one record now and another then, as long as it lasts."""

    class Unwanted(ValidationProcess):
        def __init__(self) -> None:
            raise AssertionError("a process for a few records")

    monkeypatch.setattr(validation, "ValidationProcess", Unwanted)
    intake = LinkIntake(opened.store, opened.settings, os.urandom, 2)
    for record in mixed(20):
        intake.validate([frame_record(record.bytes)])
        drain(intake)
    intake.close()
    assert len(opened) == len({record.id for record in mixed(20)})


def test_a_process_among_many_open_files() -> None:
    """More than `select` knows, or where the system allows no more, as many as there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1200 if hard == resource.RLIM_INFINITY else min(1200, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < many - 100:
            held.append(os.dup(held[0]))
        process = ValidationProcess()
        try:
            process.send([frame_record(blob().bytes)])
            while not process.has_answer:
                pass
            assert process.receive() is not None
        finally:
            process.close()
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_record_that_is_not_stored_is_not_counted(
    opened: lace.Lace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that loses records is noticed at once, and loudly."""
    intake = LinkIntake(opened.store, opened.settings, os.urandom)
    monkeypatch.setattr(SqliteStore, "admit", lambda *_: Admission((), 1))
    intake.validate([frame_record(record.bytes) for record in mixed(3)])
    with pytest.raises(AssertionError, match="3 records were to be stored, and 1 are"):
        drain(intake)


def test_one_that_names_another_hash_is_rejected(opened: lace.Lace) -> None:
    intake = LinkIntake(opened.store, opened.settings, os.urandom)
    raw = frame_record(blob("a").bytes)
    other = blob("b").bytes
    intake.validate([raw._replace(data=other[:51] + raw.data[51:])])
    (event,) = intake.work(wait=True)
    assert isinstance(event, Validated)
    assert isinstance(event.outcomes[0], str)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
def test_transactions_into_a_large_store_are_larger(opened: lace.Lace, *, beside: bool) -> None:
    """Up to four times, and a quarter of what is stored; but not where others gather, too."""
    settings = replace(opened.settings, import_batch_records=10)
    records = valid(*(blob(f"data {number}") for number in range(400)))
    load = IntakeLoad()
    heard = Stored()
    intake = LinkIntake(opened.store, settings, os.urandom, load=load, observer=heard)
    other = LinkIntake(opened.store, settings, os.urandom, load=load)
    if beside:
        other.admit(valid(blob("another")))
    made = heard.counts
    for record in records:
        intake.admit([record])
        intake.expect(len(records))
        intake._further = len(records)
        if intake.is_full:
            intake.work()
    assert all(a <= b for a, b in pairwise(made))
    assert made[:4] == [10] * 4
    assert made[-1] == (10 if beside else 40)
    before = list(accumulate(made, initial=0))
    for size, stored in zip(made, before, strict=False):
        assert size <= max(10, stored // 4 + 1)
    intake.close()
    other.close()


@pytest.mark.parametrize("count", range(300, 331))
def test_the_last_few_are_no_transaction_of_their_own(
    opened: lace.Lace, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """In a large store they would write as many pages as many records do."""
    made: list[int] = []

    def admit(_store: SqliteStore, records: Sequence[ValidRecord]) -> Admission:
        made.append(len(records))
        return Admission(tuple(range(sum(made[:-1]) + 1, sum(made) + 1)), 0)

    monkeypatch.setattr(SqliteStore, "admit", admit)
    intake = LinkIntake(opened.store, replace(opened.settings, import_batch_records=10), os.urandom)
    (record,) = valid(blob())
    for left in reversed(range(count)):
        intake.admit([record])
        intake._further = left
        while intake.work():
            pass
    intake.close()
    assert sum(made) == count
    assert 4 < made[-1] <= 45


@pytest.mark.parametrize(("stored", "transactions"), [(0, [24, 2]), (1_000, [26])])
def test_the_last_few_are_waited_for(
    opened: lace.Lace, stored: int, transactions: list[int]
) -> None:
    """They are being validated, and there is nothing else to do: a large store waits for them."""
    settings = replace(opened.settings, import_batch_records=10, import_workers=1)
    records = [blob(f"data {number}") for number in range(26)]
    heard = Stored()
    intake = LinkIntake(opened.store, settings, os.urandom, 1, observer=heard)
    intake._last = stored
    intake.validate([frame_record(record.bytes) for record in records[24:]])
    intake.admit(valid(*records[:24]))
    drain(intake)
    intake.close()
    assert heard.counts == transactions


def test_an_intake_may_be_made_while_others_are_counted(opened: lace.Lace) -> None:
    """Links of a server count each other in their threads while its loop makes further links."""
    load = IntakeLoad()
    settings = replace(opened.settings, import_batch_records=1)
    made: list[LinkIntake] = []

    class Watched(LinkIntake):
        """Another link begins at the moment in which somebody looks at this one."""

        def __getattribute__(self, name: str) -> object:
            if name == "_records" and made and len(made) < 100:
                made.append(LinkIntake(opened.store, settings, os.urandom, load=load))
            return super().__getattribute__(name)

    intake = LinkIntake(opened.store, settings, os.urandom, load=load)
    intake._last = 1_000  # only in a large store does it matter what others hold
    intake.admit(valid(blob("first")))
    made.append(Watched(opened.store, settings, os.urandom, load=load))
    found = [intake.is_full]
    made[-1].admit(valid(blob("another")))
    found.append(intake.is_full)
    assert found == [False, True]
    for each in (intake, *made):
        each.close()
    assert not load.has_others(intake)


def test_intakes_of_many_threads_are_counted(opened: lace.Lace) -> None:
    load = IntakeLoad()
    intake = LinkIntake(opened.store, opened.settings, os.urandom, load=load)
    others = [LinkIntake(opened.store, opened.settings, os.urandom, load=load) for _ in range(64)]
    start = threading.Barrier(8)
    faults: list[Exception] = []

    def gather(mine: Sequence[LinkIntake]) -> None:
        start.wait()
        try:
            for _ in range(200):
                for each in mine:
                    load.note(each, holds=True)
                    assert load.has_others(intake)
                    load.note(each, holds=False)
        except (AssertionError, RuntimeError) as error:
            faults.append(error)

    threads = [threading.Thread(target=gather, args=(others[at::8],)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert not load.has_others(intake)
    for each in (intake, *others):
        each.close()


@pytest.mark.requirement("050-209")
def test_the_key_that_signs_receipts(tmp_path: Path) -> None:
    keys = KeyRing(tmp_path / "keys", os.urandom)
    with pytest.raises(UsageError, match="no default key"):
        choose_receipt_key(keys, None)
    default, claimed, own = (SigningKey.generate() for _ in range(3))
    keys.add(default)
    keys.add(claimed)
    assert choose_receipt_key(keys, None).verifier == default.verifier
    assert choose_receipt_key(keys, None, claimed.verifier).verifier == claimed.verifier
    assert choose_receipt_key(keys, None, own.verifier).verifier == default.verifier
    assert choose_receipt_key(keys, own, claimed.verifier) is own
