"""Threads that compute take turns; whoever waits for a lock lets others work."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from lace.store import cpu_slots as slots
from lace.store.cpu_slots import MOST_AT_WORK, Worker, at_work, offer_slot, slot_lent
from lace.store.lock import WriteLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

WAIT_SECONDS = 30


def start(count: int, work: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def long_worker(group: str) -> Worker:
    """Make a worker that has computed for long."""
    worker = Worker(group)
    worker.use(10_000.0)
    return worker


def test_so_many_are_at_work_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    guard, full = threading.Lock(), threading.Barrier(MOST_AT_WORK)
    now = 0
    seen: list[int] = []

    def work() -> None:
        nonlocal now
        with at_work():
            with guard:
                now += 1
                seen.append(now)
            full.wait(WAIT_SECONDS)  # as many as may be there are there
            with guard:
                now -= 1

    join(start(3 * MOST_AT_WORK, work))
    assert max(seen) == MOST_AT_WORK
    assert len(seen) == 3 * MOST_AT_WORK


def test_who_fails_gives_the_slot_back() -> None:
    def work() -> None:
        try:
            with at_work():
                raise ValueError
        except ValueError:
            pass

    join(start(3 * MOST_AT_WORK, work))
    with at_work(), slot_lent(), at_work():
        pass


def test_without_a_slot_there_is_none_to_lend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    gate = threading.Event()
    inside = threading.Semaphore(0)

    def work() -> None:
        with at_work():
            inside.release()
            gate.wait(WAIT_SECONDS)

    threads = start(MOST_AT_WORK, work)
    for _ in threads:
        assert inside.acquire(timeout=WAIT_SECONDS)
    with slot_lent():
        pass  # neither gives a slot away nor waits for one
    gate.set()
    join(threads)


def test_who_computes_for_long_keeps_nobody_waiting() -> None:
    gate = threading.Event()
    inside = threading.Semaphore(0)

    def compute() -> None:
        with at_work():
            inside.release()
            assert gate.wait(WAIT_SECONDS)

    long = start(2 * MOST_AT_WORK, compute)
    for _ in long:
        assert inside.acquire(timeout=WAIT_SECONDS)
    done: list[int] = []

    def work() -> None:
        with at_work():
            done.append(1)

    join(start(3, work))
    assert len(done) == 3
    gate.set()
    join(long)
    assert not slots._slots._since


def test_who_waits_for_the_write_lock_lets_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    lock = WriteLock(tmp_path, "holding")
    written: list[float] = []

    def write() -> None:
        with at_work(), WriteLock(tmp_path, "waiting").held(WAIT_SECONDS):
            written.append(time.monotonic())

    with lock.held(WAIT_SECONDS):
        threads = start(2 * MOST_AT_WORK, write)
        done = threading.Event()

        def read() -> None:
            with at_work():
                done.set()

        readers = start(2, read)
        assert done.wait(WAIT_SECONDS)
        join(readers)
        assert not written
    join(threads)
    assert len(written) == 2 * MOST_AT_WORK


def test_a_long_evaluation_lets_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """It offers its slot; short work goes first, and few run at once."""
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(slots, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(slots, "MAX_LONG", 1)
    guard, done = threading.Lock(), threading.Event()
    now = 0
    most: list[int] = []
    inside = threading.Semaphore(0)

    def evaluate() -> None:
        nonlocal now
        with at_work(long_worker("attackers")):
            inside.release()
            while not done.is_set():
                assert offer_slot()
                with guard:
                    now += 1
                    most.append(now)
                with guard:
                    now -= 1

    threads = start(3 * MOST_AT_WORK, evaluate)
    for _ in threads:
        assert inside.acquire(timeout=WAIT_SECONDS)
    for _ in range(20):
        with at_work():
            pass
    done.set()
    join(threads)
    assert max(most) == 1
    assert not slots._slots._since


def test_turns_of_evaluations_go_round_between_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(slots, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(slots, "MAX_LONG", 1)
    turns: list[str] = []
    begun = threading.Barrier(4)

    def evaluate(group: str) -> None:
        worker = Worker(group)
        with at_work(worker):
            begun.wait(WAIT_SECONDS)
            worker.use(10_000.0)
            while len(turns) < 200:
                offer_slot()
                turns.append(group)

    threads = [
        threading.Thread(target=evaluate, args=(group,), daemon=True)
        for group in ("many", "many", "many", "one")
    ]
    for thread in threads:
        thread.start()
    join(threads)
    share = turns[:200].count("one")
    assert share >= 60, f"one of four had {share} of 200 turns, and its group is one of two"


def test_who_has_computed_little_keeps_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "TURN_SECONDS", 0.0)
    spent = iter((0.0, slots.FREE_SECONDS / 2, 1.5 * slots.FREE_SECONDS, 5.0, 5.0))
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    worker = Worker()
    assert not offer_slot(), "no slot, nothing to offer"
    with at_work(worker):
        assert offer_slot()
        assert not worker.is_long
        assert offer_slot()
        assert worker.is_long


def test_whatever_a_worker_computes_counts() -> None:
    """Not evaluations alone: reading and checking a peer's rules takes time as well."""
    worker = Worker()
    with at_work(worker):
        until = time.thread_time() + 2 * slots.FREE_SECONDS
        while time.thread_time() < until:
            pass
    assert worker.is_long


def test_long_work_that_offers_no_turn_is_not_joined_by_more_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others pass it, but the next long work waits for its end, however long it takes."""
    monkeypatch.setattr(slots, "MAX_LONG", 1)
    gate, done = threading.Event(), threading.Event()
    inside = threading.Semaphore(0)

    def compute() -> None:
        with at_work(is_long=True):
            inside.release()
            assert gate.wait(WAIT_SECONDS)

    threads = start(2 * MOST_AT_WORK, compute)
    assert inside.acquire(timeout=WAIT_SECONDS)

    def work() -> None:
        for _ in range(3 * MOST_AT_WORK):
            with at_work():
                time.sleep(slots.LONG_SECONDS / MOST_AT_WORK)
        done.set()

    threads += start(1, work)
    assert done.wait(WAIT_SECONDS)
    assert not inside.acquire(blocking=False)
    gate.set()
    join(threads)
    assert not slots._slots._since
    assert not slots._slots._long


def test_a_long_evaluation_is_not_kept_waiting_by_short_work() -> None:
    """After some time it waits as those do who have something short to do."""
    stop, advanced = threading.Event(), threading.Event()
    inside = threading.Event()

    def compute_shortly() -> None:
        worker = Worker("many")
        while not stop.is_set():
            with at_work(worker):
                until = time.monotonic() + 0.004
                while time.monotonic() < until:
                    pass

    def evaluate() -> None:
        with at_work(long_worker("one")):
            inside.set()
            for _ in range(3):
                while not offer_slot():
                    time.sleep(0.001)
        advanced.set()

    threads = start(3 * MOST_AT_WORK, compute_shortly)
    threads += start(1, evaluate)
    try:
        assert inside.wait(WAIT_SECONDS)
        assert advanced.wait(WAIT_SECONDS)
    finally:
        stop.set()
    join(threads)
    assert not slots._slots._since


def test_who_waits_for_a_slot_can_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(slots, "TURN_SECONDS", 0.0)
    gate, is_cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    inside = threading.Semaphore(0)

    def hold() -> None:
        with at_work():
            inside.release()
            gate.wait(WAIT_SECONDS)

    def check() -> None:
        if is_cancelled.is_set():
            raise InterruptedError

    def evaluate() -> None:
        try:
            with at_work(long_worker("one")):
                inside.release()
                while True:
                    offer_slot(check)
        except InterruptedError:
            ended.set()

    threads = start(1, evaluate)
    assert inside.acquire(timeout=WAIT_SECONDS)
    threads += start(MOST_AT_WORK, hold)
    for _ in range(MOST_AT_WORK):
        assert inside.acquire(timeout=WAIT_SECONDS)
    try:
        is_cancelled.set()
        assert ended.wait(WAIT_SECONDS), "it waits for a slot that nobody gives back"
        assert not slots._slots._waiting
        assert len(slots._slots._since) == MOST_AT_WORK
    finally:
        gate.set()
    join(threads)
    assert not slots._slots._since
