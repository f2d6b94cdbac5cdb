"""The writer: what it writes a reader reads, and what a reader refuses it does not write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.iltp.items import (
    NEED_MORE,
    PREFACE,
    Blank,
    Comment,
    Facts,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
    StreamEnd,
    WriteError,
)
from lace.iltp.writer import Writer
from lace.record.model import Plex
from lace.record.reader import FrameError
from tests.unit.iltp.streams import (
    BLOB,
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
    resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FACT = ("ExchangeOperand", "0", R, "Opq_0", "selector")


def begun(*, batch: bool = False) -> Writer:
    writer = Writer()
    writer.preface()
    writer.expect(batch=batch)
    return writer


def test_blocks_with_their_resources() -> None:
    writer = Writer()
    chunks = writer.preface() + writer.block([FACT, FACT], {R: RULES})
    chunks += writer.block([FACT], {R: RULES, PLAN.id: PLAN.transcript_bytes})
    chunks += writer.block([])
    stream = PREFACE + resource() + SETUP + b"\n" + PLAN_RESOURCE + SETUP + b"\n\n"
    assert b"".join(chunks) == stream
    assert events(stream)[-1] == StreamEnd(len(stream), in_block=False)


def test_batches() -> None:
    writer = begun(batch=True)
    chunks = writer.record(BLOB) + writer.record(SEAL) + writer.record(PLEX, joined=True)
    chunks += writer.facts([("NotAvailable", "x")]) + writer.comment("é") + writer.record(BLOB)
    chunks += writer.blank() + writer.blank()
    expected = [BLOB, b"\n", SEAL, PLEX, b"\nNotAvailable('x')\n#\xc3\xa9\n", BLOB, b"\n\n", b"\n"]
    assert b"".join(chunks) == b"".join(expected)
    assert any(chunk is SEAL for chunk in chunks), "record bytes are passed on as they are"


def test_stored_records_are_written_as_records_are() -> None:
    one, other = begun(batch=True), begun(batch=True)
    for some in ([BLOB, SEAL, PLEX], [], [SEAL]):
        chunks = one.stored_records(some)
        expected = [chunk for record in some for chunk in other.record(record)]
        assert b"".join(chunks) == b"".join(expected)
        assert all(any(chunk is record for chunk in chunks) for record in some)
    assert one.blank() == other.blank()
    with pytest.raises(WriteError, match="060-64"):
        begun(batch=False).stored_records([BLOB])


def test_a_large_block_is_the_same_in_pieces() -> None:
    facts = [("MayRequest", f"P.{number}.H3") for number in range(10_000)]
    pieces = list(begun(batch=False).block_pieces(facts))
    assert len(pieces) > 2
    assert (
        b"".join(pieces)
        == b"".join(f"MayRequest('{each[1]}')\n".encode() for each in facts) + b"\n"
    )


def test_what_was_read_is_written_again() -> None:
    stream = b"".join(
        [PREFACE, b"#\n", resource(), resource(), SETUP, b"# x\n", SETUP, b"\n", BLOB, SEAL, b"\n",
         b"NotAvailable('y')\n", resource(), PLEX, b"\n#\n", BLOB, b"\n\n\n#\n\n"]
    )  # fmt: skip
    writer = Writer()
    chunks: list[bytes] = []
    for item in events(stream):
        match item:
            case tuple() | StreamEnd():
                assert item == StreamEnd(len(stream), in_block=False)
            case _:
                assert item is not NEED_MORE
                chunks += writer.write(item)
        if isinstance(item, Blank):
            writer.expect(batch=True)
    assert b"".join(chunks) == stream


def test_items_without_bytes() -> None:
    writer = begun(batch=True)
    assert writer.write(RecordHead(offset=0, id="x", size=1)) == []
    with pytest.raises(WriteError, match="not kept"):
        writer.write(OversizedRecord(offset=0, id="x", size=1))


@pytest.mark.parametrize(
    ("do", "rule"),
    [
        (lambda: Writer().blank(), "060-22"),
        (lambda: Writer().facts([FACT]), "060-22"),
        (lambda: begun().preface(), "060-65"),
        (lambda: begun().blank(), "060-27"),
        (lambda: begun().block([]), "060-27"),
        (lambda: begun().facts([]), "060-66"),
        (lambda: begun().block([("A", "x" * 1020)]), "060-144"),
        (lambda: begun().record(BLOB), "060-64"),
        (lambda: begun(batch=True).record(BLOB + b"\n"), "060-61"),
        (lambda: begun(batch=True).record(BLOB[:-1]), "060-61"),
        (lambda: begun(batch=True).record(SEAL[:70]), "060-61"),
        (lambda: begun(batch=True).record(b"x"), "010-markline"),
        (lambda: begun(batch=True).record(BLOB, joined=True), "G56"),
        (lambda: begun().resource("R.x", RULES), "060-55"),
        (lambda: begun().resource(R, RULES + b"\n"), "060-40"),
        (lambda: begun().resource(R, OTHER_RULES), "060-57"),
        (lambda: begun().resource(R, b"A(P) :-  Have(P)."), "060-47"),
        (lambda: begun().comment("x" * 127), "060-82"),
        (lambda: begun().comment("a\nb"), "060-21"),
        (lambda: begun().comment("a\r"), "060-21"),
        (lambda: begun().comment(b"\xff"), "060-21"),
    ],
)
def test_refusals(do: Callable[[], object], rule: str) -> None:
    with pytest.raises(WriteError) as caught:
        do()
    assert caught.value.rule == rule


def test_refusals_that_depend_on_what_came_before() -> None:
    writer = begun()
    writer.comment("x" * 126)
    with pytest.raises(WriteError, match="two comments"):
        writer.comment("")
    writer.facts([FACT])
    writer.comment("")
    with pytest.raises(WriteError, match="between the fact lines"):
        writer.resource(OTHER_R, OTHER_RULES)
    with pytest.raises(AssertionError):
        writer.expect(batch=True)
    writer.blank()
    writer.expect(batch=True, max_block_bytes=20)
    writer.facts([("NotAvailable", "x")])
    assert writer.resource(OTHER_R, OTHER_RULES)
    assert writer.resource(OTHER_R, OTHER_RULES) == []
    with pytest.raises(WriteError, match="more than 20 bytes"):
        writer.comment("x")


@pytest.mark.requirement("050-222")
def test_every_byte_of_a_block_counts() -> None:
    line = len(b"NotAvailable('x')\n")
    for comment in ("", "x", "é"):
        size = line + len(f"#{comment}\n".encode())
        for allowed in (size, size - 1):
            writer = begun(batch=True)
            writer.expect(batch=True, max_block_bytes=allowed)
            writer.facts([("NotAvailable", "x")])
            if allowed == size:
                assert writer.comment(comment)
            else:
                with pytest.raises(WriteError, match=f"more than {allowed} bytes"):
                    writer.comment(comment)


def test_not_more_resources_than_a_reader_takes() -> None:
    writer = begun()
    item = Resource(offset=0, id=R, kind="lacegram", body=RULES)
    for _ in range(256):
        assert writer.write(item)
    with pytest.raises(WriteError) as caught:
        writer.write(item)
    assert caught.value.rule == "060-149"


def test_items_are_values() -> None:
    assert Preface() == Preface(0)
    assert Facts(1, (FACT,)) != Facts(2, (FACT,))
    assert Comment(1, b"x") == Comment(1, b"x")
    record = next(
        item for item in events(PREFACE + b"A()\n\n" + BLOB) if isinstance(item, RecordItem)
    )
    assert record.raw.type == "B"
    assert isinstance(FrameError("x", rule="010-cut", at=3).at, int)


@pytest.mark.requirement("060-61")
def test_records_whose_headers_have_the_first_byte_of_a_marker() -> None:
    """Found by fuzzing: the frame of a record says nothing about the next one's."""
    writer = begun(batch=True)
    records = [
        Plex(group="u", app="n", name=name, data=b"x", tai="1700000000:000000000").bytes
        for name in ("\U0001f389" + "long" * 20, "\U0001f389", "\U0001f389" * 9)
    ]
    written = b"".join(chunk for record in records for chunk in writer.record(record))
    assert written == b"\n".join(records)
