"""`lace config`: every setting, its value and where it comes from."""

from __future__ import annotations

import difflib
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.api import SETTINGS_FILE
from lace.base.limits import Value, describe_settings
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.failures import describe_failure, without_secrets
from lace.cli.output import TableColumn
from lace.cli.peers import lost_files, peer_tables, read_peer
from lace.errors import LaceError, SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.cli.output import Output
    from lace.cli.session import Session


Row = tuple[str, Value, str, str, str]
"""Name, value, unit, origin, meaning."""


@group("config", examples=[("lace config show", "every setting of this lace")])
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at settings.

    They come from the defaults, then lace.toml in the lace, then LACE_<NAME> in the
    environment, then --set NAME=VALUE: the later wins.
    """
    require_subcommand(ctx)


def _check_names(names: tuple[str, ...]) -> None:
    known = [name for name, _meaning, _unit in describe_settings()]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`lace config show` lists all of them"
            raise SettingError(f"there is no setting {name!r}", hint=hint)


@command.command(
    "show",
    cls=LaceCommand,
    api="api.read_settings_file",
    piped="One line a setting, tab-separated: name, value, unit, origin, meaning. Then the same "
    "for each entry of a peer's table, named peer.NAME.ENTRY.",
    json_keys={
        "lace": "the folder whose lace.toml was read, or null",
        "settings": "a list of {name, value, unit, origin, meaning}",
        "peers": "a list of {name, address, …}, with what else the table [peer.NAME] has; files "
        "as they are looked for",
    },
    examples=[
        ("lace config show", "every setting, its value and where it comes from"),
        ("lace config show max_links wait_seconds", "two of them"),
        ("lace config show --set max_data_bytes=64MiB", "what a value would mean"),
        ("LACE_WAIT_SECONDS=60 lace config show", "with a setting from the environment"),
    ],
)
@click.argument("names", metavar="[NAME]…", nargs=-1)
@click.pass_obj
def show(session: Session, names: tuple[str, ...]) -> int:
    """Show every setting, or those that are named: its value and where it comes from.

    A value comes from the defaults, lace.toml, the environment or --set; the origin says which.
    The peers that lace.toml names come last, if no setting is named. What is wrong is told, and
    the rest is shown; the exit code is 2 then.
    """
    output = session.output
    _check_names(names)
    folder = session.find_folder()
    faults: list[SettingError] = []
    settings, origins = session.settings(folder, faults)
    rows: list[Row] = [
        (name, getattr(settings, name), unit, origins[name], meaning)
        for name, meaning, unit in describe_settings()
        if not names or name in names
    ]
    peers = {} if folder is None or names else _peers(session, folder, faults)
    if output.json:
        keys = ("name", "value", "unit", "origin", "meaning")
        output.json_document(
            {
                "lace": str(folder.resolve()) if folder else None,
                "settings": [dict(zip(keys, row, strict=True)) for row in rows],
                "peers": [{"name": name, **entries} for name, entries in peers.items()],
            }
        )
    else:
        _write(output, rows, Path(folder or "") / SETTINGS_FILE, peers)
    if folder is None:
        output.note("there is no lace here: these are the settings without a lace.toml")
    for fault in faults[:-1]:
        output.complain(describe_failure(fault).line())
    if faults:
        raise faults[-1]
    return 0


def _write(
    output: Output, rows: Sequence[Row], origin: Path, peers: Mapping[str, Mapping[str, object]]
) -> None:
    """Write rows for a person, or for a script."""
    entries = [
        (name, entry, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, table in peers.items()
        for entry, value in table.items()
    ]
    if not output.terminal:
        for row in rows:
            output.row((row[0], _text(row[1], ""), *row[2:]))
        for name, entry, text in entries:
            output.row((f"peer.{name}.{entry}", text, "", origin, f"{entry} of the peer {name}"))
        return
    columns = (
        TableColumn("setting", style="bold", no_wrap=True),
        TableColumn("value", "right", no_wrap=True),
        TableColumn("unit"),
        TableColumn("from"),
        TableColumn("meaning"),
    )
    output.table(columns, [(row[0], _text(row[1], ","), *row[2:]) for row in rows])
    if entries:
        output.line("")
        peer_columns = (
            TableColumn("peer", style="bold", no_wrap=True),
            TableColumn("entry"),
            TableColumn("value"),
        )
        output.table(peer_columns, entries)


def _text(value: Value, form: str) -> str:
    return format(value, form) if isinstance(value, int) else " ".join(value)


def _peers(
    session: Session, folder: Path, faults: list[SettingError]
) -> dict[str, dict[str, object]]:
    """Return what the tables of peers say, of those that are legal; warn of files that are lost."""
    try:
        tables = peer_tables(folder)
    except SettingError:  # the file cannot be read, as is told of the settings
        return {}
    found: dict[str, dict[str, object]] = {}
    for name in tables:
        try:
            peer = read_peer(folder, name)
        except LaceError as error:
            faults.append(_fault(error))
            continue
        for lost in lost_files(folder, name, peer):
            session.output.warn(str(lost))
        found[name] = {
            each.name.replace("_", "-"): _shown(value)
            for each in fields(peer)
            if (value := getattr(peer, each.name)) is not None
        }
    return found


def _fault(error: LaceError) -> SettingError:
    """Return what is wrong with a peer as a fault of the settings."""
    if isinstance(error, SettingError):
        return error
    return SettingError(error.message, rule=error.rule, place=error.place, hint=error.hint)


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    return without_secrets(value) if isinstance(value, str) else value
