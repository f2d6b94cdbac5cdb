"""Case 24: a peer that is encrypted only in part.

It speaks plain TCP to a policy that asks for `TransportEncrypted()`; it speaks no TLS to a
TLS port; it cuts a TLS connection in the middle of an item, without the word that ends it; it has
a certificate that nobody vouches for.
Expected: nothing is sent without TLS that ends in this process, and a cut is no end. A client
that knows no authority of the certificate sends no byte of its setup, unless it pins the
server's key, which then has to sign that very certificate.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import lace
from tests.cli.links import hashes, make_parties, serving
from tests.cli.policies import ALL
from tests.cli.running import call
from tests.hostile.kit import Peer, attacked, connect_to
from tests.hostile.test_03_forged_signers import relay
from tests.unit.transport.certificates import HERE, make_certificates, make_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.links import Party
    from tests.unit.transport.certificates import Certificates

pytestmark = pytest.mark.slow

ONLY_TLS = ALL.replace("Have(P).", "Have(P), TransportEncrypted().")


@pytest.mark.requirement("060-141")
@pytest.mark.parametrize("claims", [ALL, ONLY_TLS])
def test_a_policy_for_tls_over_tcp(tmp_path: Path, claims: str) -> None:
    """That a peer believes the transport to be encrypted makes it so for nobody else."""
    everything = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
    (tmp_path / "everyone.lace").write_text(everything)
    (tmp_path / "tls.lace").write_text(ONLY_TLS)
    options = ("--expose", tmp_path / "everyone.lace", "--select", tmp_path / "tls.lace")
    with (
        attacked(tmp_path) as target,
        serving(target.host, target.honest, "tcp:127.0.0.1:0", *options) as strict,
    ):
        peer = Peer(connect_to(strict.address))
        target.peers.append(peer)
        peer.enter(claims)
        listing, _ = peer.read_block()
        assert listing == []


@pytest.mark.requirement("060-104")
def test_a_cut_inside_tls(tmp_path: Path, certificates: Certificates) -> None:
    files = (
        *("--tls-cert", certificates.certificate("server")),
        *("--tls-key", certificates.key("server")),
    )
    trusted = ("--ca", certificates.certificate("authority"))
    with attacked(tmp_path, *files, address="wss:127.0.0.1:0", more=trusted) as target:
        plain = target.connect()
        plain.send(b"GET /interlace HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"HTTP" not in plain.outcome()
        port = int(target.server.address.partition("/")[0].rpartition(":")[2])
        context = ssl.create_default_context(cafile=certificates.certificate("authority"))
        raw = socket.create_connection(("127.0.0.1", port), 60)
        peer = Peer(context.wrap_socket(raw, server_hostname="127.0.0.1"))
        target.peers.append(peer)
        peer.send(
            b"GET /interlace HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        while b"\r\n\r\n" not in peer.got:
            peer.got += peer.connection.recv(1)
        item = b"\xf0\x9f\xaa\xa2: iltp/1\nExchangeOperand('0"
        peer.send(b"\x82" + bytes([0x80 | len(item)]) + b"\0\0\0\0" + item)
        raw_descriptor = peer.connection.detach()
        socket.socket(fileno=raw_descriptor).close()  # no close_notify, no closing frame
        target.said("peer closed early")


# -- a certificate that nobody vouches for ---------------------------------------------------------


@contextmanager
def recording(certificates: Certificates, name: str) -> Iterator[tuple[int, list[bytes]]]:
    """Run a TLS server that notes every byte that reaches it through TLS."""
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate(name), certificates.key(name))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def take() -> None:
            connection, _ = listening.accept()
            connection.settimeout(60)
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    while piece := secured.recv(65536):
                        heard.append(piece)
            except OSError:
                connection.close()

        serving_thread = threading.Thread(target=take)
        serving_thread.start()
        yield listening.getsockname()[1], heard
        serving_thread.join(60)
        assert not serving_thread.is_alive()


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


@pytest.mark.requirement("060-117", "060-133")
@pytest.mark.parametrize(
    ("name", "authority", "words"),
    [
        ("server", None, "comes from nobody who is trusted here"),
        ("alone", None, "comes from nobody who is trusted here"),
        ("server", "alone", "comes from nobody who is trusted here"),
        ("elsewhere", "authority", "the server's certificate is not for 127.0.0.1"),
    ],
    ids=["unknown authority", "its own authority", "another authority", "another host"],
)
def test_no_byte_of_setup_is_sent(
    parties: tuple[Party, Party],
    certificates: Certificates,
    name: str,
    authority: str | None,
    words: str,
) -> None:
    """That the peer is named changes nothing: its key would have to be pinned on purpose."""
    here, there = parties
    ca = None if authority is None else certificates.certificate(authority)
    trusted = [] if ca is None else ["--ca", ca]
    for named in ([], ["--peer", there.verifier]):
        with recording(certificates, name) as (port, heard):
            address = f"wss:127.0.0.1:{port}"
            done = call("sync", address, *here.policy(there), *trusted, *named)
        assert done.code == 4
        assert words in done.err
        assert heard == []
    with recording(certificates, name) as (port, heard), lace.open(here.folder) as store:
        link = lace.connect(f"wss:127.0.0.1:{port}", store, lace.Policy(select=ALL), ca=ca)
        with pytest.raises(lace.ProtocolError, match=words), link:
            pass
        assert heard == []


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = make_certificates(tmp_path_factory.mktemp("pinned"))
    make_server(made, "mallory", HERE)
    return made


@pytest.mark.requirement("060-117")
def test_a_pinned_key_proves_the_certificate(
    parties: tuple[Party, Party], pinned: Certificates
) -> None:
    """Once hello is signed over it, the transport is encrypted for rules, on both sides."""
    here, there = parties
    here.select.write_text(ONLY_TLS)
    files = ("--tls-cert", pinned.certificate("alone"), "--tls-key", pinned.key("alone"))
    strict = ("--lowering", "encrypted-v1")
    with serving(there, here, "wss:127.0.0.1:0", *files, *strict) as server:
        done = here.sync(there, server.address, *strict, "--peer", there.verifier, "--tls-pin")
        assert done.code == 0, done.err
        assert hashes(here) == hashes(there)
        assert len(hashes(here)) == 10
        port = int(server.address.partition("/")[0].rpartition(":")[2])
        with lace.open(here.folder) as store:
            store.add(lace.Blob(b"one more"))
            view = here.view.read_text()
            policy = lace.Policy(
                select=ONLY_TLS, exposures=[(view, there.verifier)], lowering="encrypted-v1"
            )
            address = f"wss:127.0.0.1:{port}"
            with lace.connect(address, store, policy, peer=there.verifier, tls_pin=True) as link:
                assert link.result(60).at_fixed_point
        assert hashes(here) == hashes(there)
        stranger = str(lace.SigningKey.generate().verifier)
        other = here.sync(there, server.address, *strict, "--peer", stranger, "--tls-pin")
        assert other.code == 4
        assert "peer verifier mismatch" in other.err


@pytest.mark.requirement("050-98", "060-117")
def test_a_pinned_key_is_not_proven_through_a_relay(
    parties: tuple[Party, Party], pinned: Certificates
) -> None:
    here, there = parties
    before = hashes(here), hashes(there)
    files = ("--tls-cert", pinned.certificate("server"), "--tls-key", pinned.key("server"))
    with serving(there, here, "wss:127.0.0.1:0", *files) as server:
        port = int(server.address.partition("/")[0].rpartition(":")[2])
        with relay(pinned, port) as own:
            address = f"wss:127.0.0.1:{own}"
            done = here.sync(there, address, "--peer", there.verifier, "--tls-pin", "--json")
    assert done.code == 4
    assert "not for this exchange" in done.err or "peer closed early" in done.err
    assert done.json()["peer-verifier"] is None
    assert (hashes(here), hashes(there)) == before


def test_what_cannot_be_pinned(parties: tuple[Party, Party], pinned: Certificates) -> None:
    here, there = parties
    peer = ("--peer", there.verifier)
    wss, ca = "wss:127.0.0.1:1", ("--ca", pinned.certificate("authority"))
    for address, options, words in (
        (wss, ("--tls-pin",), "has to prove a key"),
        (wss, ("--tls-pin", *peer, "--plain"), "has to prove a key"),
        (wss, ("--tls-pin", *peer, *ca), "leave one of the two out"),
        ("tcp:127.0.0.1:1", ("--tls-pin", *peer), "TLS is for wss addresses only"),
    ):
        done = call("sync", address, *here.policy(there), *options)
        assert (done.code, done.raw) == (2, b"")
        assert words in done.err
    with lace.open(here.folder) as store, pytest.raises(lace.UsageError, match="prove a key"):
        lace.connect(wss, store, lace.Policy(select=ALL), tls_pin=True)
