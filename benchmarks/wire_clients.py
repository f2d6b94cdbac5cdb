"""Many clients of one server, in a few processes that begin at the same moment.

`python -m benchmarks.wire_clients ADDRESS FOLDER FIRST COUNT` makes COUNT small laces with a key
each, says that it is ready, waits for a line, and lets them all converge with the server at once.
It tells when each began and ended, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import lace
from benchmarks.exchange_side import EXPOSE, SELECT
from benchmarks.measure import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMON", "COMMON_EXPOSE", "RECORDS", "Together", "run_clients", "write_records"]

RECORDS: Final = 10
"""Records of a client, which it sends; and those that the server has for every client."""
COMMON: Final = "common"
COMMON_EXPOSE: Final = (
    f"AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'{COMMON}').\n"
)
"""What the server shows: else a late client would get what the earlier ones have brought."""
PROCESSES: Final = 4


@dataclass(frozen=True)
class Together:
    """When the links of all clients began and ended, and what went wrong with some."""

    spans: list[tuple[float, float]]
    failures: list[str]

    @property
    def median(self) -> float:
        """The median of what they took."""
        return median(ended - began for began, ended in self.spans)

    @property
    def slow(self) -> float:
        """What all took at the most but for one in a hundred."""
        taken = sorted(ended - began for began, ended in self.spans)
        return taken[max(0, -(-99 * len(taken) // 100) - 1)]

    @property
    def most_at_once(self) -> int:
        """How many there were at the fullest moment."""
        changes = sorted(
            [(began, 1) for began, _ in self.spans] + [(ended, -1) for _, ended in self.spans]
        )
        now = most = 0
        for _, change in changes:
            now += change
            most = max(most, now)
        return most


def write_records(made: lace.Lace, group: str) -> None:
    """Add the records of a client, or those of the server."""
    tai = lace.Tai("1700000000:000000000")
    made.add_all(
        [
            lace.Plex(group=group, app="ding", name=f"{group}/{number}", tai=tai, data=b"x" * 200)
            for number in range(RECORDS)
        ]
    )


def _opened(folder: Path) -> lace.Lace:
    made = lace.open(folder)
    key = lace.SigningKey.generate()
    made.keys.add(key)
    made.keys.set_default(key.verifier)
    write_records(made, folder.stem)
    return made


async def _converge(address: str, own: lace.Lace, policy: lace.Policy, told: Together) -> None:
    began = time.monotonic()
    try:
        async with lace.connect(address, own, policy) as link:
            outcome = await link.result()
        if not outcome.at_fixed_point or len(outcome.received) != RECORDS:
            told.failures.append(f"{len(outcome.received)} records came: {outcome.reason}")
    except lace.LaceError as error:
        told.failures.append(str(error))
    told.spans.append((began, time.monotonic()))


async def _converge_all(address: str, laces: Sequence[lace.Lace]) -> Together:
    told = Together([], [])
    policy = lace.Policy(select=SELECT, exposures=[EXPOSE])
    await asyncio.gather(*(_converge(address, own, policy, told) for own in laces))
    return told


def _main(address: str, folder: Path, first: int, count: int) -> None:
    with ExitStack() as held:
        laces = [
            held.enter_context(_opened(folder / f"client-{number}.lace"))
            for number in range(first, first + count)
        ]
        print("ready", flush=True)
        sys.stdin.readline()
        told = asyncio.run(_converge_all(address, laces))
    print(json.dumps([told.spans, told.failures]))


def run_clients(address: str, folder: Path, count: int) -> Together:
    """Have that many clients converge with a server, all at once."""
    starts = [count * part // PROCESSES for part in range(PROCESSES + 1)]
    with ExitStack() as held:
        processes = [
            held.enter_context(_start(address, folder, first, after - first))
            for first, after in pairwise(starts)
        ]
        for process in processes:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError("a process of clients did not start")
        for process in processes:
            if process.stdin is not None:
                process.stdin.write("begin\n")
                process.stdin.flush()
        told = Together([], [])
        for process in processes:
            spans, failures = json.loads(process.communicate()[0])
            told.spans.extend((began, ended) for began, ended in spans)
            told.failures.extend(failures)
    return told


def _start(address: str, folder: Path, first: int, count: int) -> subprocess.Popen[str]:
    arguments = [address, str(folder), str(first), str(count)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.wire_clients", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
