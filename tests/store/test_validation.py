"""Validation beside this process: verdicts in order, whoever gives them, and nobody waits."""

from __future__ import annotations

import gc
import io
import marshal
import os
import signal
import sys
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lace.errors import RecordError
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.store import validation
from lace.store import validation as validation_process
from lace.store.validation import Batch, ValidationPool, ValidationResults
from tests.store.samples import blob, flip, forged, plex, seal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.record.reader import RawRecord

PATIENCE = 60.0


def batch(number: int, records: int = 3) -> Batch:
    """A batch of valid records, and one that is not, at another place in each."""
    raws = [seal(plex(f"{number}/{at}")).bytes for at in range(records)]
    changed = blob(f"{number}").bytes
    raws.insert(number % records, flip(changed, len(changed) - 1))
    raws.append(forged(seal(plex(f"{number}/forged"))))
    return Batch([frame_record(raw) for raw in raws], [], number)


def told(verdicts: ValidationResults) -> list[object]:
    """What verdicts say, for comparing."""
    return [
        outcome if isinstance(outcome, ValidRecord) else (outcome.rule, outcome.message)
        for outcome in verdicts.outcomes
    ]


def expected(wanted: Batch) -> list[object]:
    return told(ValidationResults(wanted, validate_many(wanted.records, os.urandom)))


class Slow:
    """A process that has no answer before it is allowed to."""

    made: list[Slow]

    def __init__(self) -> None:
        self.in_hand: list[Sequence[RawRecord]] = []
        self.is_allowed = False
        Slow.made.append(self)

    def send(self, records: Sequence[RawRecord]) -> None:
        self.in_hand.append(records)

    @property
    def has_answer(self) -> bool:
        return self.is_allowed

    def receive(self) -> validation_process.Result:
        assert self.is_allowed, "it would be waited for"
        outcomes = validate_many(self.in_hand.pop(0), os.urandom)
        return [
            each.verdict()
            if isinstance(each, ValidRecord)
            else [each.message, each.rule, each.place and each.place.offset, each.hint]
            for each in outcomes
        ]

    def close(self) -> None:
        self.in_hand.clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Slow]]:
    """The processes that pools start, in their order."""
    Slow.made = []
    monkeypatch.setattr(validation, "ValidationProcess", Slow)
    yield Slow.made
    Slow.made = []


def judged_here(monkeypatch: pytest.MonkeyPatch, slow: list[Slow]) -> list[int]:
    """The numbers of batches that this process validates; after each one, answers are there."""
    made: list[int] = []
    real = validation._judge_here

    def judge(wanted: Batch, random_bytes: object) -> ValidationResults:
        made.append(wanted.end)
        for each in slow:
            each.is_allowed = True
        return real(wanted, os.urandom)

    monkeypatch.setattr(validation, "_judge_here", judge)
    return made


@pytest.mark.parametrize("number", [1, 3])
def test_whoever_would_wait_validates(
    slow: list[Slow], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The last batch, which no process has; verdicts come in order all the same."""
    here = judged_here(monkeypatch, slow)
    batches = [batch(at) for at in range(number * validation._AHEAD + validation._SPARE)]
    with closing(ValidationPool(os.urandom, number)) as pool:
        for each in batches:
            assert not pool.is_full
            pool.submit(each)
        assert pool.is_full
        assert [len(each.in_hand) for each in slow] == [validation._AHEAD] * number
        assert (pool.batches, pool.records) == (len(batches), 5 * len(batches))
        found = [pool.collect() for _ in batches]
        assert pool.batches == pool.records == 0
    assert [each.batch for each in found] == batches
    assert [told(each) for each in found] == list(map(expected, batches))
    assert here == [batches[-1].end]


def test_nobody_validates_what_a_process_has(
    slow: list[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = judged_here(monkeypatch, slow)
    with closing(ValidationPool(os.urandom, 1)) as pool:
        for number in range(validation._AHEAD + validation._SPARE):
            pool.submit(batch(number))
        slow[0].is_allowed = True
        for number in range(validation._AHEAD + validation._SPARE):
            assert pool.collect().batch.end == number
    assert here == []


def test_a_process_goes_on_with_what_was_spare(slow: list[Slow]) -> None:
    with closing(ValidationPool(os.urandom, 1)) as pool:
        for number in range(validation._AHEAD + validation._SPARE):
            pool.submit(batch(number))
        slow[0].is_allowed = True
        pool.collect()
        assert len(slow[0].in_hand) == validation._AHEAD, "one is answered, one more is in hand"


def test_real_processes_answer_in_order() -> None:
    batches = [batch(number, 40) for number in range(30)]
    with closing(ValidationPool(os.urandom, 2)) as pool:
        found: list[ValidationResults] = []
        for each in batches:
            pool.submit(each)
            while pool.is_full:
                found.append(pool.collect())
        while pool.batches:
            found.append(pool.collect())
    assert [told(each) for each in found] == list(map(expected, batches))


def test_processes_that_are_killed() -> None:
    """What they had is validated here."""
    batches = [batch(number, 10) for number in range(6)]
    with closing(ValidationPool(os.urandom, 1)) as pool:
        for each in batches[:3]:
            pool.submit(each)
        (worker,) = pool._workers
        os.kill(worker._process.pid, signal.SIGKILL)
        for each in batches[3:]:
            pool.submit(each)
        found = [pool.collect() for _ in batches]
    assert [told(each) for each in found] == list(map(expected, batches))


class Stuck(io.RawIOBase):
    """A pipe whose other end does not read before it is allowed to."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.taken = bytearray()

    def write(self, piece: object) -> int:
        assert self.may_go_on.wait(PATIENCE)
        self.taken += memoryview(piece)  # type: ignore[arg-type] # whatever is written
        return len(memoryview(piece))  # type: ignore[arg-type] # as above


def test_a_process_goes_on_while_nobody_reads_its_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stores records reads them later, and wants all of them then."""
    messages = [marshal.dumps(([0], [number])) for number in range(5)]
    given = b"".join(validation_process._LENGTH.pack(len(each)) + each for each in messages)
    done: list[bytes] = []
    all_done = threading.Event()

    def serve_batch(message: bytes) -> list[tuple[object, ...]]:
        done.append(message)
        if len(done) == len(messages):
            all_done.set()
        return [(len(done),)]

    out = Stuck()
    monkeypatch.setattr(validation_process, "_serve_batch", serve_batch)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    serving = threading.Thread(target=validation_process.serve)
    try:
        serving.start()
        assert all_done.wait(PATIENCE), "it waits for its first result to be read"
    finally:
        out.may_go_on.set()
        serving.join(PATIENCE)
        gc.enable()
    assert done == messages
    answers = io.BytesIO(bytes(out.taken))
    for number in range(1, len(messages) + 1):
        message = validation_process._read_message(answers)
        assert message is not None
        assert marshal.loads(message) == [(number,)]  # noqa: S302 - made above
    assert validation_process._read_message(answers) is None


def test_an_error_has_its_place() -> None:
    with closing(ValidationPool(os.urandom, 1)) as pool:
        pool.submit(batch(0))
        first = pool.collect().outcomes[0]
    assert isinstance(first, RecordError)
    assert first.place is not None
    assert first.place.offset is not None
