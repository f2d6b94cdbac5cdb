"""Two connected streams of each binding, and a way to run them."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lace.iltp.address import LinkAddress, parse_address
from lace.transport.duplex import CloseReason
from lace.transport.listening import ConnectOptions, Listener, ListenOptions, connect, listen
from lace.transport.memory import memory_streams
from lace.transport.stdio import open_pipes
from lace.transport.tls import load_client_tls, load_server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from lace.transport.connections import Handler
    from lace.transport.duplex import ByteStream
    from tests.unit.transport.certificates import Certificates

BINDINGS = ("memory", "pipes", "unix", "tcp", "ws", "wss")
SECONDS = 30

Answer = TypeVar("Answer")


def run(coroutine: Coroutine[Any, Any, Answer], seconds: float = SECONDS) -> Answer:
    """Run to the end; what a task forgot to handle fails the test."""
    forgotten: list[dict[str, Any]] = []

    async def watched() -> Answer:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: forgotten.append(context)
        )
        async with asyncio.timeout(seconds):
            return await coroutine

    answer = asyncio.run(watched())
    assert forgotten == []
    return answer


async def eventually(condition: Any, seconds: float = 10) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def read_all(stream: ByteStream, most: int = 1 << 16) -> bytes:
    found = bytearray()
    while piece := await stream.read(most):
        assert len(piece) <= most
        found += piece
    return bytes(found)


@dataclass(frozen=True)
class Place:
    """Where a binding is tested."""

    folder: Path
    certificates: Certificates | None = None

    def listen_options(self, binding: str) -> ListenOptions:
        if binding != "wss":
            return ListenOptions()
        made = self.made
        return ListenOptions(tls=load_server_tls(made.certificate("server"), made.key("server")))

    def connect_options(self, binding: str) -> ConnectOptions:
        if binding != "wss":
            return ConnectOptions()
        return ConnectOptions(tls=load_client_tls(authorities=self.made.certificate("authority")))

    @property
    def made(self) -> Certificates:
        assert self.certificates is not None
        return self.certificates

    def address(self, binding: str) -> LinkAddress:
        texts = {"unix": f"unix:{self.folder}/s"}
        return parse_address(texts.get(binding, f"{binding}:127.0.0.1:0"), for_serving=True)

    async def listen(self, binding: str, handler: Handler) -> Listener:
        return await listen(self.address(binding), handler, self.listen_options(binding))

    async def connect(self, binding: str, address: LinkAddress) -> ByteStream:
        return await connect(address, self.connect_options(binding))

    @asynccontextmanager
    async def pair(self, binding: str) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
        """The two ends of a connection: who connected, and who accepted."""
        if binding in ("memory", "pipes"):
            here, there = memory_streams() if binding == "memory" else await pipes()
            try:
                yield here, there
            finally:
                await here.close(CloseReason.ABORT)
                await there.close(CloseReason.ABORT)
            return
        accepted: asyncio.Future[ByteStream] = asyncio.get_running_loop().create_future()
        done = asyncio.Event()

        async def handle(stream: ByteStream) -> None:
            accepted.set_result(stream)
            await done.wait()

        async with await self.listen(binding, handle) as listener:
            here = await self.connect(binding, listener.address)
            try:
                yield here, await accepted
            finally:
                await here.close(CloseReason.ABORT)
                done.set()
                await listener.finish()
                await eventually(lambda: listener.connections == 0)


async def pipes() -> tuple[ByteStream, ByteStream]:
    there_reads, here_writes = os.pipe()
    here_reads, there_writes = os.pipe()
    here = await open_pipes(
        os.fdopen(here_reads, "rb", buffering=0), os.fdopen(here_writes, "wb", buffering=0)
    )
    there = await open_pipes(
        os.fdopen(there_reads, "rb", buffering=0), os.fdopen(there_writes, "wb", buffering=0)
    )
    return here, there
