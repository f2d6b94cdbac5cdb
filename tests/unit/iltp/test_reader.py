"""The reader: every item, every refusal with its offset, ends, limits and memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from lace.base.limits import LEAST_FACT_BYTES, MAX_HEAD_BYTES
from lace.facts.lines import Fact, parse_fact
from lace.iltp.items import (
    KNOT,
    NEED_MORE,
    OPEN_RECORD,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    Comment,
    Facts,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
    StreamEnd,
    StreamError,
    StreamFault,
)
from lace.iltp.reader import Reader
from lace.iltp.resources import ResourceStore
from lace.record.model import MARKLINE_BYTES, Blob
from lace.record.validate import frame_record
from tests.unit.iltp.streams import (
    BLOB,
    HEAD,
    OTHER_R,
    OTHER_RULES,
    PLAN,
    PLAN_RESOURCE,
    PLEX,
    RULES,
    SEAL,
    SETUP,
    R,
    events,
    refusal,
    resource,
)

ITEM, LINE, CUT = StreamFault.ITEM, StreamFault.LINE, StreamFault.CUT
AT = len(HEAD)


def test_a_block_with_a_resource_and_comments() -> None:
    stream = b"".join([PREFACE, b"# setup\n", resource(), SETUP, b"#\n", SETUP * 2, b"\n"])
    at = len(PREFACE) + 8
    behind = at + len(resource())
    fact = ("ExchangeOperand", "0", R, "Opq_0", "selector")
    assert events(stream) == [
        Preface(),
        Comment(len(PREFACE), b" setup"),
        Resource(offset=at, id=R, kind="lacegram", body=RULES),
        Facts(behind, (fact,)),
        Comment(behind + len(SETUP), b""),
        Facts(behind + len(SETUP) + 2, (fact, fact)),
        Blank(behind + 3 * len(SETUP) + 2),
        StreamEnd(len(stream), in_block=False),
    ]


def test_a_batch_of_records_and_lines() -> None:
    stream = b"".join(
        [HEAD, BLOB, b"\n", SEAL, PLEX, b"\n", b"NotAvailable('x')\n", b"#c\n", resource(),
         b"NotAvailable('y')\n", BLOB, b"\n\n", b"\n"]
    )  # fmt: skip
    found = events(stream)
    records = [item for item in found if isinstance(item, RecordItem)]
    assert [(record.raw.data, record.joined) for record in records] == [
        (BLOB, False),
        (SEAL, False),
        (PLEX, True),
        (BLOB, False),
    ]
    for record in records:
        framed = frame_record(record.raw.data)
        assert record.raw == framed._replace(offset=record.offset)
        assert stream.startswith(record.raw.data, record.offset)
        assert record.id == record.raw.data[6 : MARKLINE_BYTES - 1].decode()
    assert [type(item).__name__ for item in found[3:]] == [
        "RecordItem", "RecordItem", "RecordItem", "Facts", "Comment", "Resource", "Facts",
        "RecordItem", "Blank", "Blank", "StreamEnd",
    ]  # fmt: skip


def test_a_plan_resource_is_taken() -> None:
    found = events(PREFACE + PLAN_RESOURCE + b"A()\n\n")
    assert found[1] == Resource(
        offset=13, id=PLAN.id, kind="exchange-plan", body=PLAN.transcript_bytes
    )


# Refusals


@pytest.mark.parametrize(
    ("raw", "at", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", 0, "HTTP"),
        (b"GET / HTTP/1.1\r\n", 0, "HTTP"),
        (b"\x15\x03\x03", 0, "TLS"),
        (b"\x16\x03\x01", 0, "TLS"),
        (b"SSH-2.0", 0, "SSH"),
        (b"\n", 0, None),
        (RECORD, 2, None),
        (KNOT + b"iltp/2\n", 11, None),
        (KNOT + b"iltp/1 \n", 12, None),
        (KNOT + b"iltp/1\r\n", 12, None),
        (b"\xef\xbb\xbf" + PREFACE, 0, None),
        (b"", 0, None),
        (PREFACE[:-1], 0, None),
    ],
)
def test_no_preface(raw: bytes, at: int, hint: str | None) -> None:
    error = refusal(raw)
    assert (error.fault, error.offset, error.rule) == (StreamFault.PREFACE, at, "060-26")
    assert (error.hint is None) if hint is None else (hint in (error.hint or ""))
    assert error.exit_code == 4


@pytest.mark.parametrize(
    ("raw", "fault", "at", "rule"),
    [
        (PREFACE + b"\n", ITEM, 13, "060-27"),
        (PREFACE + PREFACE, ITEM, 13, "060-65"),
        (HEAD + PREFACE, ITEM, AT, "060-65"),
        (HEAD + OPEN_RECORD, ITEM, AT, "060-69"),
        (HEAD + b"\xe2\x8b\xb0", ITEM, AT, "060-73"),
        (HEAD + b"\xf0\x9f\x98\x80", ITEM, AT, "060-73"),
        (HEAD + KNOT[:5] + b"\n", ITEM, AT, "060-73"),
        (HEAD + b"_X('a')\n", ITEM, AT, "060-73"),
        (HEAD + b" A('a')\n", ITEM, AT, "060-73"),
        (HEAD + b"\tA('a')\n", ITEM, AT, "060-73"),
        (HEAD + b"1", ITEM, AT, "060-73"),
        (HEAD + b"\r\n", ITEM, AT, "060-73"),
        (HEAD + b"\xef\xbb\xbf#", ITEM, AT, "060-73"),
        (HEAD + b"A('a')\nB('b')\r\n", LINE, AT + 7, "050-23"),
        (HEAD + b"A('a').\n", LINE, AT, "050-23"),
        (HEAD + b"A(X)\n", LINE, AT, "050-23"),
        (HEAD + b"A( 'a')\n", LINE, AT, "050-23"),
        (HEAD + b"A('e\xcc\x81')\n", LINE, AT, "020-14"),
        (HEAD + b"A('\xff')\n", LINE, AT, "020-13"),
        (HEAD + b"A('\xc0\x80')\n", LINE, AT, "020-13"),
        (HEAD + b"A('\xed\xa0\x80')\n", LINE, AT, "020-13"),
        (HEAD + b"A('%b')\n" % (b"x" * 1020), LINE, AT, "060-144"),
        (HEAD + b"A" * 1025, LINE, AT, "060-144"),
        (HEAD + b"B('b')\n" + b"A" * 1025, LINE, AT + 7, "060-144"),
        (HEAD + b"#\n#\n", StreamFault.COMMENT, AT + 2, "060-84"),
        (HEAD + b"#" * 128, StreamFault.COMMENT, AT, "060-82"),
        (HEAD + b"#" * 128 + b"\n", StreamFault.COMMENT, AT, "060-82"),
        (HEAD + b"#\r\n", StreamFault.COMMENT, AT, "060-21"),
        (HEAD + b"#\xff\n", StreamFault.COMMENT, AT, "060-21"),
        (PREFACE + BLOB, ITEM, 13, "060-64"),
        (PREFACE + SETUP + resource(), ITEM, 13 + len(SETUP), "060-43"),
        (PREFACE + SETUP + b"#\n" + resource(), ITEM, 15 + len(SETUP), "060-43"),
        (HEAD + BLOB + b"#", StreamFault.RECORD, AT + len(BLOB), "G56"),
        (HEAD + BLOB + b"A", StreamFault.RECORD, AT + len(BLOB), "G56"),
        (HEAD + BLOB + PUZZLE_PIECE, StreamFault.RECORD, AT + len(BLOB) + 2, "G56"),
        (HEAD + RECORD + b"X.", CUT, AT, "060-104"),
        (HEAD + RECORD + b"X" * 60, StreamFault.RECORD, AT + 6, "010-markline"),
        (HEAD + BLOB.replace(b"11", b"011"), StreamFault.RECORD, AT + 55, "010-data-length"),
        (HEAD + BLOB.replace(b"11", b"2147483648"), StreamFault.RECORD, AT + 55, "010-data-length"),
        (HEAD + PLEX[:55] + SEAL, StreamFault.RECORD, AT + 55, "010-nesting"),
        (HEAD + SEAL[:55] + b"x" * (MAX_HEAD_BYTES + 9), StreamFault.RECORD, AT, "010-head-size"),
    ],
)  # fmt: skip
def test_refusals(raw: bytes, fault: StreamFault, at: int, rule: str) -> None:
    error = refusal(raw)
    assert (error.fault, error.offset, error.rule) == (fault, at, rule)
    assert str(error).isprintable()


def test_it_stays_failed() -> None:
    reader = Reader(source="tcp:h:1")
    reader.feed(b"x")
    with pytest.raises(StreamError) as first:
        reader.next_event()
    reader.feed(PREFACE)
    assert reader.buffered == 0
    reader.end()
    with pytest.raises(StreamError) as second:
        reader.next_event()
    assert second.value is first.value
    assert str(first.value).startswith("tcp:h:1: byte 0: found byte 0x78")


def test_misuse() -> None:
    reader = Reader()
    reader.feed(PREFACE + b"A('a')\nB")
    assert [reader.next_event(), reader.at_boundary] == [Preface(), True]
    assert (reader.offset, reader.buffered) == (13, 8)
    assert [reader.next_event(), reader.at_boundary] == [NEED_MORE, False]
    with pytest.raises(AssertionError):
        reader.expect(batch=True)
    reader.end()
    with pytest.raises(AssertionError):
        reader.feed(b"")


# Ends


@pytest.mark.parametrize(
    ("raw", "in_block"),
    [
        (PREFACE, False),
        (HEAD, False),
        (PREFACE + b"#\n", False),
        (PREFACE + SETUP, True),
        (PREFACE + resource(), True),
        (HEAD + BLOB, True),
        (HEAD + BLOB + b"\n", True),
        (HEAD + BLOB + b"\n\n", False),
        (HEAD + b"\n", False),
    ],
)
def test_ends_between_items(raw: bytes, in_block: bool) -> None:
    assert events(raw)[-1] == StreamEnd(len(raw), in_block)
    reader = Reader()
    reader.feed(PREFACE)
    reader.end()
    assert [reader.next_event() for _ in range(3)][1:] == [StreamEnd(13, False)] * 2


@pytest.mark.parametrize(
    "raw",
    [
        PREFACE + SETUP[:-1],
        PREFACE + SETUP + b"E",
        PREFACE + b"#",
        PREFACE + resource()[:3],
        PREFACE + resource()[:20],
        PREFACE + resource()[:-2],
        PREFACE + resource()[:-1],
        HEAD + BLOB[:-1],
        HEAD + SEAL[:80],
        HEAD + BLOB + RECORD[:2],
        HEAD + Blob(b"x" * 100_000).bytes[:-1],
    ],
)
def test_ends_inside_an_item(raw: bytes) -> None:
    error = refusal(raw)
    assert (error.fault, error.rule) == (CUT, "060-104")


# Limits


def test_lines_comments_and_markers_up_to_their_limits() -> None:
    line = b"A('%b')" % (b"x" * 1019)
    found = events(HEAD + line + b"\n" + b"#" * 127 + b"\n\n")
    assert found[3] == Facts(AT, (("A", "x" * 1019),))
    assert found[4] == Comment(AT + 1025, b"#" * 126)
    error = refusal(HEAD + PUZZLE_PIECE + b"x" * 1018 + b"\n")
    assert (error.fault, error.rule) == (StreamFault.RESOURCE, "060-33")
    for end in (b"\n", b""):
        error = refusal(HEAD + PUZZLE_PIECE + b"x" * 1019 + end)
        assert (error.offset, error.rule) == (AT, "060-146")


@pytest.mark.parametrize("split", [1, 5, 1000])
def test_a_block_is_limited_by_its_bytes(split: int) -> None:
    def run(raw: bytes, limit: int) -> object:
        pieces = [raw[at : at + split] for at in range(0, len(raw), split)]
        return events(pieces, reader=Reader(max_block_bytes=limit), batches=False)[-1]

    block = b"A('a')\n#c\nB('b')\n"
    stream = PREFACE + block + b"\n" + block + b"\n"
    assert run(stream, len(block)) == StreamEnd(len(stream), False)
    for limit, at in ((16, 10), (10, 10), (9, 7), (6, 0)):
        found = run(stream, limit)
        assert isinstance(found, tuple)
        assert found[:3] == (StreamFault.BLOCK_SIZE, 13 + at, "050-222")
    wrong = run(PREFACE + b"A('a')\nwrong\nB('b')\n", 13)
    assert isinstance(wrong, tuple)
    assert wrong[:2] == (LINE, 20)
    long = run(PREFACE + b"A('a')\n" + b"x" * 1025 + b"\n", 100)
    assert isinstance(long, tuple)
    assert long[2] == "060-144"


def test_the_limit_of_a_block_can_change_between_blocks() -> None:
    reader = Reader(max_block_bytes=1000)
    reader.feed(HEAD)
    assert [reader.next_event() for _ in range(4)][-1] is NEED_MORE
    reader.expect(batch=False, max_block_bytes=7)
    reader.feed(b"A('b')\n\nA('bb')\n")
    assert [type(reader.next_event()) for _ in range(2)] == [Facts, Blank]
    with pytest.raises(StreamError, match="more than 7 bytes"):
        reader.next_event()


def test_resources_are_counted_with_their_repetitions() -> None:
    stream = PREFACE + resource() * 256
    assert len(events(stream)) == 258
    error = refusal(stream + resource())
    assert (error.offset, error.rule) == (len(stream), "060-149")
    store = ResourceStore(max_count=1)
    error_tuple = events(
        PREFACE + resource() + resource(OTHER_R, OTHER_RULES), reader=Reader(resources=store)
    )[-1]
    assert isinstance(error_tuple, tuple)
    assert error_tuple[2] == "060-149"
    assert (len(store), store.count, R in store) == (1, 1, True)


@pytest.mark.parametrize("size", [10, 65_536 + 1000])
def test_an_oversized_record_is_read_past(size: int) -> None:
    large = Blob(b"x" * (size + 1)).bytes
    stream = HEAD + large + BLOB.replace(b"11", b"10")[:-1] + b"\n" + large + b"\n\n"
    for split in (len(stream), 1000):
        pieces = [stream[at : at + split] for at in range(0, len(stream), split)]
        found = events(pieces, reader=Reader(max_data_bytes=size))
        head = RecordHead(offset=AT, id=large[6:54].decode(), size=len(large))
        assert found[3] == head
        assert found[4] == OversizedRecord(offset=AT, id=head.id, size=len(large))
        assert isinstance(found[5], RecordItem)
        assert found[5].joined
        assert isinstance(found[6], RecordHead)
        assert isinstance(found[8], Blank)


def test_a_large_record_is_announced() -> None:
    large = Blob(b"x" * 70_000).bytes
    stream = HEAD + large + b"\n" + BLOB + large + b"\n\n"
    found = events(stream)
    names = [type(item).__name__ for item in found[3:]]
    assert names == [
        "RecordHead", "RecordItem", "RecordItem", "RecordHead", "RecordItem", "Blank",
        "StreamEnd",
    ]  # fmt: skip
    for split in (1, 999, 65_536):
        pieces = [stream[at : at + split] for at in range(0, len(stream), split)]
        assert events(pieces) == found


# Memory and time


def peak_of(pieces: int, size: int, piece: bytes, start: bytes) -> tuple[int, Reader]:
    reader = Reader(max_block_bytes=1 << 40)
    reader.feed(start)
    while (event := reader.next_event()) is not NEED_MORE:
        if isinstance(event, Blank):
            reader.expect(batch=True)
    tracemalloc.start()
    try:
        for _ in range(pieces):
            reader.feed(piece)
            while reader.next_event() is not NEED_MORE:
                pass
    except StreamError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < size
    return peak, reader


@pytest.mark.parametrize("start", [b"", PREFACE, HEAD + RECORD, PREFACE + PUZZLE_PIECE])
def test_endless_bytes_without_a_line_end(start: bytes) -> None:
    _, reader = peak_of(300, 200_000, b"A" * 65_536, start)
    with pytest.raises(StreamError):
        reader.next_event()


def test_endless_resources_and_heads() -> None:
    marker = PREFACE + resource()[: -len(RULES) - 2]
    peak_of(300, 3_000_000, b"A(P) :- Have(P).\n" * 4000, marker)
    peak_of(300, 3_000_000, b"A: b\n" * 10_000, HEAD + PLEX[:55])


def test_endless_empty_blocks_and_oversized_data_stay_flat() -> None:
    peak_of(20, 200_000, b"#\n\n" * 1000, PREFACE + b"#\n\n")
    record = BLOB.replace(b"Data-Length: 11", b"Data-Length: 2000000000")
    peak_of(300, 200_000, b"\n" * 65_536, HEAD + record)


def test_a_large_record_is_held_once() -> None:
    size = 20_000_000
    record = Blob(bytes(size)).bytes
    reader = Reader()
    reader.feed(PREFACE)
    reader.expect(batch=True)
    last: object = None
    tracemalloc.start()
    for at in range(0, len(record), 65_536):
        reader.feed(record[at : at + 65_536])
        while (event := reader.next_event()) is not NEED_MORE:
            last = event
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(last, RecordItem)
    assert last.raw.data == record
    assert peak < 1.2 * size


def test_single_bytes_are_not_quadratic() -> None:
    def seconds(raw: bytes) -> float:
        reader = Reader()
        start = time.perf_counter()
        for at in range(len(raw)):
            reader.feed(raw[at : at + 1])
            while reader.next_event() is not NEED_MORE:
                pass
        return time.perf_counter() - start

    body = b"A(P) :- Have(P).\n"
    one = PREFACE + resource()[: -len(RULES) - 2] + body * 500
    ten = PREFACE + resource()[: -len(RULES) - 2] + body * 5000
    seconds(one)
    assert seconds(ten) < 40 * seconds(one)


def test_plain_lines_are_split_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line by itself would take many times as long; comments between them change nothing."""
    alone: list[bytes] = []

    def parse_alone(line: bytes) -> Fact:
        alone.append(line)
        return parse_fact(line)

    monkeypatch.setattr("lace.iltp.fact_lines.parse_fact", parse_alone)
    line = b"AdvertisedField('P.%043d.H3','V.%043d.H3','Group','0','some group')\n"
    lines = [line % (number, 1) for number in range(20_000)]
    for between in (b"", b"# more\n"):
        raw = PREFACE + between.join(lines) + b"\n"
        reader = Reader()
        facts: list[Fact] = []
        for at in range(0, len(raw), 65_536):
            reader.feed(raw[at : at + 65_536])
            while (event := reader.next_event()) is not NEED_MORE:
                if isinstance(event, Facts):
                    facts += event.facts
        assert len(facts) == 20_000
        assert facts[0][2] is facts[1][2], "equal texts are kept once"
        assert not alone
    reader = Reader()
    reader.feed(PREFACE + b"A()\n\n")
    while reader.next_event() is not NEED_MORE:
        pass
    assert alone == [b"A()"], "only this one is"


def limited(raw: bytes, size: int = 2**20) -> str | None:
    """What is wrong with a block, if anything is."""
    reader = Reader(max_block_bytes=size)
    reader.feed(PREFACE + raw)
    try:
        while reader.next_event() is not NEED_MORE:
            pass
    except StreamError as error:
        return str(error)
    return None


@pytest.mark.requirement("050-222", "050-229", "060-85")
def test_how_many_facts_a_block_has() -> None:
    """As many as fit if they name records, with a comment before each; not millions of others."""
    record = b"MayRequest('B." + b"0" * 43 + b".H3')\n"
    full = record * (2**20 // len(record))
    assert limited(full + b"\n") is None
    assert "bytes of facts" in str(limited(full + record))
    assert limited((b"#\n" + record) * (2**20 // (len(record) + 2)) + b"\n") is None
    questions = b"".join(b"ListAdvertisementPartition('%04d')\n" % n for n in range(16_384))
    assert limited(questions + b"\n") is None
    most = 2**20 // LEAST_FACT_BYTES + 1024
    assert limited(b"A()\n" * most + b"\n") is None
    said = str(limited(b"A()\n" * (most + 1)))
    assert f"more than {most} facts" in said
    assert "max_fact_block_size=1048576" in said
    assert "more than" in str(limited(b"#\nA()\n" * (most + 1)))


@pytest.mark.requirement("060-62")
@pytest.mark.parametrize(("length", "is_legal"), [(2**31 - 1, True), (2**31, False)])
def test_the_largest_length_of_data_is_legal_and_one_more_is_no_frame(
    length: int, is_legal: bool
) -> None:
    """A legal one above the reader's limit is read past, however much there is of it."""
    head = RECORD + b"B." + b"0" * 43 + b".H3\nData-Length: %d\n\n" % length
    reader = Reader(max_data_bytes=1024)
    reader.feed(HEAD + head)
    problems = []
    while True:
        try:
            event = reader.next_event()
        except StreamError as error:
            problems.append(error.rule)
            break
        assert not isinstance(event, RecordItem)
        if event is NEED_MORE:
            break
        if isinstance(event, Blank):
            reader.expect(batch=True)
    assert problems == ([] if is_legal else ["010-data-length"])
