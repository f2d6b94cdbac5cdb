"""Streams: any split gives equal events, and what was read is written again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.iltp.items import (
    KNOT,
    OPEN_RECORD,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    Comment,
    Facts,
    NeedMore,
    OversizedRecord,
    RecordItem,
    StreamEnd,
    WriteError,
)
from lace.iltp.reader import Reader
from lace.iltp.writer import Writer
from tests.property.strategies import cut_at, cuts, mutations, nfc_text, records
from tests.unit.iltp.streams import (
    OTHER_R,
    OTHER_RULES,
    PLAN_RESOURCE,
    RULES,
    SETUP,
    R,
    events,
    resource,
)

if TYPE_CHECKING:
    from lace.iltp.items import Event

pytestmark = pytest.mark.property

names = st.sampled_from(["A", "NotAvailable", "x_~-9"])
facts = st.tuples(names, nfc_text(0, 8), nfc_text(0, 8)) | st.tuples(names)
RESOURCES = {R: RULES, OTHER_R: OTHER_RULES}
PIECES = [KNOT, PUZZLE_PIECE, RECORD, OPEN_RECORD, PREFACE, b"\n", b"\n\n", b"#", b"#\n"]
PIECES += [SETUP, b"A('b')\n", b"A('", resource(), PLAN_RESOURCE, b"\r", b"\xff", b" "]
PIECES += [b"Data-Length: 3\n\n"]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream as the writer makes it: a block, then blocks and batches."""
    writer = Writer()
    chunks = writer.preface() + writer.comment(b"")
    for number in range(draw(st.integers(0, 4))):
        writer.expect(batch=number > 0)
        follows = False
        for kind in draw(st.lists(st.integers(0, 5), max_size=6)):
            try:
                if kind <= 1:
                    given_ = draw(st.lists(facts, min_size=1, max_size=3))
                    chunks += writer.facts(given_)
                elif kind == 2:
                    chunks += writer.comment(draw(nfc_text(0, 9)).replace("\r", ""))
                elif kind == 3:
                    chunks += writer.resource(*draw(st.sampled_from(sorted(RESOURCES.items()))))
                else:
                    joined = follows and draw(st.booleans())
                    chunks += writer.record(draw(records()).bytes, joined=joined)
                follows = kind > 3
            except WriteError:
                pass  # not here, or not such a text
        chunks += writer.blank()
    return b"".join(chunks)


@st.composite
def rough_streams(draw: st.DrawFn) -> bytes:
    """Streams, changed streams, and pieces of streams in any order."""
    match draw(st.integers(0, 3)):
        case 0:
            return draw(streams())
        case 1:
            return draw(mutations(draw(streams())))
        case 2:
            pieces = (
                st.sampled_from(PIECES) | st.binary(max_size=5) | records().map(lambda r: r.bytes)
            )
            return PREFACE + b"".join(draw(st.lists(pieces, max_size=8)))
        case _:
            return draw(st.binary(max_size=60))


def rewritten(found: list[Event | tuple[object, ...]]) -> bytes:
    writer = Writer()
    chunks: list[bytes] = []
    for item in found:
        if isinstance(item, (tuple, StreamEnd, NeedMore)):
            continue
        chunks += writer.write(item)
        if isinstance(item, Blank):
            writer.expect(batch=True)
    return b"".join(chunks)


@given(streams())
def test_what_was_read_is_written_again_byte_for_byte(stream: bytes) -> None:
    found = events(stream)
    assert found[-1] == StreamEnd(len(stream), in_block=False)
    assert rewritten(found) == stream


@given(rough_streams(), cuts, st.booleans(), st.sampled_from([0, 20, 1 << 20]), st.integers(0, 60))
@example(PREFACE + b"A('a')\nA('b')\n\n", [20, 27], False, 0, 14)
@example(PREFACE + b"A('a')\n" + b"#\nA('b')\n" * 20, [20, 27], False, 0, 60)
def test_any_split_gives_the_same_events(
    stream: bytes, places: list[int], batches: bool, largest: int, block: int
) -> None:
    def run(pieces: list[bytes]) -> list[Event | tuple[object, ...]]:
        limit = block if block % 2 else 1 << 20
        reader = Reader(max_data_bytes=largest, max_block_bytes=limit)
        return events(pieces, batches=batches, reader=reader)

    whole = run([stream])
    assert run(cut_at(stream, places)) == whole
    assert run([stream[at : at + 1] for at in range(len(stream))]) == whole


@given(rough_streams())
def test_what_is_accepted_is_what_was_sent(stream: bytes) -> None:
    """Whatever the bytes, items are exactly the bytes before the error or the end."""
    found = events(stream)
    last = found[-1]
    assert isinstance(last, (tuple, StreamEnd))
    again = rewritten(found)
    assert stream.startswith(again)
    if isinstance(last, StreamEnd):
        # The LF behind a last record belongs to the next item, which never came.
        assert stream[len(again) :] in (b"", b"\n")
    for item in found:
        match item:
            case Facts(offset=at):
                assert stream[at : at + 1].isalpha()
            case Comment(offset=at, text=text):
                assert stream.startswith(b"#" + text + b"\n", at)
            case RecordItem(raw=raw):
                assert stream.startswith(raw.data, raw.offset)
            case OversizedRecord():
                raise AssertionError("nothing is too large here")


@given(st.lists(records(), max_size=4), st.integers(0, 3))
def test_limits_change_what_is_kept_not_where_items_are(given_: list[object], limit: int) -> None:
    stream = PREFACE + b"A()\n\n" + b"".join(record.bytes + b"\n" for record in given_) + b"\n"  # type: ignore[attr-defined]
    full = [item for item in events(stream) if isinstance(item, RecordItem)]
    small = events(stream, reader=Reader(max_data_bytes=limit))
    kept = [item for item in small if isinstance(item, (RecordItem, OversizedRecord))]
    assert [(item.offset, item.id) for item in kept] == [(item.offset, item.id) for item in full]
    assert small[-1] == StreamEnd(len(stream), in_block=False)
