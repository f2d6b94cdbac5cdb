"""Accepted connections: how many there may be, and a task for each.

A connection is counted from its first moment, before it has said anything, so that
silent ones cannot use up a server.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import SettingError
from lace.transport.stream import CloseReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lace.iltp.address import Address
    from lace.transport.stream import ByteStream

__all__ = [
    "MAX_CONNECTIONS",
    "MAX_CONNECTIONS_OF_ADDRESS",
    "Acceptor",
    "Bound",
    "ConnectionLimits",
    "Handler",
    "counted_place",
]

MAX_CONNECTIONS: Final = DEFAULT_SETTINGS.max_links
"""Connections that a server has at once."""
MAX_CONNECTIONS_OF_ADDRESS: Final = DEFAULT_SETTINGS.max_links_of_address
"""Connections that it has at once from one address or user."""
_IPV6_SITE_BITS: Final = 64

Handler: TypeAlias = "Callable[[ByteStream], Awaitable[None]]"
"""Runs one connection; the stream is closed when it returns, and aborted when it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections a server has at once, in all and from one address or user."""

    in_all: int = MAX_CONNECTIONS
    of_address: int = MAX_CONNECTIONS_OF_ADDRESS

    def __post_init__(self) -> None:
        for number in (self.in_all, self.of_address):
            if number < 1:
                raise SettingError(f"a server has at least one connection, not {number}")


@dataclass(frozen=True, slots=True)
class Bound:
    """What is listened on.

    Attributes:
        address: where, with the true port.
        stop: stops listening; connections that are there go on.
        finish: ends what is left, once the handlers have ended.
    """

    address: Address
    stop: Callable[[], None]
    finish: Callable[[], Awaitable[None]]


def counted_place(place: str) -> str:
    """Return what connections are counted by: an IPv6 host has a whole /64 to itself."""
    try:
        address = ipaddress.ip_address(place)
    except ValueError:
        return place
    if address.version == 4:
        return place
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))


class Acceptor:
    """Counts connections and runs a handler for each.

    Attributes:
        refused: how many connections were turned away because there were too many.
    """

    def __init__(self, handler: Handler, limits: ConnectionLimits) -> None:
        self.refused = 0
        self._handler = handler
        self._limits = limits
        self._counts: Counter[str] = Counter()
        self._streams: dict[asyncio.Task[None], ByteStream] = {}
        self._is_refusing = False

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return self._counts.total()

    def admit(self, place: str) -> bool:
        """Count a connection from there; False when there are too many."""
        key = counted_place(place)
        if (
            self._is_refusing
            or self.connections >= self._limits.in_all
            or self._counts[key] >= self._limits.of_address
        ):
            self.refused += 1
            return False
        self._counts[key] += 1
        return True

    def release(self, place: str) -> None:
        """Count an admitted connection no more."""
        key = counted_place(place)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def start(self, stream: ByteStream) -> asyncio.Task[None]:
        """Run the handler for a stream in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._run(stream))
        self._streams[task] = stream
        task.add_done_callback(self._finish)
        return task

    async def _run(self, stream: ByteStream) -> None:
        try:
            await self._handler(stream)
        except asyncio.CancelledError:
            await stream.close(CloseReason.LEAVING)
            raise
        except BaseException:
            await stream.close(CloseReason.ABORT)
            raise
        await stream.close()

    def _finish(self, task: asyncio.Task[None]) -> None:
        del self._streams[task]
        if not task.cancelled() and (error := task.exception()):
            task.get_loop().call_exception_handler(
                {"message": "the handler of a connection failed", "exception": error, "task": task}
            )

    async def finish(self) -> None:
        """Wait until all handlers have ended by themselves."""
        while self._streams:
            await asyncio.wait(set(self._streams))

    def refuse(self) -> None:
        """Admit nobody any more."""
        self._is_refusing = True

    async def stop(self) -> None:
        """Admit nobody any more, cancel all handlers and wait until they have ended."""
        self.refuse()
        streams = dict(self._streams)
        for task in streams:
            task.cancel()
        await self.finish()
        for stream in streams.values():  # a task that had not begun closed nothing
            await stream.close(CloseReason.LEAVING)
