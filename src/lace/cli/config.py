"""`lace config`: every setting, its value and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lace.base.limits import describe_settings
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.output import Column

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
        ("lace config show --set max_data_bytes=64MiB", "what a value would mean"),
        ("LACE_WAIT_SECONDS=60 lace config show", "with a setting from the environment"),
    ],
)
@click.pass_obj
def show(session: Session) -> int:
    """Show every setting, its value and where it comes from."""
    output = session.output
    folder = session.find_folder()
    settings, origins = session.settings(folder)
    rows = [
        (name, getattr(settings, name), unit, origins[name], meaning)
        for name, meaning, unit in describe_settings()
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
