"""`lace remote`: operations on a peer, each an ordinary exchange with a selector made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import LazyGroup, require_subcommand

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["command"]

_MODULES: Final[Mapping[str, str]] = {
    "get": "lace.cli.remote_get",
    "list": "lace.cli.remote_list",
    "store": "lace.cli.remote_store",
    "watch": "lace.cli.remote_watch",
}


class _Remote(LazyGroup):
    modules = _MODULES


@click.group(
    "remote",
    cls=_Remote,
    examples=[
        ("lace remote list tcp:example.org //team//notes//", "what a server offers there"),
        ("lace remote get office //team//notes//plan --body", "one note of [peer.office]"),
        ("lace remote store office //team//notes//mine", "hand over a note of yours"),
        ("lace remote watch office //team//", "show what comes, as it comes"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Get, list, store and watch records of a peer.

    Each of these is an exchange like that of `lace sync`: it only brings a selector that is
    made for it. So the peer's selector and exposures decide as well, and the peer needs
    nothing special to be asked. Records that come are validated and stored in this lace.
    Nothing of yours is sent but what `store` names; --expose lets the peer's rules see more.
    """
    require_subcommand(ctx)
