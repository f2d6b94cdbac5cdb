"""Reading on behind damage: what stands on its own is found, what was embedded is not."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lace.record.model import MARKER, Blob, Plex, Record, Seal
from lace.record.reader import Fault, RawRecord, read_records
from lace.record.validate import ValidRecord, validate_many
from tests.property import oracle
from tests.property.strategies import (
    KEYS,
    clean_data,
    cut_at,
    cuts,
    data,
    plexes,
    records,
    seals,
)

pytestmark = pytest.mark.property

BLOB_LINE = re.compile(rb"\xf0\x9f\x96\xa7: B\.[0-9A-Za-z_~]{43}\.H3")


@dataclass(frozen=True)
class Piece:
    """A part of a stream: a good record, or damage that may claim to be longer than it is."""

    raw: bytes
    good: bool
    claims: int = 0


def good(record: Record) -> Piece:
    return Piece(record.bytes, good=True, claims=len(record.bytes))


def with_length(record: Record, change: int) -> Piece:
    """The record with a Data-Length that is off by so much."""
    head = record.bytes[: len(record.bytes) - len(record.data)].rpartition(b"Data-Length: ")[0]
    length = max(0, len(record.data) + change)
    raw = head + b"Data-Length: %d\n\n" % length + record.data
    return Piece(raw, good=length == len(record.data), claims=len(raw) + change)


@st.composite
def damages(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> Piece:
    record = draw(records(contents))
    raw = record.bytes
    kind = draw(st.sampled_from(["cut", "hash", "length", "huge", "garbage", "letter"]))
    match kind:
        case "cut":
            at = draw(st.integers(1, len(raw) - 1))
            head = len(raw) - len(record.data)
            return Piece(raw[:at], good=False, claims=len(raw) if at >= head else 0)
        case "hash":
            at = draw(st.sampled_from([10, 30, 49]))
            letter = b"0" if raw[at : at + 1] != b"0" else b"1"
            return Piece(raw[:at] + letter + raw[at + 1 :], good=False, claims=len(raw))
        case "letter":
            return Piece(raw[:6] + b"X" + raw[7:], good=False)
        case "length":
            return with_length(record, draw(st.integers(-60, 200).filter(bool)))
        case "huge":
            return with_length(record, 10**12)
        case _:
            garbage = draw(st.binary(min_size=1, max_size=60))
            return Piece(garbage.replace(MARKER[:1], b"-"), good=False)


def is_ambiguous(before: bytes, record: bytes) -> bool:
    """Tell whether a record stands where an embedded one would: behind a header line."""
    if record[6:7] == b"S" or not before.endswith(b"\n"):
        return False
    lines = before.split(b"\n")[:-1]
    if b": " not in lines[-1] or BLOB_LINE.search(lines[-1]):
        return False
    return not (lines[-1].startswith(b"Data-Length") and BLOB_LINE.search(lines[-2]))


Found = list[tuple[int, bytes]]


def recover(stream: bytes, places: list[int]) -> tuple[Found, int]:
    """The valid records that come out of a damaged stream, by offset, and how many errors."""
    framed: list[RawRecord] = []
    faults = 0
    for outcome in read_records(cut_at(stream, places), recover=True):
        if isinstance(outcome, Fault):
            faults += 1
        else:
            assert stream[outcome.offset :].startswith(outcome.data)
            framed.append(outcome)
    verdicts = validate_many(framed, os.urandom)
    valid = [
        (raw.offset, verdict.bytes)
        for raw, verdict in zip(framed, verdicts, strict=True)
        if isinstance(verdict, ValidRecord)
    ]
    return valid, faults + len(verdicts) - len(valid)


def expect(pieces: list[Piece], stream: bytes) -> tuple[Found, Found]:
    """The good records that must be found, and all that may be."""
    needed: Found = []
    allowed: Found = []
    at, damaged = 0, False
    for piece in pieces:
        if piece.good:
            allowed.append((at, piece.raw))
            if not (damaged and is_ambiguous(stream[:at], piece.raw)):
                needed.append((at, piece.raw))
            damaged = False
        else:
            # A lie about the length that happens to end where a record starts is believed.
            end = at + piece.claims
            if piece.claims > len(piece.raw):
                assume(end != len(stream) and not stream.startswith(MARKER, end))
            # A cut Seal and then its own Plex are the whole Seal again.
            with suppress(oracle.Bad):
                oracle.read_record(stream, at)
                assume(False)
            damaged = True
        at += len(piece.raw)
    return needed, allowed


CLEAN = st.lists(
    st.one_of(records(clean_data).map(good), damages(clean_data)), min_size=1, max_size=6
)
BLOB = Blob(b"hi")
PLEX = Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=b"hi")


@given(CLEAN, cuts)
@example([Piece(PLEX.bytes[:70], good=False), good(PLEX), good(BLOB)], [])
@example([Piece(PLEX.bytes[:70], good=False), good(BLOB), good(PLEX), good(PLEX)], [])
@example([Piece(PLEX.bytes[:62], good=False), good(BLOB), good(PLEX)], [90])
@example([Piece(BLOB.bytes[:55], good=False), good(BLOB)], [])
@example([Piece(BLOB.bytes[:70], good=False), good(PLEX), good(BLOB)], [])
@example([Piece(PLEX.bytes[:55], good=False), good(BLOB), good(BLOB)], [])
def test_good_records_between_damage_are_found(pieces: list[Piece], places: list[int]) -> None:
    stream = b"".join(piece.raw for piece in pieces)
    needed, allowed = expect(pieces, stream)
    found, errors = recover(stream, places)
    assert found == sorted(set(found))
    assert set(needed) <= set(found) <= set(allowed)
    assert bool(errors) is any(not piece.good for piece in pieces)


@given(damages(clean_data), seals(), st.lists(records(), max_size=3), cuts)
def test_behind_a_seal_all_is_well(
    damage: Piece, seal: Seal, rest: list[Record], places: list[int]
) -> None:
    """A Seal is never embedded, so the stream is found again at the latest there."""
    pieces = [damage, good(seal), *map(good, rest)]
    stream = b"".join(piece.raw for piece in pieces)
    needed, allowed = expect(pieces, stream)
    assert needed == allowed
    found, _errors = recover(stream, places)
    assert found == needed


@given(st.one_of(plexes(clean_data), seals(clean_data)), st.integers(0, 1 << 16), data)
def test_embedded_records_of_broken_ones_are_not_found(
    record: Plex | Seal, place: int, tail: bytes
) -> None:
    """One changed byte anywhere before the innermost markline admits nothing that is inside.

    Without the LF before it, an inner markline looks like one behind a cut record.
    """
    raw = bytearray(record.bytes)
    place %= record.bytes.rindex(MARKER)
    assume(not record.bytes.startswith(MARKER, place + 1))
    raw[place] ^= 0x01
    plex = Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=tail)
    last = plex.seal(KEYS[1])
    found, errors = recover(bytes(raw) + last.bytes, [])
    assert errors
    assert found == [(len(raw), last.bytes)]


@pytest.mark.parametrize("change", [-5, -1, 1, 3, 400, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("sized", [False, True])
def test_a_lie_about_the_length_costs_one_record(change: int, sized: bool) -> None:
    liar = with_length(Blob(b"0123456789"), change).raw
    seal = PLEX.seal(KEYS[0]).bytes
    stream = seal + liar + BLOB.bytes + seal
    framed: list[RawRecord] = []
    size = len(stream) if sized else None
    for outcome in read_records([stream], recover=True, size=size):
        if isinstance(outcome, RawRecord):
            framed.append(outcome)
        else:
            assert outcome.offset in (len(seal), len(stream))
    verdicts = validate_many(framed, os.urandom)
    found = [verdict.bytes for verdict in verdicts if isinstance(verdict, ValidRecord)]
    if change == 10**9 and not sized:
        assert found == [seal]  # above the limit: read past, as the length says
    else:
        assert found == [seal, BLOB.bytes, seal]
