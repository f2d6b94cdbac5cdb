"""The reader: any split gives equal outcomes, streams add up, memory and work are bounded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.base.limits import MAX_HEAD_BYTES
from lace.record.model import MARKER, Blob, Plex, Record
from lace.record.reader import Fault, RawRecord, RecordReader, read_records
from tests.property.strategies import KEYS, cut_at, cuts, mutations, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.property

MIB = 1 << 20
VECTORS = Path(__file__).parents[1] / "vectors" / "records"
REJECT = [path.read_bytes() for path in sorted((VECTORS / "reject").glob("*.record"))]
BLOB = Blob(b"hi").bytes
PLEX = Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=b"hi")
SEAL = PLEX.seal(KEYS[0]).bytes

Outcome = tuple[object, ...]


def outcomes(
    pieces: Iterable[bytes], *, recover: bool, size: int | None = None, limit: int = 32 * MIB
) -> list[Outcome]:
    """Everything that a reader says of a stream, as plain values."""
    found: list[Outcome] = []
    for outcome in read_records(
        pieces, recover=recover, size=size, max_data_bytes=limit, source="s"
    ):
        if isinstance(outcome, Fault):
            error = outcome.error
            place = error.place and error.place.offset
            found.append((outcome.offset, outcome.lost, error.rule, str(error), place))
        else:
            found.append(tuple(outcome))
    return found


def markline(letter: bytes) -> bytes:
    return MARKER + letter + b"." + b"0" * 43 + b".H3\n"


def length_line(length: int) -> bytes:
    return b"Data-Length: %d\n\n" % length


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Good records, changed ones, pieces of records and garbage, one after another."""
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 5))
        if kind <= 1:
            pieces.append(draw(records()).bytes)
        elif kind == 2:
            pieces.append(draw(mutations(draw(records()).bytes)))
        elif kind == 3:
            pieces.append(draw(st.sampled_from(REJECT)))
        elif kind == 4:
            pieces.append(draw(st.binary(max_size=40)))
        else:
            odd = [markline(b"S"), markline(b"P"), markline(b"B"), b"x: y\n", MARKER, b"\n"]
            odd += [length_line(7), length_line(70), length_line(10**6), length_line(10**12)]
            odd += [b"\xe2\x8b\xaf", b"\xe2\x8b", b"y" * 2100]
            pieces += draw(st.lists(st.sampled_from(odd), max_size=5))
    return b"".join(pieces)


@given(streams(), cuts, st.booleans(), st.booleans(), st.sampled_from([0, 20, 32 * MIB]))
@example(b"x" + b"a: b" + b"z" * 2500 + b"\n" + BLOB, [2400], True, False, 32 * MIB)
@example(b"x" + b"a: b" + b"z" * 2040 + b"\n" + BLOB, [3, 2047], True, True, 32 * MIB)
def test_any_split_gives_the_same_outcomes(
    stream: bytes, places: list[int], recover: bool, sized: bool, limit: int
) -> None:
    size = len(stream) if sized else None
    whole = outcomes([stream], recover=recover, size=size, limit=limit)
    pieces = cut_at(stream, places)
    assert b"".join(pieces) == stream
    assert outcomes(pieces, recover=recover, size=size, limit=limit) == whole


@given(streams(), st.booleans(), st.booleans())
def test_byte_by_byte(stream: bytes, recover: bool, sized: bool) -> None:
    size = len(stream) if sized else None
    single = (stream[i : i + 1] for i in range(len(stream)))
    assert outcomes(single, recover=recover, size=size) == outcomes(
        [stream], recover=recover, size=size
    )


@given(st.lists(records(), max_size=5), cuts, st.booleans())
def test_a_stream_of_records_is_those_records(
    given_: list[Record], places: list[int], recover: bool
) -> None:
    stream = b"".join(record.bytes for record in given_)
    found = list(read_records(cut_at(stream, places), recover=recover, size=len(stream)))
    at = 0
    for record, outcome in zip(given_, found, strict=True):
        assert isinstance(outcome, RawRecord)
        assert (outcome.offset, outcome.data) == (at, record.bytes)
        assert outcome.type == record.type
        assert outcome.data[outcome.data_at :] == record.data
        at += len(record.bytes)


@given(st.lists(records(), max_size=3), st.lists(records(), max_size=3), st.booleans())
def test_joined_streams_give_joined_records(
    one: list[Record], two: list[Record], recover: bool
) -> None:
    first = b"".join(record.bytes for record in one)
    second = b"".join(record.bytes for record in two)
    moved = [
        (len(first) + o.offset, *o[1:])
        for o in read_records([second], recover=recover)
        if isinstance(o, RawRecord)
    ]
    alone = [tuple(o) for o in read_records([first], recover=recover)]  # type: ignore[arg-type]
    assert [tuple(o) for o in read_records([first, second], recover=recover)] == alone + moved  # type: ignore[arg-type]


@given(streams(), st.booleans())
def test_offsets_are_offsets_of_the_stream(stream: bytes, recover: bool) -> None:
    last = -1
    for outcome in read_records([stream], recover=recover):
        if isinstance(outcome, RawRecord):
            assert stream[outcome.offset : outcome.offset + len(outcome.data)] == outcome.data
            assert outcome.data.startswith(MARKER)
        else:
            assert outcome.error.place is not None
            assert outcome.error.place.offset is not None
            assert outcome.offset <= outcome.error.place.offset <= len(stream)
        assert outcome.offset >= last or recover
        last = outcome.offset


def test_strict_reading_ends_at_the_first_lost_frame() -> None:
    reader = RecordReader()
    found = list(reader.feed(BLOB + b"garbage" + BLOB))
    assert [type(outcome) for outcome in found] == [RawRecord, Fault]
    assert reader.lost
    assert reader.offset == len(BLOB)
    held = len(reader._buffer)
    assert list(reader.feed(BLOB * 1000)) == []
    assert list(reader.finish()) == []
    assert len(reader._buffer) == held


def test_the_offset_follows_the_outcomes() -> None:
    reader = RecordReader()
    feed = reader.feed(BLOB + SEAL + BLOB[:60])
    assert reader.offset == 0
    next(feed)
    assert reader.offset == len(BLOB)
    assert len(list(feed)) == 1
    assert reader.offset == len(BLOB) + len(SEAL)


# --- memory -----------------------------------------------------------------------------------


def watch(reader: RecordReader, pieces: Iterable[bytes]) -> tuple[list[RawRecord | Fault], int]:
    """What a reader yields, and the most bytes that it held after a piece."""
    found: list[RawRecord | Fault] = []
    most = 0
    for piece in pieces:
        found += reader.feed(piece)
        most = max(most, len(reader._buffer))
    found += reader.finish()
    return found, most


def repeat(piece: bytes, total: int) -> Iterator[bytes]:
    for _ in range(total // len(piece)):
        yield piece


@pytest.mark.parametrize("recover", [False, True])
def test_oversized_data_is_read_past_in_constant_memory(recover: bool) -> None:
    size = 200 * MIB

    def pieces() -> Iterator[bytes]:
        yield markline(b"B") + length_line(size)
        yield from repeat(b"x" * MIB, size)
        yield BLOB

    found, most = watch(RecordReader(recover=recover, max_data_bytes=MIB), pieces())
    assert most <= 2 * MIB
    fault, record = found
    assert isinstance(fault, Fault)
    assert fault.error.rule == "010-size-limit"
    assert not fault.lost
    assert str(size) in fault.error.message
    assert isinstance(record, RawRecord)
    assert record.data == BLOB
    assert record.offset == 55 + len(length_line(size)) + size


@pytest.mark.parametrize("recover", [False, True])
def test_oversized_data_that_is_cut(recover: bool) -> None:
    stream = markline(b"B") + length_line(10**6) + b"x" * 1000
    first, second = read_records([stream], recover=recover, max_data_bytes=100)
    assert isinstance(first, Fault)
    assert isinstance(second, Fault)
    assert (first.error.rule, first.lost) == ("010-size-limit", False)
    assert (second.error.rule, second.lost) == ("010-cut", True)
    assert "999000" in second.error.message


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("start", [markline(b"P"), markline(b"S"), b"", markline(b"B")])
def test_an_endless_line_is_no_reason_to_hold_it(start: bytes, recover: bool) -> None:
    pieces = (piece for part in ([start], repeat(b"x" * MIB, 1 << 30)) for piece in part)
    began = time.process_time()
    found, most = watch(RecordReader(recover=recover), pieces)
    assert most <= MAX_HEAD_BYTES + 2 * MIB
    assert len(found) == 1
    assert isinstance(found[0], Fault)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("distance", range(-8, 9))
@pytest.mark.parametrize("piece", [1, 7, MIB, 4 * MIB])
def test_the_head_limit_is_the_same_for_every_split(distance: int, piece: int) -> None:
    """The embedded markline may start at most so many bytes into the record."""
    head = markline(b"P") + b"a: "
    fill = MAX_HEAD_BYTES + distance - len(head)
    stream = head + b"x" * fill + b"\n" + BLOB
    reader = RecordReader()
    found: list[RawRecord | Fault] = []
    near = len(head) + fill - 40  # far from the limit the pieces need not be small
    for at in [0, *range(near, len(stream), piece)]:
        end = near if at == 0 else at + piece
        found += reader.feed(stream[at:end])
    found += reader.finish()
    (outcome,) = found
    if distance <= 0:
        assert isinstance(outcome, RawRecord)
    else:
        assert isinstance(outcome, Fault)
        assert outcome.error.rule == "010-head-size"


# --- work -------------------------------------------------------------------------------------


def reaching(total: int, end: bytes) -> bytes:
    """Blobs without end: the data of each reaches to the end of all."""
    unit = len(markline(b"B")) + len(length_line(10**6))
    count = total // unit
    made = []
    for number in range(count):
        length = unit * (count - number - 1)
        text = length_line(length)
        made.append(markline(b"B") + text + b"." * (unit - 55 - len(text)))
    return b"".join(made) + end


HOSTILE = {
    "lengths beyond the end": (markline(b"B") + length_line(1_900_000)) * 27_000,
    "lengths to the end": reaching(2_000_000, b""),
    "lengths to the end, then garbage": reaching(2_000_000, b"garbage"),
    "plexes without an embedded record": (markline(b"P") + b"A") * 36_000,
    "seals without an embedded record": (markline(b"S") + b"A") * 36_000,
    "plexes in plexes": markline(b"P") * 36_000,
    "seals in seals": markline(b"S") * 36_000,
    "seal, plex, blob": (
        (markline(b"S") + markline(b"P") + markline(b"B") + length_line(1_900_000)) * 10_000
    ),
    "markers": MARKER * 330_000,
    "markers on lines": (b"\n" + MARKER) * 285_000,
    "blob marklines": markline(b"B") * 36_000,
    "marklines behind long lines": (b"a: b" + b"c" * 1900 + b"\n" + markline(b"B")) * 1000,
    "open markers": b"\xe2\x8b\xaf" * 660_000,
    "hidden marklines": (
        (markline(b"P") + (b"a" + markline(b"P")) * 300 + markline(b"B") + length_line(0)) * 110
    ),
}


class CountingBuffer(bytearray):
    """A buffer that counts the bytes that searches look at."""

    searched = 0

    def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]  # as it is called
        found = super().find(sub, start)
        self.searched += max(0, (found if found >= 0 else len(self)) - start)
        return found


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("stream", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_streams_cost_little(stream: bytes, recover: bool) -> None:
    reader = RecordReader(recover=recover)
    buffer = reader._buffer = CountingBuffer()
    count = 0
    for start in range(0, len(stream), 1 << 16):
        count += sum(1 for _ in reader.feed(stream[start : start + (1 << 16)]))
    count += sum(1 for _ in reader.finish())
    assert reader._buffer is buffer
    assert count <= len(stream) // 50
    assert reader._looked_again <= len(stream) + 64 * MIB
    assert buffer.searched <= 4 * (len(stream) + reader._looked_again)


def test_work_grows_as_the_stream_does() -> None:
    """Twice the bytes, about twice the outcomes; the same for the bytes looked at again."""
    small, large = (reaching(size, b"garbage") for size in (500_000, 1_000_000))
    seen = []
    for stream in (small, large):
        reader = RecordReader(recover=True)
        total = 0
        for outcome in [*reader.feed(stream), *reader.finish()]:
            total += len(outcome.data) if isinstance(outcome, RawRecord) else 1
        assert reader._looked_again <= len(stream) + 64 * MIB
        seen.append(total)
    assert seen[1] <= 64 * MIB + 3 * len(large)
