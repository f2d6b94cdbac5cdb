"""A stream of bytes between two processes, and what its transport proves about it.

Bindings make streams; the driver of an exchange reads and writes them. Nothing here
knows what the bytes mean. A stream holds a bounded number of bytes in each direction:
a peer that sends faster than it is read waits, and so does a writer that the peer does
not read (060).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from lace.record.ids import Verifier

__all__ = [
    "ABORT_SECONDS",
    "CLOSE_SECONDS",
    "MAX_UNREAD_BYTES",
    "OPEN_SECONDS",
    "PIECE_BYTES",
    "READ_HIGH_WATER",
    "READ_LOW_WATER",
    "WRITE_HIGH_WATER",
    "ByteStream",
    "CloseReason",
    "Ending",
    "Proven",
]

PIECE_BYTES: Final = 64 * 1024
"""What is given to the system at once, and the largest WebSocket frame that is sent."""
READ_HIGH_WATER: Final = 256 * 1024
"""Unread bytes at which a stream stops receiving."""
READ_LOW_WATER: Final = 64 * 1024
"""Unread bytes at which it goes on."""
MAX_UNREAD_BYTES: Final = READ_HIGH_WATER + 256 * 1024
"""The most that it holds unread: the mark, and what the event loop reads at once."""
WRITE_HIGH_WATER: Final = 64 * 1024
"""Unsent bytes at which a writer waits; at most a piece more is held."""
OPEN_SECONDS: Final = 10.0
"""How long opening a connection may take, with all its handshakes."""
CLOSE_SECONDS: Final = 5.0
"""How long the end of a stream waits for the peer's end (G47b)."""
ABORT_SECONDS: Final = 1.0
"""How long an abort tries to tell its code, where a transport has codes."""


class Ending(Enum):
    """How the bytes of the peer ended."""

    CLEAN = "the peer ended its stream"
    ABORTED = "the peer aborted"
    CUT = "the connection broke"
    HERE = "this side closed the stream"


class CloseReason(Enum):
    """Why a stream is closed; its value is the code that a WebSocket tells the peer."""

    DONE = 1000
    LEAVING = 1001
    ABORT = 1008


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What the transport proves about a connection, and nothing that a peer merely says.

    Attributes:
        transport: the text of `Transport(S)` (G62).
        encrypted: whether `TransportEncrypted()` holds: TLS ends in this process.
        is_pinned: whether that holds once hello has proven a pinned key over `channel`.
        peer: the verifier that the peer's uid or certificate is mapped to.
        channel: on TLS, the digest of the server's certificate (G39b).
        peer_uid: the user of the process at the other end, on a Unix socket.
        place: where the peer is, for messages and for counting connections.
    """

    transport: str
    encrypted: bool = False
    is_pinned: bool = False
    peer: Verifier | None = None
    channel: str | None = None
    peer_uid: int | None = None
    place: str = ""


class ByteStream(Protocol):
    """A connection: two directions of bytes that do not wait for each other.

    One task at a time reads, and one at a time writes; both may be cancelled. A
    cancelled read loses nothing. A cancelled write has sent an unknown part, so that
    closing with `CloseReason.ABORT` is all that is left to do.
    """

    @property
    def proven(self) -> Proven:
        """What the transport proves."""
        ...

    @property
    def ending(self) -> Ending | None:
        """How the peer's bytes ended; None while more may come."""
        ...

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer sends nothing more, though what it sent may not be read yet."""
        ...

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes as soon as there are any, and none at the end.

        A connection that breaks ends as well: what came before is read first, and
        `ending` tells the difference.

        Raises:
            TransportError: the peer sent what its transport does not carry.
        """
        ...

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the peer does not take them; they must not change.

        Raises:
            StreamClosedError: nothing can be sent any more.
        """
        ...

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side; reading goes on.

        The peer of a WebSocket cannot send any more once it has seen this.
        """
        ...

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream and free what it holds; a second call does nothing.

        `DONE` lets the peer have all that was written: it ends writing, reads past what
        the peer still sends to its end, and waits `CLOSE_SECONDS` at most. The other
        reasons drop what was not sent.
        """
        ...
