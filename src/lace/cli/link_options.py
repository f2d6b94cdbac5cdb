"""The options that `sync` and `serve` share, and the log of links."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from lace.base.text import safe_text
from lace.cli.failures import Choice, without_secrets
from lace.cli.policy_options import (
    ALL_FIELDS_OPTION,
    ALLOW_UNDEFINED_OPTION,
    EXPOSE_OPTION,
    FIELD_OPTION,
    LOWERING_OPTION,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lace.api.exchanges import Policy
    from lace.api.links import Link
    from lace.api.server import Serving
    from lace.cli.output import Output
    from lace.cli.session import Session


# -- The log of links on standard error: lines of words for people, or a JSON object each.
#
# An event has a time, a level, a name, the link and plan it is about, and figures. Neither names
# nor
# content of records are in it, and no secret.

Level: TypeAlias = Literal["info", "warning", "error"]
LOG_FORMATS: Final = ("text", "json")
Event: TypeAlias = Literal[
    "listening",
    "metrics",
    "link-opened",
    "link-agreed",
    "link-ended",
    "link-lost",
    "rules-renewed",
    "rules-refused",
    "message",
]
"""What can be told: `message` is whatever has words alone."""


class JsonLog:
    """Writes events to standard error, each as a line of JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, level: Level, event: Event, figures: Mapping[str, Any]) -> None:
        """Write an event."""
        at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        known = {name: value for name, value in figures.items() if value is not None}
        line = json.dumps({"time": at, "level": level, "event": event, **known})
        self._output.put_aside(without_secrets(line) + "\n")

    def message(self, level: Level, text: str) -> None:
        """Write what is text and nothing more."""
        words = text.removeprefix("lace: ").removeprefix("warning: ")
        self.write(level, "message", {"message": safe_text(words)})


def tell_event(
    output: Output,
    event: Event,
    figures: Mapping[str, Any],
    text: str | None = None,
    *,
    level: Level = "info",
) -> None:
    """Report an event: as JSON where that is wanted, else as a text, if there is one.

    Who wants quiet hears of warnings and errors only.
    """
    if output.log is not None:
        if level != "info" or not output.quiet:
            output.log.write(level, event, figures)
    elif text is not None:
        if level == "info":
            output.note(text)
        else:
            output.complain(text)


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_READABLE: Final = frozenset({"tcp", "ws"})
"""Streams that others on the way can read."""
KEY_OPTION: Final = click.option(
    "--key",
    metavar="V",
    help="The verifier of the key that says who you are; else the default key of the "
    "lace. Without any, you prove nothing.",
)
PLAIN_OPTION: Final = click.option(
    "--plain",
    is_flag=True,
    default=None,
    help="For a peer that knows only 050: no nonce is sent, so that nobody proves "
    "anything by a key. You claim to be nobody unless --key names a key, and then the "
    "transport has to prove it; --claim does that without a key.",
)
CLAIM_OPTION: Final = click.option(
    "--claim",
    metavar="V",
    help="Claim to be this verifier without signing: your transport has to prove it to the peer, "
    "by its uid map or client certificate map, or the peer ends the exchange. Not with --key.",
)
STDIO_PEER_OPTION: Final = click.option(
    "--stdio-peer",
    metavar="V",
    help="On stdio: the verifier of the process at the other end, on your word. Nothing is "
    "checked: whatever speaks there counts as proven to be V.",
)
UID_MAP_OPTION: Final = click.option(
    "--uid-map",
    metavar="FILE",
    help="Which verifier a user at the other end of a Unix socket is: `uid V` lines.",
)
PEER_OPTION: Final = click.option(
    "--peer", metavar="V", help="The verifier that the peer has to prove; any other is refused."
)
CA_OPTION: Final = click.option(
    "--ca",
    metavar="FILE",
    help="Whose server certificates are taken, PEM, for wss; else the system's authorities.",
)


def link_options(*, select_required: bool) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the options of both."""
    return all_options(
        click.option(
            "--select",
            metavar="FILE",
            required=select_required,
            help="Your selector: rules for SelectHave(P) and SelectAdvertised(P,S). The peer "
            "gets to see it.",
        ),
        EXPOSE_OPTION,
        FIELD_OPTION,
        ALL_FIELDS_OPTION,
        LOWERING_OPTION,
        ALLOW_UNDEFINED_OPTION,
        KEY_OPTION,
        CLAIM_OPTION,
        STDIO_PEER_OPTION,
        PLAIN_OPTION,
        click.option(
            "--open",
            "is_open",
            is_flag=True,
            default=None,
            help="Go on after a fixed point: what is stored on either side later moves as well.",
        ),
        click.option(
            "--receipts",
            is_flag=True,
            default=None,
            help="Store a receipt for each record that comes, signed with your key: a record that "
            "says what was stored, from whom and when, and moves by the ordinary rules. Where no "
            "key is used (--claim, --plain) the key of the claimed verifier signs it if the lace "
            "has it, else the default key. The peer has to be proven; receipts get no receipt.",
        ),
        click.option(
            "--log-format",
            type=Choice(LOG_FORMATS),
            default=LOG_FORMATS[0],
            show_default=True,
            expose_value=False,
            callback=_take_log_format,
            help="How standard error is written: lines for people, or a JSON object on each, "
            "with time, level, event, link and plan.",
        ),
    )


def _take_log_format(ctx: click.Context, _param: click.Parameter, value: str) -> None:
    session: Session | None = ctx.obj
    if session is not None and value == "json":
        session.output.log = JsonLog(session.output)


def tls_options(certificate: str, key: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator for the two options of a certificate, with what they mean."""
    return all_options(
        click.option("--tls-cert", metavar="FILE", help=certificate),
        click.option("--tls-key", metavar="FILE", help=key),
    )


def all_options(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds options in their order."""

    def decorate(function: Decorated) -> Decorated:
        made: Any = function
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]  # the same function to click

    return decorate


def path_of(name: str | None) -> Path | None:
    """Return a file that an option names."""
    return None if name is None else Path(name)


def warn_of_links(
    session: Session,
    policy: Policy,
    link: Link | Serving,
    *,
    is_plain: bool,
    claim: str | None,
    is_sending: bool = True,
) -> None:
    """Say what of this side's options may not do what was meant (G31, G39b).

    Who does not mean to send anything knows that nothing is exposed.
    """
    scheme = link.scheme
    named = any(each.viewers is not None for each in policy.exposures)
    if is_plain and named:
        session.output.warn(
            "with --plain nobody proves anything by a key, so an exposure for a named viewer "
            "counts only where the transport proves who the peer is"
        )
    elif named and scheme in _READABLE:
        session.output.warn(
            f"what is exposed to a named viewer goes over {scheme}, where a proof says "
            "who opened the exchange and not who reads the rest; use wss, unix, or stdio "
            "over ssh"
        )
    if claim is not None and scheme in _READABLE:
        session.output.warn(
            f"{scheme} proves nobody, so a peer that knows you by nothing else refuses "
            "the claim; use unix with a uid map, or wss with a client certificate"
        )
    if link.verifier is None and not is_plain:
        session.output.note(
            "this lace has no key, so you prove nothing to the peer; `lace key new`"
        )
    if is_sending and not policy.exposures:
        session.output.note(
            "nothing is exposed, so nothing is sent, and the peer's rules find nothing here: "
            "what they select by your records does not come either; see --expose"
        )
