"""`lace demo`: a short story of two laces, told with the commands that a person would type."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]

_SHORT: Final = (
    "Hashes and keys are cut short here, as in V.1a2b3c…; the commands write them whole."
)
_OWN: Final = (
    "lace init && lace key new",
    "echo hello | lace put --group me --app notes --name first --sign",
    "lace list",
)
"""What to type next."""
_KEPT: Final = (
    "lace --lace alice.lace list //club//notes//",
    "lace --lace alice.lace query --rules club.lace --predicate Member/1",
    "lace --lace alice.lace log",
)
"""What to type next where the laces of the story are kept."""


def _new_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="lace-demo-"))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is not an empty folder", hint="name a folder that is new")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _what_stays(folder: Path) -> str:
    """Return what a person is told whom a signal has brought back."""
    shown = shlex.quote(str(folder))
    return f"what was made stays in {shown}: remove it, or name another folder, to run it again"


@lace_command(
    "demo",
    piped="The same text as on a terminal, without progress.",
    json_keys={
        "received": "records that the first sync brought",
        "loops": "loops that it took",
        "again_bytes": "bytes of reconciliation, both ways, of the second sync",
        "bait_learned": "whether the bait told a lace with a diary from one without: false",
        "selected": "records that the rules select",
        "set_digest": "the digest of that set",
        "spark_set_digest": "the same by Spark; null where it is not installed",
        "steps": "how many steps were told",
        "folder": "where everything is, with --keep; else null",
    },
    examples=[
        ("lace demo", "see Lace at work; nothing is left behind"),
        ("lace demo --keep club", "keep everything in the folder club, to look around in it"),
    ],
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep everything in DIR, which is made.",
)
@click.pass_obj
def command(session: Session, keep: Path | None) -> int:
    """Show Lace at work.

    Two laces with keys, a policy, what it discloses, a bait that learns nothing, a sync with
    proofs of identity, reasons, and the same rules on Spark. Everything happens in a temporary
    folder, which is removed at the end, unless --keep names one. Each step says in plain words
    what it does and shows the command that you would type.
    """
    from lace.cli.demo_stage import Stage
    from lace.cli.demo_story import tell

    folder = _new_folder(keep)
    output = session.output
    session.durable = "nothing is left behind" if keep is None else _what_stays(folder)
    try:
        stage = Stage(session, folder)
        if not output.json:
            where = "a temporary folder" if keep is None else shlex.quote(str(folder))
            stage.prose(f"Lace at work: a story of two laces. Everything is in {where}. {_SHORT}")
        found = tell(stage)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if output.json:
        kept = None if keep is None else str(folder)
        output.json_document({**asdict(found), "steps": stage.steps, "folder": kept})
        return 0
    output.line("")
    if keep is None:
        stage.prose("Done; nothing is left behind. Three commands to try next, in an empty folder:")
    else:
        stage.prose(f"Done; everything stays in {folder}. Three commands to look around there:")
        stage.typed(f"cd {shlex.quote(str(folder))}")
    for line in _OWN if keep is None else _KEPT:
        stage.typed(line)
    return 0
