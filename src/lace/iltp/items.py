"""The items of a stream as values, the bytes that they begin with, and their faults (060).

A reader gives them and a writer takes them, so that what was read can be written again,
byte for byte. Each knows the offset at which it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.errors import Place, ProtocolError
from lace.record.model import MARKER, MARKLINE_BYTES
from lace.record.reader import OPEN_MARKER

if TYPE_CHECKING:
    from lace.facts.lines import Fact
    from lace.record.reader import RawRecord


KNOT: Final = bytes.fromhex("f09faaa23a20")
"""The marker of the preface, U+1FAA2 with colon and space."""
PUZZLE_PIECE: Final = bytes.fromhex("f09fa7a93a20")
"""The marker of a resource, U+1F9E9 with colon and space."""
RECORD: Final = MARKER
"""The marker of a stored record, U+1F5A7 with colon and space."""
OPEN_RECORD: Final = OPEN_MARKER + MARKER
"""The marker of a record in trailer-hash form, U+22EF before that of a record."""
PREFACE: Final = KNOT + b"iltp/1\n"
"""The first line of each direction, with its LF."""
SERVER_FULL: Final = b" server full"
"""The comment of a server that has as many links as it may have: first, and with nothing after."""


@dataclass(frozen=True, slots=True)
class Preface:
    """The first line of a direction."""

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Fact lines that follow one another, as many as there are."""

    offset: int
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment: the bytes between `#` and LF. It means nothing to an exchange."""

    offset: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Blank:
    """The blank line that ends a fact block or a transfer batch."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Canonical text for an identifier; its canonical form and identifier are checked."""

    offset: int
    id: str
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHead:
    """A large record begins: its claimed identifier and its size. The record itself follows."""

    offset: int
    id: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordItem:
    """A whole record; nothing about it is validated.

    `joined` tells that it followed another record directly, without the LF between them.
    """

    raw: RawRecord
    joined: bool = False

    @property
    def offset(self) -> int:
        """Where it begins."""
        return self.raw.offset

    @property
    def id(self) -> str:
        """The identifier that its markline claims."""
        return claimed_id(self.raw.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class OversizedRecord:
    """A record above the local size limit, which was read past: only its claims are known."""

    offset: int
    id: str
    size: int
    joined: bool = False


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of the stream between two items; `in_block` unless it is a phase boundary."""

    offset: int
    in_block: bool


class NeedMore(Enum):
    """The type of `NEED_MORE`."""

    NEED_MORE = "need more"


NEED_MORE: Final = NeedMore.NEED_MORE
"""The answer of a reader that has to be fed first."""

Item: TypeAlias = (
    Preface | Facts | Comment | Blank | Resource | RecordHead | RecordItem | OversizedRecord
)
"""What a stream holds."""
Event: TypeAlias = Item | StreamEnd | NeedMore
"""What a reader answers."""


def claimed_id(head: bytes | bytearray) -> str:
    """Return the identifier in a markline, which is the beginning of these bytes."""
    return bytes(head[len(MARKER) : MARKLINE_BYTES - 1]).decode("ascii")


# -- What can be wrong with the bytes of a stream.
#
# Nothing of it is sent to the peer: the message is for this side alone. What a fault
# does to an exchange is decided by its driver.


class StreamFault(Enum):
    """The kinds of faults of a stream."""

    PREFACE = "no ILTP stream"
    ITEM = "no item of a stream, or not here"
    LINE = "malformed fact line"
    BLOCK_SIZE = "fact block too large"
    COMMENT = "malformed comment"
    RESOURCE = "malformed or refused resource"
    RECORD = "record framing lost"
    CUT = "the stream ends inside an item"


class StreamError(ProtocolError):
    """Bytes that no stream has at this place; `offset` counts from the stream's start."""

    def __init__(
        self,
        fault: StreamFault,
        message: str,
        *,
        offset: int,
        rule: str | None = None,
        hint: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message, rule=rule, place=Place(source, offset=offset), hint=hint)
        self.fault = fault
        self.offset = offset


class WriteError(ProtocolError):
    """This side was about to write what a reader refuses: a fault of the program."""
