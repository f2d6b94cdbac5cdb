"""An order of rows that only the rows decide."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from lace.columns import dictionary as dictionary_module
from lace.columns.dictionary import Dictionary
from lace.columns.relation import Relation
from lace.engine import enclave as canonical_order
from lace.engine.enclave import in_text_order
from lace.engine.factbase import FactBase
from lace.engine.load import ReferredTexts
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    import pytest

FIELD, HAVE, FLAG = PredicateKey("Field", 3), PredicateKey("Have", 1), PredicateKey("Flag", 0)
IDENTIFYING = {FIELD: (0, 1), HAVE: (0,), FLAG: ()}
ROWS: list[tuple[str, ...]] = [
    ("Field", f"record {number}", name, f"value {number % 3}")
    for number in range(12)
    for name in ("a", "b")
]
ROWS += [("Have", f"record {number}") for number in range(0, 20, 3)]


def numbered(facts: list[tuple[str, ...]], before: list[str]) -> tuple[object, ...]:
    """Return all that renumbering gives, for a dictionary that knew other texts before."""
    base = FactBase(max_value_bytes=1024)
    base.dictionary.intern_all(before)
    base.change(facts)
    shown = {key: base.relations[key] for key in (FIELD, HAVE)} | {FLAG: Relation.of((), 1)}
    columns = {key: (found.columns(), found.rows) for key, found in shown.items()}
    made = in_text_order(columns, IDENTIFYING, base.dictionary, base.size)
    mapped = ReferredTexts(base.dictionary, np.empty(0, np.int32), 1024)
    rows = {str(key): [mapped.adopt(column).tolist() for column in made[key][0]] for key in made}
    return mapped.texts(np.arange(len(mapped), dtype=np.int32)), rows, made[FLAG][1]


def test_neither_order_nor_other_texts_show() -> None:
    expected = numbered(ROWS, [])
    for seed in range(5):
        mixed = random.Random(seed).sample(ROWS, len(ROWS))
        assert numbered(mixed, [f"hidden {number}" for number in range(seed * 10)]) == expected
    assert numbered(ROWS, ["value 2", "record 9", "b"]) == expected


def test_texts_of_one_fingerprint_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts can be made to have the same one; then the texts themselves decide."""
    monkeypatch.setattr(
        dictionary_module,
        "fingerprints_of",
        lambda texts: np.array([len(text) % 2 for text in texts], np.uint64),
    )
    expected = numbered(ROWS, [])
    assert numbered(ROWS[::-1], ["hidden", "record 3"]) == expected
    texts = expected[0]
    assert isinstance(texts, list)
    assert len(set(texts)) == len(texts)


def test_only_mapped_texts_are_found() -> None:
    known = Dictionary()
    ids = known.intern_all(["hidden", "b", "a", "secret"])
    mapped = ReferredTexts(known, ids[[2, 1]], 1024)
    assert mapped.find_all(["a", "b", "hidden", "nowhere"]).tolist() == [0, 1, -1, -1]
    assert mapped.texts(np.array([1, 0, 1], np.int32)) == ["b", "a", "b"]
    assert mapped.fingerprints(np.array([0], np.int32)) == known.fingerprints(ids[[2]])


def test_without_texts_none_is_found() -> None:
    known = Dictionary()
    known.intern("hidden")
    mapped = ReferredTexts(known, np.empty(0, np.int32), 1024)
    assert len(mapped) == 0
    assert mapped.find_all(["hidden", "x"]).tolist() == [-1, -1]
    assert in_text_order({}, {}, known, 10) == {}


def test_rows_are_ordered_by_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed into one key or not, and however many digits that has."""
    rnd = random.Random(1)
    for most in (1, 3, 70_000):
        ranks = [np.array([rnd.randrange(most) for _ in range(500)], np.int32) for _ in range(3)]
        rows = list(zip(*(each.tolist() for each in ranks), strict=True))
        expected = sorted(range(500), key=lambda at: rows[at])
        for last in (2**63 - 1, 10):
            monkeypatch.setattr(canonical_order, "_LAST_PACKED", last)
            assert canonical_order._order(ranks, 500).tolist() == expected
