"""What a side does while records are validated: it still heeds its peer, its clock and its end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import now
from lace.errors import StoreError
from lace.exchange.failures import Failure
from lace.iltp.address import parse_address
from lace.link.party import GatherTimer, comes_first
from lace.link.session import LinkSession
from lace.link.side import Side, party_of
from lace.store.sqlite.snapshot import SqliteSnapshot
from lace.store.validation import ValidationProcess
from lace.transport.listening import connect, listen
from tests.link.test_pairing import SELECT, plex, policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.exchange.result import Outcome
    from lace.record.reader import RawRecord
    from lace.transport.duplex import ByteStream

SECONDS = 60.0
GROUP = 8_000
"""Records that are validated together."""
FIRST_BYTES = 2 * 2**20
"""What is asked for takes fewer, and what is sent here more."""


class Held:
    """A stream that can be made slow or silent; all else is the other's."""

    def __init__(self, inner: ByteStream) -> None:
        self._inner = inner
        self.session: LinkSession | None = None
        self.gap: float | None = None
        self.may_go_on: Callable[[], bool] = lambda: True
        self.written = 0
        self._waiting = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def write(self, data: bytes) -> None:
        while not self.may_go_on():
            await asyncio.sleep(0.002)
        await self._inner.write(data)
        self.written += len(data)

    async def read(self, most: int) -> bytes:
        came = 0 if self.session is None else self.session.status.records_received
        if self.gap is None or came < GROUP:
            return await self._inner.read(min(most, 2**15))
        self._waiting = self._waiting or await self._inner.read(most)
        await asyncio.sleep(self.gap)
        piece, self._waiting = self._waiting[:1], self._waiting[1:]
        return piece


@pytest.fixture
def sides(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    patience = getattr(request, "param", 1)
    limits: dict[str, object] = {"phase_timeout_seconds": patience, "import_workers": 1}
    with (
        lace.open(tmp_path / "left", settings=limits) as left,
        lace.open(tmp_path / "right") as right,
    ):
        for each in (left, right):
            key = lace.SigningKey.generate()
            each.keys.add(key)
            each.keys.set_default(key.verifier)
        right.add_all([plex(f"right/{number}") for number in range(GROUP + 1000)])
        yield left, right


def session(here: lace.Lace, peer: lace.Lace, index: int, stream: ByteStream) -> LinkSession:
    side = Side(here.store, here.settings, policy(peer, SELECT), here.signing_key(), workers=1)
    return LinkSession(party_of(side, index, now, proven=stream.proven), stream)


async def run(
    left: lace.Lace, right: lace.Lace, gap: float, began: asyncio.Future[Held]
) -> Outcome:
    async def serve(stream: ByteStream) -> None:
        await session(right, left, 1, stream).run()

    address = parse_address("tcp:127.0.0.1:0", for_serving=True)
    async with await listen(address, serve) as listener:
        held = Held(await connect(parse_address(str(listener.address))))
        held.session = link = session(left, right, 0, held)  # type: ignore[arg-type] # as good as one
        held.gap = gap
        began.set_result(held)
        outcome = await link.run()
        await listener.finish()
    return outcome


@pytest.mark.requirement("050-221")
def test_a_peer_that_drips_is_given_up_and_what_came_is_stored(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """A byte now and then neither keeps records from being stored nor the clock from running."""
    left, right = sides

    async def both() -> Outcome:
        began: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        return await asyncio.wait_for(run(left, right, 0.03, began), SECONDS)

    outcome = asyncio.run(both())
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PHASE_TIMEOUT
    assert len(left) >= GROUP


@pytest.mark.parametrize("sides", [60], indirect=True)  # no timeout ends it
def test_a_store_that_fails_ends_a_side_that_waits_for_a_validation(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peer is silent, and a validation is under way."""
    left, right = sides
    left.add_all([plex(f"left/{number}", data=bytes(100_000)) for number in range(100)])
    stopped: list[int] = []
    real = SqliteSnapshot.bytes_of

    def failing(snapshot: SqliteSnapshot, records: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for each in real(snapshot, records):
            if stopped:
                for process in stopped:  # what has come is still validated
                    os.kill(process, signal.SIGCONT)
                raise StoreError("the disk cannot be read")
            yield each

    sending = ValidationProcess.send

    def stopping(process: ValidationProcess, records: Sequence[RawRecord]) -> None:
        sending(process, records)
        if not stopped:
            os.kill(process._process.pid, signal.SIGSTOP)
            stopped.append(process._process.pid)

    async def both() -> Outcome:
        loop = asyncio.get_running_loop()
        began: asyncio.Future[Held] = loop.create_future()
        running = asyncio.create_task(run(left, right, 3600.0, began))
        held = await began
        # Some of the batch is sent once a validation is waited for, and not all before.
        held.may_go_on = lambda: held.written < FIRST_BYTES or bool(stopped)
        return await asyncio.wait_for(running, SECONDS)

    monkeypatch.setattr(SqliteSnapshot, "bytes_of", failing)
    monkeypatch.setattr(ValidationProcess, "send", stopping)
    outcome = asyncio.run(both())
    assert stopped, "a process validates"
    assert outcome.failure is not None


def test_what_comes_first() -> None:
    async def tried() -> tuple[bool, bool, bool]:
        loop = asyncio.get_running_loop()
        never: asyncio.Future[None] = loop.create_future()
        nothing = await comes_first([never], None, 0.01)
        reading, writing = os.pipe()
        quiet = await comes_first([never], os.dup(reading), 0.01)
        os.write(writing, b"x")
        answered = await comes_first([never], os.dup(reading), SECONDS)
        os.close(reading)
        os.close(writing)
        return nothing, quiet, answered

    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    assert asyncio.run(tried()) == (False, False, True)
    assert len(list(descriptors.iterdir())) == before, "nothing stays open"


def test_gathering_ends_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("lace.link.party.time.monotonic", lambda: clock[0])
    gathering = GatherTimer()
    first = gathering.seconds_left
    assert first > 0
    clock[0] += first / 2
    assert 0 < gathering.seconds_left < first
    clock[0] += first
    assert gathering.seconds_left == 0
    gathering.end()
    assert gathering.seconds_left == first
