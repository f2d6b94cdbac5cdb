"""How `lace serve` listens: certificates, maps of who peers are, limits, an inherited socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lace.cli.inheritance import inherited_descriptor
from lace.cli.link_options import path_of, vouched_peer
from lace.errors import UsageError
from lace.transport.connections import ConnectionLimits
from lace.transport.listening import ListenOptions

if TYPE_CHECKING:
    from lace.api import Lace
    from lace.cli.session import Session

__all__ = ["read_listen_options"]


def read_listen_options(session: Session, lace: Lace, given: dict[str, Any]) -> ListenOptions:
    """Return how a server listens, as its command line says.

    Raises:
        UsageError: options that do not go together.
        SettingError: a file of maps or certificates cannot be used.
    """
    from lace.transport.maps import read_fingerprint_map, read_uid_map
    from lace.transport.tls import load_certificate, load_server_tls

    tls = None
    certificate, key = path_of(given["tls_cert"]), path_of(given["tls_key"])
    client_map, client_ca = path_of(given["tls_client_map"]), path_of(given["tls_client_ca"])
    if certificate is not None and key is not None:
        tls = load_server_tls(
            certificate,
            key,
            clients=None if client_map is None else read_fingerprint_map(client_map),
            client_authorities=client_ca,
        )
    elif certificate is not None or key is not None:
        raise UsageError("--tls-cert and --tls-key belong together", hint="name both")
    elif client_map is not None or client_ca is not None:
        raise UsageError(
            "certificates of clients are asked for by a server that has one",
            hint="name it: --tls-cert FILE --tls-key FILE",
        )
    users, channel = path_of(given["uid_map"]), path_of(given["channel_cert"])
    return ListenOptions(
        stdio_peer=vouched_peer(given["stdio_peer"]),
        verifiers={} if users is None else read_uid_map(users),
        tls=tls,
        channel_certificate=None if channel is None else load_certificate(channel),
        hosts=frozenset(name.lower() for name in given["host"]),
        origins=frozenset(given["origin"]),
        limits=ConnectionLimits(
            in_all=given["max_links"] or lace.settings.max_links,
            of_address=given["max_links_of_address"] or lace.settings.max_links_of_address,
            idle_seconds=lace.settings.idle_link_seconds,
        ),
        inherited=inherited_descriptor(session.environ),
    )
