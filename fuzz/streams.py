"""Streams: the reader of ILTP takes any bytes, in any split.

Only `StreamError` comes out, at a place inside the bytes; any split gives the same events; what
was read is written again byte for byte. What the bridge makes of the same bytes is an event or
an `InterlaceFailure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.harness import ROOT, Target, pieces_of
from lace.exchange.failures import InterlaceFailure
from lace.iltp.items import (
    KNOT,
    NEED_MORE,
    OPEN_RECORD,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    NeedMore,
    StreamEnd,
    StreamError,
)
from lace.iltp.reader import Reader
from lace.iltp.writer import Writer
from lace.link.messages import Inbound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.iltp.items import Item

__all__ = ["TARGET"]

_VECTORS = ROOT / "tests" / "vectors" / "iltp"
_PIECES = (
    *(KNOT, OPEN_RECORD, PREFACE, PUZZLE_PIECE, RECORD),
    *(b"\n", b"\n\n", b"#", b"#\n", b"A('b')\n", b"A('", b"')\n", b"','", b"\\'", b"()"),
    *(b"\r", b"\xff", b"e\xcc\x81", b"\xe2\x80\xa8", b"\0", b" ", b"Data-Length: 3\n\n", b"9" * 9),
)
_SMALL = 1 << 16


def _seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(_VECTORS.glob("*/*.stream"))]


def _mend(raw: bytes) -> bytes:
    """One preface, in front."""
    return PREFACE + raw.replace(PREFACE, b"")


def _read(pieces: Iterable[bytes], *, batches: bool) -> tuple[list[Item], StreamEnd | str, int]:
    """All items, how the stream ended, and where."""
    reader = Reader(max_block_bytes=_SMALL, max_data_bytes=_SMALL)
    items: list[Item] = []
    try:
        for piece in [*pieces, None]:
            if piece is None:
                reader.end()
            else:
                reader.feed(piece)
            while (event := reader.next_event()) is not NEED_MORE:
                assert not isinstance(event, NeedMore)
                if isinstance(event, StreamEnd):
                    return items, event, event.offset
                items.append(event)
                if batches and isinstance(event, Blank):
                    reader.expect(batch=True)
    except StreamError as error:
        return items, f"{error.fault} {error}", error.offset
    raise AssertionError("neither an end nor an error")


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    parts = pieces_of(raw)
    for batches in (False, True):
        whole = _read([raw], batches=batches)
        items, end, at = whole
        assert 0 <= at <= len(raw), "an offset outside the stream"
        assert _read(parts, batches=batches) == whole, "split"
        again = b"".join(_rewrite(items))
        assert raw.startswith(again), "not written as it was read"
        if isinstance(end, StreamEnd):
            assert raw[len(again) :] in (b"", b"\n"), "not written to its end"
        _bridge(parts, batches=batches)


def _rewrite(items: Iterable[Item]) -> list[bytes]:
    writer = Writer()
    chunks: list[bytes] = []
    for item in items:
        chunks += writer.write(item)
        if isinstance(item, Blank):
            writer.expect(batch=True)
    return chunks


def _bridge(pieces: Iterable[bytes], *, batches: bool) -> None:
    inbound = Inbound(max_block_bytes=_SMALL, max_data_bytes=_SMALL)
    count = 0
    try:
        for piece in [*filter(None, pieces), b""]:
            inbound.feed(piece)
            while inbound.next_event(is_batch=batches and count > 0) is not None:
                count += 1
    except InterlaceFailure as failure:
        assert failure.failure.action.is_abort, failure


TARGET = Target(name="streams", check=check, seeds=_seeds, pieces=_PIECES, mend=_mend)
