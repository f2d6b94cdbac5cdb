"""Where a record's data begins and ends, found by parsing its frame in a buffer that grows.

The frame is the marklines and their letters, LF-ended header lines, the nesting and
`Data-Length`. It is found without a search for the next record's marker, because data
may contain marker bytes. Whether headers, hashes and signatures are right is decided
in `validate`; what to do about large or broken records is for the reader.
"""

from __future__ import annotations

import re
from typing import Final

from lace.base.limits import MAX_HEAD_BYTES
from lace.errors import RecordError
from lace.record.writer import MARKER, MARKLINE_BYTES

__all__ = ["LENGTH_BYTES", "MARKLINE", "OPEN_MARKER", "FrameError", "Framer"]

MARKLINE: Final = re.compile(MARKER + rb"([BPS])\.[0-9A-Z_a-z~]{43}\.H3\n")
OPEN_MARKER: Final = bytes.fromhex("e28baf")
"""What stands before the marker of a record in trailer-hash form."""
LENGTH_BYTES: Final = len(b"Data-Length: \n\n") + 19
"""The longest `Data-Length` line with its LF and the empty line."""

_NEXT_MARKER: Final = b"\n" + MARKER
_HASH: Final = rb"\.[0-9A-Z_a-z~]{43}\.H3\n"
# Where no header has the first byte of a marker, as in nearly all records, the next marker is
# the first one, and all of the frame can be found at once.
_PLAIN_FRAME: Final = re.compile(
    rb"(?:%(m)bS%(hash)b[^\xf0]*+(?<=\n)(?=%(m)bP))?"
    rb"(?:()%(m)bP%(hash)b[^\xf0]*+(?<=\n)(?=%(m)bB))?"
    rb"()%(m)bB%(hash)bData-Length: (0|[1-9][0-9]{0,18})\n\n" % {b"m": MARKER, b"hash": _HASH}
)
_LENGTH: Final = re.compile(rb"Data-Length: (0|[1-9][0-9]{0,18})\n\n")


class FrameError(RecordError):
    """The frame is lost, `at` this many bytes behind the record's start."""

    def __init__(self, message: str, *, rule: str, at: int, hint: str | None = None) -> None:
        super().__init__(message, rule=rule, hint=hint)
        self.at = at


class Framer:
    """Finds the frame of one record after another.

    `plex_at` and `blob_at` are where the embedded marklines start (0 for the record
    itself, -1 without one or before it is found), `data_at` where the data
    starts and `end` where it ends, all counted from the record's start. The last two
    are -1 until `frame` has found them.
    """

    __slots__ = (
        "_clear_from",
        "_clear_to",
        "_level_at",
        "_untried",
        "blob_at",
        "data_at",
        "end",
        "plex_at",
    )

    def __init__(self) -> None:
        self._clear_from = self._clear_to = 0  # between these stream offsets starts no markline
        self.restart()

    def restart(self) -> None:
        """Begin with another record."""
        self.plex_at = self.blob_at = self.data_at = self.end = -1
        self._level_at = 0  # start of the innermost markline found so far
        self._untried = True

    def frame(self, buffer: bytes | bytearray, start: int = 0, base: int = 0) -> bool:
        """Find the marklines and the length; False while more bytes are needed.

        Args:
            buffer: the bytes that came; from call to call it only grows behind `start`.
            start: where in it the record starts.
            base: the stream offset of the buffer's first byte.

        Raises:
            FrameError: these bytes are not the frame of a record.
        """
        if self._untried:  # only once: a fragmented head would be searched again
            self._untried = False
            if self._frame_plain(buffer, start):
                return True
        while self.blob_at < 0:
            at = self._level_at
            found = MARKLINE.match(buffer, start + at)
            if found is None:
                _check_markline(buffer, start, at)
                return False
            letter = found[1]
            if at:
                self._check_nesting(letter, at)
            if letter == b"B":
                self.blob_at = at
                break
            if letter == b"P":
                self.plex_at = at
            following = self._find_marker(buffer, start + at + MARKLINE_BYTES - 1, base) - start
            if following < 0 and len(buffer) - start < MAX_HEAD_BYTES + len(_NEXT_MARKER):
                return False
            if not 0 <= following <= MAX_HEAD_BYTES:
                raise FrameError(
                    "no embedded record within 1 MiB of headers", rule="010-head-size", at=at
                )
            self._level_at = following + 1
        return self._frame_length(buffer, start)

    def _frame_plain(self, buffer: bytes | bytearray, start: int) -> bool:
        found = _PLAIN_FRAME.match(buffer, start)
        if found is None or found.start(2) - start > MAX_HEAD_BYTES + 1:
            return False
        self.plex_at = max(found.start(1) - start, -1)
        self.blob_at = found.start(2) - start
        self.data_at = found.end() - start
        self.end = self.data_at + int(found[3])
        return True

    def _find_marker(self, buffer: bytes | bytearray, start: int, base: int) -> int:
        """Return where the next LF with a marker behind it stands, or -1.

        What was searched in vain is remembered, also for records that start inside it.
        """
        begin = base + start
        known = self._clear_to - base if self._clear_from <= begin else 0
        found = buffer.find(_NEXT_MARKER, max(start, known))
        end = found if found >= 0 else max(start, len(buffer) - len(_NEXT_MARKER) + 1)
        self._clear_from, self._clear_to = begin, base + end
        return found

    def _check_nesting(self, letter: bytes, at: int) -> None:
        wanted = b"B" if 0 <= self.plex_at < at else b"P"
        if letter != wanted:
            outer = "Plex" if wanted == b"B" else "Seal"
            raise FrameError(
                f"a {outer} embeds a record of type {letter.decode()}, not {wanted.decode()}",
                rule="010-nesting",
                at=at,
            )

    def _frame_length(self, buffer: bytes | bytearray, start: int) -> bool:
        at = self.blob_at + MARKLINE_BYTES
        found = _LENGTH.match(buffer, start + at)
        if found is None:
            line = bytes(buffer[start + at : start + at + LENGTH_BYTES])
            end = line.find(b"\n")
            if len(line) >= LENGTH_BYTES or 0 <= end < len(line) - 1:
                raise _length_error(line, end, at)
            return False
        self.data_at = found.end() - start
        self.end = self.data_at + int(found[1])
        return True


def _check_markline(buffer: bytes | bytearray, start: int, at: int) -> None:
    """Raise unless the bytes that came may still become a markline."""
    head = bytes(buffer[start + at : start + at + MARKLINE_BYTES])
    if head.startswith(OPEN_MARKER):
        raise FrameError(
            "a record in trailer-hash form",
            rule="010-unsupported",
            at=at,
            hint="write it in the form with the hash first",
        )
    shared = len(MARKER)
    if not MARKER.startswith(head[:shared]) and not OPEN_MARKER.startswith(head):
        wrong = next(i for i, byte in enumerate(head) if byte != MARKER[i])
        raise FrameError(
            f"found byte {head[wrong]:#04x} where a record's marker should be",
            rule="010-markline",
            at=at + wrong,
        )
    if b"\n" in head or len(head) >= MARKLINE_BYTES:
        line = head.split(b"\n")[0][shared:].decode("utf-8", "backslashreplace")
        raise FrameError(
            f"{line!r} is no record hash",
            rule="010-markline",
            at=at + shared,
            hint="supported are B, P and S with 43 characters and .H3",
        )


def _length_error(line: bytes, end: int, at: int) -> FrameError:
    text = line[: end if end >= 0 else len(line)]
    if _LENGTH.match(text + b"\n\n"):
        return FrameError(
            "no empty line between Data-Length and the data",
            rule="010-empty-line",
            at=at + end + 1,
        )
    shown = text.decode("utf-8", "backslashreplace")
    return FrameError(
        f"{shown!r} is not a Data-Length line",
        rule="010-data-length",
        at=at,
        hint="write Data-Length: 42",
    )
