"""Address strings: `stdio`, `unix:/path`, `tcp:host:port`, `ws:host`, `wss:host` (060).

An address is written in one way. What looks like an address of another kind, as a URL
does, is refused with the form that is meant; nothing is guessed.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from lace.base.text import is_nfc
from lace.errors import UsageError
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_PORTS",
    "INTERLACE_PATH",
    "MAX_ADDRESS_BYTES",
    "MAX_UNIX_PATH_BYTES",
    "Address",
    "AddressError",
    "Scheme",
    "parse_address",
]

Scheme: TypeAlias = Literal["stdio", "unix", "tcp", "ws", "wss"]

DEFAULT_PORTS: Final[Mapping[str, int]] = MappingProxyType({"tcp": 4790, "ws": 80, "wss": 443})
"""The port of each scheme that has ports, where an address leaves it out."""
INTERLACE_PATH: Final = "/interlace"
"""The path of every WebSocket address."""
MAX_UNIX_PATH_BYTES: Final = 107
"""What fits into a socket's address, with the NUL behind it."""
MAX_ADDRESS_BYTES: Final = 512
"""More than the longest legal address has."""

_SCHEMES: Final = get_args(Scheme)
_FORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stdio": "stdio",
        "unix": "unix:/absolute/path",
        "tcp": "tcp:host:port",
        "ws": "ws:host[:port][/interlace]",
        "wss": "wss:host[:port][/interlace]",
    }
)
_MAX_HOST: Final = 253
_MAX_PORT: Final = 65_535
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SPACE: Final = re.compile(r"\s")
_LABEL: Final = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_SCHEME_LIKE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_URLS: Final[Mapping[str, str]] = MappingProxyType({"http": "ws", "https": "wss"})


class AddressError(UsageError):
    """A text that is no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The end of a transport; `parse_address` makes it.

    `host` is without brackets, `path` the path of a Unix socket or `/interlace`; what a
    scheme does not have is empty. `port` is None where a WebSocket address leaves it
    out: `effective_port` is the one to use.

    >>> str(parse_address("tcp:[::1]"))
    'tcp:[::1]:4790'
    """

    scheme: Scheme
    host: str = ""
    port: int | None = None
    path: str = ""

    @property
    def effective_port(self) -> int | None:
        """The port to connect to or to listen on; None where the scheme has no ports."""
        return DEFAULT_PORTS.get(self.scheme) if self.port is None else self.port

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 address."""
        return ":" in self.host

    @property
    def transport_text(self) -> str:
        """The text of `Transport(S)`: tcp with its port, ws and wss with their path (G62)."""
        if self.scheme == "stdio":
            return "stdio"
        host = f"[{self.host}]" if self.is_ipv6 else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}:{host}{port}{self.path}"

    def __str__(self) -> str:
        return self.transport_text


def parse_address(text: str, *, for_serving: bool = False) -> Address:
    """Return the address that a text is.

    Args:
        text: the address.
        for_serving: whether to listen there; then port 0 stands for any free one.

    Raises:
        AddressError: it is not an address; the hint shows the form that is meant.

    >>> parse_address("ws:example.com").effective_port
    80
    """
    if not text:
        raise _refusal("an address is missing", "060-01", f"write one of {_all_forms()}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_ADDRESS_BYTES:
        raise _refusal(
            f"'{show(text)}' is too long for an address", "060-01", f"write one of {_all_forms()}"
        )
    unseen = _CONTROL.search(text) or (not text.startswith("unix:") and _SPACE.search(text))
    if unseen:
        raise _refusal(
            f"'{show(text)}' has a space or control character at position {unseen.start() + 1}",
            "060-01",
            "only the path of unix:/path may have spaces, and no address has control characters",
        )
    if text == "stdio":
        return Address(scheme="stdio")
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in _SCHEMES:
        raise _no_scheme(text)
    match scheme:
        case "stdio":
            raise _refusal(f"'{show(text)}' is no address", "060-02", "write stdio alone")
        case "unix":
            return _parse_unix(rest)
        case "tcp":
            return _parse_tcp(rest, for_serving=for_serving)
        case _:
            secure = scheme == "wss"
            return _parse_websocket("wss" if secure else "ws", rest, for_serving=for_serving)


def _refusal(message: str, rule: str, hint: str) -> AddressError:
    return AddressError(message, rule=rule, hint=hint)


def _all_forms() -> str:
    return ", ".join(_FORMS.values())


def _no_scheme(text: str) -> AddressError:
    hint = f"write one of {_all_forms()}"
    found = _SCHEME_LIKE.fullmatch(text)
    if found:
        scheme = found[1].lower()
        scheme = _URLS.get(scheme, scheme)
        if scheme in _SCHEMES:
            hint = _meant(scheme, found[2])
        elif _PORT.fullmatch(found[2]):
            hint = f"write {show('tcp:' + text)}"
    elif text.startswith("/"):
        hint = f"write {show('unix:' + text)}"
    elif _LABEL.fullmatch(text.partition(".")[0]) and _PORT.fullmatch(text.rpartition(":")[2]):
        hint = f"write {show('tcp:' + text)}"
    elif _LABEL.fullmatch(text.partition(".")[0]):
        hint = f"write {show('tcp:' + text)}:{DEFAULT_PORTS['tcp']}"
    return _refusal(f"'{show(text)}' has no scheme of an address", "060-01", hint)


def _meant(scheme: str, rest: str) -> str:
    """Return the hint for an address with slashes, a path or a query too many."""
    if scheme == "stdio":
        return "write stdio"
    if scheme == "unix":
        return f"write {show('unix:/' + rest.lstrip('/'))}" if rest.strip("/") else _write(scheme)
    host = re.split(r"[/?#]", rest.lstrip("/"), maxsplit=1)[0].rpartition("@")[2]
    if not host:
        return _write(scheme)
    path = INTERLACE_PATH if scheme in ("ws", "wss") else ""
    return f"write {show(f'{scheme}:{host}{path}')}"


def _write(scheme: str) -> str:
    return f"write {_FORMS[scheme]}"


def _parse_unix(path: str) -> Address:
    if path.startswith("//"):
        raise _refusal(f"'{show(path)}' begins as a URL does", "060-03", _meant("unix", path))
    if not path.startswith("/"):
        raise _refusal(f"'{show(path)}' is not an absolute path", "060-03", _write("unix"))
    if path.endswith("/"):
        raise _refusal(f"'{show(path)}' names no file", "060-03", _write("unix"))
    size = len(path.encode("utf-8"))
    if size > MAX_UNIX_PATH_BYTES:
        raise _refusal(
            f"the path has {size} bytes, and a socket's has at most {MAX_UNIX_PATH_BYTES}",
            "060-03",
            "choose a shorter one, such as unix:/tmp/lace.sock",
        )
    if not is_nfc(path):
        raise _refusal(
            f"'{show(path)}' is not in Unicode normal form NFC",
            "060-03",
            "rules could not name it; choose another path",
        )
    return Address(scheme="unix", path=path)


def _parse_tcp(rest: str, *, for_serving: bool) -> Address:
    if re.search(r"[/?#@]", rest):
        raise _refusal(
            f"'{show(rest)}' has more than a host and a port", "060-04", _meant("tcp", rest)
        )
    host, port = _parse_host("tcp", rest, for_serving=for_serving)
    return Address(scheme="tcp", host=host, port=DEFAULT_PORTS["tcp"] if port is None else port)


def _parse_websocket(scheme: Literal["ws", "wss"], rest: str, *, for_serving: bool) -> Address:
    if rest.startswith("//"):
        raise _refusal(
            f"'{scheme}:{show(rest)}' is a URL, not an address", "060-12", _meant(scheme, rest)
        )
    if re.search(r"[?#@]", rest):
        raise _refusal(
            f"'{show(rest)}' has more than a host, a port and {INTERLACE_PATH}",
            "060-11",
            _meant(scheme, rest),
        )
    place, slash, path = rest.partition("/")
    if slash and slash + path != INTERLACE_PATH:
        raise _refusal(
            f"the path of an address is {INTERLACE_PATH}, not '{show(slash + path)}'",
            "060-10",
            _meant(scheme, rest),
        )
    host, port = _parse_host(scheme, place, for_serving=for_serving)
    return Address(scheme=scheme, host=host, port=port, path=INTERLACE_PATH)


def _parse_host(scheme: str, text: str, *, for_serving: bool) -> tuple[str, int | None]:
    """Return host and port; the port is None where it is left out."""
    if text.startswith("["):
        host, bracket, behind = text[1:].partition("]")
        if not bracket or (behind and not behind.startswith(":")):
            raise _refusal(
                f"'{show(text)}' is no address in brackets", "060-07", f"write {scheme}:[::1]:4790"
            )
        _check_ipv6(host, scheme)
        return host, _parse_port(behind[1:], scheme, for_serving=for_serving) if behind else None
    if text.count(":") > 1:
        raise _refusal(
            f"'{show(text)}' has more than one colon",
            "060-07",
            f"write an IPv6 address in brackets, as in {scheme}:[::1]:4790",
        )
    host, colon, port = text.partition(":")
    _check_host(host, scheme)
    return host, _parse_port(port, scheme, for_serving=for_serving) if colon else None


def _check_ipv6(host: str, scheme: str) -> None:
    try:
        ipaddress.IPv6Address(host)
        fits = "%" not in host
    except ValueError:
        fits = False
    if not fits:
        raise _refusal(
            f"'{show(host)}' is not an IPv6 address", "060-07", f"write {scheme}:[::1]:4790"
        )


def _check_host(host: str, scheme: str) -> None:
    if not host:
        raise _refusal(
            "the host is missing",
            "060-07",
            f"write {_FORMS[scheme]}; 0.0.0.0 or [::] listens everywhere",
        )
    if not host.isascii():
        raise _refusal(
            f"'{show(host)}' is not ASCII", "060-07", "write the name in its form with xn--"
        )
    labels = host.split(".")
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise _refusal(f"'{show(host)}' is no host", "060-07", _write(scheme))
    if _NUMBER.fullmatch(labels[-1]):  # a resolver would take any of these as an address
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise _refusal(
                f"'{show(host)}' is not an IPv4 address",
                "060-07",
                "write four numbers from 0 to 255, without leading zeros",
            ) from None


def _parse_port(text: str, scheme: str, *, for_serving: bool) -> int:
    lowest = 0 if for_serving else 1
    if not _PORT.fullmatch(text) or not lowest <= int(text) <= _MAX_PORT:
        raise _refusal(
            f"'{show(text)}' is no port",
            "060-08",
            f"a port is {lowest} to {_MAX_PORT}, without leading zeros; "
            f"left out, it is {DEFAULT_PORTS[scheme]}",
        )
    return int(text)
