"""Reconciliation of random sets: every mode finds what a full listing would, whatever is known."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lace.exchange import advertisement_set, querier, summaries
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.reconcile import Reconciliation
from lace.exchange.summaries import InquiryLimits
from lace.policy.schema import Schema
from tests.profiles import examples
from tests.unit.exchange.reconciling import (
    SOURCES,
    WIDE,
    Party,
    Searching,
    Unhelpful,
    check,
    claims_of,
    reconcile,
    set_of,
    some_record,
)

if TYPE_CHECKING:
    from lace.exchange.advertisement import Advertisement
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.facts.lines import Fact

    Kind = type[Reconciliation[AdvertisementSet]]

pytestmark = pytest.mark.property

SEEDS = examples(60)
MODES = [0, 1, 2]


def some_records(rnd: random.Random, count: int) -> list[str]:
    """Records, some of them close to each other."""
    lead = rnd.choice(("", "", "a", "ab~c"))
    return [some_record(rnd, rnd.choice(("", lead))) for _ in range(count)]


def some_limits(rnd: random.Random) -> InquiryLimits:
    """Limits that make partitions be narrowed, and answers follow later."""
    return InquiryLimits(
        listed=rnd.choice((8, 50, 100_000)),
        summaries=16_384,
        depth=12,
        block_bytes=rnd.choice((9_000, 40_000, 64 * 2**20)),
    )


def some_pair(rnd: random.Random, mode: int, limits: InquiryLimits) -> tuple[Party, Party]:
    """Two parties that have some in common, and may know something of each other."""
    schema = rnd.choice((Schema(), Schema(names=frozenset({"Group"}))))
    common = some_records(rnd, rnd.choice((0, 1, 5, 60, 300)))
    claims = [
        claims_of([*common, *some_records(rnd, rnd.choice((0, 1, 5, 60)))], schema)
        for _ in range(2)
    ]
    before = [set_of(earlier(rnd, claims[at], schema), SOURCES[at]) for at in (0, 1)]
    a, b = (
        Party(
            at,
            mode,
            claims[at],
            schema,
            limits,
            cursor=before[1 - at] if rnd.random() < 0.5 else None,
            remembered=(before[at],) if rnd.random() < 0.6 else (),
            compares=rnd.random() < 0.8,
        )
        for at in (0, 1)
    )
    return a, b


def earlier(
    rnd: random.Random, claims: dict[str, Advertisement], schema: Schema
) -> dict[str, Advertisement]:
    """What claims may have been before: some fewer, some others, some changed."""
    kept = {record: claim for record, claim in claims.items() if rnd.random() < 0.95}
    kept.update(claims_of(some_records(rnd, rnd.choice((0, 1, 4))), schema))
    kept.update(claims_of(rnd.sample(sorted(kept), min(2, len(kept))), schema, "v"))
    return kept if rnd.random() < 0.9 else {}


@pytest.mark.requirement("050-72", "050-154", "050-155", "050-156", "050-170")
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_finds_what_a_full_listing_would(mode: int) -> None:
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        a, b = some_pair(rnd, mode, WIDE if mode == 0 else some_limits(rnd))
        reconcile(a, b)
        check(a, b)


@pytest.mark.parametrize("bits", [0x00, 0x03, 0x1F])
def test_fingerprints_that_collide_only_steer(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that look the same and are not, or look empty, are asked for again."""

    def weak(root: bytes) -> bytes:
        return bytes([root[0] & bits, *bytes(5)])

    for module in (advertisement_set, querier, summaries):
        monkeypatch.setattr(module, "fingerprint_of", weak)
    for seed in range(SEEDS // 3):
        rnd = random.Random(seed)
        a, b = some_pair(rnd, 2, some_limits(rnd))
        reconcile(a, b)
        check(a, b)


def test_a_delta_that_lies_is_not_believed() -> None:
    """After one that does not lead to the announced root, everything is listed."""
    lied = 0
    for seed in range(SEEDS * 3):
        rnd = random.Random(seed)
        a, b = some_pair(rnd, 2, some_limits(rnd))

        def bend(_turn: int, facts: list[Fact], rnd: random.Random = rnd) -> list[Fact]:
            nonlocal lied
            told = [fact for fact in facts if fact[0] in ("Advertised", "AdvertisementWithdrawn")]
            if not any(fact[0] == "AdvertisementDelta" for fact in facts) or not told:
                return facts
            lied += 1
            gone = rnd.choice(told)
            return [fact for fact in facts if gone[1] != fact[1]]

        reconcile(a, b, bend)
        check(a, b)
    assert lied > 5


def first_contact(
    rnd: random.Random,
    kinds: tuple[Kind, Kind] = (Reconciliation, Reconciliation),
) -> tuple[Party, Party]:
    """Two parties that know nothing of each other and have much in common, in either role."""
    schema = rnd.choice((Schema(), Schema(names=frozenset({"Group"}))))
    common = [some_record(rnd) for _ in range(rnd.choice((60, 400, 1_500)))]
    claims = []
    for _ in range(2):
        more = some_records(rnd, rnd.choice((0, 1, 5, 40)))
        claims.append(claims_of([*common, *more], schema))
        gone = rnd.sample(common, rnd.choice((0, 0, 1, 12)))
        claims[-1] = {each: claim for each, claim in claims[-1].items() if each not in gone}
    changed = rnd.sample(common, rnd.choice((0, 0, 3)))
    claims[0].update(claims_of(changed, schema, "v"))
    limits = some_limits(rnd)
    a, b = (Party(at, 2, claims[at], schema, limits, kind=kinds[at]) for at in (0, 1))
    return a, b


def test_who_follows_finds_what_a_search_would() -> None:
    followed = [0, 0]
    for seed in range(SEEDS):
        a, b = first_contact(random.Random(seed))

        def note(_turn: int, facts: list[Fact], sides: tuple[Party, Party] = (a, b)) -> list[Fact]:
            for at, side in enumerate(sides):
                followed[at] += side.at.is_following
            return facts

        reconcile(a, b, note)
        check(a, b)
    assert min(followed) > 10


@pytest.mark.parametrize("kind", [Searching, Unhelpful])
def test_whoever_the_other_side_is_both_find_all(kind: Kind) -> None:
    """A peer that always searches, or gives no hints, or follows one that gives none."""
    for seed in range(SEEDS):
        rnd = random.Random(seed)
        kinds: tuple[Kind, Kind] = (kind, Reconciliation) if seed % 2 else (Reconciliation, kind)
        a, b = first_contact(rnd, kinds)
        reconcile(a, b)
        check(a, b)


def test_following_pays() -> None:
    """Where a few records differ, both directions together cost less than two searches."""
    rnd = random.Random(3)
    common = [some_record(rnd) for _ in range(4_000)]
    for ours, theirs in ((6, 0), (0, 6), (3, 3)):
        claims = [
            claims_of([*common, *(some_record(rnd) for _ in range(count))], Schema())
            for count in (ours, theirs)
        ]
        sizes = []
        kinds: tuple[Kind, Kind] = (Searching, Reconciliation)
        for kind in kinds:
            a, b = (Party(at, 2, claims[at], kind=kind) for at in (0, 1))
            sizes.append(reconcile(a, b)[1])
            check(a, b)
        assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.parametrize("bits", [0x00, 0x03, 0x1F])
def test_who_follows_is_not_misled_by_fingerprints(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(root: bytes) -> bytes:
        return bytes([root[0] & bits, *bytes(5)])

    for module in (advertisement_set, querier, summaries):
        monkeypatch.setattr(module, "fingerprint_of", weak)
    for seed in range(SEEDS // 3):
        a, b = first_contact(random.Random(seed))
        reconcile(a, b)
        check(a, b)


@pytest.mark.requirement("050-231")
@pytest.mark.parametrize("mode", [1, 2])
def test_an_asker_keeps_to_its_limit_of_summaries(mode: int) -> None:
    """Where narrowing would bring too many summaries, larger partitions are listed."""
    for seed in range(SEEDS // 6):
        rnd = random.Random(seed)
        common = [some_record(rnd) for _ in range(1_500)]
        claims = [
            claims_of([*common, *(some_record(rnd) for _ in range(200))], Schema())
            for _ in range(2)
        ]
        lines = rnd.choice((1_700, 2_100, 2_500)) if mode == 1 else rnd.choice((4, 30, 65))
        limits = InquiryLimits(
            listed=100_000, summaries=lines, depth=12, block_bytes=rnd.choice((60_000, 2**20))
        )
        a, b = (Party(at, mode, claims[at], limits=limits) for at in (0, 1))
        try:
            reconcile(a, b)
        except InterlaceFailure as failure:
            assert failure.failure is Failure.SUMMARY_LIMIT  # noqa: PT017
            assert limits.block_bytes < 2**20, "a listing of everything would have fitted"
        else:
            check(a, b)


def test_a_partition_that_cannot_be_listed_or_narrowed_names_the_limit() -> None:
    rnd = random.Random(1)
    limits = InquiryLimits(listed=3, summaries=16_384, depth=4, block_bytes=2**20)
    for mode in (1, 2):
        many = claims_of([some_record(rnd, "abcdefgh") for _ in range(9)], Schema())
        a = Party(0, mode, {}, limits=limits)
        b = Party(1, mode, many, limits=limits)
        with pytest.raises(InterlaceFailure, match="'abcd") as caught:
            reconcile(a, b)
        assert caught.value.failure is Failure.LISTING_LIMIT
        assert "max_advertisement_records_listed" in str(caught.value.hint)
