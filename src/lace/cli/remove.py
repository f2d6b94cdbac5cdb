"""`lace remove`: take records out of a lace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.files import STANDARD_INPUT
from lace.cli.get import find_records
from lace.cli.output import ask, is_attended, plural
from lace.cli.questions import select_records, selection_options
from lace.errors import UsageError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.store.interface import Snapshot


_WHOLE: Final = "records are removed all together or not at all"


@lace_command(
    "remove",
    api="Lace.remove",
    piped="The word removed and how many records were.",
    json_keys={"removed": "how many records were taken out", "ids": "their hashes"},
    examples=[
        ("lace remove //u//notes//today", "take out the newest version of a note"),
        ("lace remove B.….H3 P.….H3 --yes", "take out two records without being asked"),
        ("lace remove --rules old.lace --predicate Old/1", "take out what rules choose"),
    ],
)
@selection_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(
    session: Session,
    records: tuple[str, ...],
    rules: str | None,
    predicate: str | None,
    allow_undefined: tuple[str, ...],
    yes: bool,
) -> int:
    """Take records out of the lace.

    Their StoreRecordIds are never used again. RECORD is a hash, ////hash or a coordinate,
    which means its newest version only: the version before is then the newest. When one is
    not there, nothing is removed and the exit code is 1. Rules choose with Selected/1 or the
    predicate named. Asks at a terminal; elsewhere it wants --yes.
    """
    _check_usage(records, rules, predicate, yes)
    with session.changing("remove", durable=_WHOLE) as change:
        with change.lace.snapshot() as snapshot:
            if rules is not None:
                ids = select_records(
                    session, change.lace, snapshot, rules, predicate, allow_undefined
                )
            else:
                ids = _named(session, snapshot, records)
        if ids and not yes:
            ask(f"Remove {plural(len(ids), 'record')} from {change.lace.store.folder}?")
        removed = change.lace.remove(*ids)
        change.result.update(removed=removed, ids=ids[:100])
    if session.output.json:
        session.output.json_document({"removed": removed, "ids": ids})
    else:
        session.output.counts({"removed": removed})
    return 0


def _check_usage(
    records: tuple[str, ...], rules: str | None, predicate: str | None, yes: bool
) -> None:
    if not records and rules is None:
        raise UsageError("nothing to remove", hint="name RECORDs, or give --rules FILE")
    if records and rules is not None:
        raise UsageError("RECORD and --rules exclude each other", hint="give one of them")
    if predicate is not None and rules is None:
        raise UsageError("--predicate goes with --rules", hint="give --rules FILE")
    if rules == STANDARD_INPUT and not yes:
        raise UsageError("rules from standard input leave nobody to ask", hint="add --yes")
    if not yes and not is_attended():
        raise UsageError("removing records wants to be confirmed", hint="add --yes")


def _named(session: Session, snapshot: Snapshot, records: tuple[str, ...]) -> list[str]:
    found = find_records(snapshot, records)
    for text in records:
        if parse_address(text).coordinate is not None:
            (tip,) = find_records(snapshot, [text])
            session.output.note(f"the newest version of {text} is {tip.id}")
    return [stored.id for stored in found]
