"""The buffer between a stream and its reader: bytes are put in behind and taken in front.

Nothing is looked at twice: a search that found nothing goes on where it ended, and
bytes that were taken are dropped all at once, when the next ones come.
"""

from __future__ import annotations

__all__ = ["Buffer"]


class Buffer:
    """Bytes that have come and were not yet taken; positions count from the first of them."""

    __slots__ = ("_base", "_searched", "data", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        self._base = 0  # stream offset of the first byte of `data`
        self._searched = 0  # how far the search for the end of the present item has come

    def __len__(self) -> int:
        return len(self.data) - self.start

    @property
    def offset(self) -> int:
        """The stream offset of the first byte."""
        return self._base + self.start

    @property
    def base(self) -> int:
        """The stream offset of `data[0]`, which may be taken already."""
        return self._base

    def append(self, piece: bytes | bytearray | memoryview) -> None:
        """Put bytes in behind."""
        if self.start:
            del self.data[: self.start]
            self._base += self.start
            self.start = 0
        self.data += piece

    def peek(self, count: int) -> bytes:
        """Return the first bytes, at most this many, and leave them."""
        return bytes(self.data[self.start : self.start + count])

    def find(self, wanted: bytes, begin: int, end: int) -> int:
        """Return where the wanted bytes stand between two positions, or -1.

        Until bytes are taken, all calls have to look for the same; what they have
        looked at is not looked at again.
        """
        first = max(begin, self._searched - len(wanted) + 1)
        found = self.data.find(wanted, self.start + first, self.start + end)
        if found < 0:
            self._searched = min(end, len(self))
            return -1
        return found - self.start

    def line_length(self, most: int) -> int | None:
        """Return the length of the first line without its LF; None if its end is not there.

        A line that is longer than `most` has the length `most + 1`, whether its end is
        there or not.
        """
        found = self.find(b"\n", 0, most + 1)
        if found >= 0:
            return found
        return most + 1 if len(self) > most else None

    def take(self, count: int) -> bytes:
        """Take the first bytes out; that many must be there."""
        taken = bytes(self.data[self.start : self.start + count])
        self.skip(count)
        return taken

    def skip(self, count: int) -> None:
        """Drop the first bytes; that many must be there."""
        self.start += count
        self._searched = 0

    def pass_by(self, count: int) -> None:
        """Count bytes of the stream that were never put in; the buffer is empty."""
        self.append(b"")
        self._base += count

    def clear(self) -> None:
        """Drop everything."""
        self.skip(len(self))
        self.append(b"")
