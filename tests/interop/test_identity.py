"""Who a peer is, proven by `HelloSigner` and `HelloProof` as the text says it, and not proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import Accepting, Lace, accepting, make_lace, notes, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import proof_message
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect
from tests.interop.peer.text import Fact, PeerError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

HERE, THERE = notes("here", 3), notes("there", 4)
Setups = tuple[list[Fact], list[Fact]]


@pytest.fixture
def lace(tmp_path: Path) -> Lace:
    return make_lace(tmp_path / "there", THERE)


@pytest.fixture
def peer() -> Peer:
    made = Peer(key=Key.generate())
    made.add(HERE)
    return made


def key_of(peer: Peer) -> Key:
    assert peer.key is not None
    return peer.key


@pytest.mark.requirement("060-118", "060-120", "050-98")
def test_both_prove_their_keys(lace: Lace, peer: Peer) -> None:
    verifier = lace.new_key()
    with lace.serving("tcp:127.0.0.1:0", "--peer", key_of(peer).verifier) as server:
        session = talk(peer, server.address)
        assert session.result.peer == verifier
        server.wait_for(f"peer={key_of(peer).verifier}")
    facts = [fact for block in session.wire.received for fact in block]
    assert {fact[2] for fact in facts if fact[0] == "Advertised"} == {verifier}
    assert set(session.result.received) == {record.id for record in THERE}
    assert lace.records() == set(peer.records)


@pytest.mark.requirement("060-120", "060-122")
def test_what_is_exposed_to_a_verifier_needs_its_proof(lace: Lace, peer: Peer) -> None:
    with lace.serving("tcp:127.0.0.1:0", expose_to=key_of(peer).verifier) as server:
        nameless = Peer()
        nameless.add(HERE)
        assert talk(nameless, server.address).result.received == []
        assert set(talk(peer, server.address).result.received) == {record.id for record in THERE}


@pytest.mark.requirement("060-120")
def test_lace_proves_its_key_to_a_server(lace: Lace, peer: Peer) -> None:
    verifier = lace.new_key()
    with accepting(peer) as server:
        done = lace.sync(server.address, "--peer", key_of(peer).verifier, "--json")
        assert done.code == 0, done.err
    assert done.json()["peer-verifier"] == key_of(peer).verifier
    assert server.session is not None
    assert server.session.result.peer == verifier


class NoProof(Session):
    """It says who it is, and nothing more."""

    def proof(self, setups: Setups) -> list[Fact]:
        return [("HelloSigner", key_of(self.peer).verifier)]


class NoSigner(Session):
    """It claims an origin in its setup and does not come back to it."""

    def proof(self, setups: Setups) -> list[Fact]:
        return []


class AnotherKey(Session):
    """It signs for somebody else."""

    def proof(self, setups: Setups) -> list[Fact]:
        message = proof_message(setups, self.plan, self.index, key_of(self.peer).verifier)
        return [
            ("HelloSigner", key_of(self.peer).verifier),
            ("HelloProof", Key.generate().sign(message)),
        ]


class AnotherSide(Session):
    """It signs as if it were the other operand."""

    def proof(self, setups: Setups) -> list[Fact]:
        key = key_of(self.peer)
        message = proof_message(setups, self.plan, 1 - self.index, key.verifier)
        return [("HelloSigner", key.verifier), ("HelloProof", key.sign(message))]


class AnotherExchange(Session):
    """It signs the setup of some other exchange."""

    def proof(self, setups: Setups) -> list[Fact]:
        key = key_of(self.peer)
        fresh = self.setup_block()
        message = proof_message((fresh, setups[1]), self.plan, self.index, key.verifier)
        return [("HelloSigner", key.verifier), ("HelloProof", key.sign(message))]


class AnotherSigner(Session):
    """It proves a key, but not that of the origin that it claims."""

    def proof(self, setups: Setups) -> list[Fact]:
        key = Key.generate()
        message = proof_message(setups, self.plan, self.index, key.verifier)
        return [("HelloSigner", key.verifier), ("HelloProof", key.sign(message))]


LIARS = [NoProof, NoSigner, AnotherKey, AnotherSide, AnotherExchange, AnotherSigner]


@pytest.mark.requirement("060-120", "050-99", "050-100")
def test_a_server_refuses_a_signer_without_proof(lace: Lace, peer: Peer) -> None:
    with lace.serving("tcp:127.0.0.1:0") as server:
        for count, liar in enumerate(LIARS, 1):
            stream = connect(server.address)
            with pytest.raises(PeerError, match="the stream ends"):
                liar(peer, stream, 0).run()
            stream.close()
            server.wait_for("outcome=failed", count)
        assert "outcome=fixed-point" not in server.errors
        talk(peer, server.address)
        server.wait_for("outcome=fixed-point")
    assert len(lace.records()) == len(HERE) + len(THERE)


@pytest.mark.requirement("060-120", "050-99", "050-100")
@pytest.mark.parametrize("liar", [NoProof, AnotherKey])
def test_a_client_refuses_a_signer_without_proof(
    lace: Lace, peer: Peer, liar: type[Session]
) -> None:
    server = Accepting(peer, liar)
    done = lace.sync(server.address)
    server.finish()
    assert done.code == 4
    assert "signer without valid proof" in done.err
    assert "received 0" in done.lines
    assert isinstance(server.failure, PeerError)
    assert len(lace.records()) == len(THERE)


@pytest.mark.requirement("060-121")
def test_a_peer_that_knows_only_050(lace: Lace, peer: Peer) -> None:
    """Without a nonce in its setup nothing is proven, and the rest goes on."""
    peer.plain = True
    lace.new_key()
    with lace.serving("tcp:127.0.0.1:0", "--plain") as server:
        session = talk(peer, server.address)
        server.wait_for("outcome=fixed-point")
    assert session.result.peer is None
    assert set(session.result.received) == {record.id for record in THERE}
    assert lace.records() == set(peer.records)
