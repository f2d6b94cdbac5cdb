"""The bytes of an exchange, by what they are for: the same on both sides, over any binding."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange.result import Counters
from tests.link.test_pairing import SELECT, plex, policy
from tests.link.test_session import BINDINGS, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from lace.exchange.result import Outcome

pytestmark = pytest.mark.requirement("050-197")
# What 050's Interlace-Result has, and all else that a result says.
KEYS = {
    "receipts", "receipts-omitted",
    "link-id", "exchange-plan-id", "peer-verifier", "received-hashes", "rejected-hashes",
    "not-available-hashes", "bytes-received", "bytes-sent", "cursor-updated",
    "reconciliation-bytes-received", "reconciliation-bytes-sent", "control-bytes-received",
    "control-bytes-sent", "at-fixed-point", "ticks-missed", "reason", "noted",
    "failure", "loops", "turns", "requested", "stored", "pending-here", "pending-there", "seconds",
}  # fmt: skip
PHASES = {"setup", "hello", "advertise", "request", "transfer"}


@pytest.fixture
def sides(sides: tuple[lace.Lace, lace.Lace]) -> tuple[lace.Lace, lace.Lace]:
    left, right = sides
    left.add_all([plex(f"a/{number}") for number in range(30)])
    right.add_all([plex(f"b/{number}") for number in range(20)])
    return left, right


def check(one: Outcome, other: Outcome) -> None:
    for outcome in (one, other):
        assert outcome.at_fixed_point
        document = outcome.to_json()
        assert document.keys() == KEYS
        assert set(document["seconds"]) >= PHASES
        assert document["pending-here"] == document["pending-there"] == 0
        assert document["loops"] >= 2
        assert document["turns"] >= document["loops"]
    for sender, receiver in ((one.counters, other.counters), (other.counters, one.counters)):
        assert sender.bytes_sent == receiver.bytes_received > 1_000
        assert sender.reconciliation_sent == receiver.reconciliation_received > 1_000
        assert sender.control_sent == receiver.control_received > 1_000


@pytest.mark.parametrize("binding", [BINDINGS[0], BINDINGS[2]])
def test_over_a_wire(sides: tuple[lace.Lace, lace.Lace], binding: str) -> None:
    check(*exchange(*sides, binding))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_within_a_process_as_over_a_wire(tmp_path: Path, mode: int) -> None:
    found: list[Counters] = []
    for at in (0, 1):
        made = [
            lace.open(tmp_path / f"{at}-{name}", settings={"reconcile_mode": mode})
            for name in ("left", "right")
        ]
        for number, each in enumerate(made):
            key = lace.SigningKey.generate()
            each.keys.add(key)
            each.keys.set_default(key.verifier)
            each.add_all([plex(f"{number}/{at}") for at in range(30)])
        left, right = made
        if at:
            check(*exchange(left, right, BINDINGS[0]))
            outcome = exchange(left, right, BINDINGS[0])[0]
        else:
            done = lace.interlace(left, right, policy(right), policy(left))
            check(done.left, done.right)
            outcome = lace.interlace(left, right, policy(right), policy(left)).left
        found.append(outcome.counters)
        left.close()
        right.close()
    inner, outer = found
    # Keys and nonces differ, their sizes do not.
    assert inner.reconciliation_sent == outer.reconciliation_sent
    assert inner.reconciliation_received == outer.reconciliation_received
    assert inner.control_sent == pytest.approx(outer.control_sent, rel=0.1)


def test_a_failed_exchange_counts_as_well(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    strict = lace.Policy(select=SELECT, lowering="encrypted-v1")
    with pytest.raises(lace.ProtocolError) as caught:
        lace.interlace(left, right, strict, policy(left))
    counters = caught.value.result.left.counters  # type: ignore[attr-defined]
    assert counters.control_sent > 100
    assert counters.reconciliation_sent == 0


def test_every_counter_has_a_meaning_in_the_document() -> None:
    numbers = {each.name: at for at, each in enumerate(fields(Counters), 1)}
    from lace.exchange.result import Outcome

    document = Outcome(counters=Counters(**numbers)).to_json()
    shown = {value for value in document.values() if isinstance(value, int)} - {True, False}
    assert shown >= set(numbers.values()) - {numbers["answered"], 1}
