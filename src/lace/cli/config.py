"""`lace init` and `lace config`: make a lace; every setting, its value and where it comes from."""

from __future__ import annotations

import difflib
import json
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.api import DATABASE_NAME, SETTINGS_FILE, is_lace
from lace.api.system import SettingValue, describe_settings, write_settings_file
from lace.cli.approvals import refuse_foreign
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.command import command as lace_command
from lace.cli.failures import describe_failure, without_secrets
from lace.cli.output import TableColumn
from lace.cli.peers import lost_files, peer_tables, read_peer
from lace.cli.session import FOLDER_NAME
from lace.errors import LaceError, SettingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.cli.session import Session


# -- `lace init`.


@lace_command(
    "init",
    api="open",
    piped="The folder of the lace, on one line.",
    json_keys={"lace": "the folder", "created": "true if it was made now"},
    examples=[
        ("lace init", "make a lace in this folder, as .lace"),
        ("lace init shared.lace", "make it in a folder of another name"),
    ],
)
@click.argument("folder", metavar="[DIR]", required=False)
@click.pass_obj
def init_command(session: Session, folder: str | None) -> int:
    """Make a lace.

    The lace is the folder .lace here, or DIR, or what --lace or LACE_DIR names. Where there
    is a lace already, nothing changes. A folder that holds something else is refused.

    A file lace.toml in it lists every setting with its default.
    """
    if folder and session.lace_option and folder != session.lace_option:
        raise UsageError("DIR and --lace name two folders", hint="name one of them")
    place = Path(folder) if folder else session.named_folder or Path(FOLDER_NAME)
    if not folder and not session.named_folder and place.is_dir():
        refuse_foreign(place)
    is_new = not (is_lace(place) and (place / DATABASE_NAME).stat().st_size)
    if is_new:
        with session.changing("init", folder=place, create=True) as change:
            change.result["created"] = True
    else:
        with session.open("init", folder=place, write=False):
            pass  # it is whole enough to be opened
    write_settings_file(place / SETTINGS_FILE)
    shown = str(place.resolve())
    output = session.output
    if output.table_wanted:
        output.say(f"made a lace in {shown}" if is_new else f"{shown} is a lace already")
        if is_new:
            output.note("next: `lace key new` makes a key, `lace put FILE` stores a record")
        return 0
    output.answer({"lace": shown, "created": is_new}, shown)
    if not (is_new or output.json):
        output.note(f"{shown} is a lace already")
    return 0


# -- `lace config`.

Row = tuple[str, SettingValue, str, str, str]
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
    api="api.system.read_settings_file, api.system.resolve_settings",
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
    The peers that lace.toml names come last, if no setting is named. Faults are reported, and
    the rest is shown; the exit code is then 2.
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
    shown = _entries(peers) if not (output.json or output.terminal) else ()
    origin = str(Path(folder or "") / SETTINGS_FILE)
    piped: list[Row] = [
        (f"peer.{name}.{entry}", (text,), "", origin, f"{entry} of the peer {name}")
        for name, entry, text in shown
    ]
    output.show(
        [*rows, *piped],
        (
            TableColumn("setting", style="bold", no_wrap=True, key="name"),
            TableColumn(
                "value", "right", no_wrap=True, shown=partial(_text, ","), piped=partial(_text, "")
            ),
            TableColumn("unit"),
            TableColumn("from", key="origin"),
            TableColumn("meaning"),
        ),
        document=lambda listed: {
            "lace": str(folder.resolve()) if folder else None,
            "settings": listed,
            "peers": [{"name": name, **entries} for name, entries in peers.items()],
        },
    )
    if output.table_wanted and peers:
        output.line("")
        columns = (TableColumn("peer", style="bold", no_wrap=True),)
        output.table((*columns, TableColumn("entry"), TableColumn("value")), _entries(peers))
    if folder is None:
        output.note("there is no lace here: these are the settings without a lace.toml")
    for fault in faults[:-1]:
        output.complain(describe_failure(fault).line())
    if faults:
        raise faults[-1]
    return 0


def _entries(peers: Mapping[str, Mapping[str, object]]) -> list[tuple[str, str, str]]:
    """Return the entries of the tables of peers: peer, entry, value."""
    return [
        (name, entry, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, table in peers.items()
        for entry, value in table.items()
    ]


def _text(form: str, value: SettingValue) -> str:
    return format(value, form) if isinstance(value, int) else " ".join(value)


def _peers(
    session: Session, folder: Path, faults: list[SettingError]
) -> dict[str, dict[str, object]]:
    """Return what the tables of peers say, of those that are legal; warn of files that are lost."""
    try:
        tables = peer_tables(folder)
    except SettingError:  # the file cannot be read, which the settings report
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
