"""The way out of a side: the reader is woken after each step, and a lost peer is waited out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lace.link.messages import EndMessage
from lace.link.session import PartyWriter
from lace.transport.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 50
"""Turns of the event loop, in which whatever does not wait goes on."""


class Side:
    """A party, its thread and its stream: what is said, and how often anything is asked."""

    def __init__(self, said: list[object], *, refuses: bool = False) -> None:
        self.said = said
        self.refuses = refuses
        self.machine = SimpleNamespace(is_closed=False)
        self.written: list[bytes] = []
        self.gathered = self.cut = self.woken = 0
        self.writing = PartyWriter(
            cast("Any", self),
            cast("Any", self),
            cast("Any", self),
            cast("Any", self),
            at_once=10,
            patience=60,
            fail=cast("Any", None),
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    # -- as a party

    def messages(self) -> Iterator[object]:
        while self.said:
            yield self.said.pop(0)

    def count_sent(self, message: object, size: int) -> None:
        pass

    def cut_off(self) -> None:
        self.cut += 1

    # -- as what makes bytes of messages, as a thread and as a stream

    def pieces(self, message: object) -> list[bytes]:
        return [cast("bytes", message)]

    async def do(self, work: Callable[[], object]) -> object:
        self.gathered += 1
        await asyncio.sleep(0)
        return work()

    async def write(self, pieces: bytes) -> None:
        if self.refuses:
            raise TransportError("the peer has gone")
        self.written.append(pieces)


async def turns() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


def test_the_reader_is_woken_whenever_something_was_said() -> None:
    """What was sent may have made room for what came, and the reader waits for that."""

    async def run() -> None:
        side = Side([b"0123456789", b"abc"])
        task = asyncio.create_task(side.writing.run())
        await turns()
        assert side.written == [b"0123456789", b"abc"]
        woken = side.woken
        assert woken == side.gathered
        side.said += [b"more", EndMessage()]
        side.writing.begin_soon()
        await task
        await turns()
        assert side.written[2:] == [b"more"]
        assert side.writing.sent == 17
        assert side.woken == side.gathered > woken

    asyncio.run(run())


def test_a_peer_that_takes_nothing_is_waited_out() -> None:
    """What is to be sent is dropped each time there is something, and nothing goes on between."""

    async def run() -> None:
        side = Side([b"hello"], refuses=True)
        task = asyncio.create_task(side.writing.run())
        await turns()
        assert (side.cut, task.done()) == (1, False)
        side.writing.begin_soon()
        await turns()
        assert (side.cut, task.done()) == (2, False)
        side.machine.is_closed = True
        side.writing.begin_soon()
        await task
        assert side.cut == 2
        assert side.written == []

    asyncio.run(run())
