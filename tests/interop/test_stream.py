"""The bytes of a stream: the trace of 060 sent by hand, resources, the trailer form."""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import SECONDS
from tests.interop.laces import Accepting, make_lace, notes, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import EVERYTHING, Written, group, make_plan
from tests.interop.peer.records import Record, blob
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect, parse
from tests.interop.peer.text import PeerError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.text import Fact

pytestmark = pytest.mark.slow

THERE = notes("there", 2)

# -- the trace -----------------------------------------------------------------------------------

# Both directions as the text shows them. Its identifiers are symbolic, so braces stand for real
# ones; S is the sender's label, since nobody sends a HelloSigner (G42, G59). A lace offers only the
# fields that the plan needs, so B's rule reads the Type that the trace advertises.
TYPE = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,'Type',_,'B')."
TRACE_A = """🪢: iltp/1
🧩: {ra} lacegram
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- Advertised(P,S).

ExchangeOperand('0','{ra}','{alice}','selector')

HelloExchangePlan('{plan}')
HelloTAI('1640995200:000000000')
HelloTickInterval('10000000000')
HelloRecordFormat('H3')
HelloAdvertisedField('Type')

Advertised('{a}','{sa}')
AdvertisedField('{a}','{sa}','Type','0','B')

MayRequest('{b}')

🖧: {a}
Data-Length: 11

hello world

"""
TRACE_B = """🪢: iltp/1
🧩: {rb} lacegram
SelectHave(P) :- Have(P).
SelectAdvertised(P,S) :- AdvertisedField(P,S,'Type',_,'B').

ExchangeOperand('1','{rb}','Opq_1','selector')

HelloExchangePlan('{plan}')
HelloTAI('TAI')
HelloTickInterval('10000000000')
HelloRecordFormat('H3')
HelloAdvertisedField('Type')
LIMITS
Advertised('{b}','{sb}')
AdvertisedField('{b}','{sb}','Type','0','B')

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


def everything_back(address: str, sent: bytes) -> str:
    """Send all bytes at once, end the writing, and read to the end."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(SECONDS)
        stream.connect(parse(address).path)
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: stream.recv(65536), b"")).decode()


@pytest.mark.requirement("060-98", "060-105", "060-106", "060-107", "060-108", "060-109", "060-110")
@pytest.mark.requirement("060-111", "060-112", "060-113")
def test_the_trace_of_060(tmp_path: Path) -> None:
    """One side's bytes of the trace are sent; the other side's come back from `lace serve`."""
    mine, theirs, alice = blob(b"hello world"), blob(b"data!"), Key.generate().verifier
    operands = EVERYTHING, Written(rules=TYPE)
    plan = make_plan(operands)
    first, second = sorted((mine.id, theirs.id), key=lambda name: name.encode())
    names = {
        "ra": operands[0].id,
        "rb": operands[1].id,
        "alice": alice,
        "plan": plan.id,
        "a": mine.id,
        "b": theirs.id,
        "sa": plan.origins[0],
        "sb": plan.origins[1],
        "first": first,
        "second": second,
    }
    (tmp_path / "users").write_text(f"{os.getuid()} {alice}\n")
    lace = make_lace(tmp_path / "there", [theirs], selector=operands[1])
    # The trace's clock stands still since 2022.
    known = ("--uid-map", tmp_path / "users", "--set", "max_clock_skew_seconds=999999999")
    with lace.serving(f"unix:{tmp_path}/s", "--plain", *known) as server:
        sent = (TRACE_A + FIXED_POINT).format(s=plan.origins[0], **names)
        back = everything_back(server.address, sent.encode())
        server.wait_for("outcome=fixed-point")
        assert f"peer={alice}" in server.errors
    back = re.sub(r"HelloTAI\('\d{10}:\d{9}'\)", "HelloTAI('TAI')", back)
    back = re.sub(r"(HelloLimit\('\w+','\d+'\)\n)+", "LIMITS", back)
    assert back == (TRACE_B + FIXED_POINT).format(s=plan.origins[1], **names)
    assert lace.records() == {mine.id, theirs.id}


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
