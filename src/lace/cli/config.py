"""`lace config`: every setting, its value and where it comes from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from lace.base.limits import describe_settings
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.output import Column
from lace.errors import SettingError

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]


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
    piped="One line a setting, tab-separated: name, value, unit, origin, meaning.",
    json_keys={
        "lace": "the folder whose lace.toml was read, or null",
        "settings": "a list of {name, value, unit, origin, meaning}",
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
    """
    output = session.output
    _check_names(names)
    folder = session.find_folder()
    settings, origins = session.settings(folder)
    rows = [
        (name, getattr(settings, name), unit, origins[name], meaning)
        for name, meaning, unit in describe_settings()
        if not names or name in names
    ]
    if output.json:
        keys = ("name", "value", "unit", "origin", "meaning")
        output.json_document(
            {
                "lace": str(folder.resolve()) if folder else None,
                "settings": [dict(zip(keys, row, strict=True)) for row in rows],
            }
        )
    elif output.terminal:
        columns = (
            Column("setting", style="bold", no_wrap=True),
            Column("value", "right", no_wrap=True),
            Column("unit"),
            Column("from"),
            Column("meaning"),
        )
        output.table(columns, [(row[0], f"{row[1]:,}", *row[2:]) for row in rows])
    else:
        for row in rows:
            output.row(row)
    if folder is None:
        output.note("there is no lace here: these are the settings without a lace.toml")
    return 0
