"""What the texts allow a peer, and another peer does: all of it goes through to a fixed point."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import Accepting, Lace, make_lace, notes
from tests.interop.peer.advertise import Advertisement, States, gather
from tests.interop.peer.keys import Key
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect
from tests.interop.peer.text import PeerError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.records import Record
    from tests.interop.peer.text import Fact

pytestmark = pytest.mark.slow

HERE, THERE = notes("here", 3), notes("there", 4)
MODES = pytest.mark.parametrize("mode", [0, 1, 2])
OTHERS = ("Q.ab.Z9", f"A.{'x' * 60}.sha256", f"P.{'a' * 300}.{'H' * 40}")
STRANGER = "P." + "0" * 43 + ".H3"


@pytest.fixture
def lace(tmp_path: Path) -> Lace:
    return make_lace(tmp_path / "there", THERE)


def run(kind: type[Session], peer: Peer, address: str) -> Session:
    stream = connect(address)
    try:
        session = kind(peer, stream, 0)
        session.run()
        return session
    finally:
        stream.close()


def converge(lace: Lace, kind: type[Session], **how: object) -> Session:
    """A peer of some kind converges with a lace, and so does one after it."""
    peer = Peer(**how)  # type: ignore[arg-type]
    peer.add(HERE)
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = run(kind, peer, server.address)
        server.wait_for("outcome=fixed-point")
    assert lace.records() == set(peer.records) == {record.id for record in (*HERE, *THERE)}
    return session


@pytest.mark.requirement("040-38", "040-42", "050-100")
@pytest.mark.parametrize("claim", ["Opq_z", "peer-17", "", "alice"])
def test_a_claim_of_another_form_is_relabelled(lace: Lace, claim: str) -> None:
    class Claiming(Session):
        @property
        def claim(self) -> str:
            return claim

    session = converge(lace, Claiming)
    sent = [fact for block in session.wire.sent for fact in block]
    assert {fact[2] for fact in sent if fact[0] == "Advertised"} == {session.plan.origins[0]}


@pytest.mark.requirement("040-41", "040-42", "050-100")
@pytest.mark.parametrize("claim", ["Opq_1", "V.alice.H3", "V.", "V." + "0" * 43 + ".H3"])
def test_a_claim_that_is_not_the_peers_to_make(lace: Lace, claim: str) -> None:
    class Claiming(Session):
        @property
        def claim(self) -> str:
            return claim

    with lace.serving("tcp:127.0.0.1:0") as server:
        with pytest.raises(PeerError, match="the stream ends"):
            run(Claiming, Peer(), server.address)
        server.wait_for("origin claim that is not the peer's to make")


@pytest.mark.requirement("050-107", "050-109")
@pytest.mark.parametrize("interval", [1, 999_999_999])
def test_a_small_tick_interval(lace: Lace, interval: int) -> None:
    converge(lace, Session, tick_interval=interval)


@MODES
@pytest.mark.requirement("050-41", "060-128")
def test_both_claim_what_the_transport_proves(tmp_path: Path, lace: Lace, mode: int) -> None:
    """No signature anywhere: S is the claim of each side, and roots are over it (G42)."""
    alice, bob = Key.generate().verifier, Key.generate().verifier
    (tmp_path / "users").write_text(f"{os.getuid()} {alice}\n")
    peer = Peer(mode=mode, plain=True, claim=alice, proven=bob)
    peer.add(HERE)
    how = ("--plain", "--claim", bob, "--uid-map", tmp_path / "users")
    with lace.serving(f"unix:{tmp_path}/s", *how, "--lowering", "standard-v1") as server:
        session = run(Session, peer, server.address)
        server.wait_for("outcome=fixed-point")
        assert f"peer={alice}" in server.errors
    facts = [fact for block in session.wire.received for fact in block]
    assert {fact[2] for fact in facts if fact[0] == "Advertised"} == {bob}
    assert session.result.peer == bob
    assert lace.records() == set(peer.records)


class Deferring(Session):
    """It defers everything in its first loops."""

    def _serve(self, asked: list[Fact], told: set[str]) -> None:
        self.peer.most_served = 0 if self.result.loops < 4 else 1_000
        super()._serve(asked, told)


@MODES
@pytest.mark.requirement("050-180", "050-181")
def test_a_sender_that_defers_everything_for_some_loops(lace: Lace, mode: int) -> None:
    assert converge(lace, Deferring, mode=mode).result.loops > 4


def test_a_sender_that_defers_everything_for_ever(tmp_path: Path) -> None:
    """Both count the loops, and both end without a failure at the same one."""
    lace, peer = make_lace(tmp_path / "here"), Peer(most_served=0)
    peer.add(HERE)
    server = Accepting(peer, Session)
    done = lace.sync(server.address, "--set", "max_loop_iterations=3")
    server.finish()
    assert done.code == 1
    assert "not at a fixed point" in done.out + done.err
    assert isinstance(server.failure, PeerError)
    assert server.session is not None
    assert server.session.result.loops in (3, 4)


class Curious(Session):
    """It asks for what was not advertised, in its first loop."""

    def requestable(self, state: States) -> list[str]:
        more = [STRANGER, OTHERS[0]] if self.result.loops == 1 else []
        return [*super().requestable(state), *more]


@MODES
@pytest.mark.requirement("050-179", "050-226")
def test_an_unknown_request_is_answered_not_available(lace: Lace, mode: int) -> None:
    session = converge(lace, Curious, mode=mode)
    assert set(session.result.not_available) == {STRANGER, OTHERS[0]}


class Foreign(Session):
    """It advertises records of formats that the lace has never heard of."""

    def told(self, records: list[Record]) -> States:
        source = self.sources[self.index]
        names = OTHERS if self.result.mode else (*OTHERS, "B.x.H9")
        facts: list[Fact] = [("Advertised", name, source) for name in names]
        more: list[Advertisement] = gather(facts, source, self.schema)
        return States([*super().told(records).by_id.values(), *more])


@MODES
@pytest.mark.requirement("050-121", "050-160")
def test_other_formats_are_advertised_and_never_requested(lace: Lace, mode: int) -> None:
    session = converge(lace, Foreign, mode=mode)
    facts = [fact for block in session.wire.received for fact in block]
    assert {fact[1] for fact in facts if fact[0] == "MayRequest"} == {each.id for each in HERE}
