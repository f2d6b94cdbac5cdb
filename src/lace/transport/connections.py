"""Accepted connections: how many there may be, which one goes for another, a task for each.

A connection is counted from its first moment, before it has said anything, so that
silent ones cannot use up a server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import SettingError
from lace.iltp.items import PREFACE, SERVER_FULL
from lace.transport.duplex import CloseReason
from lace.transport.faults import StreamClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from lace.iltp.address import LinkAddress
    from lace.transport.duplex import ByteStream


MAX_CONNECTIONS: Final = DEFAULT_SETTINGS.max_links
"""Connections that a server has at once."""
MAX_CONNECTIONS_OF_ADDRESS: Final = DEFAULT_SETTINGS.max_links_of_address
"""Connections that it has at once from one address or user."""
MAX_REFUSALS: Final = 64
"""Connections that are being told in full that the server is full; more are closed at once."""
HANDSHAKE_IDLE_SECONDS: Final = 0.5
"""How long a peer that has agreed on nothing yet is waited for at least, when others come."""
HANDSHAKE_SECONDS: Final = 5.0
"""How long it may take until then in all, when others come: one that trickles is idle, too."""
MAX_PROVING: Final = 16
"""Connections beyond the limit that may prove a reserved verifier, while one is not there."""
MAX_PROVING_OF_ADDRESS: Final = 4
"""Those of one address or user."""
_FULL: Final = b"%b#%b\n" % (PREFACE, SERVER_FULL)
"""What a full server says on a stream that has no other way to say it."""
_IPV6_SITE_BITS: Final = 64

Handler: TypeAlias = "Callable[[ByteStream], Awaitable[None]]"
"""Runs one connection; the stream is closed when it returns, and aborted when it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections a server has at once.

    Attributes:
        in_all: in all.
        of_address: from one address or user.
        idle_seconds: how long a peer of an exchange is waited for at least, when others come.
        reserved: verifiers that have a slot each beyond these, from the moment they prove
            to be who they are.
    """

    in_all: int = MAX_CONNECTIONS
    of_address: int = MAX_CONNECTIONS_OF_ADDRESS
    idle_seconds: int = DEFAULT_SETTINGS.idle_link_seconds
    reserved: frozenset[str] = frozenset()

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

    address: LinkAddress
    stop: Callable[[], None]
    finish: Callable[[], Awaitable[None]]


def counted_place(place: str) -> str:
    """Return what connections are counted by.

    An IPv6 host has a whole /64 to itself. An IPv4 host that a socket for both shows as
    `::ffff:a.b.c.d` is counted as the host it is: one /64 holds all of them.
    """
    try:
        address = ipaddress.ip_address(place)
    except ValueError:
        return place
    if address.version == 4:
        return place
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))


class SlotUser(Protocol):
    """What works for a connection."""

    @property
    def is_at_work(self) -> bool:
        """Whether it does not only wait for the peer."""
        ...


class ConnectionSlot:
    """One connection that a server has taken, as its acceptor sees it.

    Attributes:
        since: when it came.
        heard: when the peer last sent or took bytes.
        has_agreed: whether both sides have agreed on an exchange.
        user: what works for it; the connection is not idle while that is at work.
        end: ends the connection, whatever stage it has reached.
        is_displaced: whether it was ended for another one.
    """

    def __init__(self, place: str, *, is_refused: bool = False) -> None:
        self.place = place
        self.is_refused = is_refused
        self.since = self.heard = time.monotonic()
        self.has_agreed = False
        self.user: SlotUser | None = None
        self.end: Callable[[], None] = lambda: None
        self.is_displaced = False

    def is_idle(self, now: float, agreed_seconds: float) -> bool:
        """Tell whether the peer has been waited for long enough to close the connection."""
        if self.user is not None and self.user.is_at_work:
            return False
        if self.has_agreed:
            return now - self.heard >= agreed_seconds
        is_silent = now - self.heard >= HANDSHAKE_IDLE_SECONDS
        return is_silent or now - self.since >= HANDSHAKE_SECONDS


class Acceptor:
    """Counts connections and runs a handler for each.

    A server that is full ends the connection that has been idle for the longest time for a new
    one, and turns a new one away if none is idle. A connection that has proven a verifier of
    `ConnectionLimits.reserved` has that verifier's slot: it is not counted, and never ended.
    While such a verifier is not there, a few connections are taken beyond the limit, so that
    it can prove who it is; the oldest of them goes for a new one.

    Attributes:
        refused: how many connections were turned away because there were too many.
        displaced: how many were ended because they were idle and another one came.
        farewell: what a connection gets, if it can be sent at once, that is not even admitted
            to be told that the server is full; nothing where a protocol begins otherwise.
    """

    def __init__(self, handler: Handler, limits: ConnectionLimits) -> None:
        self.refused = self.displaced = 0
        self.farewell = _FULL
        self._handler = handler
        self._limits = limits
        self._counted: set[ConnectionSlot] = set()
        self._ending: set[ConnectionSlot] = set()
        self._refusals: set[ConnectionSlot] = set()
        self._proving: set[ConnectionSlot] = set()
        self._reserved: dict[str, ConnectionSlot] = {}
        self._by_descriptor: dict[int, ConnectionSlot] = {}
        self._by_stream: dict[int, ConnectionSlot] = {}
        self._streams: dict[asyncio.Task[None], ByteStream] = {}
        self._is_refusing = False

    @property
    def connections(self) -> int:
        """How many connections there are, without those that are being turned away."""
        groups = (self._counted, self._proving, self._ending, self._reserved)
        return sum(len(group) for group in groups)

    def admit(self, place: str) -> ConnectionSlot | None:
        """Count a connection from there.

        Returns:
            One that `is_refused` when the server is full; None when nobody is taken any more,
            or too many are being told that it is full.
        """
        key = counted_place(place)
        if self._is_refusing:
            self.refused += 1
            return None
        if not self._make_room(key):
            if self._make_proving_room(key):
                proving = ConnectionSlot(key)
                self._proving.add(proving)
                return proving
            self.refused += 1
            if len(self._refusals) >= MAX_REFUSALS:
                return None
            refused = ConnectionSlot(key, is_refused=True)
            self._refusals.add(refused)
            return refused
        made = ConnectionSlot(key)
        self._counted.add(made)
        return made

    def _make_room(self, key: str) -> bool:
        """Tell whether there is room for a connection, ending an idle one if there is not."""
        from_there = [each for each in self._counted if each.place == key]
        if len(from_there) >= self._limits.of_address:
            return self._displace_idle(from_there)
        if len(self._counted) >= self._limits.in_all:
            return self._displace_idle(self._counted)
        return True

    def _make_proving_room(self, key: str) -> bool:
        """Tell whether one more may come to prove a reserved verifier; the oldest may go for it."""
        if not self._limits.reserved - self._reserved.keys():
            return False
        from_there = [each for each in self._proving if each.place == key]
        is_full = len(self._proving) >= MAX_PROVING
        if not is_full and len(from_there) < MAX_PROVING_OF_ADDRESS:
            return True
        crowded = self._proving if is_full else from_there
        oldest = min(crowded, key=lambda each: each.since)
        is_due = time.monotonic() - oldest.since >= HANDSHAKE_IDLE_SECONDS
        return is_due and self._displace(oldest)

    def _displace_idle(self, among: Iterable[ConnectionSlot]) -> bool:
        """End the connection that has been idle for the longest time; False if none is idle."""
        now = time.monotonic()
        idle = [each for each in among if each.is_idle(now, self._limits.idle_seconds)]
        return bool(idle) and self._displace(min(idle, key=lambda each: each.heard))

    def _displace(self, longest: ConnectionSlot) -> bool:
        """End a connection; False if too many are being ended already."""
        if len(self._ending) >= self._limits.in_all:
            return False
        self._counted.discard(longest)
        self._proving.discard(longest)
        self._ending.add(longest)
        self.displaced += 1
        longest.is_displaced = True
        longest.end()
        return True

    def reserve(self, admission: ConnectionSlot, verifier: str) -> None:
        """Move a connection to the slot that is reserved for a verifier, which it has proven.

        An earlier connection of that verifier is then counted as any other.
        """
        is_counted = admission in self._counted or admission in self._proving
        if verifier not in self._limits.reserved or not is_counted:
            return
        before = self._reserved.get(verifier)
        self._counted.discard(admission)
        self._proving.discard(admission)
        self._reserved[verifier] = admission
        if before is not None:
            self._counted.add(before)

    def release(self, admission: ConnectionSlot) -> None:
        """Count an admitted connection no more."""
        for group in (self._counted, self._proving, self._ending, self._refusals):
            group.discard(admission)
        for verifier, found in list(self._reserved.items()):
            if found is admission:
                del self._reserved[verifier]

    def attach(self, descriptor: int, admission: ConnectionSlot) -> Callable[[], None]:
        """Note the socket of a connection; returns what is to be called when it is closed."""
        self._by_descriptor[descriptor] = admission

        def detach() -> None:
            if self._by_descriptor.get(descriptor) is admission:
                del self._by_descriptor[descriptor]
            self.release(admission)

        return detach

    def admission_of(self, transport: asyncio.BaseTransport) -> ConnectionSlot | None:
        """Return the admission of an accepted connection; None when it is closed already."""
        return self._by_descriptor.get(transport.get_extra_info("socket").fileno())

    def admission_of_stream(self, stream: ByteStream) -> ConnectionSlot | None:
        """Return the admission of a stream that the handler has; None for `stdio`."""
        return self._by_stream.get(id(stream))

    def take(self, stream: ByteStream, transport: asyncio.BaseTransport) -> asyncio.Task[None]:
        """Run the handler for an accepted connection, or tell it that the server is full."""
        admission = self.admission_of(transport)
        if admission is not None and admission.is_refused:
            return self._start(stream, self._turn_away(stream))
        task = self.start(stream)
        if admission is not None:
            self._by_stream[id(stream)] = admission
        return task

    async def _turn_away(self, stream: ByteStream) -> None:
        with suppress(StreamClosedError):
            await stream.write(_FULL)
        await stream.close()

    def start(self, stream: ByteStream) -> asyncio.Task[None]:
        """Run the handler for a stream in a task of its own."""
        return self._start(stream, self._run(stream))

    def _start(self, stream: ByteStream, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
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
        self._by_stream.pop(id(self._streams.pop(task)), None)
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


# -- Listening sockets that count their connections, from accept to close.
#
# A connection that only begins a handshake, or says nothing at all, uses up a server as one
# that works does. So the socket counts, not the protocol above it: one too many is only told so
# before anything is set up for it.

REFUSAL_SECONDS: Final = 2.0
"""How long a connection that is turned away may take to hear of it."""


class CountingSocket(socket.socket):
    """A listening socket; `count_with` says who counts its connections."""

    _acceptor: Acceptor | None = None
    _place: Callable[[socket.socket], str]
    _open: set[_CountedSocket]

    def count_with(self, acceptor: Acceptor, place: Callable[[socket.socket], str]) -> None:
        """Count connections with an acceptor, by where they come from."""
        self._acceptor, self._place, self._open = acceptor, place, set()

    def end_connections(self) -> None:
        """End all connections that are left, whatever stage they have reached."""
        for opened in self._open:
            opened.end()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and where it comes from."""
        opened, name = super().accept()
        acceptor = self._acceptor
        if acceptor is None:
            return opened, name
        try:
            place = self._place(opened)
        except OSError:  # it has left already
            opened.close()
            raise ConnectionAbortedError from None
        admission = acceptor.admit(place)
        if admission is None:
            with suppress(OSError):
                opened.send(acceptor.farewell)
            opened.close()
            raise ConnectionAbortedError
        counted = _CountedSocket(opened.family, opened.type, opened.proto, opened.detach())
        self._open.add(counted)
        detach = acceptor.attach(counted.fileno(), admission)
        giving_up: asyncio.TimerHandle | None = None
        if admission.is_refused:
            loop = asyncio.get_running_loop()
            giving_up = loop.call_later(REFUSAL_SECONDS, counted.end)

        def release() -> None:
            self._open.discard(counted)
            detach()
            if giving_up is not None:
                giving_up.cancel()

        admission.end = counted.end
        counted.admission, counted.on_close = admission, release
        return counted, name


class _CountedSocket(socket.socket):
    """A connection that notes when the peer sends or takes bytes, and tells when it is closed."""

    admission: ConnectionSlot | None = None
    on_close: Callable[[], None] | None = None

    def end(self) -> None:
        """End both directions; the owner of the connection sees that as the peer's end."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def recv(self, *arguments: Any) -> bytes:  # noqa: ANN401 - those of a socket
        """Return bytes of the peer."""
        data = super().recv(*arguments)
        self._note(len(data))
        return data

    def recv_into(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Put bytes of the peer into a buffer."""
        size = super().recv_into(*arguments)
        self._note(size)
        return size

    def send(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Send bytes, as many as the system takes."""
        size = super().send(*arguments)
        self._note(size)
        return size

    def sendmsg(self, *arguments: Any) -> int:  # noqa: ANN401 - those of a socket
        """Send several pieces of bytes, as many as the system takes."""
        size = super().sendmsg(*arguments)
        self._note(size)
        return size

    def _note(self, size: int) -> None:
        if size and self.admission is not None:
            self.admission.heard = time.monotonic()

    def close(self) -> None:
        """Close it."""
        super().close()
        tell, self.on_close = self.on_close, None
        if tell is not None:
            tell()
