"""TLS: contexts for servers and clients, client certificates, and the channel's digest.

TLS 1.2 is the oldest that is spoken. A client checks the server's certificate and its name,
unless it pins a key: then whatever certificate the server has is taken for the moment, and the
proof of hello, which signs its digest, decides. A server asks for a client's certificate only
where it has a map of them; the handshake then proves that the client has its key, and the map says
who that is.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import stat
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import Place, UsageError
from lace.transport.identity_maps import read_small_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lace.record.ids import Verifier


_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----[\s0-9A-Za-z+/=]+-----END CERTIFICATE-----"
)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----")
_OPTIONS: Final = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET


class TlsError(UsageError):
    """A certificate or key that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What a server needs for TLS.

    Attributes:
        context: the settings of its connections.
        certificate: the server's certificate, DER.
        clients: the verifier of each client certificate, by its SHA-256 fingerprint.
    """

    context: ssl.SSLContext
    certificate: bytes
    clients: Mapping[str, Verifier] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client needs for TLS: the settings of its connections.

    With `is_pinned` no authority is asked: nothing is proven before hello is.
    """

    context: ssl.SSLContext
    is_pinned: bool = False


def channel_digest(certificate: bytes) -> str:
    """Return the digest of a TLS channel, from the server certificate's DER bytes (G39b)."""
    return b64a.encode(digest(certificate))


def certificate_fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate's DER bytes, as maps are keyed."""
    return hashlib.sha256(certificate).hexdigest()


def load_certificate(path: Path) -> bytes:
    """Return the first certificate of a PEM file, DER."""
    data, _ = read_small_file(path, _MAX_FILE_BYTES, partial(_refused, path))
    found = _CERTIFICATE.search(data)
    if found:
        try:
            return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))
        except ValueError:
            pass
    raise _refused(path, "has no certificate in PEM form", "choose a file with BEGIN CERTIFICATE")


def load_server_tls(
    certificate: Path,
    key: Path,
    *,
    clients: Mapping[str, Verifier] | None = None,
    client_authorities: Path | None = None,
) -> ServerTls:
    """Return what a server needs for TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_common(context)
    context.num_tickets = 0
    _load_chain(context, certificate, key)
    if clients is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authorities(context, client_authorities, ssl.Purpose.CLIENT_AUTH)
    return ServerTls(
        context=context,
        certificate=load_certificate(certificate),
        clients=MappingProxyType(dict(clients or {})),
    )


def load_client_tls(
    *,
    authorities: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    is_pinned: bool = False,
) -> ClientTls:
    """Return what a client needs for TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
    _set_common(context)
    if is_pinned:
        if authorities is not None:
            raise TlsError(
                "a pinned key takes the place of an authority",
                hint="leave one of the two out: --ca or --tls-pin",
            )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authorities(context, authorities, ssl.Purpose.SERVER_AUTH)
    if (certificate is None) != (key is None):
        raise TlsError(
            "a client's certificate and its key belong together",
            hint="name both: --tls-cert FILE --tls-key FILE",
        )
    if certificate is not None and key is not None:
        _load_chain(context, certificate, key)
    return ClientTls(context, is_pinned)


def _set_common(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= _OPTIONS
    context.set_alpn_protocols(["http/1.1"])


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    load_certificate(certificate)
    _check_key(key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _refused(
                key,
                f"is not the key of {certificate}",
                "choose the key the certificate is made for",
            ) from None
        reason = str(error.reason or "unknown form").lower().replace("_", " ")
        raise _refused(
            certificate, f"and its key {key} cannot be used ({reason})", "make new ones"
        ) from None
    except OSError as error:
        raise _refused(certificate, f"cannot be read: {error.strerror}", "check it") from None


def _no_password() -> str:
    raise AssertionError("keys with passwords are refused before they are loaded")


def _check_key(path: Path) -> None:
    data, mode = read_small_file(path, _MAX_FILE_BYTES, partial(_refused, path))
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _refused(path, "can be read by others", f"run `chmod 600 {path}`")
    found = _KEY.search(data)
    if not found:
        raise _refused(
            path, "has no private key in PEM form", "choose a file with BEGIN PRIVATE KEY"
        )
    if b"ENCRYPTED" in found[1] or b"Proc-Type: 4,ENCRYPTED" in data:
        raise _refused(
            path,
            "has a password, and nobody is asked for one",
            "write a copy without: `openssl pkey -in KEY -out COPY`, readable by its owner only",
        )


def _load_authorities(context: ssl.SSLContext, path: Path | None, purpose: ssl.Purpose) -> None:
    if path is None:
        context.load_default_certs(purpose)
        return
    load_certificate(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError):
        raise _refused(path, "has a damaged certificate", "get a new one") from None


def _refused(path: Path, what: str, hint: str) -> TlsError:
    return TlsError(f"the file {what}", place=Place(str(path)), hint=hint)
