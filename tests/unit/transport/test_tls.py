"""Certificates and keys: what is loaded, and every refusal; then real handshakes."""

from __future__ import annotations

import shutil
import ssl
from typing import TYPE_CHECKING

import pytest

from lace.exchange.hello import channel_digest as digest_of_proofs
from lace.iltp.address import parse_address
from lace.record.ids import Verifier
from lace.transport.faults import TransportError
from lace.transport.identity_maps import parse_fingerprint_map
from lace.transport.listening import ConnectOptions, Listener, ListenOptions, connect, listen
from lace.transport.tls import (
    ServerTls,
    TlsError,
    certificate_fingerprint,
    channel_digest,
    load_certificate,
    load_client_tls,
    load_server_tls,
)
from tests.unit.transport.bindings import run
from tests.unit.transport.certificates import fingerprint, with_password

if TYPE_CHECKING:
    from pathlib import Path

    from lace.transport.duplex import ByteStream, Proven
    from tests.unit.transport.certificates import Certificates

ALICE = Verifier.from_public_key(bytes(31) + b"\x01")


def test_digest_and_fingerprint(certificates: Certificates) -> None:
    path = certificates.certificate("server")
    der = load_certificate(path)
    assert channel_digest(der) == digest_of_proofs(der)
    line = f"{fingerprint(path)} {ALICE}".encode()
    assert parse_fingerprint_map(line, "map") == {certificate_fingerprint(der): ALICE}


def test_contexts(certificates: Certificates) -> None:
    server = load_server_tls(certificates.certificate("server"), certificates.key("server"))
    client = load_client_tls(authorities=certificates.certificate("authority"))
    for context in (server.context, client.context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.keylog_filename is None
    assert server.context.verify_mode is ssl.CERT_NONE
    assert client.context.verify_mode is ssl.CERT_REQUIRED
    assert client.context.check_hostname
    assert load_client_tls().context.verify_mode is ssl.CERT_REQUIRED
    with_clients = load_server_tls(
        certificates.certificate("server"), certificates.key("server"), clients={}
    )
    assert with_clients.context.verify_mode is ssl.CERT_OPTIONAL


def test_refused_files(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.certificate("server"), certificates.key("server")
    text = tmp_path / "text"
    text.write_text("hello")
    text.chmod(0o600)
    missing = tmp_path / "missing"
    with pytest.raises(TlsError, match=r"missing: the file cannot be read: No such file"):
        load_server_tls(missing, key)
    with pytest.raises(TlsError, match=r"missing: the file cannot be read: No such file.*; check"):
        load_server_tls(certificate, missing)
    with pytest.raises(TlsError, match="text: the file has no certificate in PEM form"):
        load_server_tls(text, key)
    with pytest.raises(TlsError, match="text: the file has no private key in PEM form"):
        load_server_tls(certificate, text)
    with pytest.raises(TlsError, match=r"is not the key of .*; choose the key"):
        load_server_tls(certificate, certificates.key("client"))
    with pytest.raises(TlsError, match="text: the file has no certificate in PEM form"):
        load_client_tls(authorities=text)
    with pytest.raises(TlsError, match="belong together; name both"):
        load_client_tls(certificate=certificate)
    with pytest.raises(TlsError, match="is not a file"):
        load_client_tls(authorities=tmp_path)
    text.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(TlsError, match="has a damaged certificate"):
        load_client_tls(authorities=text)
    with pytest.raises(TlsError, match="cannot be used"):
        load_server_tls(text, key)


def test_keys_are_private_and_have_no_password(certificates: Certificates, tmp_path: Path) -> None:
    certificate = certificates.certificate("server")
    copy = tmp_path / "key"
    shutil.copy(certificates.key("server"), copy)
    copy.chmod(0o640)
    with pytest.raises(TlsError, match="can be read by others; run `chmod 600") as caught:
        load_server_tls(certificate, copy)
    assert caught.value.exit_code == 2
    with_password(certificates.key("server"), copy)
    copy.chmod(0o600)
    with pytest.raises(TlsError, match="has a password, and nobody is asked"):
        load_server_tls(certificate, copy)


async def serve(tls: ServerTls, met: list[Proven]) -> Listener:
    async def handle(stream: ByteStream) -> None:
        met.append(stream.proven)
        await stream.write(b"hello")

    address = parse_address("wss:localhost:0", for_serving=True)
    return await listen(address, handle, ListenOptions(tls=tls))


def server_tls(
    certificates: Certificates,
    name: str = "server",
    *,
    client: str | None = None,
    authority: str = "authority",
) -> ServerTls:
    clients = None
    if client:
        found = certificate_fingerprint(load_certificate(certificates.certificate(client)))
        clients = {found: ALICE}
    return load_server_tls(
        certificates.certificate(name),
        certificates.key(name),
        clients=clients,
        client_authorities=certificates.certificate(authority) if client else None,
    )


async def meet(certificates: Certificates, tls: ServerTls, name: str | None = None) -> list[Proven]:
    """What both sides have proven: who connected, then who accepted."""
    met: list[Proven] = []
    trusted = load_client_tls(
        authorities=certificates.certificate("authority"),
        certificate=certificates.certificate(name) if name else None,
        key=certificates.key(name) if name else None,
    )
    async with await serve(tls, met) as listener:
        stream = await connect(listener.address, ConnectOptions(tls=trusted))
        try:
            assert await stream.read(100) == b"hello"
            return [stream.proven, *met]
        finally:
            await stream.close()


@pytest.mark.requirement("060-117", "060-118", "060-134", "060-135", "060-137")
def test_what_tls_proves(certificates: Certificates) -> None:
    here, there = run(meet(certificates, server_tls(certificates)))
    der = load_certificate(certificates.certificate("server"))
    for proven in (here, there):
        assert proven.encrypted
        assert proven.channel == channel_digest(der)
        assert proven.peer is None
        assert proven.transport.startswith("wss:localhost:")
        assert proven.transport.endswith("/interlace")
    assert here.transport == there.transport


@pytest.mark.requirement("060-118", "060-137")
@pytest.mark.parametrize(
    ("mapped", "authority", "sent", "peer"),
    [
        ("client", "authority", "client", ALICE),
        ("client", "authority", None, None),
        ("elsewhere", "authority", "client", None),
        ("alone", "alone", "alone", ALICE),
    ],
)
def test_client_certificates(
    certificates: Certificates, mapped: str, authority: str, sent: str | None, peer: str | None
) -> None:
    tls = server_tls(certificates, client=mapped, authority=authority)
    here, there = run(meet(certificates, tls, sent))
    assert there.peer == peer
    assert here.peer is None


def test_a_client_certificate_of_nobody_trusted_is_refused(certificates: Certificates) -> None:
    tls = server_tls(certificates, client="client")
    with pytest.raises(TransportError, match="certificate") as caught:
        run(meet(certificates, tls, "alone"))
    assert caught.value.exit_code == 4


@pytest.mark.requirement("060-117")
def test_refused_servers(certificates: Certificates) -> None:
    async def refusals() -> None:
        met: list[Proven] = []
        trusted = load_client_tls(authorities=certificates.certificate("authority"))
        async with await serve(server_tls(certificates, "elsewhere"), met) as listener:
            with pytest.raises(TransportError, match="certificate is not for localhost; connect"):
                await connect(listener.address, ConnectOptions(tls=trusted))
        async with await serve(server_tls(certificates), met) as listener:
            with pytest.raises(TransportError, match=r"nobody who is trusted here; name .* --ca"):
                await connect(listener.address)
            by_number = parse_address(f"wss:127.0.0.2:{listener.address.port}")
            with pytest.raises(TransportError, match=r"not for 127\.0\.0\.2|nobody listens"):
                await connect(by_number, ConnectOptions(tls=trusted))
            plain = parse_address(f"ws:localhost:{listener.address.port}")
            with pytest.raises(TransportError, match=r"not answer as a WebSocket server|closed"):
                await connect(plain)
        assert met == []

    run(refusals())


def test_a_server_without_tls(certificates: Certificates) -> None:
    async def refusal() -> None:
        async def handle(stream: ByteStream) -> None:
            raise AssertionError("nobody comes this far")

        address = parse_address("ws:localhost:0", for_serving=True)
        trusted = load_client_tls(authorities=certificates.certificate("authority"))
        async with await listen(address, handle) as listener:
            secure = parse_address(f"wss:localhost:{listener.address.port}")
            with pytest.raises(TransportError) as caught:
                await connect(secure, ConnectOptions(tls=trusted))
            assert caught.value.hint

    run(refusal())


@pytest.mark.requirement("060-117", "060-136")
def test_a_server_behind_a_proxy_names_its_certificate(certificates: Certificates) -> None:
    der = load_certificate(certificates.certificate("server"))

    async def proxied() -> Proven:
        met: list[Proven] = []

        async def handle(stream: ByteStream) -> None:
            met.append(stream.proven)

        address = parse_address("ws:localhost:0", for_serving=True)
        options = ListenOptions(channel_certificate=der)
        async with await listen(address, handle, options) as listener:
            stream = await connect(listener.address)
            assert await stream.read(1) == b""
            assert stream.proven.channel is None
            await stream.close()
        return met[0]

    proven = run(proxied())
    assert proven.channel == channel_digest(der)
    assert not proven.encrypted
