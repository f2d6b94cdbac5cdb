"""Text 060, as far as addresses and the bytes of a stream go: its trace, its rules, the vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lace.base.digest import digest
from lace.exchange.events import BatchEnded, BlockReceived, Unavailable
from lace.facts.lines import format_fact
from lace.iltp.address import LinkAddress, LinkAddressError, parse_address
from lace.iltp.items import (
    KNOT,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    Comment,
    Facts,
    Preface,
    RecordItem,
    Resource,
    StreamEnd,
    StreamFault,
)
from lace.iltp.reader import Reader
from lace.iltp.resources import ResourceStore
from lace.iltp.writer import Writer
from lace.link.messages import Inbound
from lace.policy.operand import operand_of, receive_operand
from lace.policy.plan import make_plan
from lace.record.model import Blob
from lace.record.validate import parse_record
from lace.rules.program import check_canonical
from tests.property.strategies import KEYS
from tests.unit.iltp.streams import (
    BLOB,
    HEAD,
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

requirement = pytest.mark.requirement

VECTORS = Path(__file__).parents[1] / "vectors" / "iltp"
ACCEPT = sorted((VECTORS / "accept").glob("*.stream"))
REJECT = sorted((VECTORS / "reject").glob("*.stream"))


# Vectors


def describe(stream: bytes, *, split: int) -> list[str]:
    """The events of a stream in the form of the vectors."""
    pieces = [stream[at : at + split] for at in range(0, len(stream), split)]
    lines: list[str] = []
    for event in events(pieces):
        match event:
            case Preface(offset=at):
                lines.append(f"{at} preface")
            case Facts(offset=at, facts=facts):
                for line in map(format_fact, facts):
                    lines.append(f"{at} fact {line}")
                    at += len(line.encode()) + 1
            case Comment(offset=at, text=text):
                lines.append(f"{at} comment{text.decode()}")
            case Blank(offset=at):
                lines.append(f"{at} blank")
            case Resource(offset=at, id=identifier, kind=kind, body=body):
                lines.append(f"{at} resource {identifier} {kind} {len(body)}")
            case RecordItem(raw=raw, joined=joined):
                size = len(raw.data)
                lines.append(f"{raw.offset} record {event.id} {size}{' joined' * joined}")
            case StreamEnd(offset=at, in_block=in_block):
                lines.append(f"{at} end{' inside a block' * in_block}")
            case _:
                raise AssertionError(f"not expected: {event}")
    return lines


@pytest.mark.parametrize("path", ACCEPT, ids=lambda path: path.stem)
def test_streams_to_accept(path: Path) -> None:
    wanted = path.with_suffix(".items").read_bytes().decode().rstrip("\n").split("\n")
    stream = path.read_bytes()
    for split in (1, 7, len(stream)):
        assert describe(stream, split=split) == wanted


@dataclass(frozen=True)
class Reason:
    rule: str
    offset: int
    why: str


@pytest.mark.parametrize("path", REJECT, ids=lambda path: path.stem)
def test_streams_to_reject(path: Path) -> None:
    lines = path.with_suffix(".reason").read_text("utf-8").splitlines()
    fields = dict(line.split(": ", 1) for line in lines)
    reason = Reason(fields["rule"], int(fields["offset"]), fields["why"])
    error = refusal(path.read_bytes())
    assert (error.rule, error.offset) == (reason.rule, reason.offset)


def test_there_are_vectors_for_both() -> None:
    assert len(ACCEPT) >= 16
    assert len(REJECT) >= 48


# Addresses


@requirement("060-01", "060-02", "060-03", "060-04", "060-05", "060-06", "060-07", "060-08")
def test_address_forms_and_default_ports() -> None:
    assert parse_address("stdio") == LinkAddress(scheme="stdio")
    assert parse_address("unix:/a/b").path == "/a/b"
    for scheme, port in (("tcp", 4790), ("ws", 80), ("wss", 443)):
        for host in ("host.example", "10.0.0.1", "[2001:db8::1]"):
            found = parse_address(f"{scheme}:{host}")
            assert (found.host, found.effective_port) == (host.strip("[]"), port)
            assert parse_address(f"{scheme}:{host}:9").effective_port == 9
    for wrong in ("stdio:x", "unix:a", "tcp:2001:db8::1", "tcp:h:0x9", "tcp:h:00", "nothing"):
        with pytest.raises(LinkAddressError):
            parse_address(wrong)


@requirement("060-09", "060-10", "060-11", "060-12", "060-134")
def test_websocket_addresses() -> None:
    assert parse_address("ws:h").transport_text == "ws:h/interlace"
    assert parse_address("wss:h:443").transport_text == "wss:h:443/interlace"
    for wrong in ("ws:h/other", "ws:h/interlace?q", "ws://h/interlace", "wss://h"):
        with pytest.raises(LinkAddressError) as caught:
            parse_address(wrong)
        assert "h/interlace" in (caught.value.hint or "")


@requirement(
    "060-13", "060-14", "060-15", "060-16", "060-17", "060-18", "060-19", "060-116", "060-131"
)
def test_the_examples_of_addresses() -> None:
    for text in (
        "stdio",
        "unix:/tmp/lace.sock",
        "tcp:127.0.0.1:4790",
        "tcp:example.com:9000",
        "tcp:[::1]:4790",
        "ws:127.0.0.1:4790/interlace",
        "wss:example.com/interlace",
    ):
        assert str(parse_address(text)) == parse_address(text).transport_text == text
    assert parse_address("wss:example.com/interlace").effective_port == 443
    assert parse_address("tcp:example.com").transport_text == "tcp:example.com:4790"


# Preface, lines, dispatch


@requirement("060-22", "060-23", "060-24", "060-25", "060-26", "060-27")
def test_the_preface() -> None:
    assert bytes.fromhex("f0 9f aa a2 3a 20") + b"iltp/1\n" == PREFACE
    assert events(PREFACE) == [Preface(), StreamEnd(13, in_block=False)]
    for wrong in (
        PREFACE.replace(b"1", b"2"),
        PREFACE.replace(b"\n", b" \n"),
        PREFACE.replace(b"\n", b"\r\n"),
        PREFACE.replace(b"\n", b"\r"),
        SETUP,
        b"\n" + PREFACE,
    ):
        assert refusal(wrong + SETUP).rule == "060-26"
    assert refusal(PREFACE + b"\n" + SETUP + b"\n").rule == "060-27"
    assert events(PREFACE + b"#\n\n")[-1] == StreamEnd(16, in_block=False)


@requirement("060-20", "060-21", "060-28", "060-29", "060-30", "060-144")
def test_fact_lines() -> None:
    found = events(PREFACE + "A('é','it\\'s')\nB()\n\n".encode())
    assert found[1] == Facts(13, (("A", "é", "it's"), ("B",)))
    for wrong in (b"A('a')\r\n", b"A('a')\r", b"A('e\xcc\x81')\n", b"A(a)\n", b"A('a') \n"):
        assert refusal(PREFACE + wrong + b"\n").fault is StreamFault.LINE
    assert refusal(PREFACE + b"_A('a')\n").rule == "060-73"
    assert len(events(PREFACE + b"A('%b')\n\n" % (b"x" * 1019))) == 4
    assert refusal(PREFACE + b"A('%b')\n\n" % (b"x" * 1020)).rule == "060-144"


@requirement("060-65", "060-66", "060-67", "060-68", "060-69", "060-70", "060-71", "060-72")
@requirement("060-73", "060-60")
def test_items_are_told_apart_by_their_first_bytes() -> None:
    assert bytes.fromhex("f09f96a73a20") == RECORD
    assert bytes.fromhex("f09fa7a93a20") == PUZZLE_PIECE
    stream = HEAD + b"#\n" + resource() + b"A()\n" + BLOB + b"\n\n"
    kinds = [type(item) for item in events(stream)[3:]]
    assert kinds == [Comment, Resource, Facts, RecordItem, Blank, StreamEnd]
    assert refusal(HEAD + KNOT).rule == "060-65"
    assert refusal(HEAD + bytes.fromhex("e28baf") + BLOB).rule == "060-69"
    for marker in (KNOT, PUZZLE_PIECE, RECORD):
        for length in range(1, 6):
            assert refusal(HEAD + marker[:length] + b"!").rule == "060-73"
    for wrong in (b"_X('a')\n", b" ", b"\t", b"0", b"\r\n", b"\xf0\x9f\x99\x82: ", b"'", b"\x00"):
        assert refusal(HEAD + wrong).rule == "060-73"


# Resources


@requirement("060-31", "060-32", "060-35", "060-36", "060-38", "060-39", "060-42", "060-43")
@requirement("060-45", "060-51", "060-94")
def test_resources_are_taken() -> None:
    marker = bytes.fromhex("f09fa7a93a20")
    assert resource() == marker + R.encode() + b" lacegram\n" + RULES + b"\n\n"
    reader = Reader()
    stream = PREFACE + resource() + PLAN_RESOURCE + resource() + SETUP + b"\n" + resource() + b"\n"
    found = events(stream, reader=reader)
    taken = [item for item in found if isinstance(item, Resource)]
    assert [item.id for item in taken] == [R, PLAN.id, R, R]
    assert taken[0].body == RULES
    assert reader.resources.get(R) == RULES
    assert check_canonical(taken[0].body).id == R
    assert receive_operand(RULES, index=0, module_id=R, facet="selector").module_id == R
    blanks = [item for item in found if isinstance(item, Blank)]
    assert len(blanks) == 2, "the blank line of a resource ends no block"
    batch = events(HEAD + resource() + BLOB + b"\n" + resource() + BLOB + b"\n\n")
    assert sum(isinstance(item, Resource) for item in batch) == 2


@requirement("060-33", "060-34", "060-37", "060-40", "060-41", "060-53", "060-54", "060-55")
def test_malformed_resources() -> None:
    marker = f"{R} lacegram".encode()
    good = PREFACE + resource()
    assert len(events(good)) == 3
    for old, new, rule in (
        (b"gram\n", b"gram\r\n", "060-33"),
        (b"gram\n", b"gram \n", "060-33"),
        (b"gram\n", b"gram x\n", "060-33"),
        (b" lacegram", b"\tlacegram", "060-33"),
        (b"lacegram", "e\u0301".encode(), "060-34"),
        (b"lacegram", b"\xff", "060-34"),
        (b"lacegram", b"text", "060-54"),
        (marker, b"E" + marker[1:], "060-55"),
        (marker, b"R." + marker[3:], "060-55"),
        (RULES + b"\n\n", b"\n", "060-37"),
        (b"SelectA", b"\xff", "060-37"),
        (b"SelectA", "e\u0301".encode(), "060-37"),
        (b"SelectA", b"#", "060-41"),
        (b"SelectA", RECORD, "060-41"),
        (b"SelectA", PUZZLE_PIECE, "060-41"),
        (b"SelectA", KNOT, "060-41"),
        (b".\nSelectA", b".\r\nSelectA", "060-40"),
    ):
        assert old in good
        error = refusal(good.replace(old, new))
        assert (error.fault, error.rule) == (StreamFault.RESOURCE, rule)


@requirement("060-46", "060-47", "060-48", "060-49", "060-52", "060-56", "060-57")
def test_resources_are_never_repaired() -> None:
    for body in (
        RULES.replace(b":- Have", b":-  Have"),
        RULES.replace(b"P,S", b"P, S"),
        RULES + b" ",
        b"A(P) :- Have(P), P = P.",
        b"A(P) :- Have(P), Prefix(P,'x').",
    ):
        assert refusal(PREFACE + resource(body=body)).rule == "060-47"
    turned = b"\n".join(reversed(PLAN.transcript_bytes.split(b"\n")))
    assert refusal(PREFACE + resource(PLAN.id, turned, "exchange-plan")).rule == "060-49"
    assert refusal(PREFACE + resource(R, OTHER_RULES)).rule == "060-57"
    assert refusal(PREFACE + resource() + resource(R, OTHER_RULES)).rule == "060-52"


@requirement("060-50")
def test_a_plan_brings_no_operands() -> None:
    store = ResourceStore()
    store.add(PLAN.id, "exchange-plan", PLAN.transcript_bytes)
    assert [operand.module_id in store for operand in PLAN.operands] == [False, False]


@pytest.mark.slow
@requirement("060-58", "060-59", "060-146", "060-147", "060-148", "060-149")
def test_limits_of_resources() -> None:
    line = b"A(P) :- Have(P), Field(P,'Name',_,'%b')."
    lines = [line % b"x"] * 4096
    most = b"\n".join(lines)
    identifier = check_canonical(most).id
    assert len(events(PREFACE + resource(identifier, most))) == 3
    assert refusal(PREFACE + resource(R, b"\n".join([*lines, lines[0]]))).rule == "060-148"
    wide = b"\n".join([line % (b"x" * 900)] * 1116)
    full = wide + b"\n" + line % (b"x" * ((1 << 20) - len(wide) - 1 - len(line % b"")))
    assert len(full) == 1 << 20
    assert len(events(PREFACE + resource(check_canonical(full).id, full))) == 3
    assert refusal(PREFACE + resource(R, full.replace(b"').", b"x').", 1))).rule == "060-147"
    assert len(events(PREFACE + resource() * 256)) == 258
    assert refusal(PREFACE + resource() * 257).rule == "060-149"
    assert refusal(PREFACE + PUZZLE_PIECE + b"x" * 1018 + b"\n").rule == "060-33"
    assert refusal(PREFACE + PUZZLE_PIECE + b"x" * 1019 + b"\n").rule == "060-146"


@requirement("060-44", "060-92", "060-93", "060-96")
def test_a_resource_precedes_the_fact_that_names_it() -> None:
    writer = Writer()
    fact = ("ExchangeOperand", "0", R, "Opq_0", "selector")
    sent = b"".join(writer.preface() + writer.block([fact], {R: RULES}))
    assert sent.index(PUZZLE_PIECE) < sent.index(b"ExchangeOperand")
    again = b"".join(writer.block([fact], {R: RULES}))
    assert PUZZLE_PIECE not in again


# Records


@requirement("060-61", "060-62", "060-63", "060-74", "060-100")
def test_records_end_where_010_says() -> None:
    tricky = Blob(b"\n\n" + PREFACE + RECORD + b"\nA('x')\n\n" + SEAL).bytes
    stream = HEAD + b"".join(record + b"\n" for record in (tricky, PLEX, SEAL, Blob(b"").bytes))
    found = [item for item in events(stream + b"\n") if isinstance(item, RecordItem)]
    assert [parse_record(item.raw.data).id for item in found] == [item.id for item in found]
    assert found[0].raw.data == tricky
    assert stream[found[3].offset :] == Blob(b"").bytes + b"\n"


@requirement("060-64", "060-78")
def test_records_have_their_phase_and_form() -> None:
    assert refusal(PREFACE + BLOB + b"\n\n").rule == "060-64"
    assert "not supported" in refusal(HEAD + b"\xe2\x8b\xaf" + BLOB).message


@requirement("060-151")
def test_a_batch_of_not_available_lines_alone_is_one_transfer() -> None:
    inbound = Inbound(max_block_bytes=2**20, max_data_bytes=2**20)
    inbound.feed(PREFACE + SETUP + b"\n")
    assert isinstance(inbound.next_event(is_batch=False), BlockReceived)
    inbound.feed(
        b"NotAvailable('P.x.H3')\nNotAvailable('P.y.H3')\n\n" + b"MayRequest('P.z.H3')\n\n"
    )
    batch = [inbound.next_event(is_batch=True) for _ in range(3)]
    assert batch == [Unavailable("P.x.H3"), Unavailable("P.y.H3"), BatchEnded(47)]
    following = inbound.next_event(is_batch=False)
    assert isinstance(following, BlockReceived)
    assert following.facts == (("MayRequest", "P.z.H3"),)


# Comments and blocks


@requirement("060-80", "060-81", "060-82", "060-83", "060-84", "060-85", "060-145")
def test_comments() -> None:
    def facts_of(stream: bytes) -> list[tuple[str, ...]]:
        return [fact for item in events(stream) if isinstance(item, Facts) for fact in item.facts]

    plain = PREFACE + b"A('a')\nB('b')\n\n"
    noted = PREFACE + b"# one\nA('a')\n#\nB('b')\n# end\n\n"
    assert facts_of(plain) == facts_of(noted)
    inner = b"Advertised('P.a#b.H3','S')\n"
    assert facts_of(PREFACE + inner + b"\n") == [("Advertised", "P.a#b.H3", "S")]
    assert refusal(PREFACE + b" # x\n").rule == "060-73"
    assert len(events(PREFACE + b"#" * 127 + b"\n\n")) == 4
    assert refusal(PREFACE + b"#" * 128 + b"\n\n").rule == "060-82"
    assert refusal(PREFACE + b"#a\n#b\nA()\n\n").rule == "060-84"
    for between in (b"A()\n", resource(), b"\n", BLOB + b"\n"):
        assert isinstance(events(HEAD + b"#a\n" + between + b"#b\n\n")[-1], StreamEnd)


@requirement("060-86")
def test_the_example_of_comments() -> None:
    stream = PREFACE + (
        b"# Round 1: Alice advertises\n"
        b"Advertised('P.a.H3','V.alice.H3')\n"
        b"AdvertisedField('P.a.H3','V.alice.H3','Group','0','u')\n\n"
        b"# Bob requests the new record\n"
        b"MayRequest('P.a.H3')\n\n"
    )
    found = events(stream)
    assert [len(item.facts) for item in found if isinstance(item, Facts)] == [2, 1]
    assert sum(isinstance(item, Blank) for item in found) == 2


@requirement("060-87", "060-88", "060-89", "060-90", "060-91", "060-99", "060-101")
def test_blank_lines_end_blocks_and_batches() -> None:
    kinds = [type(item) for item in events(HEAD + b"\n#\n\nA()\n#\n\n" + BLOB + b"\n\n\n")]
    assert kinds[3:] == [
        Blank, Comment, Blank, Facts, Comment, Blank, RecordItem, Blank, Blank, StreamEnd,
    ]  # fmt: skip
    writer = Writer()
    writer.preface()
    writer.block([("A",)])
    assert writer.block([]) == [b"\n"]
    writer.expect(batch=True)
    assert writer.blank() == [b"\n"]


@requirement("060-103", "060-104")
def test_where_the_stream_may_end() -> None:
    whole = PREFACE + b"#c\n" + resource() + SETUP + b"\n" + BLOB + b"\n\n"
    clean = {13, 16, len(whole) - len(BLOB) - 2, len(whole)}
    for at in range(13, len(whole) + 1):
        last = events(whole[:at])[-1]
        if isinstance(last, StreamEnd):
            assert last.in_block == (at not in clean)
        else:
            assert isinstance(last, tuple)
            assert (last[0], last[2]) == (StreamFault.CUT, "060-104")


@requirement("060-150")
def test_other_limits() -> None:
    large = Blob(b"x" * 101).bytes
    found = events(HEAD + large + b"\n" + BLOB + b"\n\n", reader=Reader(max_data_bytes=100))
    assert type(found[4]).__name__ == "OversizedRecord"
    assert isinstance(found[5], RecordItem)
    last = events(HEAD, reader=Reader(max_block_bytes=6))[-1]
    assert isinstance(last, tuple)
    assert last[0] is StreamFault.BLOCK_SIZE


# The trace


@requirement("060-105", "060-106", "060-107", "060-108", "060-109", "060-110", "060-111")
@requirement("060-112", "060-113")
def test_the_trace() -> None:
    """Both directions of the example, with real identifiers."""
    alice, bob = (key.verifier for key in KEYS[:2])
    modules = (RULES, RULES)
    plan = make_plan(operand_of(modules[0], 0), operand_of(modules[1], 1))
    records = (Blob(b"hello world"), Blob(b"data!"))
    hello = [
        ("HelloExchangePlan", plan.id),
        ("HelloTAI", "1640995200:000000000"),
        ("HelloTickInterval", "10000000000"),
        ("HelloRecordFormat", "H3"),
        ("HelloAdvertisedField", "Type"),
    ]
    for index, verifier in enumerate((alice, bob)):
        own, other = records[index], records[1 - index]
        text = (
            f"🪢: iltp/1\n🧩: {R} lacegram\nSelectHave(P) :- Have(P).\n"
            f"SelectAdvertised(P,S) :- Advertised(P,S).\n\n"
            f"ExchangeOperand('{index}','{R}','{verifier}','selector')\n\n"
            f"HelloExchangePlan('{plan.id}')\nHelloTAI('1640995200:000000000')\n"
            "HelloTickInterval('10000000000')\nHelloRecordFormat('H3')\n"
            "HelloAdvertisedField('Type')\n\n"
            f"Advertised('{own.id}','{verifier}')\n"
            f"AdvertisedField('{own.id}','{verifier}','Type','0','B')\n\n"
            f"MayRequest('{other.id}')\n\n"
            f"🖧: {own.id}\nData-Length: {len(own.data)}\n\n{own.data.decode()}\n\n"
        )
        writer = Writer()
        chunks = writer.preface()
        operand = ("ExchangeOperand", str(index), R, verifier, "selector")
        chunks += writer.block([operand], {R: modules[index]})
        chunks += writer.block(hello)
        claims = ("AdvertisedField", own.id, verifier, "Type", "0", "B")
        chunks += writer.block([("Advertised", own.id, verifier), claims])
        chunks += writer.block([("MayRequest", other.id)])
        writer.expect(batch=True)
        chunks += writer.record(own.bytes) + writer.blank()
        assert b"".join(chunks) == text.encode()

        found = events(text.encode())
        blocks = [item.facts for item in found if isinstance(item, Facts)]
        assert [len(block) for block in blocks] == [1, 5, 2, 1]
        assert blocks[1] == tuple(hello)
        (brought,) = (item for item in found if isinstance(item, Resource))
        received = receive_operand(brought.body, index=index, module_id=R, facet="selector")
        assert received.module_id == brought.id
        (record,) = (item for item in found if isinstance(item, RecordItem))
        assert parse_record(record.raw.data) == own
        assert digest(record.raw.data[55:]) == own.id.digest
        assert found[-1] == StreamEnd(len(text.encode()), in_block=False)
