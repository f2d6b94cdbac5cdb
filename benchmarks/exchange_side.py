"""Exchanges of two laces in one fresh process that tells its steps.

`python -m benchmarks.exchange_side move FROM TO` moves all records of one lace to an empty
one; `open FROM TO` keeps them interlaced, adds records one by one, and then waits.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Final

import lace
from benchmarks.measure import Steps, children_cpu

SELECT: Final = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
EXPOSE: Final = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
FURTHER: Final = 20
IDLE_SECONDS: Final = 5
_LONG: Final = 60.0
_LOOK_SECONDS: Final = 0.002


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
        exchange = lace.interlace(left, right, _policy(right), _policy(left), open=True)
        _await(right, len(left))
        for number in range(FURTHER):
            left.add(lace.Plex(group="u", app="ding", name=f"further/{number}", data=b"x"))
            with steps.step("reached"):
                _await(right, len(left))
            time.sleep(0.2)
        with steps.step("idle"):
            time.sleep(IDLE_SECONDS)
        exchange.stop()


def _await(there: lace.Lace, count: int) -> None:
    until = time.monotonic() + _LONG
    while len(there) != count:
        if time.monotonic() > until:
            raise RuntimeError(f"{len(there):,} of {count:,} records are there")
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    import_module("lace.link.side")  # loading is no part of an exchange
    told = Steps()
    {"move": _move, "open": _open}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), told)
    told.tell()
