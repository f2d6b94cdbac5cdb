"""Reconciliation of random sets: every mode finds what a full listing would, whatever is known."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from lace.interlacing import asking, partitions
from lace.interlacing.capabilities import Schema
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.questions import InquiryLimits
from tests.unit.interlacing.reconciling import (
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
    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement

pytestmark = pytest.mark.property

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
SEEDS = 3_000 if IS_DEEP else 60
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

    monkeypatch.setattr(partitions, "fingerprint_of", weak)
    monkeypatch.setattr(asking, "fingerprint_of", weak)
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
