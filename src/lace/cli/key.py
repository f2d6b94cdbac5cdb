"""`lace key`: the signing keys of a lace. Verifiers are shown, secrets never."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from lace.api import SigningKey, parse_verifier
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.output import TableColumn, ask, is_attended
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.session import Session


_MOST_SECRET_BYTES: Final = 4096
_MADE_KEYS: Final = {
    "verifier": "the key's verifier",
    "added": "false if this lace had the key already",
    "default": "true if it signs when no key is named",
}


@group(
    "key",
    examples=[
        ("lace key new", "make a key; the first one signs by default"),
        ("lace key list", "which keys this lace has"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Make, list and choose the signing keys of a lace.

    Each key is a file that only its owner can read, in the folder keys of the lace.
    """
    require_subcommand(ctx)


def _add(session: Session, name: str, key: SigningKey) -> int:
    with session.changing(name) as change:
        added = change.lace.keys.add(key)
        is_default = change.lace.keys.default() == key.verifier
        change.result.update(verifier=key.verifier, added=added)
    made = {"verifier": key.verifier, "added": added, "default": is_default}
    session.output.answer(made, key.verifier)
    if session.output.json:
        return 0
    if not added:
        session.output.note("this lace has that key already")
    elif is_default:
        session.output.note("it is the default: it signs when no key is named")
    return 0


@command.command(
    "new",
    cls=LaceCommand,
    api="SigningKey.generate, Lace.keys.add",
    piped="The verifier, on one line.",
    json_keys=_MADE_KEYS,
    examples=[("lace key new", "make a key and show its verifier")],
)
@click.pass_obj
def new(session: Session) -> int:
    """Make a signing key, and show its verifier."""
    return _add(session, "key new", SigningKey.generate())


@command.command(
    "import",
    cls=LaceCommand,
    api="SigningKey.parse_secret, Lace.keys.add",
    piped="The verifier, on one line.",
    json_keys=_MADE_KEYS,
    examples=[("lace key import < secret.txt", "take over a key from elsewhere")],
)
@click.pass_obj
def import_key(session: Session) -> int:
    """Take over a signing key: its secret text comes from standard input.

    The text is `&.`, 43 characters and `.H3`. At a terminal it is asked for and not shown.
    """
    return _add(session, "key import", SigningKey.parse_secret(_read_secret().strip(), os.urandom))


def _read_secret() -> str:
    if sys.stdin is None:
        raise UsageError("standard input is closed", hint="give the secret text there")
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Secret (it is not shown): ")
    return sys.stdin.buffer.read(_MOST_SECRET_BYTES).decode("ascii", "replace")


@command.command(
    "list",
    cls=LaceCommand,
    api="Lace.keys.verifiers",
    piped="One verifier a line; the default is followed by a tab and the word default.",
    json_keys={
        "verifier": "the key's verifier; one line a key",
        "default": "true if it signs when no key is named",
    },
    examples=[("lace key list", "which keys this lace has, and which one signs by default")],
)
@click.pass_obj
def list_keys(session: Session) -> int:
    """Show the verifiers of this lace's keys, and which one is the default."""
    output = session.output
    with session.reading("key list") as lace:
        default = lace.keys.default()
        verifiers = lace.keys.verifiers()
    is_default = TableColumn(
        "",
        style="green",
        key="default",
        shown=lambda yes: "default" if yes else "",
        piped=lambda yes: "default" if yes else ...,
    )
    rows = [(verifier, verifier == default) for verifier in verifiers]
    output.show(rows, (TableColumn("verifier"), is_default))
    if output.table_wanted and not verifiers:
        output.note("this lace has no keys; `lace key new` makes one")
    return 0


@command.command(
    "default",
    cls=LaceCommand,
    api="Lace.keys.set_default",
    piped="The verifier, on one line.",
    json_keys={"verifier": "the default key's verifier"},
    examples=[("lace key default V.….H3", "sign with this key unless another is named")],
)
@click.argument("verifier", metavar="V")
@click.pass_obj
def default(session: Session, verifier: str) -> int:
    """Choose the key that signs when none is named."""
    chosen = parse_verifier(verifier)
    with session.changing("key default") as change:
        change.lace.keys.set_default(chosen)
        change.result["verifier"] = chosen
    session.output.answer({"verifier": chosen}, chosen)
    return 0


@command.command(
    "remove",
    cls=LaceCommand,
    api="Lace.keys.remove",
    piped="The verifier of the key that is gone, on one line.",
    json_keys={"verifier": "the verifier of the key that is gone"},
    examples=[("lace key remove V.….H3 --yes", "delete a key without being asked")],
)
@click.argument("verifier", metavar="V")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(session: Session, verifier: str, yes: bool) -> int:
    """Delete a key for good: nothing brings its secret back.

    Asks at a terminal; elsewhere it wants --yes. Records signed with the key stay valid.
    """
    chosen = parse_verifier(verifier)
    if not yes and not is_attended():
        raise UsageError("deleting a key wants to be confirmed", hint="add --yes")
    with session.changing("key remove") as change:
        if not yes and chosen in change.lace.keys.verifiers():
            ask(f"Delete the signing key {chosen} for good?")
        change.lace.keys.remove(chosen)
        change.result["verifier"] = chosen
        left_without = change.lace.keys.default() is None
    session.output.answer({"verifier": chosen}, chosen)
    if left_without:
        session.output.note("this lace has no default key now")
    return 0
