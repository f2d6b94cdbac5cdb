"""What other processes store is noticed within a second: how long is waited, and what a look sees.

No clock is read: what is waited with is at most a second, and the first look after a record
was stored sees it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from lace.link import session
from lace.link.party import Party
from tests.link.test_open import ADD
from tests.link.test_pairing import hashes
from tests.link.test_session import connected
from tests.link.test_session import session as session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    import lace
    from lace.exchange.result import Outcome
    from lace.link.session import LinkSession
    from lace.transport.duplex import ByteStream
    from tests.link.pairing import OpenPair

SECONDS = 60.0
LONGEST = 1.0


class Looks:
    """Every look of the side that holds a store, and whether it was after a record was stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: lace.Lace) -> None:
        self.found: list[tuple[bool, bool]] = []
        self.is_stored = False
        real, folder = Party.has_news, store.store.folder

        def look(party: Party) -> bool:
            began_after = self.is_stored
            found = real(party)
            if party._store.folder == folder:
                self.found.append((began_after, found))
            return found

        monkeypatch.setattr(Party, "has_news", look)

    def store(self, folder: lace.Lace) -> None:
        """Have another process store a record."""
        subprocess.run([sys.executable, "-c", ADD, str(folder.store.folder)], check=True)
        self.is_stored = True

    def check(self) -> None:
        """A look noticed it: the first that began afterwards, or one that was just in time."""
        noticed = [number for number, (_, found) in enumerate(self.found) if found]
        after = [number for number, (is_after, _) in enumerate(self.found) if is_after]
        assert noticed
        assert not after or noticed[0] <= after[0]


def test_two_sides_in_one_process(
    sides: tuple[lace.Lace, lace.Lace], exchange: OpenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    looks = Looks(monkeypatch, left)
    assert exchange.wait_until(lambda: len(looks.found) > 1, SECONDS), "it is at rest"
    looks.store(left)
    assert exchange.wait_until(lambda: len(hashes(right)) == 1, SECONDS)
    exchange.stop(SECONDS)
    looks.check()


def test_two_sides_on_a_stream(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    looks = Looks(monkeypatch, right)
    running: list[LinkSession] = []
    waited: list[float | None] = []
    real = asyncio.wait

    async def wait(tasks: list[asyncio.Task[object]], **how: Any) -> object:
        if sys._getframe(1).f_code.co_name == "_wait":
            waited.append(how["timeout"])
        return await real(tasks, **how)

    monkeypatch.setattr(asyncio, "wait", wait)

    async def serve(stream: ByteStream) -> None:
        running.append(session_of(right, left, 1, stream, is_open=True))
        await running[0].run()

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def run() -> Outcome:
        async with connected("tcp:127.0.0.1:0", serve) as stream:
            here = session_of(left, right, 0, stream, is_open=True)
            ending = asyncio.create_task(here.run())
            await until(lambda: len(looks.found) > 1)
            await asyncio.to_thread(looks.store, right)
            await until(lambda: len(hashes(left)) == 1)
            here.stop()
            return await ending

    outcome = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert outcome.at_fixed_point
    looks.check()
    assert session.LOOK_SECONDS <= LONGEST
    assert len(waited) > 1
    assert all(seconds is not None and 0 <= seconds <= LONGEST for seconds in waited)
