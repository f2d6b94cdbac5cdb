"""What a stream and its items begin with, told from as few bytes as can tell it (060).

A marker counts when all of its bytes are there, because several begin alike; what
cannot become one is known at the first byte that differs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lace.iltp.items import KNOT, OPEN_RECORD, PREFACE, PUZZLE_PIECE, RECORD

__all__ = ["LONGEST_MARKER", "Mismatch", "differs_at", "leading_marker", "preface_mismatch"]

_MARKERS: Final = (KNOT, PUZZLE_PIECE, RECORD, OPEN_RECORD)
LONGEST_MARKER: Final = max(map(len, _MARKERS))
"""This many bytes tell every marker."""

_HTTP: Final = "the peer seems to speak HTTP"
_STRANGERS: Final = {
    0x15: "the peer seems to speak TLS: is it a wss address?",  # an alert
    0x16: "the peer seems to begin TLS: is it a wss address?",
    0x43: _HTTP,  # CONNECT
    0x44: _HTTP,  # DELETE
    0x47: _HTTP,  # GET
    0x48: f"{_HTTP}: is it a ws address?",  # HEAD, and every answer
    0x4F: _HTTP,  # OPTIONS
    0x50: _HTTP,  # POST, PUT
    0x53: "the peer seems to speak SSH",
}
_HINTS: Final = {
    0x09: "a line does not begin with a tab",
    0x0D: "lines end with LF alone",
    0x20: "a line does not begin with a space",
    0x5F: "no predicate of a stream begins with _",
    0xEF: "a stream has no byte order mark",
}


class Mismatch(NamedTuple):
    """Bytes that cannot be what should be there: where they differ, and what to say."""

    at: int
    message: str
    hint: str | None


def differs_at(head: bytes, wanted: bytes) -> int:
    """Return where bytes differ from those wanted, -1 if they may still become them."""
    return next(
        (i for i, (one, other) in enumerate(zip(head, wanted, strict=False)) if one != other), -1
    )


def preface_mismatch(head: bytes) -> Mismatch | None:
    """Return why the first bytes of a stream cannot become its preface, or None."""
    at = differs_at(head, PREFACE)
    if at < 0:
        return None
    found, wanted = head[at], PREFACE[at]
    return Mismatch(
        at,
        f"found byte {found:#04x} where the preface of a stream has {wanted:#04x}",
        _STRANGERS.get(head[0]),
    )


def leading_marker(head: bytes) -> bytes | Mismatch | None:
    """Return the marker that an item begins with, None if too few bytes are there to tell."""
    for marker in _MARKERS:
        if head.startswith(marker):
            return marker
    places = [differs_at(head, marker) for marker in _MARKERS]
    if -1 in places:
        return None
    at = max(places)
    return Mismatch(
        at, f"no item of a stream begins with {head[: at + 1].hex(' ')}", _HINTS.get(head[0])
    )
