"""Open exchanges in one process: what is stored on one side reaches the other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.link.test_pairing import hashes, plex

if TYPE_CHECKING:
    import lace
    from tests.link.pairing import OpenPair

SOON = 20.0
ADD = """
import sys, lace
with lace.open(sys.argv[1]) as store:
    store.add(lace.Plex(group="u", app="ding", name="by another", data=b"x"))
"""


def test_what_comes_on_one_side_reaches_the_other(
    sides: tuple[lace.Lace, lace.Lace], exchange: OpenPair
) -> None:
    left, right = sides
    wanted = set()
    for number in range(3):
        wanted.add(left.add(plex(f"left/{number}")))
        assert exchange.wait_until(lambda: hashes(right) == wanted, SOON)
        wanted.add(right.add(plex(f"right/{number}")))
        assert exchange.wait_until(lambda: hashes(left) == wanted, SOON)


def test_what_another_process_stores_reaches_the_other_side(
    sides: tuple[lace.Lace, lace.Lace], exchange: OpenPair
) -> None:
    left, right = sides
    assert exchange.wait_until(lambda: not hashes(right), SOON)
    subprocess.run([sys.executable, "-c", ADD, str(left.store.folder)], check=True)
    assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)


def test_while_nothing_comes_nothing_is_done(
    sides: tuple[lace.Lace, lace.Lace], exchange: OpenPair
) -> None:
    left, right = sides
    left.add(plex("a"))
    assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)
    assert not exchange.wait_until(lambda: False, 0.2)  # what is said after a record has come
    before = exchange.counters
    assert not exchange.wait_until(lambda: False, 1.5)
    assert exchange.counters == before


def test_a_stopped_exchange_says_what_came_of_it(
    sides: tuple[lace.Lace, lace.Lace], exchange: OpenPair
) -> None:
    left, right = sides
    left.add(plex("a"))
    assert exchange.wait_until(lambda: len(hashes(right)) == 1, SOON)
    exchange.stop(SOON)
    outcomes = exchange.outcomes
    assert all(outcome is not None and outcome.failure is None for outcome in outcomes)
    assert outcomes[1] is not None
    assert outcomes[1].received == tuple(hashes(left))
