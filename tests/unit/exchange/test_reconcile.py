"""Reconciliation with a peer that lies or breaks the rules of turns, and its smaller parts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.exchange.advertisement import read_claims
from lace.exchange.advertisement_set import AdvertisementSet, fingerprint_of
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.merkle import EMPTY_ROOT
from lace.exchange.querier import Follower, Searcher, SingleDifference
from lace.exchange.reconcile import Responder
from lace.exchange.summaries import (
    LIST,
    NARROW,
    Costs,
    InquiryLimits,
    Shares,
    Summary,
    children_fact,
    is_listing_cheaper,
    partition_fact,
    read_children,
)
from lace.policy.schema import Schema
from tests.unit.exchange.reconciling import (
    SOURCES,
    WIDE,
    Party,
    check,
    claims_of,
    reconcile,
    set_of,
    some_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.facts.lines import Fact

RND = random.Random(11)
RECORDS = [some_record(RND) for _ in range(600)]
FEW = [some_record(RND, "ab") for _ in range(3)]
ROOT = b64a.encode(b"\x07" * 32)
BARE = Schema()
GROUP = Schema(names=frozenset({"Group"}))


def pair(
    mode: int,
    *,
    ours: int = 500,
    theirs: slice = slice(20, 600),
    limits: InquiryLimits = WIDE,
    has_cursor: bool = False,
    knows: bool = True,
) -> tuple[Party, Party]:
    """Two parties; with a cursor, the first knows a little less than all of the second."""
    others = RECORDS[theirs]
    before = set_of(claims_of(others[5:], BARE), SOURCES[1])
    a = Party(
        0,
        mode,
        claims_of(RECORDS[:ours], BARE),
        limits=limits,
        cursor=before if has_cursor else None,
    )
    b = Party(
        1, mode, claims_of(others, BARE), limits=limits, remembered=(before,) if knows else ()
    )
    return a, b


def refused(
    a: Party, b: Party, bend: Callable[[int, list[Fact]], list[Fact]]
) -> tuple[Failure, str]:
    with pytest.raises(InterlaceFailure) as caught:
        reconcile(a, b, bend)
    return caught.value.failure, caught.value.detail


def only(turn: int, change: Callable[[list[Fact]], list[Fact]]) -> Callable[..., list[Fact]]:
    """Bend the block of one turn."""
    return lambda at, facts: change(facts) if at == turn else facts


def answers_only(change: Callable[[list[Fact]], list[Fact]]) -> Callable[..., list[Fact]]:
    """Bend the first block that has an answer in a later turn."""
    done: list[int] = []

    def bend(turn: int, facts: list[Fact]) -> list[Fact]:
        if turn and not done and any(fact[0] not in (LIST, NARROW) for fact in facts):
            done.append(turn)
            return change(facts)
        return facts

    return bend


# -- turns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda _facts: [], "answers none of the questions"),
        (lambda facts: [*facts, ("Advertised", RECORDS[0], SOURCES[1])], "nobody asked for"),
        (lambda facts: [*facts, ("AdvertisementPartition", "zz", "1", ROOT)], "nobody asked about"),
    ],
)
def test_answers(mode: int, change: Callable[[list[Fact]], list[Fact]], text: str) -> None:
    failure, detail = refused(*pair(mode, ours=0, theirs=slice(3, 4)), answers_only(change))
    if failure is Failure.ROOT_MISMATCH:
        assert mode == 2, "everything was asked for, so that it belongs and is one too many"
        return
    assert failure in (Failure.MALFORMED_BLOCK, Failure.MALFORMED_SUMMARY)
    assert text in detail


def test_two_summaries_of_one_partition() -> None:
    def twice(facts: list[Fact]) -> list[Fact]:
        head = next(fact for fact in facts if fact[0] == "AdvertisementPartition")
        return [*facts, (*head[:2], str(int(head[2]) + 1), head[3])]

    failure, detail = refused(*pair(2, ours=0), answers_only(twice))
    assert failure is Failure.MALFORMED_SUMMARY
    assert "two summaries" in detail


@pytest.mark.requirement("050-169")
@pytest.mark.parametrize("mode", [1, 2])
def test_a_listing_that_lacks_a_record(mode: int) -> None:
    def shorter(facts: list[Fact]) -> list[Fact]:
        gone = next(fact for fact in facts if fact[0] == "Advertised")
        return [fact for fact in facts if fact != gone]

    failure, detail = refused(*pair(mode, ours=0), answers_only(shorter))
    assert failure is Failure.ROOT_MISMATCH
    assert "are not those announced" in detail


@pytest.mark.parametrize("mode", [1, 2])
def test_narrowing_answers_that_nobody_asked_for(mode: int) -> None:
    extra: Fact = ("AdvertisementChildren", "zz", "0" * 512)
    a, b = pair(2)
    if mode == 2:
        failure, detail = refused(a, b, answers_only(lambda facts: [*facts, extra]))
        assert (failure, "nobody asked" in detail) == (Failure.MALFORMED_BLOCK, True)
        delta: Fact = ("AdvertisementDelta", ROOT)
        failure, detail = refused(*pair(2), answers_only(lambda facts: [*facts, delta]))
        assert (failure, "answers no question" in detail) == (Failure.MALFORMED_BLOCK, True)
        return
    limits = InquiryLimits(listed=4, summaries=16_384, depth=4, block_bytes=2**20)
    leads = claims_of([some_record(RND, "ab") for _ in range(40)], BARE)
    more = Party(1, 1, leads, limits=limits)

    def add(facts: list[Fact]) -> list[Fact]:
        head = next(fact for fact in facts if fact[0] == "AdvertisementPartition")
        return [fact for fact in facts if fact is not head]

    failure, detail = refused(Party(0, 1, {}, limits=limits), more, answers_only(add))
    assert failure is Failure.MALFORMED_SUMMARY
    assert "do not add up" in detail


def test_a_phase_that_ends_with_questions_open() -> None:
    """A peer that answers a part of what it was asked, and then falls silent."""
    limits = InquiryLimits(listed=100_000, summaries=16_384, depth=12, block_bytes=6_000)
    a, b = pair(2, limits=limits)
    asked: list[int] = []

    def silent(turn: int, facts: list[Fact]) -> list[Fact]:
        if turn and any(fact[0] == "Advertised" for fact in facts):
            asked.append(turn)
        return facts if len(asked) < 2 else []

    failure, detail = refused(a, b, silent)
    assert failure is Failure.MALFORMED_BLOCK
    assert "answers none" in detail


def test_children_that_hide_something_end_the_exchange() -> None:
    """What is assembled has not the root that was announced, and there is nothing left to ask."""

    def emptied(facts: list[Fact]) -> list[Fact]:
        return [
            (*fact[:2], "0" * 3, fact[3]) if fact[0] == "AdvertisementPartition" else fact
            for fact in facts
        ]

    a, b = pair(2)
    lie = only(0, lambda facts: [(facts[0][0], "", "0", facts[0][3])])
    failure, _ = refused(a, b, lie)
    assert failure is Failure.ROOT_MISMATCH
    assert emptied([partition_fact(b.own, "")])


# -- the questions of the peer -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "questions", "text"),
    [
        (2, [(LIST, "ab"), (LIST, "ab")], "asks again"),
        (1, [(LIST, "a")], "two characters"),
        (1, [(NARROW, "")], "two characters"),
        (2, [(NARROW, "zz")], "the empty partition"),
        (2, [(NARROW, "abcd")], "beyond the depth"),
        (2, [(LIST, "ab"), (NARROW, "ab")], "nest"),
        (2, [(LIST, "ab"), (LIST, "abc")], "nest"),
        (2, [(LIST, "abc"), (LIST, "ab")], "nest"),
        (2, [(LIST, "abc"), (NARROW, "")], "nest"),
    ],
)
def test_questions(mode: int, questions: list[tuple[str, str]], text: str) -> None:
    limits = InquiryLimits(listed=9, summaries=99, depth=4, block_bytes=2**20)
    own = set_of(claims_of([f"P.abcd{'0' * 39}.H3"], BARE), SOURCES[0])
    answers = Responder(mode, own, SOURCES[0], limits)
    with pytest.raises(InterlaceFailure, match=text):
        answers.ask(questions)


def test_a_question_may_be_asked_below_one_that_was_answered() -> None:
    own = set_of(claims_of(FEW, BARE), SOURCES[0])
    answers = Responder(2, own, SOURCES[0], WIDE)
    answers.ask([(NARROW, "")])
    assert answers.block({}) == [children_fact(own, "")]
    answers.ask([(NARROW, "a"), (LIST, "b")])
    assert [fact[0] for fact in answers.block({})] == [
        "AdvertisementChildren",
        "AdvertisementPartition",
    ]
    assert answers.block({}) == []


@pytest.mark.requirement("050-158", "050-159", "050-162")
def test_one_answer_at_least_and_none_in_parts() -> None:
    limits = InquiryLimits(listed=100_000, summaries=99, depth=12, block_bytes=700)
    claims = claims_of(FEW, BARE)
    own = set_of(claims, SOURCES[0])
    answers = Responder(2, own, SOURCES[0], limits)
    prefixes = [record[2:6] for record in FEW]
    answers.ask([(LIST, prefix) for prefix in prefixes])
    described = {record: claims[record] for record in answers.wanted()}
    sizes = []
    while made := answers.block(described):
        sizes.append(len(made))
    assert sum(sizes) == 6
    assert len(sizes) > 1
    assert all(size % 2 == 0 for size in sizes)


# -- following ---------------------------------------------------------------------------------


def following() -> tuple[Searcher[AdvertisementSet], Follower[AdvertisementSet]]:
    """A side that follows, about a set that is not its own."""
    own = set_of(claims_of(RECORDS, BARE), SOURCES[1])
    searcher = Searcher(2, AdvertisementSet(), [own], WIDE, 114)
    searcher.announce({"": Summary(len(own), b"\x07" * 32)})
    assert Follower.can_replace(searcher)
    return searcher, Follower(searcher, own)


def test_who_follows_never_lets_the_phase_end() -> None:
    """It asks for a short list where it has nothing to say, each time another one."""
    searcher, follower = following()
    asked = follower.questions(must_ask=True)
    assert follower.questions(must_ask=True) == [], "the peer owes an answer"
    seen: set[tuple[str, str]] = set()
    for _ in range(100):
        if follower.is_done:
            break
        assert seen.isdisjoint(asked)
        seen.update(asked)
        ((kind, prefix),) = asked
        assert kind == LIST
        searcher.take_listing(prefix, Summary(0, EMPTY_ROOT), {}, SOURCES[1])
        assert follower.questions() == []
        assert not follower.is_done
        asked = follower.questions(must_ask=True)
    assert follower.is_done
    assert asked == []
    assert searcher.questions() == [(NARROW, "")], "it searches when it has asked enough"


def test_who_follows_asks_for_the_lists_that_the_peer_asks_for() -> None:
    searcher, follower = following()
    follower.watch([(LIST, "ab"), (NARROW, "c"), (LIST, "0")])
    assert follower.questions() == [(LIST, "0"), (LIST, "ab")]
    follower.watch([(LIST, "abc"), (LIST, "a"), (LIST, "0")])
    assert follower.questions() == [], "questions do not nest, and are not repeated"
    for prefix in ("0", "ab"):
        searcher.take_listing(prefix, Summary(0, EMPTY_ROOT), {}, SOURCES[1])
    follower.watch([(LIST, "abc")])
    assert follower.questions() == [], "nothing is asked about what is known"
    assert searcher.questions() == [(NARROW, "")]
    with pytest.raises(InterlaceFailure, match="another root than its list"):
        searcher.take_children("", [b"\x07" * 6] * 64)


def test_a_list_that_came_narrowed_is_not_asked_for_again() -> None:
    """A search that comes to the same partition later goes on with its children."""
    searcher, follower = following()
    own = searcher.states[-1]
    follower.watch([(LIST, "a")])
    assert follower.questions() == [(LIST, "a")]
    searcher.take_children("a", [fingerprint_of(root) for _, root in own.children("a")])
    assert searcher.questions() == [(NARROW, "")]
    searcher.take_children("", [b"\x07" * 6] * 64)
    asked = searcher.questions()
    assert (NARROW, "a") in asked
    assert (LIST, "b") in asked, "others are small enough to be listed"


def test_who_narrows_does_not_follow() -> None:
    """Who follows asks for lists only; as soon as it searches, nothing is pointed at for it."""
    theirs = set_of(claims_of(RECORDS[:500], BARE), SOURCES[1])
    side = Party(0, 2, claims_of(RECORDS, BARE))
    side.block()
    side.receive([partition_fact(theirs, "")])
    assert side.block() == [(NARROW, "")]
    side.receive([(LIST, "zz")])
    assert side.at.searcher.is_followed
    side.block()
    side.receive([children_fact(theirs, ""), (LIST, "zy")])
    assert side.at.searcher.is_followed
    side.block()
    side.receive([(NARROW, "b")])
    assert not side.at.searcher.is_followed


def test_lists_in_each_other_may_tell_of_more_than_there_is() -> None:
    """The inner one counts, so what the outer one tells beside it is not taken for the result."""
    rnd = random.Random(12)
    inner, outer = some_record(rnd, "ab"), some_record(rnd, "a0")
    lies, shared = ([some_record(rnd, lead) for _ in range(3)] for lead in ("ab", "0"))
    true = set_of(claims_of([inner, outer, *shared], BARE), SOURCES[1])
    own = set_of(claims_of(shared, BARE), SOURCES[1])
    limits = InquiryLimits(listed=2, summaries=16_384, depth=12, block_bytes=2**20)
    searcher = Searcher(2, AdvertisementSet(), [own], limits, 114)
    searcher.announce({"": Summary(5, true.root(""))})
    follower = Follower(searcher, own)

    def tell(prefix: str, *records: str) -> None:
        claims = claims_of(records, BARE)
        made = set_of(claims, SOURCES[1])
        searcher.take_listing(prefix, Summary(len(made), made.root("")), claims, SOURCES[1])

    follower.watch([(LIST, "ab")])
    assert follower.questions() == [(LIST, "ab")]
    tell("ab", inner)
    assert searcher.questions() == [(NARROW, "")]
    lying = set_of(claims_of([outer, *lies, *shared], BARE), SOURCES[1])
    searcher.take_children("", read_children(children_fact(lying, "")))
    assert searcher.questions() == [(LIST, "a")]
    tell("a", outer, *lies)
    assert searcher.questions() == []
    assert searcher.result == true
    assert searcher.listed.keys() == {inner, outer, *lies}, "as many as there are"
    assert not searcher.is_all_listed


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_at_first_contact_all_is_listed_unless_a_state_at_hand_has_it(mode: int) -> None:
    a, b = (Party(index, mode, claims_of(RECORDS[30 * index :], BARE)) for index in (0, 1))
    reconcile(a, b)
    assert a.at.is_all_listed == b.at.is_all_listed == (mode == 0)
    a, b = (Party(index, mode, claims_of(RECORDS[: 200 * index], BARE)) for index in (0, 1))
    reconcile(a, b)
    assert a.at.is_all_listed
    assert a.at.listed.keys() == set(RECORDS[:200])


def test_a_lacking_record_is_looked_for_while_it_is_worth_it() -> None:
    lacking = SingleDifference()
    assert lacking.is_worth(64, 9.0)
    assert not lacking.is_worth(65, 9.0)
    assert not lacking.is_worth(5_000, 1.0)
    assert sum(lacking.is_worth(4_000, 1.0) for _ in range(100)) == 8
    assert lacking.is_worth(20, 1.0)


def test_how_many_records_differ_is_judged_by_partitions_of_the_same_size() -> None:
    shares = Shares()
    assert shares.expected(2) == 1.0
    shares.note(2, 64, 1)
    assert 1.0 < shares.expected(2) < 1.1
    shares.note(2, 64, 127)
    assert shares.expected(2) > 4
    assert shares.expected(3) == 1.0


# -- cursors -----------------------------------------------------------------------------------


def test_a_delta_and_one_turn_of_questions() -> None:
    a, b = pair(2, has_cursor=True)
    turns, size = reconcile(a, b)
    check(a, b)
    assert set(a.at.listed) == set(RECORDS[20:25])
    assert turns < 12
    assert size < 300_000


def test_a_cursor_that_the_peer_has_forgotten() -> None:
    a, b = pair(2, has_cursor=True, knows=False)
    reconcile(a, b)
    check(a, b)


def test_an_empty_cursor_is_always_recognised() -> None:
    a, b = pair(2, ours=0, theirs=slice(0, 30), knows=False)
    a = Party(0, 2, {}, cursor=set_of({}, SOURCES[1]))
    turns, _ = reconcile(a, b)
    check(a, b)
    assert turns == 3


def test_a_delta_too_large_is_answered_as_children() -> None:
    for limits in (
        InquiryLimits(listed=4, summaries=16_384, depth=12, block_bytes=2**20),
        InquiryLimits(listed=100_000, summaries=16_384, depth=12, block_bytes=700),
    ):
        a, b = pair(2, has_cursor=True, limits=limits)
        seen: list[Fact] = []

        def watch(turn: int, facts: list[Fact], seen: list[Fact] = seen) -> list[Fact]:
            seen += facts if turn == 1 else []
            return facts

        reconcile(a, b, watch)
        check(a, b)
        assert not any(fact[0] == "AdvertisementDelta" for fact in seen)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda facts: [("AdvertisementDelta", ROOT), *facts[1:]], "not from the state"),
        (lambda facts: facts[1:], "not from the state"),
        (lambda _facts: [], "answers none"),
        (lambda facts: [*facts, ("AdvertisementChildren", "", "0" * 512)], "nothing but questions"),
        (
            lambda facts: [*facts, ("AdvertisementPartition", "", "1", ROOT)],
            "nothing but questions",
        ),
        (lambda facts: [*facts, ("AdvertisementWithdrawn", FEW[0])], "what was not advertised"),
        (
            lambda facts: [*facts, ("AdvertisementWithdrawn", RECORDS[21])],
            "what was not advertised",
        ),
        (lambda facts: [*facts, ("Advertised", FEW[0], SOURCES[0])], "names the source"),
    ],
)
def test_deltas(change: Callable[[list[Fact]], list[Fact]], text: str) -> None:
    a, b = pair(2, has_cursor=True)
    failure, detail = refused(a, b, only(1, change))
    assert failure is Failure.MALFORMED_BLOCK
    assert text in detail


def test_a_delta_with_more_than_may_be_listed() -> None:
    limits = InquiryLimits(listed=5, summaries=16_384, depth=12, block_bytes=2**20)
    a, b = pair(2, has_cursor=True, limits=limits)
    more: list[Fact] = [("Advertised", record, SOURCES[1]) for record in RECORDS[:9]]
    failure, detail = refused(a, b, only(1, lambda facts: [*facts, *more]))
    assert (failure, "larger than a listing" in detail) == (Failure.MALFORMED_BLOCK, True)


def test_who_names_a_cursor_asks_nothing_in_turn_1() -> None:
    a, b = pair(2, has_cursor=True)
    ours, theirs = a.block(), b.block()
    a.receive(theirs)
    b.receive(ours)
    ours = a.block()
    b.block()
    with pytest.raises(InterlaceFailure, match="its cursor is the question"):
        b.receive([*ours, (LIST, "")])


# -- turn 0 ------------------------------------------------------------------------------------


@pytest.mark.requirement("050-219", "050-222", "050-229")
def test_a_listing_that_does_not_fit_into_a_block() -> None:
    limits = InquiryLimits(listed=100_000, summaries=99, depth=12, block_bytes=5_000)
    a = Party(0, 0, claims_of(RECORDS, BARE), limits=limits)
    with pytest.raises(InterlaceFailure, match="has more than") as caught:
        a.block()
    assert caught.value.failure is Failure.OVERSIZED_BLOCK
    assert "max_fact_block_size" in str(caught.value.hint)


@pytest.mark.requirement("050-160", "050-168")
@pytest.mark.parametrize("mode", [1, 2])
def test_nothing_and_nothing(mode: int) -> None:
    a, b = Party(0, mode, {}), Party(1, mode, {})
    assert reconcile(a, b)[0] == 2
    check(a, b)


@pytest.mark.requirement("050-160", "050-161")
def test_mode_1_begins_with_two_characters_and_mode_2_with_none() -> None:
    own = claims_of(RECORDS[:40], BARE)
    assert {len(fact[1]) for fact in Party(0, 1, own).block()} == {2}
    (fact,) = Party(0, 2, own).block()
    assert fact[:3] == ("AdvertisementPartition", "", "40")


def test_what_does_not_belong_in_turn_0() -> None:
    """The phase of a block keeps it out before; here it would be refused as well."""
    for facts, text in (
        ([("AdvertisementDelta", ROOT)], "does not belong in turn 0"),
        ([], "not just one summary"),
        ([("AdvertisementPartition", "ab", "1", ROOT)], "does not belong in turn 0"),
    ):
        with pytest.raises(InterlaceFailure, match=text):
            Party(0, 2, {}).at.receive(facts)
    with pytest.raises(InterlaceFailure, match="announced and empty"):
        Party(0, 1, {}).at.receive([("AdvertisementPartition", "ab", "0", ROOT)])


@pytest.mark.requirement("050-231")
def test_too_many_summaries() -> None:
    limits = InquiryLimits(listed=100_000, summaries=20, depth=12, block_bytes=2**20)
    a, b = Party(0, 1, {}, limits=limits), Party(1, 1, claims_of(RECORDS, BARE))
    with pytest.raises(InterlaceFailure) as caught:
        a.receive(b.block())
    assert caught.value.failure is Failure.SUMMARY_LIMIT
    assert "max_partition_summaries" in str(caught.value.hint)


def test_there_is_no_result_before_the_end() -> None:
    with pytest.raises(AssertionError, match="has a result"):
        _ = Party(0, 2, {}).at.result


# -- claims and costs --------------------------------------------------------------------------


@pytest.mark.requirement("050-65", "050-66")
def test_claims_in_any_order_are_one_record() -> None:
    record = RECORDS[0]
    facts: list[Fact] = [
        ("AdvertisedField", record, "S", "Group", "10", "b"),
        ("AdvertisedField", record, "S", "Group", "2", "a"),
        ("AdvertisedField", record, "S", "Group", "2", "a"),
        ("Advertised", record, "S"),
    ]
    (claim,) = read_claims(facts, "S", GROUP).values()
    assert claim.fields == (("Group", "2", "a"), ("Group", "10", "b"))


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (("AdvertisedField", RECORDS[0], "T", "Group", "0", "a"), "names the source"),
        (("AdvertisedField", RECORDS[1], "S", "Group", "0", "a"), "comes without"),
        (("AdvertisedField", RECORDS[0], "S", "App", "0", "a"), "was not negotiated"),
        (("AdvertisedField", RECORDS[0], "S", "Group", "1", "other"), "two values"),
        (("Advertised", RECORDS[0], "T"), "names the source"),
    ],
)
def test_claims_that_are_not_whole(fact: Fact, text: str) -> None:
    facts: list[Fact] = [
        ("Advertised", RECORDS[0], "S"),
        ("AdvertisedField", RECORDS[0], "S", "Group", "1", "x"),
        fact,
    ]
    with pytest.raises(InterlaceFailure, match=text):
        read_claims(facts, "S", GROUP)


def test_small_partitions_are_listed_and_large_ones_narrowed() -> None:
    costs = Costs.of_mode(2, 114)
    assert is_listing_cheaper(1, costs, known=1, expected=1.0)
    assert is_listing_cheaper(5, costs, known=5, expected=1.0)
    dear = replace(costs, advertisement=10**6)  # two are narrowed where a listing is dear
    assert is_listing_cheaper(1, dear, known=1, expected=0.01)
    assert not is_listing_cheaper(2, dear, known=2, expected=0.01)
    assert is_listing_cheaper(10**6, costs, known=0, expected=1.0)
    assert not is_listing_cheaper(10**4, costs, known=10**4, expected=1.1)
    assert is_listing_cheaper(13, costs, known=13, expected=8.0)
    assert not is_listing_cheaper(14, costs, known=14, expected=8.0)
    assert Costs.of_mode(1, 114).children > costs.children
