"""The memory that evaluations share: bounded, without deadlock, fair between groups."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lace.engine.budget import EvaluationCancelled
from lace.errors import LimitExceeded
from lace.link import resources as memory_pool
from lace.link.resources import SHARES, CancelReason, LinkSupervisor, MemoryPool, PoolMember
from lace.store import cpu_slots as slots

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20
WAIT_SECONDS = 30


def member(
    pool: MemoryPool, group: str = "", drop: Callable[[], None] = lambda: None
) -> PoolMember:
    return PoolMember(pool, group, lambda: None, drop)


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_shares_and_rest_are_the_pool() -> None:
    pool = MemoryPool(768 * MIB)
    assert pool.share_bytes == 8 * MIB
    assert pool.rest_bytes == 512 * MIB
    assert SHARES * pool.share_bytes + pool.rest_bytes == pool.total_bytes


def test_no_more_than_the_pool_is_held() -> None:
    """Many evaluations want all that they may have; each gets it, one after the other."""
    pool = MemoryPool(96 * MIB)
    most = pool.share_bytes + pool.rest_bytes
    held: dict[int, int] = {}
    guard = threading.Lock()
    seen: list[int] = []

    def evaluate(number: int) -> None:
        each = member(pool, f"group {number % 5}")
        each.begin()
        for size in (1, pool.share_bytes, most // 2, most):
            each.hold(size)
            with guard:
                held[number] = size
                seen.append(sum(held.values()))
        with guard:
            del held[number]
        each.end(0)

    threads = [start(lambda number=number: evaluate(number)) for number in range(60)]  # type: ignore[misc]
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert len(seen) == 240
    assert max(seen) <= pool.total_bytes
    assert pool.holders == (0, 0)


def test_more_than_one_evaluation_may_have_is_refused() -> None:
    pool = MemoryPool(96 * MIB)
    each = member(pool)
    each.begin()
    each.hold(pool.share_bytes + pool.rest_bytes)
    with pytest.raises(LimitExceeded) as caught:
        each.hold(pool.share_bytes + pool.rest_bytes + 1)
    assert caught.value.limit == "peer_memory_pool"
    each.end(0)


def test_what_is_kept_is_dropped_for_others() -> None:
    pool = MemoryPool(96 * MIB)
    dropped: list[str] = []
    first, second = member(pool, "a", lambda: dropped.append("first")), member(pool, "b")
    first.begin()
    first.hold(pool.share_bytes + 1)
    first.end(pool.share_bytes + 1)
    assert pool.holders == (1, 1)
    second.begin()
    second.hold(pool.share_bytes + 1)
    assert dropped == ["first"]
    assert (first.has_share, first.has_rest) == (False, False)
    assert pool.holders == (1, 1)
    second.end(5)
    assert pool.holders == (1, 0)
    second.leave()
    assert pool.holders == (0, 0)


def test_all_shares_together_are_never_more() -> None:
    """Members that keep something give their share to one of another group, one at a time."""
    pool = MemoryPool(96 * MIB)
    dropped: list[int] = []
    for number in range(SHARES):
        each = member(pool, f"{number % 4}", partial(dropped.append, number))
        each.begin()
        each.end(1)
    assert pool.holders == (SHARES, 0)
    another = member(pool, "another")
    another.begin()
    assert dropped == [0], "the one that has kept it for longest"
    assert pool.holders == (SHARES, 0)


def test_turns_go_round_between_groups() -> None:
    """One with many links does not get more turns than one with a single link."""
    pool = MemoryPool(96 * MIB)
    holder = member(pool, "holder")
    holder.begin()
    holder.hold(pool.share_bytes + 1)
    order: list[str] = []

    def evaluate(group: str) -> None:
        each = member(pool, group)
        each.begin()
        each.hold(pool.share_bytes + 1)
        order.append(group)
        each.end(0)

    threads = []
    for number, group in enumerate(["many"] * 6 + ["one"]):
        threads.append(start(lambda group=group: evaluate(group)))  # type: ignore[misc]
        wait_until(lambda number=number: len(pool.for_rest) == number + 1)  # type: ignore[misc]
    holder.end(0)
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert order.index("one") <= 1
    assert order.count("many") == 6


def test_a_group_leaves_half_of_the_shares_to_others() -> None:
    pool = MemoryPool(96 * MIB)
    many = [member(pool, "many") for _ in range(SHARES // 2)]
    for each in many:
        each.begin()
    assert not member(pool, "many").begin(wait=False)
    others = [member(pool, f"{number}") for number in range(SHARES // 2)]
    assert all(each.begin(wait=False) for each in others)
    assert not member(pool, "last").begin(wait=False)
    others[0].end(0)
    assert member(pool, "last").begin(wait=False)


def test_whoever_waits_can_be_cancelled() -> None:
    pool = MemoryPool(96 * MIB)
    holder = member(pool)
    holder.begin()
    holder.hold(pool.share_bytes + 1)
    waiting = LinkSupervisor(pool)
    found: list[BaseException] = []

    def evaluate() -> None:
        try:
            with waiting.evaluating():
                waiting.hold(pool.share_bytes + 1)
        except EvaluationCancelled as error:
            found.append(error)

    thread = start(evaluate)
    wait_until(lambda: len(pool.for_rest) == 1)
    waited = [waiting.seconds]
    waiting.cancel(CancelReason.PEER_LEFT)
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert len(found) == 1
    waited.append(waiting.seconds)
    assert [each is None for each in waited] == [False, True]
    waiting.close()
    holder.end(0)
    assert pool.holders == (0, 0)


def test_a_cancelled_evaluation_without_a_slot_gives_its_share_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "LONG_SECONDS", WAIT_SECONDS)
    pool = MemoryPool(96 * MIB)
    others = [member(pool, f"{number}") for number in range(SHARES)]
    for each in others:
        each.begin()
    waiting = LinkSupervisor(pool, "waiting")
    gate, inside = threading.Event(), threading.Semaphore(0)

    def evaluate() -> None:
        with (
            slots.at_work(waiting.worker),
            pytest.raises(EvaluationCancelled),
            waiting.evaluating(),
        ):
            pytest.fail("it has no slot, and must not go on")

    def hold_slot() -> None:
        with slots.at_work():
            inside.release()
            gate.wait(WAIT_SECONDS)

    threads = [start(evaluate)]
    wait_until(lambda: len(pool.for_share) == 1)
    threads += [start(hold_slot) for _ in range(slots.MOST_AT_WORK)]
    for _ in range(slots.MOST_AT_WORK):
        assert inside.acquire(timeout=WAIT_SECONDS)
    try:
        others[0].end(0)  # the share goes to the one that waits, which has no slot
        wait_until(lambda: len(slots._slots._waiting) == 1)
        waiting.cancel(CancelReason.PEER_LEFT)
        threads[0].join(WAIT_SECONDS)
        assert not threads[0].is_alive()
        assert pool.holders == (SHARES - 1, 0)
    finally:
        gate.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_groups_are_forgotten_by_their_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "_MAX_GROUPS", 2)
    pool = MemoryPool(96 * MIB)
    for group in ("a", "b", "a", "c"):
        each = member(pool, group)
        each.begin()
        each.end(0)
    assert list(pool._served) == ["a", "c"]


def test_waiting_members_do_not_look_at_each_other() -> None:
    """Who waits only looks whether to give up; who gives back decides about the next one."""
    pool = MemoryPool(96 * MIB)
    holders = [member(pool, f"holder {number}") for number in range(SHARES)]
    for each in holders:
        each.begin()
    seen = looks = 0

    class Group(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal seen
            seen += 1
            return super().__hash__()

    def look() -> None:
        nonlocal looks
        looks += 1

    def wait() -> None:
        each = PoolMember(pool, Group("waiting"), look)
        each.begin()
        each.end(0)

    threads = [start(wait) for _ in range(20)]
    wait_until(lambda: len(pool.for_share) == 20)
    seen = looks = 0
    wait_until(lambda: looks >= 100)
    assert seen < 100
    holders[0].end(0)
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert pool.holders == (SHARES - 1, 0)


def test_a_member_that_changes_its_group_makes_room_in_the_former_one() -> None:
    pool = MemoryPool(96 * MIB)
    supervisors = [LinkSupervisor(pool, "many") for _ in range(SHARES // 2)]
    with ExitStack() as stack:
        for each in supervisors:
            stack.enter_context(each.evaluating())
        last = member(pool, "many")
        thread = start(last.begin)
        wait_until(lambda: len(pool.for_share) == 1)
        supervisors[0].belong_to("one")
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
        assert last.has_share


def test_what_is_cancelled_while_others_compute_stops_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor = LinkSupervisor(MemoryPool(96 * MIB))

    def cancel(_check: Callable[[], None]) -> bool:
        supervisor.cancel(CancelReason.STOPPED)
        return True

    supervisor.check()
    monkeypatch.setattr("lace.link.resources.offer_slot", cancel)
    with pytest.raises(EvaluationCancelled):
        supervisor.check()
    supervisor.close()
