"""Texts and numbers: whatever holds them, a text has one number, and a number one text."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base import b64a
from lace.base.digest import digest
from lace.columns import dictionary as dictionary_module
from lace.columns.dictionary import Dictionary, HashBlock, distinct_hashes, fingerprints_of
from lace.columns.segment_journal import SegmentDamagedError
from lace.engine.load import intern_values
from lace.errors import EngineError, LimitExceeded
from lace.facts.lines import FactLineError
from lace.record.hash_rows import keys_of_hashes
from tests.unit.columns.stored_texts import Stored


def hash_text(seed: int, *, alike: bool = False) -> str:
    raw = digest(seed.to_bytes(8))
    return f"{'BPS'[seed % 3]}.{b64a.encode(bytes(8) + raw[8:] if alike else raw)}.H3"


HASHES = [hash_text(seed) for seed in range(30)]
ALIKE = [hash_text(seed, alike=True) for seed in range(10)]
OTHERS = ["", "a", "é", "u//ding", HASHES[0][:-1] + "4", HASHES[0] + "x", f"P:{HASHES[0][2:]}"]
TEXTS = st.sampled_from([*HASHES, *ALIKE, *OTHERS])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary_module, "_MANY", 4)
    monkeypatch.setattr(dictionary_module, "_MOST_AT_HAND", 2)
    monkeypatch.setattr(dictionary_module, "_MAX_ABSENT", 3)


@pytest.mark.property
@given(
    st.none() | st.lists(TEXTS, unique=True, max_size=8),
    st.lists(
        st.tuples(st.sampled_from(["intern", "find", "one", "forget"]), st.lists(TEXTS)),
        max_size=8,
    ),
)
def test_a_text_has_one_number(
    stored: list[str] | None, steps: list[tuple[str, list[str]]]
) -> None:
    dictionary = Dictionary(None if stored is None else Stored(stored))
    model = {text: number for number, text in enumerate(stored or [])}
    for kind, texts in steps:
        before = len(dictionary)
        if kind == "find":
            assert dictionary.find_all(texts).tolist() == [model.get(text, -1) for text in texts]
        elif kind == "one":
            assert [dictionary.find(text) for text in texts] == [model.get(t, -1) for t in texts]
        else:
            made = dictionary.intern_all(texts).tolist()
            known = dict(zip(texts, made, strict=True))
            new = {text for text in texts if text not in model}
            assert sorted(known[text] for text in new) == list(range(before, len(dictionary)))
            assert all(known[text] == model.get(text, known[text]) for text in texts)
            if kind == "forget":
                assert {len(each) for each in dictionary.unchecked(before)} == set(map(len, new))
                dictionary.forget(before)
                assert len(dictionary) == before
            else:
                model |= known
        check(dictionary, model)


def check(dictionary: Dictionary, model: dict[str, int]) -> None:
    """See that every text has its number, and every number its text."""
    assert len(dictionary) == len(model)
    texts = list(model)
    ids = np.array([model[text] for text in texts], np.int32)
    assert dictionary.texts(ids) == texts
    assert dictionary.find_all(texts).tolist() == ids.tolist()
    assert dictionary.fingerprints(ids).tolist() == fingerprints_of(texts).tolist()
    assert [dictionary.text(number) for number in islice(ids.tolist(), 3)] == texts[:3]


def test_many_hashes_are_held_as_a_block() -> None:
    dictionary = Dictionary()
    values = [each for text in HASHES for each in (text, "source")]
    made = dictionary.intern_all(values)
    assert dictionary.texts(made) == values
    assert len(dictionary.unchecked(0)) == 2  # one stands for all of a block
    assert dictionary.intern_all(HASHES[::-1]).tolist() == made[::2][::-1].tolist()


def test_hashes_that_begin_alike_are_told_apart() -> None:
    rows, _ = keys_of_hashes([*ALIKE, ALIKE[2], *HASHES])
    first, whose = distinct_hashes(rows)
    assert len(first) == len(ALIKE) + len(HASHES)
    assert whose[len(ALIKE)] == whose[2] == 2
    block = HashBlock(7, rows[first][:-5])
    assert block.find(rows[first]).tolist() == [*range(7, block.stop), *[-1] * 5]


@pytest.mark.parametrize("odd", [5, b"x" * 48, ("x",) * 48, None, ["x"]])
def test_a_value_that_is_no_text_leaves_nothing_behind(odd: object) -> None:
    dictionary = Dictionary()
    dictionary.intern_all(["a", "b"])
    values = [*HASHES, "c", "e\u0301", odd]
    with pytest.raises(EngineError):
        intern_values(values, dictionary, 100)  # type: ignore[arg-type] # that is the point
    assert len(dictionary) == 2
    with pytest.raises(FactLineError):
        intern_values(["e\u0301"], dictionary, 100)


def test_blocks_have_values_that_are_too_long_where_hashes_are() -> None:
    dictionary = Dictionary()
    with pytest.raises(LimitExceeded, match="48"):
        intern_values(HASHES, dictionary, 47)
    assert len(dictionary) == 0


def test_a_number_beyond_all_texts_is_damage_only_beside_stored_ones() -> None:
    beside = Dictionary(Stored(["a", "b"]))
    assert beside.intern("c") == 2
    assert beside.texts(np.array([2, 0], np.int32)) == ["c", "a"]
    for wrong in (3, 2**31 - 1):
        with pytest.raises(SegmentDamagedError):
            beside.texts(np.array([2, wrong], np.int32))
    alone = Dictionary()
    alone.intern("c")
    with pytest.raises(IndexError):
        alone.texts(np.array([1], np.int32))
