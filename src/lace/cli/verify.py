"""`lace verify`: everything a lace holds, checked again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lace.api import now
from lace.base.text import safe_text
from lace.cli.command import command as lace_command
from lace.cli.output import plural
from lace.cli.progress import Progress
from lace.cli.session import Change
from lace.errors import LaceError

if TYPE_CHECKING:
    from lace.api.lace import Damage, Verification
    from lace.cli.session import Session


_DAMAGED = 6


def _damage_text(damage: Damage) -> str:
    if not damage.record:
        return f"damage: {damage.reason}"
    return f"damage: {damage.record} (StoreRecordId {damage.store_record_id}): {damage.reason}"


def _show(session: Session, found: Verification) -> None:
    output = session.output
    if output.json:
        output.json_document(
            {
                "records": found.records,
                "bytes": found.record_bytes,
                "damaged": found.damaged,
                "damage": [
                    {
                        "record": damage.record or None,
                        "store_record_id": damage.store_record_id,
                        "reason": damage.reason,
                    }
                    for damage in found.damage
                ],
            }
        )
        return
    output.counts({"records": found.records, "bytes": found.record_bytes, "damaged": found.damaged})
    for damage in found.damage:
        output.say(safe_text(_damage_text(damage)))
    more = found.damaged - len(found.damage)
    if more:
        output.say(f"damage: and {more} more")


@lace_command(
    "verify",
    api="Lace.verify",
    piped="Lines of a name and a number: records, bytes, damaged; then a line that begins with "
    "`damage: ` for each damage, the first import_max_reports of them.",
    json_keys={
        "records": "how many records were checked",
        "bytes": "their bytes",
        "damaged": "how many things are not as they should be",
        "damage": "a list of {record, store_record_id, reason}; no record: the store itself",
    },
    examples=[("lace verify", "check every hash, every signature and the database")],
)
@click.pass_obj
def command(session: Session) -> int:
    """Check the whole lace again.

    The database, every hash and every signature. Exit code 6 when something is damaged. What
    is damaged is never returned by other commands: take the record out, and import it again
    from a copy.
    """
    started = now()
    with session.reading("verify") as lace:
        with lace.snapshot() as snapshot:
            total = snapshot.totals().records
        with Progress(session, "verify", total, "records") as progress:
            found = lace.verify(lambda seen: progress.update(seen.records))
    exit_code = _DAMAGED if found.damaged else 0
    _show(session, found)
    _log(session, found, started, exit_code)
    if exit_code:
        session.output.complain(
            f"lace: the lace is damaged: {plural(found.damaged, 'fault')} found; "
            "remove what is damaged and import it again from a copy"
        )
    return exit_code


def _log(session: Session, found: Verification, started: str, exit_code: int) -> None:
    """Leave an entry, where the lace can be written; it may be on a read-only disk."""
    result: dict[str, object] = {"records": found.records, "damaged": found.damaged}
    try:
        with session.open("verify") as lace:
            session.log(Change(lace, result, exit_code), "verify", started)
    except LaceError as error:
        session.output.note(f"the log of the lace has no entry for this: {error}")
