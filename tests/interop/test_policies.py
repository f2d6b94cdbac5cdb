"""What a peer may send and request, and what becomes of records that are not as they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import accepting, make_lace, notes, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import EVERYTHING, group
from tests.interop.peer.records import Record, blob, plex, seal
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect
from tests.interop.peer.text import PeerError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.text import Fact

pytestmark = pytest.mark.slow

KEY = Key.generate()
TEAM = [plex("team", f"minutes/{number}") for number in range(3)]
SEALED = seal(plex("team", "agenda", b"", headers=[("It's", "a \\ b"), ("Tag", "x")]), KEY)
PRIVATE = plex("private", "diary")


def ids(*records: Record) -> set[str]:
    return {record.id for record in records}


def claims(session: Session) -> list[Fact]:
    """The fields that the lace advertised."""
    facts = (fact for block in session.wire.received for fact in block)
    return [fact for fact in facts if fact[0] == "AdvertisedField"]


@pytest.mark.requirement("060-143")
def test_only_what_both_select(tmp_path: Path) -> None:
    """A selector of one group, and a selector of all, from either side."""
    there = make_lace(tmp_path / "there", [TEAM[0], PRIVATE, SEALED], selector=group("team"))
    peer = Peer()
    peer.add([*TEAM[1:], blob(b"no group"), plex("private", "letter")])
    before = set(peer.records)
    with there.serving("tcp:127.0.0.1:0") as server:
        session = talk(peer, server.address)
    assert set(session.result.received) == ids(TEAM[0], SEALED)
    assert there.records() == ids(*TEAM, PRIVATE, SEALED)
    assert set(peer.records) == before | ids(TEAM[0], SEALED)
    assert {(fact[3], fact[5]) for fact in claims(session)} == {("Group", "team")}
    wire = [fact[0] for block in [*session.wire.sent, *session.wire.received] for fact in block]
    assert "MaySend" not in wire

    everything = make_lace(tmp_path / "all", [PRIVATE])
    with accepting(Peer(dict(peer.records), selector=group("team"))) as server:
        assert everything.sync(server.address).code == 0
    assert everything.records() == ids(*TEAM, PRIVATE, SEALED)


def test_a_peer_shows_what_it_wants(tmp_path: Path) -> None:
    there = make_lace(tmp_path / "there")
    peer = Peer(exposes=lambda record: record.has("Group", "team"))
    peer.add([*TEAM, PRIVATE])
    with there.serving("unix:" + str(tmp_path / "s")) as server:
        talk(peer, server.address)
    assert there.records() == ids(*TEAM)


class Forgetful(Session):
    """It advertises records, and has lost them when they are asked for."""

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        for name in list(told):
            if name in self.peer.records and self.peer.records[name].has("Group", "private"):
                del self.peer.records[name]
        super()._serve(asked, told)


class Liar(Session):
    """It says that a private record is the team's."""

    def send_set(self) -> list[Record]:
        fields = tuple(
            (name, index, "team" if name == "Group" else value)
            for name, index, value in PRIVATE.fields
        )
        return [*super().send_set(), replace(PRIVATE, fields=fields)]


class Corrupt(Session):
    """It sends other bytes than those of the record."""

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        raw = PRIVATE.raw[:-1] + b"?"
        self.peer.records[PRIVATE.id] = replace(PRIVATE, raw=raw)
        super()._serve(asked, told)


class Pushy(Session):
    """It sends a record that nobody has asked for."""

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        self.wire.send_batch([PRIVATE], [])


@pytest.mark.requirement("050-79", "050-184", "050-185")
@pytest.mark.parametrize(
    ("kind", "said"),
    [(Forgetful, "not_available=1"), (Liar, "rejected=1"), (Corrupt, "rejected=1")],
)
def test_one_bad_record_does_not_stop_the_good_ones(
    tmp_path: Path, kind: type[Session], said: str
) -> None:
    selector = group("team") if kind is Liar else EVERYTHING
    there = make_lace(tmp_path / "there", selector=selector)
    peer = Peer()
    peer.add([*TEAM, PRIVATE])
    with there.serving("tcp:127.0.0.1:0") as server:
        stream = connect(server.address)
        kind(peer, stream, 0).run()
        stream.close()
        server.wait_for("outcome=fixed-point")
        assert said in server.errors
        assert "received=3" in server.errors
    assert there.records() == ids(*TEAM)


@pytest.mark.requirement("060-64", "050-183")
def test_a_record_that_nobody_asked_for_ends_the_exchange(tmp_path: Path) -> None:
    there = make_lace(tmp_path / "there", notes("there", 1))
    with there.serving("tcp:127.0.0.1:0") as server:
        stream = connect(server.address)
        with pytest.raises(PeerError, match="the stream ends"):
            Pushy(Peer(), stream, 0).run()
        stream.close()
        server.wait_for("outcome=failed")
    assert there.records() == ids(*notes("there", 1))
