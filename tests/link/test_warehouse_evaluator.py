"""How an exchange with a warehouse is evaluated: by what is registered, or here if it is small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lace.base.limits import MAX_LINE_BYTES
from lace.exchange.effects import Evaluate
from lace.exchange.negotiation import runtime_facts
from lace.spark.served import PlanNotRegisteredError, WarehouseEvaluating
from tests.unit.exchange.sides import FIELDS, PLAIN, START, pair_of

if TYPE_CHECKING:
    from lace.link.evaluator import ExchangeEvaluator

FOUND = object()
"""What is registered: what may be sent."""


class Warehouse:
    """A warehouse of ten records in which every plan is registered, and how often one is sought."""

    def __init__(self) -> None:
        self.sought: list[tuple[object, ...]] = []
        self.index = range(10)
        self.warehouse = SimpleNamespace(folder="/wh")
        self.generation = 7

    def renew(self) -> Warehouse:
        return self

    def find(self, *asked: object) -> object:
        self.sought.append(asked)
        return FOUND


def evaluator(warehouse: Warehouse, rules: str, max_line_bytes: int | None) -> ExchangeEvaluator:
    pair = pair_of(rules=(rules, rules))
    executable = cast("Any", SimpleNamespace(plan=pair.plan, viewer="V", index=0))
    made = WarehouseEvaluating(cast("Any", warehouse), 5)(
        cast("Any", None),
        executable,
        pair.terms(0),
        transport="x",
        encrypted=False,
        max_value_bytes=1000,
        max_line_bytes=max_line_bytes,
    )
    terms = pair.terms(0)
    facts = runtime_facts(terms, transport="x", encrypted=False)
    assert warehouse.sought == [(executable, facts, terms.source, terms.schema)]
    return made


@pytest.mark.parametrize(
    ("rules", "most"),
    [(FIELDS, MAX_LINE_BYTES), (PLAIN, 80), (PLAIN, None)],
    ids=["fields", "bare", "memory"],
)
def test_what_is_registered_is_taken(rules: str, most: int | None) -> None:
    """With fields, it was made for the usual length of lines; without them that has no effect."""
    made = evaluator(Warehouse(), rules, most)
    ask = Evaluate(tick=START, local=START)
    assert made.evaluate(ask).kept is FOUND
    assert made.evaluate(ask).kept is None, "nothing changes after that"
    assert made.position == (7, 0)


@pytest.mark.parametrize("most", [MAX_LINE_BYTES - 1, MAX_LINE_BYTES + 1, None])
def test_fields_under_another_length_of_lines_are_not_what_is_registered(most: int | None) -> None:
    """Others could be left out there; and ten records are too many to be evaluated here."""
    warehouse = Warehouse()
    with pytest.raises(PlanNotRegisteredError, match="whose 10 records are more"):
        evaluator(warehouse, FIELDS, most)
    assert not warehouse.sought
