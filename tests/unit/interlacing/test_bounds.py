"""What a peer may ask and list in one loop is bounded, whatever its blocks may hold."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from lace.base import b64a
from lace.interlacing.answering import Answers
from lace.interlacing.asking import Inquiry
from lace.interlacing.capabilities import Schema
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.questions import LIST, NARROW
from lace.interlacing.summaries import Summary
from tests.unit.interlacing.reconciling import SOURCES, WIDE, claims_of, set_of, some_record

RECORDS = [some_record(random.Random(seed)) for seed in range(40)]
CLAIMS = claims_of(RECORDS, Schema())
OWN = set_of(CLAIMS, SOURCES[0])


@pytest.mark.requirement("050-231")
def test_questions_are_bounded_as_summaries_are() -> None:
    """A block holds a million of them, and no answer would be awaited before the next."""
    answers = Answers(2, OWN, SOURCES[0], replace(WIDE, summaries=20))
    names = ["".join(each) for each in itertools.product(b64a.ALPHABET, repeat=2)]
    answers.ask([(LIST, name) for name in names[:20]])
    with pytest.raises(InterlaceFailure, match="more than 20 questions") as caught:
        answers.ask([(LIST, names[20])])
    assert caught.value.failure is Failure.SUMMARY_LIMIT


@pytest.mark.parametrize(("kind", "length"), [(LIST, 5), (NARROW, 4)])
def test_nothing_is_asked_beyond_the_depth(kind: str, length: int) -> None:
    prefix = RECORDS[0][2 : 2 + length]
    answers = Answers(2, OWN, SOURCES[0], replace(WIDE, depth=4))
    with pytest.raises(InterlaceFailure, match="beyond the depth") as caught:
        answers.ask([(kind, prefix)])
    assert caught.value.failure is Failure.DEPTH_LIMIT
    assert "max_narrowing_depth=4" in str(caught.value.hint)
    answers.ask([(kind, prefix[:-1])])


def test_what_was_answered_is_not_held() -> None:
    answers = Answers(2, OWN, SOURCES[0], WIDE)
    answers.ask([(LIST, "abcd"), (LIST, "abce")])
    assert answers.block(CLAIMS)
    assert not answers._above


@pytest.mark.requirement("050-169")
def test_no_more_is_listed_than_was_announced() -> None:
    inquiry = Inquiry(2, [], WIDE, 114)
    inquiry.announce({"": Summary(3, bytes(32))})
    inquiry._note_listed(claims_of(RECORDS[:3], Schema()))
    with pytest.raises(InterlaceFailure) as caught:
        inquiry._note_listed(claims_of(RECORDS[3:4], Schema()))
    assert caught.value.failure is Failure.COUNT_MISMATCH
