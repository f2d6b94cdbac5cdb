"""The bytes of a stream: the trace of 060 sent by hand, resources, the trailer form."""

from __future__ import annotations

import os
import re
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import SECONDS
from tests.interop.laces import Accepting, make_lace, notes, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import EVERYTHING, Written, group, make_plan
from tests.interop.peer.records import Record, blob
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect, parse
from tests.interop.peer.text import PeerError, tai_now

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.text import Fact

pytestmark = pytest.mark.slow

THERE = notes("there", 2)

# -- the trace -----------------------------------------------------------------------------------

# Both directions as the text shows them. Its identifiers are symbolic, so braces stand for real
# ones, and {tai} for the clock of the test. Nobody sends a HelloSigner: the transport proves both
# sides by their users, and S is the verifier that each side claims (G27, G42, G59). A lace offers
# only the fields that the plan needs, so B's rule reads the Type that the trace advertises.
TYPE = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'Type',_,'B')."
TRACE_A = """🪢: iltp/1
🧩: {ra} lacegram
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- Advertised(P,S).

ExchangeOperand('0','{ra}','{alice}','selector')

HelloExchangePlan('{plan}')
HelloTAI('{tai}')
HelloTickInterval('10000000000')
HelloRecordFormat('H3')
HelloAdvertisedField('Type')

Advertised('{a}','{alice}')
AdvertisedField('{a}','{alice}','Type','0','B')

MayRequest('{b}')

🖧: {a}
Data-Length: 11

hello world

"""
TRACE_B = """🪢: iltp/1
🧩: {rb} lacegram
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- AdvertisedField(P,S,'Type',_,'B').

ExchangeOperand('1','{rb}','{bob}','selector')

HelloExchangePlan('{plan}')
HelloTAI('{tai}')
HelloTickInterval('10000000000')
HelloRecordFormat('H3')
HelloAdvertisedField('Type')

Advertised('{b}','{bob}')
AdvertisedField('{b}','{bob}','Type','0','B')

MayRequest('{a}')

🖧: {b}
Data-Length: 5

data!

"""
FIXED_POINT = """Advertised('{first}','{s}')
AdvertisedField('{first}','{s}','Type','0','B')
Advertised('{second}','{s}')
AdvertisedField('{second}','{s}','Type','0','B')



"""
"""The loop that the trace leaves out: both have both records, nothing is requested or sent."""
LIMIT_LINES = re.compile(r"(?:HelloLimit\('\w+','\d+'\)\n)+")


@dataclass
class Trace:
    """Both sides' bytes of the trace, with the identifiers of real records and operands."""

    mine: Record
    theirs: Record
    names: dict[str, str]

    def side(self, text: str, who: str) -> str:
        """What one side writes, to the fixed point."""
        return (text + FIXED_POINT).format(s=self.names[who], **self.names)

    def check(self, came: bytes, text: str, who: str) -> None:
        """What a lace wrote is the trace, its own clock, and its HelloLimit lines beside."""
        shown = came.decode()
        found = LIMIT_LINES.findall(shown)
        assert len(found) == 1
        assert len(LIMIT_LINES.sub("", shown)) == len(shown) - len(found[0])
        shown = LIMIT_LINES.sub("", shown)
        own = re.search(r"HelloTAI\('(\d{10}:\d{9})'\)", shown)
        assert own
        assert shown == self.side(text, who).replace(self.names["tai"], own[1])


@pytest.fixture
def trace() -> Trace:
    mine, theirs = blob(b"hello world"), blob(b"data!")
    operands = EVERYTHING, Written(rules=TYPE)
    first, second = sorted((mine.id, theirs.id), key=lambda name: name.encode())
    names = {
        "ra": operands[0].id,
        "rb": operands[1].id,
        "alice": Key.generate().verifier,
        "bob": Key.generate().verifier,
        "plan": make_plan(operands).id,
        "tai": tai_now(),
        "a": mine.id,
        "b": theirs.id,
        "first": first,
        "second": second,
    }
    return Trace(mine, theirs, names)


def exchange_bytes(stream: socket.socket, sent: str) -> bytes:
    """Send all bytes at once, end the writing, and read to the end."""
    stream.settimeout(SECONDS)
    stream.sendall(sent.encode())
    stream.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: stream.recv(65536), b""))


@pytest.mark.requirement("060-98", "060-105", "060-106", "060-107", "060-108", "060-109", "060-110")
@pytest.mark.requirement("060-111", "060-112", "060-113", "050-41")
def test_the_trace_of_060_is_answered_by_a_server(tmp_path: Path, trace: Trace) -> None:
    """A's bytes of the trace are sent; B's come back from `lace serve`."""
    (tmp_path / "users").write_text(f"{os.getuid()} {trace.names['alice']}\n")
    lace = make_lace(tmp_path / "there", [trace.theirs], selector=Written(rules=TYPE))
    known = ("--plain", "--claim", trace.names["bob"], "--uid-map", tmp_path / "users")
    proven = ("--peer", trace.names["alice"], "--lowering", "standard-v1")
    with lace.serving(f"unix:{tmp_path}/s", *known, *proven) as server:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(parse(server.address).path)
            back = exchange_bytes(stream, trace.side(TRACE_A, "alice"))
        server.wait_for("outcome=fixed-point")
        assert f"peer={trace.names['alice']}" in server.errors
    trace.check(back, TRACE_B, "bob")
    assert lace.records() == {trace.mine.id, trace.theirs.id}


@pytest.mark.requirement("060-98", "060-105", "060-106", "060-107", "060-108", "060-109", "060-110")
@pytest.mark.requirement("060-111", "060-112", "060-113", "060-128")
def test_the_trace_of_060_is_answered_by_a_client(tmp_path: Path, trace: Trace) -> None:
    """B's bytes of the trace are sent; A's come back from `lace sync`."""
    (tmp_path / "users").write_text(f"{os.getuid()} {trace.names['bob']}\n")
    lace = make_lace(tmp_path / "here", [trace.mine])
    came: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(SECONDS)
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as stream:
                came.append(exchange_bytes(stream, trace.side(TRACE_B, "bob")))

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        known = ("--plain", "--claim", trace.names["alice"], "--uid-map", tmp_path / "users")
        done = lace.sync(f"unix:{tmp_path}/s", *known, "--peer", trace.names["bob"], "--json")
        answering.join(SECONDS)
    assert done.code == 0, done.err
    assert done.json()["peer-verifier"] == trace.names["bob"]
    trace.check(came[0], TRACE_A, "alice")
    assert lace.records() == {trace.mine.id, trace.theirs.id}


@pytest.mark.requirement("050-100", "060-120")
def test_a_claim_that_the_transport_does_not_prove_ends_the_exchange(
    tmp_path: Path, trace: Trace
) -> None:
    """The server has no map: to the client it closes, and the client says what is to be checked."""
    lace = make_lace(tmp_path / "here", [trace.mine])
    other = make_lace(tmp_path / "there", [trace.theirs])
    with other.serving(f"unix:{tmp_path}/s", "--plain") as server:
        done = lace.sync(server.address, "--plain", "--claim", trace.names["alice"])
        server.wait_for("outcome=failed")
        assert "origin claim that is not the peer's to make" in server.errors
    assert done.code == 4
    assert "peer closed early" in done.err
    assert f"this side claims {trace.names['alice']} without a signature" in done.err
    assert "uid map" in done.err
    assert lace.records() == {trace.mine.id}


# -- resources -----------------------------------------------------------------------------------


class Silent(Session):
    """It does not send the text of its operand."""

    def send_setup(self, block: list[Fact]) -> None:
        self.wire.send_block(block)


class Wordy(Session):
    """It sends its operand twice, the plan as well, and comments between."""

    def send_setup(self, block: list[Fact]) -> None:
        self.wire.send_comment(" the operand")
        self.wire.send_resource(self.peer.selector.id, "lacegram", self.peer.selector.text)
        self.wire.send_comment(" and again")
        super().send_setup(block)

    def hello_block(self, setups: tuple[list[Fact], list[Fact]]) -> list[Fact]:
        self.wire.send_resource(self.plan.id, "exchange-plan", self.plan.transcript)
        return super().hello_block(setups)


def run(kind: type[Session], peer: Peer, address: str) -> Session:
    stream = connect(address)
    try:
        session = kind(peer, stream, 0)
        session.run()
        return session
    finally:
        stream.close()


@pytest.mark.requirement("060-95", "060-97")
def test_the_text_of_an_operand_may_be_known_already(tmp_path: Path) -> None:
    lace = make_lace(tmp_path / "there", THERE)
    with lace.serving("tcp:127.0.0.1:0") as server:
        known = run(Silent, Peer(), server.address)
        assert len(known.result.received) == len(THERE)
        with pytest.raises(PeerError, match="the stream ends"):
            run(Silent, Peer(selector=group("u")), server.address)
        server.wait_for("outcome=failed")
        told = talk(Peer(selector=group("u")), server.address)
        assert len(told.result.received) == len(THERE)


@pytest.mark.requirement("060-51", "060-81", "060-94")
def test_resources_more_than_needed(tmp_path: Path) -> None:
    lace = make_lace(tmp_path / "there", THERE)
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = run(Wordy, Peer(), server.address)
    assert len(session.result.received) == len(THERE)


# -- the trailer form ----------------------------------------------------------------------------


class Trailing(Session):
    """It sends records in the trailer-hash form, which this binding does not support."""

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        sent = [self.peer.records[fact[1]] for fact in asked]
        opened = [Record(each.id, b"\xe2\x8b\xaf" + each.raw, ()) for each in sent]
        self.wire.send_batch(opened, [])


@pytest.mark.requirement("060-78", "060-79", "050-182")
def test_the_trailer_form_is_refused_before_anything_is_read_as_a_record(tmp_path: Path) -> None:
    """No form that is not restored by 010 reaches validation: the exchange ends, and says why."""
    lace = make_lace(tmp_path / "there")
    peer = Peer()
    peer.add(THERE)
    server = Accepting(peer, Trailing)
    done = lace.sync(server.address)
    server.finish()
    assert done.code == 4
    assert "trailer" in done.err
    assert "not supported" in done.err
    assert "received 0" in done.lines
    assert isinstance(server.failure, PeerError)
    assert lace.records() == set()
