"""`lace remote list`: what a peer offers, from its advertisements; nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.listing import show_lines, show_table
from lace.cli.peers import SyncArguments
from lace.cli.remote_links import Remote, RemoteCommand, RemoteError, remote_options
from lace.policy.operations import coordinate_prefix, list_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.cli.listing import Value
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.exchange.advertisement import Field
    from lace.store.interface import Snapshot

__all__ = ["command"]

_COLUMNS: Final = ("id", "coordinate", "tai", "data-length", "signed-by", "here")
_LEAST: Final = "\0"
_MOST: Final = "\U0010ffff"


def _row(record: str, fields: Iterable[Field], snapshot: Snapshot) -> list[Value]:
    """Return what is known of a record: what the peer says or, if it is here, what it is."""
    stored = snapshot.describe(record)
    said = {name: value for name, _index, value in fields}
    parts = [said.get(name) for name in ("Group", "App", "Name")]
    if stored is not None and stored.group is not None:
        parts = [stored.group, stored.app, stored.name]
    coordinate = "//" + "//".join(map(str, parts)) if None not in parts else None
    return [
        record,
        coordinate,
        said.get("TAI") if stored is None else stored.tai,
        int(length) if (length := said.get("Data-Length", "")).isdecimal() else None,
        said.get("Signed-By") if stored is None else stored.signed_by,
        stored is not None,
    ]


def _rows(remote: Remote, prefix: str) -> list[list[Value]]:
    """Return a row of each record that the peer offers, by coordinate; Blobs last."""
    with remote.lace.snapshot() as snapshot:
        claimed = remote.claims.claimed.items()
        rows = [_row(record, fields, snapshot) for record, fields in claimed]
    # A peer may claim anything: what it says of a record decides whether that was asked for.
    found = [row for row in rows if not prefix or str(row[1] or "").startswith(prefix)]
    return sorted(found, key=lambda row: (row[1] or _MOST, row[2] or _LEAST, row[0]))


def _show(output: Output, rows: list[list[Value]], limit: int | None) -> None:
    if output.json:
        keys = [name.replace("-", "_") for name in _COLUMNS]
        show_lines(output, keys, rows[:limit])
        return
    told: list[list[Value]] = [[*row[:-1], "yes" if row[-1] else "no"] for row in rows[:limit]]
    if output.terminal:
        show_table(output, _COLUMNS, told, is_cut=limit is None, total=len(rows))
    else:
        show_lines(output, _COLUMNS, told)


@lace_command(
    "list",
    cls=RemoteCommand,
    piped="One line a record, tab-separated, without a heading: id, coordinate, TAI, bytes of "
    "data, signed-by, and yes or no: whether it is in this lace.",
    json_keys={
        "id, coordinate, tai, signed_by": "one line a record; null where it has none",
        "data_length": "how many bytes of data it has, as the peer says; null if it does not",
        "here": "whether it is in this lace",
    },
    examples=[
        ("lace remote list tcp:example.org", "everything that a server offers to you"),
        ("lace remote list office //team//notes//", "what [peer.office] has there"),
        ("lace remote list office --json", "for a program"),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most N rows.")
@remote_options
@click.pass_obj
def command(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    prefix: str,
    limit: int | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Show which records a peer offers.

    Those whose coordinate starts with PREFIX, or all of them. ADDRESS is as for `lace sync`:
    an address, or the name of a table [peer.NAME] in lace.toml. The peer advertises what it
    has there, and that is all: nothing moves. What stands in the table is what the peer says
    of its records; nobody has checked it yet.

    Exit code 1 when the peer offers nothing there; 4 when the peer or the network failed.
    """
    start = coordinate_prefix(prefix)
    select = list_prefix(prefix)
    given = SyncArguments(address=address, command=child, **rest)
    with session.asking("remote list") as lace:
        remote = Remote(session, lace, given, "remote list")
        run = remote.run(remote.policy(select, given.expose or ()))
        run.finish(given.address)
        found = _rows(remote, start)
    if not found:
        where = f" under {prefix}" if prefix else " to you"
        raise RemoteError(
            f"{given.address} offers nothing{where}",
            rule="G48",
            hint="it has no such record, or its selector or exposures leave it out",
        )
    _show(session.output, found, limit)
    return 0
