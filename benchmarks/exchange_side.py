"""Exchanges of two laces in one fresh process that tells its steps.

`python -m benchmarks.exchange_side move FROM TO` moves all records of one lace to an empty
one; `open FROM TO` keeps them interlaced, adds records one by one, and then waits.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lace
from benchmarks.measure import Steps, children_cpu
from lace.api import now
from lace.link.side import Side, open_exchange

if TYPE_CHECKING:
    from lace.link.in_process import OpenPairing

SELECT: Final = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
EXPOSE: Final = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
FURTHER: Final = 20
IDLE_SECONDS: Final = 5
_LONG: Final = 60.0


def _opened(folder: Path) -> lace.Lace:
    made = lace.open(folder)
    if made.keys.default() is None:
        key = lace.SigningKey.generate()
        made.keys.add(key)
        made.keys.set_default(key.verifier)
    return made


def _policy(peer: lace.Lace) -> lace.Policy:
    return lace.Policy(select=SELECT, exposures=[(EXPOSE, str(peer.keys.default()))])


def _move(source: Path, target: Path, steps: Steps) -> None:
    with _opened(source) as left, _opened(target) as right:
        with steps.step("exchange"):
            done = lace.interlace(left, right, _policy(right), _policy(left))
        if not done or len(right) != len(left):
            raise RuntimeError(f"{len(right):,} of {len(left):,} records are there")
        counters = done.right.counters
    steps.count("records", counters.stored)
    steps.count("loops", counters.loops)
    steps.count("turns", counters.turns)
    steps.count("children-ms", round(children_cpu() * 1000))


def _open(source: Path, target: Path, steps: Steps) -> None:
    with _opened(source) as left, _opened(target) as right:
        sides = [
            Side(each.store, each.settings, _policy(other), each.signing_key(), each.workers)
            for each, other in ((lace.open(source), right), (lace.open(target), left))
        ]
        exchange = open_exchange(sides[0], sides[1], now)
        _await(exchange, right, len(left))
        for number in range(FURTHER):
            left.add(lace.Plex(group="u", app="ding", name=f"further/{number}", data=b"x"))
            with steps.step("reached"):
                _await(exchange, right, len(left))
            time.sleep(0.2)
        with steps.step("idle"):
            time.sleep(IDLE_SECONDS)
        exchange.stop()


def _await(exchange: OpenPairing, there: lace.Lace, count: int) -> None:
    if not exchange.wait_until(lambda: len(there) == count, _LONG):
        raise RuntimeError(f"{len(there):,} of {count:,} records are there")


if __name__ == "__main__":
    told = Steps()
    {"move": _move, "open": _open}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), told)
    told.tell()
