"""The advertisement sets that a side holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.exchange import advertise as states_module
from lace.exchange.advertise import States
from lace.exchange.advertisement import Advertisement
from lace.policy.schema import Schema

if TYPE_CHECKING:
    from lace.exchange.negotiation import Terms

TERMS = cast(
    "Terms",
    SimpleNamespace(source="Opq_a", peer_source="Opq_b", schema=Schema(), mode=0),
)


def claims(first: int, last: int) -> list[Advertisement]:
    texts = (b64a.encode(digest(bytes([number]))) for number in range(first, last))
    return [Advertisement(f"B.{text}.H3") for text in texts]


@pytest.mark.parametrize(("more", "is_worth"), [(1, True), (12, True), (13, False), (90, False)])
def test_a_set_is_remembered_while_few_records_have_changed(
    more: int, is_worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_module, "_FEW_RECORDS", 20)
    states = States(TERMS)
    states.take(claims(0, 100), ())
    states.freeze()
    first = states.own.root("")
    assert not states.remembered
    states.take(claims(100, 100 + more), ())
    states.freeze()
    assert (first in states.remembered) is is_worth
    assert len(states.own) == 100 + more


def test_a_set_that_stays_is_the_same_set() -> None:
    states = States(TERMS)
    states.take(claims(0, 100), ())
    states.freeze()
    before = states.own
    states.freeze()
    assert states.own == before
    states.take(claims(100, 101), [claims(0, 1)[0].record])
    assert states.next_own != before
    assert len(states.next_own) == 100
    states.freeze()
    assert states.own.root("") == states.next_own.root("") != before.root("")
