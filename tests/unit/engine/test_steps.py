"""Joins: the same rows and the same work, whichever side is looked through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.columns.relation import EVERYTHING
from lace.engine import steps
from lace.engine.budget import Statistics
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey

PAIR = PredicateKey("Pair", 2)
PROGRAM = check_source(
    "Pair(X,Y) :- Chosen(X), Edge(X,Y).", profile=QUERY.with_base([("Chosen", 1), ("Edge", 2)])
)
NUMBERS = st.integers(0, 12).map(str)


@given(
    st.sets(NUMBERS, min_size=1), st.sets(st.tuples(NUMBERS, NUMBERS), min_size=1), st.booleans()
)
def test_work_does_not_tell_which_side_was_looked_through(
    chosen: set[str], edges: set[tuple[str, str]], is_indexed: bool
) -> None:
    found = []
    for share in (0, 2**40):
        base = FactBase(max_value_bytes=1024)
        base.change([("Chosen", each) for each in sorted(chosen)])
        base.change([("Edge", *each) for each in sorted(edges)])
        if is_indexed:
            for selection in base.relations[PredicateKey("Edge", 2)].select(EVERYTHING):
                selection.index((0,), base.size)
        statistics = Statistics()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "_SCANNED_SHARE", share)
            evaluation = EvaluationSession(base).evaluate(PROGRAM, [PAIR], statistics)
            found.append((sorted(evaluation.texts(PAIR)), statistics.work))
    assert found[0] == found[1]
    assert set(found[0][0]) == {edge for edge in edges if edge[0] in chosen}
