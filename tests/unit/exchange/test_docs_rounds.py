"""The page on loops and rounds is true: its blocks, its numbers and the fields of a result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.capabilities import ExchangeLimits
from lace.exchange.result import Outcome
from lace.exchange.transitions import State
from lace.facts.lines import format_fact
from tests.conformance.test_050_interlace import add, blocks, of_kind, world_of
from tests.simulator.policies import START
from tests.store.samples import blob, plex, valid

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "rounds.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.requirement("050-78", "050-79")
def test_the_request_and_what_is_not_available() -> None:
    """The exchange of the example: Bob removes a record after he advertised it."""
    one, two, three = valid(blob("one"), blob("two"), blob("three"))
    world = world_of([one], [one, two, three])
    a, b = world.sides
    while b.machine.state is not State.REQUESTING or not b.inbox:
        assert world.step()
    del b.store[two.hash_text]
    world.run()
    asked = [block for block in blocks(a) if any(fact[0] == "MayRequest" for fact in block)]
    assert ["\n".join(sorted(map(format_fact, block))) for block in asked] == [BLOCKS[0]]
    batches = [each for each in of_kind(b, wanted.SendBatch) if isinstance(each, wanted.SendBatch)]
    assert batches[0].records == (three.hash_text,)
    missing = [format_fact(("NotAvailable", each)) for each in batches[0].unavailable]
    assert missing == [BLOCKS[1]]
    assert a.outcome is not None
    assert a.outcome.not_available == (two.hash_text,)


@pytest.mark.requirement("050-200")
def test_the_fields_of_a_result() -> None:
    table = PAGE.partition("| field | meaning |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == list(Outcome().to_json())


def test_numbers_and_words() -> None:
    limits = ExchangeLimits()
    assert (limits.service_budget_seconds, limits.service_budget_bytes) == (10, 128 * 2**20)
    assert "10 s and 128 MiB" in PAGE
    assert f"`phase_timeout_seconds`, {limits.phase_timeout_seconds} s" in PAGE
    assert '"not at a fixed point"' in PAGE
    assert f"`max_not_available_records` ({limits.max_not_available_records:,})" in PAGE
    for name in ("max_rejected_records", "max_total_transferred_bytes", "max_loop_iterations"):
        assert hasattr(limits, name)
        assert f"`{name}`" in PAGE


@pytest.mark.requirement("050-194", "050-195")
def test_who_starts_a_loop_while_waiting() -> None:
    """A record that the peer is not to get is not worth a word; two beginnings are one loop."""
    one, two, three = valid(blob("one"), blob("two"), plex("n", at=START))
    shown = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'Group',_,'u')."
    world = world_of([one], [], exposures=(shown, shown), is_open=True)
    world.run()
    a, b = world.sides
    said = len(blocks(a))
    add(world, a, three)
    world.run()
    assert len(blocks(a)) == said
    before = a.machine.counters.loops
    for side, record in ((a, two), (b, valid(blob("four"))[0])):
        add(world, side, record)
    world.run()
    assert a.machine.state is b.machine.state is State.WAITING
    assert set(b.store) == set(a.store) - {three.hash_text}
    # One loop that both began, and one that finds nothing more.
    assert a.machine.counters.loops == before + 2


@pytest.mark.requirement("050-199")
def test_each_side_decides_whether_it_is_open() -> None:
    world = world_of([], valid(blob("one")), is_open=True)
    world.plan.is_open = True, False
    world.connect()
    world.run()
    a, b = world.sides
    assert b.outcome is not None
    assert b.outcome.at_fixed_point
    assert a.outcome is not None
    assert a.outcome.failure is None
    assert isinstance(a.trace[-1][0], happened.Ended)
