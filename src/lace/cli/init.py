"""`lace init`: make a lace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.api import SETTINGS_FILE
from lace.base.limits import DEFAULT_SETTINGS, describe_settings
from lace.cli.approvals import refuse_foreign
from lace.cli.command import command as lace_command
from lace.cli.session import FOLDER_NAME
from lace.errors import StoreError, UsageError
from lace.store.sqlite.store import DATABASE_NAME, is_lace

if TYPE_CHECKING:
    from lace.cli.session import Session


def settings_template() -> str:
    """Return a `lace.toml` that names every setting and changes none."""
    lines = [
        "# Settings of this lace. Every line is a default; take the # away to change one.",
        "# LACE_<NAME> in the environment wins over this file, and --set NAME=VALUE over both.",
        '# Sizes are bytes, or text with a unit: "64MiB".',
    ]
    for name, meaning, unit in describe_settings():
        lines += ["", f"# {meaning}{f' ({unit})' if unit else ''}"]
        value = getattr(DEFAULT_SETTINGS, name)
        lines.append(f"#{name} = {value if isinstance(value, int) else list(value)}")
    return "\n".join(lines) + "\n"


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
def command(session: Session, folder: str | None) -> int:
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
    _write_settings(place / SETTINGS_FILE)
    shown = str(place.resolve())
    if session.output.json:
        session.output.json_document({"lace": shown, "created": is_new})
    elif session.output.terminal:
        told = f"made a lace in {shown}" if is_new else f"{shown} is a lace already"
        session.output.say(told)
        if is_new:
            session.output.note("next: `lace key new` makes a key, `lace put FILE` stores a record")
    else:
        session.output.line(shown)
        if not is_new:
            session.output.note(f"{shown} is a lace already")
    return 0


def _write_settings(path: Path) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_template())
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
