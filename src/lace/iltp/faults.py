"""What can be wrong with the bytes of a stream.

Nothing of it is sent to the peer: the message is for this side alone. What a fault
does to an exchange is decided by its driver.
"""

from __future__ import annotations

from enum import Enum

from lace.errors import Place, ProtocolError

__all__ = ["StreamError", "StreamFault", "WriteError"]


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
