"""Two laces that know each other, and servers that are processes of their own."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.api import SigningKey, open_lace
from lace.record.model import Plex
from tests.cli.policies import ALL
from tests.cli.running import Result, process, spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Party", "hashes", "make_parties", "plex", "serving", "wait_until"]

EXPOSE_ALL = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Party:
    """A lace, the verifier of its key, and its rule files."""

    folder: Path
    verifier: str
    select: Path
    view: Path

    def policy(self, peer: Party) -> list[str]:
        """The options with which it selects everything, and exposes everything to a peer."""
        exposing = f"{self.view}@{peer.verifier}"
        return ["--lace", str(self.folder), "--select", str(self.select), "--expose", exposing]

    def sync(self, peer: Party, address: str, *more: object) -> Result:
        """Run `lace sync` with a peer."""
        return process("sync", address, *self.policy(peer), *more)


def plex(name: str, data: bytes = b"x", group: str = "u") -> Plex:
    return Plex(group=group, app="n", name=name, data=data, tai="1700000000:000000000")


def make_parties(folder: Path) -> tuple[Party, Party]:
    """Make two laces, each with a key, some records and rule files."""
    made = []
    select, view = folder / "all.lace", folder / "view.lace"
    select.write_text(ALL)
    view.write_text(EXPOSE_ALL)
    for name in ("left", "right"):
        with open_lace(folder / name) as lace:
            key = SigningKey.generate()
            lace.keys.add(key)
            lace.keys.set_default(key.verifier)
            lace.add_all([plex(f"{name}/{number}") for number in range(5)])
        made.append(Party(folder / name, str(key.verifier), select, view))
    return made[0], made[1]


def hashes(party: Party) -> set[str]:
    with open_lace(party.folder, read_only=True) as lace, lace.snapshot() as snapshot:
        return {str(record.id) for record in snapshot.records()}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


class Serving:
    """A running `lace serve`."""

    def __init__(self, started: subprocess.Popen[bytes], address: str) -> None:
        self.process = started
        self.address = address
        self._errors = b""

    @property
    def errors(self) -> str:
        """What it has written to standard error so far."""
        assert self.process.stderr is not None
        descriptor = self.process.stderr.fileno()
        while select.select([descriptor], [], [], 0)[0]:
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            self._errors += piece
        return self._errors.decode()

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until a text is so often on its standard error."""
        wait_until(lambda: self.errors.count(text) >= count)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(here: Party, peer: Party, address: str, *more: object) -> Iterator[Serving]:
    """Run `lace serve`; it is there when the block begins."""
    started = spawn("serve", address, *here.policy(peer), *more)
    try:
        assert started.stdout is not None
        assert started.stderr is not None
        bound = started.stdout.readline().decode().rstrip("\n")
        assert bound, started.stderr.read().decode()
        yield Serving(started, bound)
    finally:
        started.kill()
        started.wait(SECONDS)
        for pipe in (started.stdout, started.stderr):
            if pipe is not None:
                pipe.close()
