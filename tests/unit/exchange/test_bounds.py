"""What a peer may ask and list in one loop is bounded, whatever its blocks may hold."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.merkle import EMPTY_ROOT
from lace.exchange.querier import Follower, QueryQueue, Searcher, Wanted
from lace.exchange.reconcile import Responder
from lace.exchange.summaries import LIST, NARROW, Summary
from lace.policy.schema import Schema
from tests.unit.exchange.reconciling import (
    SOURCES,
    WIDE,
    Party,
    claims_of,
    set_of,
    some_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = [some_record(random.Random(seed)) for seed in range(40)]
CLAIMS = claims_of(RECORDS, Schema())
OWN = set_of(CLAIMS, SOURCES[0])


@pytest.mark.requirement("050-231")
def test_questions_are_bounded_as_summaries_are() -> None:
    """A block holds a million of them, and no answer would be awaited before the next."""
    answers = Responder(2, OWN, SOURCES[0], replace(WIDE, summaries=20))
    names = ["".join(each) for each in itertools.product(b64a.ALPHABET, repeat=2)]
    answers.ask([(LIST, name) for name in names[:20]])
    with pytest.raises(InterlaceFailure, match="more than 20 questions") as caught:
        answers.ask([(LIST, names[20])])
    assert caught.value.failure is Failure.SUMMARY_LIMIT


@pytest.mark.parametrize(("kind", "length"), [(LIST, 5), (NARROW, 4)])
def test_nothing_is_asked_beyond_the_depth(kind: str, length: int) -> None:
    prefix = RECORDS[0][2 : 2 + length]
    answers = Responder(2, OWN, SOURCES[0], replace(WIDE, depth=4))
    with pytest.raises(InterlaceFailure, match="beyond the depth") as caught:
        answers.ask([(kind, prefix)])
    assert caught.value.failure is Failure.DEPTH_LIMIT
    assert "max_narrowing_depth=4" in str(caught.value.hint)
    answers.ask([(kind, prefix[:-1])])


def test_what_was_answered_is_not_held() -> None:
    answers = Responder(2, OWN, SOURCES[0], WIDE)
    answers.ask([(LIST, "abcd"), (LIST, "abce")])
    assert answers.block(CLAIMS)
    assert not answers._above


@pytest.mark.requirement("050-169")
def test_no_more_is_listed_than_was_announced() -> None:
    searcher = Searcher(2, AdvertisementSet(), [], WIDE, 114)
    searcher.announce({"": Summary(3, bytes(32))})
    searcher._note_listed(claims_of(RECORDS[:3], Schema()))
    with pytest.raises(InterlaceFailure) as caught:
        searcher._note_listed(claims_of(RECORDS[3:4], Schema()))
    assert caught.value.failure is Failure.COUNT_MISMATCH


def announced(count: int, depth: int = WIDE.depth) -> Party:
    """A side whose peer says that it has so many records."""
    a = Party(0, 2, claims_of(RECORDS, Schema()), limits=replace(WIDE, depth=depth))
    a.block()
    a.receive([("AdvertisementPartition", "", str(count), b64a.encode(bytes(32)))])
    return a


def narrow_everything(a: Party, children: Callable[[], str], most: int) -> None:
    """Have a peer narrow all that it is asked about, some a turn."""
    due: deque[str] = deque()
    while True:
        asked = [fact[1] for fact in a.block()]
        some = [due.popleft() for _ in range(min(most, len(due)))]
        a.receive([("AdvertisementChildren", each, children()) for each in some])
        due += asked


@pytest.mark.requirement("050-231")
def test_no_more_is_asked_than_may_be_answered() -> None:
    """A peer that tells of ever more, one answer a turn, is given up when it must fail."""
    rnd = random.Random(2)
    with pytest.raises(InterlaceFailure, match="takes more than 16,384") as caught:
        narrow_everything(announced(4_000_000), lambda: b64a.encode(rnd.randbytes(384)), 1)
    assert caught.value.failure is Failure.SUMMARY_LIMIT


@pytest.mark.requirement("050-232")
def test_a_peer_that_narrows_beyond_the_depth() -> None:
    one_child = "zzzzzzzz" + b64a.encode(EMPTY_ROOT[:6]) * 63
    with pytest.raises(InterlaceFailure, match="beyond the depth") as caught:
        narrow_everything(announced(2_000, depth=4), lambda: one_child, 64)
    assert caught.value.failure is Failure.DEPTH_LIMIT
    assert "max_narrowing_depth=4" in str(caught.value.hint)


@pytest.mark.requirement("050-232")
def test_who_follows_asks_for_no_list_beyond_the_depth() -> None:
    """Among many records a list that is likely empty is deep; where it is too deep it searches."""
    searcher = Searcher(2, AdvertisementSet(), [OWN], replace(WIDE, depth=4), 114)
    searcher.announce({"": Summary(300_000, bytes(32))})
    follower = Follower(searcher, OWN)
    assert follower.questions(must_ask=True) == []
    assert follower.is_done
    assert searcher.questions() == [(NARROW, "")]


@pytest.mark.requirement("050-232")
def test_nobody_points_at_a_list_beyond_the_depth() -> None:
    """What a side has alone is known by its own hash; who follows searches for it by itself."""
    searcher = Searcher(2, AdvertisementSet(), [OWN], replace(WIDE, depth=4), 114)
    searcher.announce({"": Summary(len(OWN), bytes(32))})
    searcher.be_followed(is_followed=True)
    searcher._point_at("abcd")
    searcher._point_at("abcde")
    assert [each.prefix for each in searcher.queue.wanted] == ["abcd"]


@pytest.mark.requirement("050-231")
@pytest.mark.parametrize(
    ("summaries", "wanted"),
    [
        (6, ["aaa", "aab", "aba", "abb", "baa", "bab"]),
        (4, ["aa", "ab", "baa", "bab"]),
        (3, ["aa", "ab", "ba"]),
        (2, ["a", "ba"]),
    ],
)
def test_partitions_are_merged_as_far_as_the_limit_needs(summaries: int, wanted: list[str]) -> None:
    queue = QueryQueue(2, replace(WIDE, summaries=summaries), 114)
    queue.wanted = [
        Wanted(prefix=prefix, count=100.0) for prefix in ("aaa", "aab", "aba", "abb", "baa", "bab")
    ]
    queue._keep_summary_limit(lambda prefix: 200.0)
    assert sorted(each.prefix for each in queue.wanted) == wanted
    assert all(each.must_list == (len(each.prefix) < 3) for each in queue.wanted)


@pytest.mark.requirement("050-232")
@pytest.mark.parametrize("mode", [1, 2])
def test_a_peer_that_narrows_beyond_the_depth_is_given_up(mode: int) -> None:
    start = 2 if mode == 1 else 0
    for length, is_legal in ((start + 4, True), (start + 5, False)):
        queue = QueryQueue(mode, replace(WIDE, depth=4), 114)
        queue.wanted = [Wanted(prefix="a" * length, count=9.0)]
        if is_legal:
            assert queue.questions(lambda prefix: 9.0) == [(LIST, "a" * length)]
            continue
        with pytest.raises(InterlaceFailure, match="beyond the depth") as caught:
            queue.questions(lambda prefix: 9.0)
        assert caught.value.failure is Failure.DEPTH_LIMIT
        assert "max_narrowing_depth" in str(caught.value.hint)


def test_not_more_is_asked_at_once_than_half_a_block_answers() -> None:
    queue = QueryQueue(2, WIDE, 114)
    room = WIDE.answer_bytes // 2
    queue.wanted = [
        Wanted(prefix=prefix, count=0.4 * room / 114, must_list=True) for prefix in "abc"
    ]
    assert queue.questions(lambda prefix: 1.0) == [(LIST, "a"), (LIST, "b")]
    assert [each.prefix for each in queue.wanted] == ["c"]


def test_a_partition_has_a_share_of_the_next_larger_one_whose_count_is_known() -> None:
    searcher = Searcher(2, AdvertisementSet(), [], WIDE, 114)
    searcher.announce({"": Summary(64**3, bytes(32))})
    assert [searcher.estimate("abc"[:length]) for length in range(4)] == [64**3, 64**2, 64, 1]


@pytest.mark.requirement("050-231")
def test_every_list_of_children_counts_as_a_summary() -> None:
    searcher = Searcher(2, AdvertisementSet(), [], replace(WIDE, summaries=2), 114)
    searcher.announce({"": Summary(10, bytes(32))})
    fingerprints = [bytes(8)] * 64
    while searcher.queue.lines < 2:
        before = searcher.queue.lines
        searcher.take_children("", fingerprints, is_asked=False)
        assert searcher.queue.lines == before + 1
    with pytest.raises(InterlaceFailure, match="more than") as caught:
        searcher.take_children("", fingerprints, is_asked=False)
    assert caught.value.failure is Failure.SUMMARY_LIMIT
