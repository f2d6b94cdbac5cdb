"""Certificates for tests: an authority, and servers and clients of it."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HERE: Sequence[x509.GeneralName] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


@dataclass(frozen=True)
class Certificates:
    """A folder of PEM files: `NAME.pem` and `NAME.key`."""

    folder: Path

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def make_certificates(folder: Path) -> Certificates:
    """An authority, a server and a client of it, a stranger for another host, a lone client."""
    made = Certificates(folder)
    authority = x509.BasicConstraints(ca=True, path_length=None)
    _make(made, "authority", authority, is_critical=True)
    _make(made, "alone", x509.SubjectAlternativeName([x509.DNSName("alone")]))
    _make(made, "server", x509.SubjectAlternativeName(HERE), issuer="authority")
    elsewhere = x509.SubjectAlternativeName([x509.DNSName("elsewhere.example")])
    _make(made, "elsewhere", elsewhere, issuer="authority")
    client = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    _make(made, "client", client, issuer="authority")
    return made


def make_server(made: Certificates, name: str, names: Sequence[x509.GeneralName]) -> None:
    """Make one more server of the same authority."""
    _make(made, name, x509.SubjectAlternativeName(names), issuer="authority")


def fingerprint(path: Path) -> str:
    """The SHA-256 fingerprint of a certificate, as tools print it: `AB:CD:…`."""
    der = ssl.PEM_cert_to_DER_cert(path.read_text("ascii"))
    return hashlib.sha256(der).digest().hex(":").upper()


def with_password(key: Path, copy: Path) -> None:
    """Write a copy of a key that has a password."""
    locked = serialization.BestAvailableEncryption(b"secret")
    copy.write_bytes(_pem(_load(key), locked))


def _make(
    made: Certificates,
    name: str,
    extension: x509.ExtensionType,
    *,
    is_critical: bool = False,
    issuer: str | None = None,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer or name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(extension, critical=is_critical)
        .sign(_load(made.key(issuer)) if issuer else key, hashes.SHA256())
    )
    made.certificate(name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key(name).touch(mode=0o600)
    made.key(name).write_bytes(_pem(key, serialization.NoEncryption()))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _load(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _pem(
    key: ec.EllipticCurvePrivateKey, locked: serialization.KeySerializationEncryption
) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, locked)
