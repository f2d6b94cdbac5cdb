"""Which HTTP requests become WebSockets: Host, Origin and path, and the words of a refusal.

Any web page can make a browser connect to a server on its user's machine, and can give
that machine a name of its own (DNS rebinding). A browser says both: the page in Origin,
the name in Host. So a request with an Origin is refused unless it was allowed, and Host
has to be a name of this server.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lace.iltp.address import INTERLACE_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.iltp.address import Address

__all__ = ["FULL", "Refusal", "UpgradeRules", "with_port"]

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_.-]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status and what to say with it."""

    status: int
    text: str


FULL: Final = Refusal(503, "This server is full; try again later.\n")
"""What a server says that has as many connections as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRules:
    """Which requests a server takes.

    Attributes:
        address: where it listens.
        hosts: further names that it has, in small letters.
        origins: web pages that may connect, such as `https://example.com`.
    """

    address: Address
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def bound(self, address: Address, port: int) -> Address:
        """Return the address with its true port, where any free one was asked for."""
        return replace(address, port=port) if address.port == 0 else address

    def refusal(self, path: str, headers: Callable[[str], Sequence[str]]) -> Refusal | None:
        """Return why a request is refused, or None.

        Args:
            path: what it asks for.
            headers: gives all values of a header.
        """
        if not self._has_host(headers("Host")):
            return Refusal(403, "This server does not have that name.\n")
        if not self._has_origin(headers("Origin")):
            return Refusal(403, "Web pages may not connect to this server.\n")
        if path != INTERLACE_PATH:
            return Refusal(404, f"This is a Lace server; its only path is {INTERLACE_PATH}.\n")
        upgrade = ",".join(headers("Upgrade")).lower()
        if "websocket" not in (word.strip() for word in upgrade.split(",")):
            scheme = self.address.scheme
            return Refusal(
                426,
                "This is a Lace server, and it speaks WebSocket only.\n"
                f"Connect with: lace sync {scheme}:HOST{INTERLACE_PATH}\n",
            )
        return None

    def _has_origin(self, values: Sequence[str]) -> bool:
        return not values or (len(values) == 1 and values[0].lower() in self.origins)

    def _has_host(self, values: Sequence[str]) -> bool:
        found = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if not found:
            return False
        host = found[1].strip("[]").lower().removesuffix(".")
        if host in ("localhost", self.address.host.lower()) or host in self.hosts:
            return True
        if _is_ip_address(host):  # no page can give itself a number for a name
            return True
        if not self._listens_everywhere():
            return False
        # TLS has checked the name already; without it, this machine's own is known.
        return self.address.scheme == "wss" or host == socket.gethostname().lower()

    def _listens_everywhere(self) -> bool:
        try:
            return ipaddress.ip_address(self.address.host).is_unspecified
        except ValueError:
            return False


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def with_port(address: Address) -> str:
    """Return host and port as a URL has them."""
    host = f"[{address.host}]" if address.is_ipv6 else address.host
    return f"{host}:{address.effective_port}"
