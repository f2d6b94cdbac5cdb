"""Case 24: a peer that is encrypted only in part.

It speaks plain TCP to a policy that asks for `TransportEncrypted()`; it speaks no TLS to a
TLS port; it cuts a TLS connection in the middle of an item, without the word that ends it.
Expected: nothing is sent without TLS that ends in this process, and a cut is no end.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import serving
from tests.cli.policies import ALL
from tests.hostile.kit import Peer, attacked, connect_to

if TYPE_CHECKING:
    from pathlib import Path

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
