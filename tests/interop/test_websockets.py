"""WebSockets that nobody here wrote carry the stream: `websocket-client`, and Node's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import Lace, make_lace, notes, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import proof_message
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import PipeStream, Stream, connect
from tests.interop.peer.text import Fact, PeerError

if TYPE_CHECKING:
    from tests.unit.transport.certificates import Certificates

pytestmark = pytest.mark.slow

BRIDGE = Path(__file__).with_name("bridge.mjs")
COMMON, HERE, THERE = notes("common", 300), notes("here", 3), notes("there", 4)


@pytest.fixture
def lace(tmp_path: Path) -> Lace:
    return make_lace(tmp_path / "there", COMMON + THERE)


@pytest.fixture
def peer() -> Peer:
    made = Peer(key=Key.generate())
    made.add(COMMON[9:] + HERE)
    return made


def check(session: Session, lace: Lace) -> None:
    everything = {record.id for record in COMMON + HERE + THERE}
    assert session.result.sent == len(HERE)
    assert len(session.result.received) == len(THERE) + 9
    assert session.wire.modes_seen() == {2}
    assert set(session.peer.records) == lace.records() == everything


@pytest.mark.requirement("060-75", "060-77", "060-132", "060-137")
def test_websocket_client_over_ws(lace: Lace, peer: Peer) -> None:
    verifier = lace.new_key()
    with lace.serving("ws:127.0.0.1:0") as server:
        session = talk(peer, server.address)
        assert session.result.peer == verifier
        server.wait_for("outcome=fixed-point")
    check(session, lace)


def tls(certificates: Certificates) -> list[object]:
    files = certificates.certificate("server"), certificates.key("server")
    return ["--tls-cert", files[0], "--tls-key", files[1]]


@pytest.mark.requirement("060-135", "060-137")
def test_websocket_client_over_wss(lace: Lace, peer: Peer, certificates: Certificates) -> None:
    """The proof of a key names the server's certificate (G39b), so both must see the same one."""
    verifier = lace.new_key()
    authority = certificates.certificate("authority")
    with lace.serving("wss:127.0.0.1:0", *tls(certificates)) as server:
        session = talk(peer, server.address, authority=authority)
        assert session.wire.stream.certificate
        assert session.result.peer == verifier
        server.wait_for("outcome=fixed-point")
    check(session, lace)


class NoChannel(Session):
    """Its proof leaves out the certificate, as one made for another stream would."""

    def proof(self, setups: tuple[list[Fact], list[Fact]]) -> list[Fact]:
        key = self.peer.key
        assert key is not None
        message = proof_message(setups, self.plan, self.index, key.verifier)
        return [("HelloSigner", key.verifier), ("HelloProof", key.sign(message))]


@pytest.mark.requirement("060-120")
def test_a_proof_for_another_channel(lace: Lace, peer: Peer, certificates: Certificates) -> None:
    with lace.serving("wss:127.0.0.1:0", *tls(certificates)) as server:
        stream = connect(server.address, authority=certificates.certificate("authority"))
        with pytest.raises(PeerError, match="the stream ends"):
            NoChannel(peer, stream, 0).run()
        stream.close()
        server.wait_for("outcome=failed")


def has_websocket(node: str) -> list[str] | None:
    """The command of a Node that has a WebSocket; Node 20 and 21 keep it behind an option."""
    for command in ([node], [node, "--experimental-websocket"]):
        probe = [*command, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    return None


@pytest.mark.requirement("060-75", "060-77", "060-132")
def test_nodes_websocket_or_else_websocket_client(lace: Lace, peer: Peer) -> None:
    """Node pipes the stream through its WebSocket.

    Where there is no Node, or one without a WebSocket, `websocket-client` carries it instead.
    """
    node = shutil.which("node")
    command = has_websocket(node) if node else None
    with lace.serving("ws:127.0.0.1:0") as server:
        if command is None:
            session = talk(peer, server.address)
        else:
            url = f"ws://{server.address.removeprefix('ws:')}"
            bridge = subprocess.Popen(
                [*command, str(BRIDGE), url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
            session = Session(peer, pipes(bridge), 0)
            with bridge:
                session.run()
            assert bridge.returncode == 0
        server.wait_for("outcome=fixed-point")
    check(session, lace)


def pipes(process: subprocess.Popen[bytes]) -> Stream:
    assert process.stdin is not None
    assert process.stdout is not None
    return PipeStream(process.stdout, process.stdin)
