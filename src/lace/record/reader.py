"""The incremental, self-delimiting reader: bytes in at any split, whole records out.

It finds where a record ends by parsing its frame: markline and letter, LF-ended
header lines, `Data-Length`, the nesting. It never searches for the next marker,
because data may contain marker bytes. Whether headers, hashes and signatures are
right is decided in `validate`. What the reader holds is bounded by `MAX_HEAD_BYTES`
and `max_data_bytes`; larger data is read past and reported.

A lost frame ends the reading, unless `recover` is asked for, as an import of a
damaged file does: then the reader reports the fault and goes on at the next place
that can begin a record of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from lace.base.b64a import encode
from lace.base.digest import digest
from lace.base.limits import DEFAULT_SETTINGS, MAX_DATA_LENGTH, MAX_DATA_SETTING, MAX_HEAD_BYTES
from lace.errors import Place, RecordError
from lace.record.ids import HASH_TEXT_BYTES
from lace.record.model import MARKER, MARKLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# -- Where a record's data begins and ends, found by parsing its frame in a buffer that grows.
#
# The frame is the marklines and their letters, LF-ended header lines, the nesting and
# `Data-Length`. It is found without a search for the next record's marker, because data
# may contain marker bytes. Whether headers, hashes and signatures are right is decided
# in `validate`; what to do about large or broken records is for the reader.

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
        """Find the marklines and the length; False while more bytes are needed."""
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


_BLOB_HEAD: Final = re.compile(
    MARKER + rb"B\.[0-9A-Z_a-z~]{43}\.H3\n(?:Data-Length: [0-9]{1,19}\n)?\Z"
)
_BLOB_HEAD_BYTES: Final = MARKLINE_BYTES + LENGTH_BYTES
_SIGNED_BY_BYTES: Final = len(b"Signed-By: ") + HASH_TEXT_BYTES + 1
_LARGE_RECORD: Final = 64 * 1024
_LOOK_BACK: Final = 2048
_RECOVERY_BYTES: Final = 64 * 1024 * 1024
"""How much a recovering reader may look at again, beyond as much as it has read."""


class RawRecord(NamedTuple):
    """A whole record as it was framed; nothing about it is validated.

    `plex_at` and `blob_at` are where the embedded marklines start (0 for the record
    itself, -1 without one), `data_at` where the data starts.
    """

    offset: int
    data: bytes
    plex_at: int
    blob_at: int
    data_at: int

    @property
    def type(self) -> str:
        """The letter of the outer record."""
        return chr(self.data[len(MARKER)])

    @property
    def claimed(self) -> str:
        """The hash that the markline names; whether it is the record's is not known yet."""
        return self.data[len(MARKER) : MARKLINE_BYTES - 1].decode("ascii", "replace")


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes at an offset that are no record; `lost` tells whether the frame was lost."""

    offset: int
    error: RecordError
    lost: bool


class RecordReader:
    """Reads records from bytes that arrive in any pieces."""

    def __init__(
        self,
        *,
        max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes,
        source: str | None = None,
        recover: bool = False,
        size: int | None = None,
        start: int = 0,
    ) -> None:
        self._max_data_bytes = max_data_bytes
        self._source = source
        self._recover = recover
        self._size = size
        self._buffer = bytearray()
        self._base = start  # stream offset of the buffer's first byte
        self._skip = 0  # bytes of an oversized record still to read past
        self._searching = False  # the frame is lost; looking for a place to go on
        self._previous: RawRecord | None = None
        self._looked_again = 0  # bytes that recovery has gone back over
        self._framer = Framer()
        self.lost = False
        self._start_record()

    @property
    def offset(self) -> int:
        """Stream offset of the first byte that is not yet part of an outcome."""
        return self._base

    def feed(self, data: bytes) -> Iterator[RawRecord | Fault]:
        """Take the next bytes; yields every record and fault that they complete."""
        if not self.lost:
            self._buffer += data
        return self._outcomes(final=False)

    def finish(self) -> Iterator[RawRecord | Fault]:
        """Take the end of the stream; a record that it cuts is a fault."""
        return self._outcomes(final=True)

    def _outcomes(self, *, final: bool) -> Iterator[RawRecord | Fault]:
        while not self.lost:
            if self._skip:
                self._read_past()
            if self._searching:
                self._search(final=final)
                if self._searching:
                    return
            if not self._buffer and not (final and self._skip):
                return
            try:
                outcome = self._skip == 0 and self._next_outcome()
                if not outcome and final:
                    raise self._cut()
            except FrameError as reason:
                outcome = self._lose(reason)
                if outcome is None:
                    continue
            if not outcome:
                return
            yield outcome

    def _next_outcome(self) -> RawRecord | Fault | None:
        """Return the next record, or a fault that keeps the frame; None to ask for more."""
        framer = self._framer
        if framer.data_at < 0 and not self._frame_head():
            return None
        length = framer.end - framer.data_at
        if length > self._max_data_bytes:
            return self._oversized(length)
        if len(self._buffer) < framer.end:
            return None
        record = RawRecord(
            self._base,
            self._copy(framer.end),
            framer.plex_at,
            framer.blob_at,
            framer.data_at,
        )
        self._drop(framer.end)
        if self._recover:
            # A large one is kept only if it will be looked into again.
            small = len(record.data) < _LARGE_RECORD
            self._previous = record if small or self._is_broken(record) else None
            if hides_record(record):
                self._go_back()
        return record

    def _copy(self, end: int) -> bytes:
        if end < _LARGE_RECORD:
            return bytes(self._buffer[:end])
        with memoryview(self._buffer) as view, view[:end] as part:
            return bytes(part)  # without the copy in between, which is quicker when small

    # -- framing -------------------------------------------------------------------

    def _start_record(self) -> None:
        self._framer.restart()
        self._scanned = 0  # how far the search for a place to go on has come

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._base += count
        self._start_record()

    def _frame_head(self) -> bool:
        """Find the marklines and the length; False while more bytes are needed."""
        framer = self._framer
        if not framer.frame(self._buffer, 0, self._base):
            return False
        length = framer.end - framer.data_at
        fits = self._size is not None and self._base + framer.end <= self._size
        if length > MAX_DATA_LENGTH and not fits:
            raise FrameError(
                f"Data-Length {length} is above {MAX_DATA_LENGTH}",
                rule="010-data-length",
                at=framer.blob_at + MARKLINE_BYTES,
            )
        if self._size is not None and not fits:
            raise self._cut()
        return True

    def _cut(self) -> FrameError:
        if self._skip:
            what = f"the bytes end {self._skip} before the oversized record's data does"
        elif self._framer.data_at < 0:
            what = "the bytes end inside a record's headers"
        else:
            there = len(self._buffer) if self._size is None else self._size - self._base
            what = f"the bytes end {self._framer.end - there} before the record's data does"
        return FrameError(what, rule="010-cut", at=0)

    # -- records that are too large --------------------------------------------------

    def _oversized(self, length: int) -> Fault:
        reason = FrameError(
            f"Data-Length {length} is above the limit of {self._max_data_bytes}",
            rule="010-size-limit",
            at=self._framer.blob_at + MARKLINE_BYTES,
            hint=f"raise it with --set max_data_bytes={length}"
            if length <= MAX_DATA_SETTING
            else None,
        )
        self._skip = self._framer.end
        self._previous = None
        return self._fault(reason, lost=False)

    def _read_past(self) -> None:
        count = min(self._skip, len(self._buffer))
        self._skip -= count
        self._drop(count)

    # -- recovery ----------------------------------------------------------------------

    def _fault(self, reason: FrameError, *, lost: bool) -> Fault:
        place = Place(source=self._source, offset=self._base + reason.at)
        error = RecordError(reason.message, rule=reason.rule, place=place, hint=reason.hint)
        return Fault(self._base, error, lost)

    def _lose(self, reason: FrameError) -> Fault | None:
        """Report a lost frame and prepare to go on, or end the reading."""
        outcome = self._fault(reason, lost=True)
        if not self._recover:
            self.lost = True
            return outcome
        if self._skip:  # nothing is left to search in
            self._skip = 0
            return outcome
        if self._go_back():
            return None
        self._searching = True
        self._scanned = 1  # never again at the place that failed
        return outcome

    def _go_back(self) -> bool:
        """Search inside the record before this place if it is broken; tell whether it is.

        What follows it, or what it hides, may begin inside it. It has been yielded and
        validation refuses it, so the fault behind it is the same damage, not another.
        """
        previous, self._previous = self._previous, None
        if previous is None or not self._is_broken(previous):
            return False
        self._looked_again += len(previous.data)
        self._buffer[:0] = previous.data
        self._base -= len(previous.data)
        self._start_record()
        self._searching = True
        self._scanned = 1
        return True

    def _is_broken(self, record: RawRecord) -> bool:
        if self._looked_again + len(record.data) > self._base + _RECOVERY_BYTES:
            return False
        return not is_intact(record)

    def _search(self, *, final: bool) -> None:
        """Drop bytes up to the next place that can begin a record of its own."""
        buffer, start = self._buffer, self._scanned
        while True:
            at = buffer.find(MARKER, start)
            if at < 0 or (len(buffer) - at < MARKLINE_BYTES and not final):
                break
            found = MARKLINE.match(buffer, at)
            embedded = found and self._looks_embedded(found[1], at, final=final)
            if embedded is None and found:
                break
            if found and not embedded:
                self._searching = False
                self._drop(at)
                return
            start = at + 1
        keep = min(len(buffer) if at < 0 else at, max(0, len(buffer) - len(MARKER) + 1))
        drop = len(buffer) if final else max(0, keep - _LOOK_BACK)
        self._drop(drop)
        self._scanned = max(1, keep - drop)

    def _looks_embedded(self, letter: bytes, at: int, *, final: bool) -> bool | None:
        """Tell whether the markline there belongs to an inner record; None to ask for more.

        An inner record is not admitted on its own, not even when what embeds it is broken.
        It stands behind the last header line of what embeds it: a Plex behind a signature,
        a Blob behind the headers of a Plex, or, against the rules, behind a signature.
        """
        buffer = self._buffer
        if letter == b"S" or buffer[at - 1] != 0x0A:
            return False
        if _BLOB_HEAD.search(buffer, max(0, at - _BLOB_HEAD_BYTES), at):
            return False  # a Blob embeds nothing
        start = max(0, at - _LOOK_BACK)
        line = bytes(buffer[max(start, buffer.rfind(b"\n", start, at - 1) + 1) : at])
        if line.startswith(b"Signature: "):
            return True
        if b": " not in line or MARKLINE.fullmatch(line):
            return False
        outer = buffer.rfind(MARKER, start, at - len(line))
        if outer >= 0 and buffer.startswith(b"S.", outer + len(MARKER)):
            return at - outer != MARKLINE_BYTES + _SIGNED_BY_BYTES  # else cut behind Signed-By
        if outer >= 0 and b"\nTAI: " not in buffer[outer:at]:
            return False  # the headers before it end too early to embed anything
        return True if letter == b"B" or outer < 0 else self._is_nested(outer, at, final=final)

    def _is_nested(self, outer: int, at: int, *, final: bool) -> bool | None:
        """Tell whether a Plex behind the headers of another is a part of it, by the outer hash."""
        size = len(self._buffer) - at
        if self._looked_again + size > self._base + _RECOVERY_BYTES:
            return True
        self._looked_again += size
        inner = RecordReader(max_data_bytes=self._max_data_bytes)
        outcome = next(inner.feed(bytes(self._buffer[at:])), None)
        if not isinstance(outcome, RawRecord):
            return False if final or outcome else None
        whole = RawRecord(0, bytes(self._buffer[outer : at + len(outcome.data)]), 0, 0, 0)
        return MARKLINE.match(whole.data) is not None and not self._is_broken(whole)


def is_intact(record: RawRecord) -> bool:
    """Tell whether the bytes behind the markline are those that it names."""
    claimed = record.data[len(MARKER) + 2 : MARKLINE_BYTES - 4].decode("ascii")
    return encode(digest(memoryview(record.data)[MARKLINE_BYTES:])) == claimed


def hides_record(record: RawRecord) -> bool:
    """Tell whether headers seem to have been cut, so that another record begins among them.

    Of the record's bytes only those before the data are looked at.
    """
    inner = 1 if record.plex_at > 0 else 0
    if record.data.count(MARKER, MARKLINE_BYTES, record.blob_at) > inner:
        return True  # a marker inside a header line
    return inner == 1 and record.plex_at - MARKLINE_BYTES in (0, _SIGNED_BY_BYTES)


def read_records(
    chunks: Iterable[bytes],
    *,
    max_data_bytes: int = DEFAULT_SETTINGS.max_data_bytes,
    source: str | None = None,
    recover: bool = False,
    size: int | None = None,
) -> Iterator[RawRecord | Fault]:
    """Yield every record and fault of a stream that comes in pieces."""
    reader = RecordReader(max_data_bytes=max_data_bytes, source=source, recover=recover, size=size)
    for chunk in chunks:
        yield from reader.feed(chunk)
        if reader.lost:
            return
    yield from reader.finish()
