"""What every hostile peer uses: a server to attack, a socket, and as much of an exchange as wanted.

`attacked` runs a real `lace serve` and checks, whatever a peer did to it, that it still serves
an honest one, has not grown beyond a bound, and told nobody what it must not tell. `Peer` is
a plain socket that can speak the first blocks of an exchange correctly, and then anything.
"""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lace.api import SigningKey, open_lace
from lace.base.tai import Tai
from lace.exchange.blocks import Phase, check_block, format_block
from lace.exchange.capabilities import Capabilities
from lace.exchange.hello import Hello, Setup, make_hello, make_setup, proof_context, read_setup
from lace.iltp.items import NEED_MORE, PREFACE, Blank, Facts, RecordItem, Resource
from lace.iltp.reader import Reader
from lace.policy.operand import advertised_fields, operand_of
from lace.policy.plan import make_plan
from tests.cli.links import Party, hashes, make_parties, plex, serving
from tests.cli.policies import ALL
from tests.cli.running import call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.facts.lines import Fact
    from lace.policy.operand import Operand
    from tests.cli.links import Serving

__all__ = [
    "MIB",
    "Attacked",
    "Gone",
    "Peer",
    "attacked",
    "connect_to",
    "memory_of",
    "resource_block",
]

MIB = 2**20
SECONDS = 30.0
GROWTH = 96 * MIB
"""What a hostile peer may make a server grow by, unless a test states another bound."""


def memory_of(process: int) -> int:
    """The most bytes that a process has held since `forget_peak`; where unknown, what it holds."""
    status = Path(f"/proc/{process}/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+([0-9]+) kB", status.read_text())
        assert found
        return int(found[1]) * 1024
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(process)], capture_output=True, check=True, text=True
    )
    return int(shown.stdout) * 1024


def forget_peak(process: int) -> None:
    """Count the most that a process holds from now on, where the system can."""
    switch = Path(f"/proc/{process}/clear_refs")
    if switch.exists():
        switch.write_text("5")


@lru_cache(maxsize=8)
def operand_at(text: str, index: int) -> Operand:
    """What a selector says; large ones take seconds to read, and a peer reads its own often."""
    return operand_of(text, index)


def resource_block(operand_text: str, index: int = 0) -> bytes:
    """The lines that carry a selector to the other side."""
    operand = operand_at(operand_text, index)
    return b"\xf0\x9f\xa7\xa9: %b lacegram\n%b\n\n" % (
        operand.module_id.encode(),
        operand.canonical_bytes,
    )


def connect_to(address: str) -> socket.socket:
    """Connect to a server, and say nothing."""
    scheme, _, place = address.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
        return connection
    host, _, port = place.partition("/")[0].rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


class Gone(Exception):
    """The server has closed the connection."""


class Peer:
    """One hostile connection.

    Attributes:
        got: every byte that came.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        self.connection = connection
        self.got = b""
        self._reader = Reader()
        self.key: SigningKey | None = None
        self.ours: Setup | None = None
        self.theirs: Setup | None = None
        self.select = ALL

    # -- any bytes -----------------------------------------------------------------------------

    def send(self, raw: bytes) -> bool:
        """Send bytes; tells whether the other side was still there to take them."""
        try:
            self.connection.sendall(raw)
        except OSError:
            return False
        return True

    def flood(self, piece: bytes, most: int) -> int:
        """Send a piece again and again, until nobody takes it; returns the bytes that went."""
        sent = 0
        while sent < most and self.send(piece):
            sent += len(piece)
        return sent

    def end(self) -> None:
        """Say that nothing more comes."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def outcome(self) -> bytes:
        """Read until the other side closes; returns what came since the last block."""
        start = len(self.got)
        while True:
            try:
                piece = self.connection.recv(65536)
            except ConnectionError:
                break
            if not piece:
                break
            self.got += piece
        return self.got[start:]

    # -- an exchange, as far as wanted ---------------------------------------------------------

    def send_setup(
        self,
        select: str = ALL,
        *,
        key: SigningKey | None = None,
        claim: str | None = None,
        nonce: bytes | None = None,
        again: bool = False,
    ) -> None:
        """Send preface, selector and setup; a claim may name somebody else."""
        self.key, self.select = key, select
        operand = operand_at(select, 0)
        verifier = key.verifier if key is not None else None
        setup = make_setup(operand, verifier=verifier, nonce=nonce or secrets.token_bytes(32))
        if claim is not None:
            object.__setattr__(setup, "claim", claim)
        self.ours = setup
        start = b"" if again else PREFACE
        self.send(start + resource_block(select) + format_block(setup.facts))

    def meet(self, select: str = ALL, *, key: SigningKey | None = None, **how: Any) -> Hello:
        """Go up to the hello that would be right; it is not sent yet."""
        self.send_setup(select, key=key, **how)
        facts, modules = self.read_block()
        self.theirs = read_setup(check_block(facts, Phase.SETUP), local_index=0)
        theirs = modules[self.theirs.module_id] if modules else select
        operand = operand_at(select, 0)
        plan = make_plan(operand, operand_of(theirs, 1))
        assert self.ours is not None
        context = proof_context(self.ours, self.theirs, plan.id)
        self.read_block()
        return make_hello(
            plan,
            Capabilities(mode=0),
            tai=Tai.from_unix_nanoseconds(time.time_ns()),
            index=0,
            key=key,
            context=context,
            own=advertised_fields(operand.module),
        )

    def enter(self, select: str = ALL, *, mode: int = 0, **how: Any) -> str:
        """Go through setup and hello honestly; returns the source that claims are made under."""
        how.setdefault("key", SigningKey.generate())
        hello = self.meet(select, **how)
        facts = [fact for fact in hello.facts if fact[:2] != ("HelloLimit", "reconcile")]
        self.block([*facts, ("HelloLimit", "reconcile", str(mode))] if mode else facts)
        return str(how["key"].verifier)

    def block(self, facts: Iterable[Fact]) -> bool:
        """Send a block of facts."""
        return self.send(format_block(facts))

    def read_block(self) -> tuple[list[Fact], dict[str, str]]:
        """Read the next block: its facts, and the selectors that came with it."""
        facts: list[Fact] = []
        modules: dict[str, str] = {}
        while True:
            event = self._reader.next_event()
            if event is NEED_MORE:
                self._receive()
            elif isinstance(event, Facts):
                facts += event.facts
            elif isinstance(event, Blank):
                return facts, modules
            elif isinstance(event, Resource):
                modules[event.id] = event.body.decode()

    def skip_batch(self) -> int:
        """Read a batch of records to its end; returns how many there were."""
        return len(self.read_batch()[0])

    def read_batch(self) -> tuple[list[str], list[str]]:
        """Read a batch to its end: the hashes of its records, and what is not available."""
        self._reader.expect(batch=True)
        sent: list[str] = []
        gone: list[str] = []
        while not isinstance(event := self._reader.next_event(), Blank):
            if event is NEED_MORE:
                self._receive()
            elif isinstance(event, RecordItem):
                sent.append(event.id)
            elif isinstance(event, Facts):
                gone += [fact[1] for fact in event.facts]
        self._reader.expect(batch=False)
        return sent, gone

    def _receive(self) -> None:
        piece = self.connection.recv(65536)
        if not piece:
            raise Gone("the server has gone")
        self.got += piece
        self._reader.feed(piece)


@dataclass
class Attacked:
    """A running server, an honest peer of it, and all who attacked."""

    server: Serving
    honest: Party
    host: Party
    growth: int
    more: tuple[object, ...] = ()
    peers: list[Peer] = field(default_factory=list)
    _start: int = 0
    _count: int = 0

    def connect(self) -> Peer:
        """Connect, and say nothing."""
        self.peers.append(Peer(connect_to(self.server.address)))
        return self.peers[-1]

    def still_serves(self) -> None:
        """An honest peer converges with the server now."""
        self._count += 1
        with open_lace(self.honest.folder) as lace:
            lace.add(plex(f"honest/{self._count}"))
        done = call("sync", self.server.address, *self.honest.policy(self.host), *self.more)
        assert done.code == 0, done.err + self.server.errors
        assert hashes(self.honest) == hashes(self.host)

    def said(self, text: str, count: int = 1) -> None:
        """Wait until the server has said something so often."""
        end = time.monotonic() + SECONDS
        while self.server.errors.count(text) < count:
            assert time.monotonic() < end, f"not {count} times {text!r}: {self.server.errors}"
            time.sleep(0.02)

    def measure(self) -> None:
        """Measure growth from now on."""
        forget_peak(self.server.process.pid)
        self._start = memory_of(self.server.process.pid)

    @property
    def grown(self) -> int:
        """By how many bytes the server has grown at most."""
        return memory_of(self.server.process.pid) - self._start

    def check(self) -> None:
        """Whatever happened: the server lives, serves, is not larger, and has told nothing."""
        assert self.server.process.poll() is None, self.server.errors
        assert self.grown <= self.growth, f"the server grew by {self.grown / MIB:.0f} MiB"
        self.still_serves()
        errors = self.server.errors
        assert "Traceback" not in errors, errors
        private = [str(self.host.folder), "lace:", "Traceback", *hashes(self.host)]
        for peer in self.peers:
            told = peer.got.decode("utf-8", "replace")
            assert not [each for each in private if each in told], told


@contextmanager
def attacked(
    folder: Path,
    *options: object,
    address: str = "tcp:127.0.0.1:0",
    growth: int = GROWTH,
    more: tuple[object, ...] = (),
) -> Iterator[Attacked]:
    """Run a server, let it warm up with an honest peer, and check it at the end.

    Args:
        folder: where its lace is.
        options: further options of `lace serve`.
        address: where it listens.
        growth: by how many bytes it may grow.
        more: options of the honest peer.
    """
    honest, host = make_parties(folder)
    with serving(host, honest, address, *options) as server:
        found = Attacked(server, honest, host, growth, more)
        found.still_serves()
        found.measure()
        try:
            yield found
            found.check()
        finally:
            for peer in found.peers:
                peer.connection.close()
