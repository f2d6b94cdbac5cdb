"""Base facts: a value that is refused is refused however often it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.engine.factbase import FactBase
from lace.errors import LaceError
from lace.rules.syntax import PredicateKey
from tests.unit.columns.stored_texts import Stored

if TYPE_CHECKING:
    from lace.columns.dictionary import StoredTexts

FACT = PredicateKey("F", 2)


@pytest.mark.requirement("020-14", "020-15")
@pytest.mark.parametrize("value", ["x" * 1025, "e\u0301", "\ud800", 7])
@pytest.mark.parametrize("before", [None, Stored(["a", "b"])])
def test_a_refused_value_stays_refused(value: Any, before: StoredTexts | None) -> None:
    base = FactBase(before, max_value_bytes=1024)
    base.change([("F", "a", "c")])
    count = len(base.dictionary)
    for _ in range(3):
        with pytest.raises(LaceError):
            base.change([("F", "a", "new"), ("F", "b", value)])
        assert len(base.dictionary) == count
    base.change([("F", "b", "new")])
    found = base.relations[FACT]
    rows = base.dictionary.rows(found.columns(), found.rows)
    assert sorted(rows) == [("a", "c"), ("b", "new")]
