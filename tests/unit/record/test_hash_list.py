"""A long list of record hashes."""

from __future__ import annotations

import pytest

from lace.base import b64a
from lace.record.hash_rows import HashList

HASHES = [f"{'BPS'[n % 3]}.{b64a.encode(bytes([n]) * 32)}.H3" for n in range(7)]


def test_it_is_a_sequence_of_its_hashes() -> None:
    made = HashList(HASHES)
    assert len(made) == 7
    assert list(made) == HASHES
    assert [made[n] for n in range(-7, 7)] == [*HASHES, *HASHES]
    assert made[1:6:2] == HASHES[1:6:2]
    assert HASHES[3] in made
    assert made.index(HASHES[4]) == 4
    with pytest.raises(IndexError):
        made[7]


def test_it_is_equal_to_what_has_the_same_hashes() -> None:
    made = HashList(HASHES)
    assert made == HASHES
    assert tuple(HASHES) == made
    assert made == HashList(HASHES)
    assert made != HASHES[1:]
    assert made != HASHES[::-1]
    assert made != "other"


def test_a_list_as_of_a_moment_does_not_grow() -> None:
    made = HashList(HASHES[:1])
    before = made.as_of_now()
    made.append(HASHES[1])
    assert (list(before), list(made)) == (HASHES[:1], HASHES[:2])
    assert repr(made.as_of_now()) == "<2 record hashes>"
    assert before != made
    with pytest.raises(ValueError, match="nothing can be added"):
        before.append(HASHES[1])


def test_other_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="no record hash"):
        HashList(["B.short.H3"])
