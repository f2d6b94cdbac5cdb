"""`lace remove`: take records out of a lace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.output import plural
from lace.cli.prompt import ask, is_attended
from lace.cli.records import find_records
from lace.errors import UsageError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]


@lace_command(
    "remove",
    piped="The word removed and how many records were.",
    json_keys={"removed": "how many records were taken out", "ids": "their hashes"},
    examples=[
        ("lace remove //u//notes//today", "take out the newest version of a note"),
        ("lace remove B.….H3 P.….H3 --yes", "take out two records without being asked"),
    ],
)
@click.argument("records", metavar="RECORD…", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(session: Session, records: tuple[str, ...], yes: bool) -> int:
    """Take records out of the lace.

    Their StoreRecordIds are never used again. RECORD is a hash, ////hash or a coordinate,
    which means its newest version only: the version before is then the newest. When one is
    not there, nothing is removed and the exit code is 1. Asks at a terminal; elsewhere it
    wants --yes.
    """
    if not yes and not is_attended():
        raise UsageError("removing records wants to be confirmed", hint="add --yes")
    with session.changing("remove") as change:
        with change.lace.snapshot() as snapshot:
            found = find_records(snapshot, records)
            for text in records:
                if parse_address(text).coordinate is not None:
                    (tip,) = find_records(snapshot, [text])
                    session.output.note(f"the newest version of {text} is {tip.id}")
        if not yes:
            ask(f"Remove {plural(len(found), 'record')} from {change.lace.store.folder}?")
        removed = change.lace.remove(*(stored.id for stored in found))
        ids = [stored.id for stored in found]
        change.result.update(removed=removed, ids=ids[:100])
    if session.output.json:
        session.output.json_document({"removed": removed, "ids": ids})
    else:
        session.output.counts({"removed": removed})
    return 0
