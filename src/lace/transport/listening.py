"""One way to listen and one to connect, whatever the address.

listener = await listen(address, handler)
stream = await connect(address)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from lace.errors import Place
from lace.transport.connections import Acceptor, ConnectionLimits
from lace.transport.duplex import OPEN_SECONDS
from lace.transport.faults import ConnectionOptionError
from lace.transport.stdio import connect_command, listen_stdio
from lace.transport.tcp import connect_tcp, listen_tcp
from lace.transport.unix import connect_unix, listen_unix
from lace.transport.websocket import UpgradeRules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from lace.iltp.address import LinkAddress
    from lace.record.ids import Verifier
    from lace.transport.connections import Bound, ConnectionSlot, Handler
    from lace.transport.duplex import ByteStream
    from lace.transport.tls import ClientTls, ServerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """How to listen; what a kind of address does not have is refused.

    Attributes:
        stdio_peer: who is at the other end of `stdio`, on the word of the starter of this process.
        verifiers: who the users of a Unix socket are, by uid.
        tls: certificate and key of `wss`.
        channel_certificate: for `ws` behind a proxy that ends TLS, that one's certificate, DER.
        hosts: further names of a WebSocket server, in small letters.
        origins: web pages that may connect to one.
        limits: how many connections there may be.
        inherited: the descriptor of a listening socket that was handed over.
    """

    stdio_peer: Verifier | None = None
    verifiers: Mapping[int, Verifier] = field(default_factory=dict)
    tls: ServerTls | None = None
    channel_certificate: bytes | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    inherited: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """How to connect; what a kind of address does not have is refused.

    Attributes:
        command: what to start, for `stdio`.
        errors: a descriptor for what it writes to standard error; None is this process's own.
        stdio_peer: who the command is, on the word of its starter.
        verifiers: who the users of a Unix socket are, by uid.
        tls: whom to trust, for `wss`.
        seconds: how long it may take.
    """

    command: tuple[str, ...] = ()
    errors: int | None = None
    stdio_peer: Verifier | None = None
    verifiers: Mapping[int, Verifier] = field(default_factory=dict)
    tls: ClientTls | None = None
    seconds: float = OPEN_SECONDS


class Listener:
    """What is being listened on; as an asynchronous context it is closed at the end.

    Attributes:
        address: the address, with the true port where any free one was asked for.
    """

    def __init__(self, bound: Bound, acceptor: Acceptor) -> None:
        self.address = bound.address
        self._bound = bound
        self._acceptor = acceptor

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return self._acceptor.connections

    @property
    def refused(self) -> int:
        """How many connections were turned away because there were too many."""
        return self._acceptor.refused

    @property
    def displaced(self) -> int:
        """How many connections were ended because they were idle and another one came."""
        return self._acceptor.displaced

    def admission_of(self, stream: ByteStream) -> ConnectionSlot | None:
        """Return what is counted of a stream that the handler has; None for `stdio`."""
        return self._acceptor.admission_of_stream(stream)

    def reserve(self, admission: ConnectionSlot, verifier: str) -> None:
        """Give a connection the slot that is reserved for the verifier that it has proven."""
        self._acceptor.reserve(admission, verifier)

    async def stop_listening(self) -> None:
        """Take no more connections; those that are there go on."""
        self._acceptor.refuse()
        # asyncio loses a connection that was accepted just before its server is closed.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._bound.stop()

    async def finish(self) -> None:
        """Wait until the handlers that run have ended; for `stdio`, until the one has."""
        await self._acceptor.finish()

    async def close(self) -> None:
        """Take no more connections, cancel the handlers and wait until they have ended."""
        await self.stop_listening()
        await self._acceptor.stop()
        await self._bound.finish()

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def listen(
    address: LinkAddress, handler: Handler, options: ListenOptions | None = None
) -> Listener:
    """Listen on an address and run the handler for each connection."""
    chosen = options or ListenOptions()
    _refuse_unless(address, "stdio", "a peer that is vouched for", chosen.stdio_peer is not None)
    _refuse_unless(address, "unix", "a map of users", bool(chosen.verifiers))
    _refuse_unless(address, "ws", "a proxy's certificate", bool(chosen.channel_certificate))
    _refuse_unless(address, "wss", "TLS", chosen.tls is not None)
    acceptor = Acceptor(handler, chosen.limits)
    match address.scheme:
        case "stdio":
            if chosen.inherited is not None:
                raise ConnectionOptionError(
                    "stdio takes no socket that was handed over", place=Place(str(address))
                )
            bound = await listen_stdio(acceptor, chosen.stdio_peer)
        case "unix":
            bound = await listen_unix(
                address, acceptor, verifiers=chosen.verifiers, inherited=chosen.inherited
            )
        case "tcp":
            bound = await listen_tcp(address, acceptor, inherited=chosen.inherited)
        case "ws" | "wss":
            # Only who needs it loads the library.
            from lace.transport.websocket import listen_websocket

            if address.scheme == "wss" and chosen.tls is None:
                raise ConnectionOptionError(
                    "wss needs a certificate and its key",
                    place=Place(str(address)),
                    hint="name them: --tls-cert FILE --tls-key FILE",
                )
            bound = await listen_websocket(
                address,
                acceptor,
                rules=UpgradeRules(address=address, hosts=chosen.hosts, origins=chosen.origins),
                tls=chosen.tls,
                channel_certificate=chosen.channel_certificate,
                inherited=chosen.inherited,
            )
        case unknown:
            assert_never(unknown)
    return Listener(bound, acceptor)


async def connect(address: LinkAddress, options: ConnectOptions | None = None) -> ByteStream:
    """Return a stream to the server at an address; on `stdio`, to a command it starts."""
    chosen = options or ConnectOptions()
    _refuse_unless(address, "stdio", "a command", bool(chosen.command))
    _refuse_unless(address, "stdio", "a peer that is vouched for", chosen.stdio_peer is not None)
    _refuse_unless(address, "unix", "a map of users", bool(chosen.verifiers))
    _refuse_unless(address, "wss", "TLS", chosen.tls is not None)
    match address.scheme:
        case "stdio":
            return await connect_command(chosen.command, chosen.errors, chosen.stdio_peer)
        case "unix":
            return await connect_unix(address, verifiers=chosen.verifiers, seconds=chosen.seconds)
        case "tcp":
            return await connect_tcp(address, seconds=chosen.seconds)
        case "ws" | "wss":
            from lace.transport.tls import load_client_tls
            from lace.transport.websocket import connect_websocket

            tls = chosen.tls
            if address.scheme == "wss" and tls is None:
                tls = load_client_tls()
            return await connect_websocket(address, tls=tls, seconds=chosen.seconds)
        case unknown:
            assert_never(unknown)


def _refuse_unless(address: LinkAddress, scheme: str, what: str, is_given: bool) -> None:
    if is_given and address.scheme != scheme:
        raise ConnectionOptionError(
            f"{what} is for {scheme} addresses only",
            place=Place(str(address)),
            hint=f"leave it out, or write an address that begins with {scheme}",
        )
