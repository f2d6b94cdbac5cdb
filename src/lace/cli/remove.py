"""`lace remove`, and the choice of records by names or by rules that `lace export` has too.

Apart from `export`: each is a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api.query import new_statistics
from lace.api.records import find_records, parse_address
from lace.api.rules import parse_allowed
from lace.cli.command import command as lace_command
from lace.cli.files import STANDARD_INPUT
from lace.cli.link_options import all_options
from lace.cli.output import ask, is_attended, plural
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.query import SELECTED, QueryRequest, read_rules
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.api import Lace
    from lace.api.records import Snapshot, SqliteSnapshot
    from lace.cli.session import Session


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_WHOLE: Final = "records are removed all together or not at all"


def selection_options(function: Decorated) -> Decorated:
    """Give a command the arguments that choose records: by name, or by rules."""
    add: Callable[[Decorated], Decorated] = all_options(
        click.argument("records", metavar="[RECORD]…", nargs=-1),
        click.option(
            "--rules", metavar="FILE", help="The records that the rules of FILE (or -) choose."
        ),
        click.option(
            "--predicate",
            metavar="NAME/1",
            help="The predicate that chooses, with --rules: Selected/1.",
        ),
        ALLOW_UNDEFINED_OPTION,
    )
    return add(function)


def select_records(
    session: Session,
    lace: Lace,
    snapshot: SqliteSnapshot,
    rules: str,
    predicate: str | None,
    allow_undefined: Sequence[str],
) -> list[str]:
    """Return the records of a snapshot that rules choose, sorted by hash.

    Values that are no record here are counted, and the count is shown.
    """
    allowed = parse_allowed(allow_undefined)
    question = QueryRequest(session, read_rules(session, rules), allowed=allowed)
    try:
        (key,) = question.predicates(predicate or SELECTED)
    except UsageError as error:
        if predicate is None:
            error.hint = "name the predicate that chooses records, as in --predicate Chosen/1"
        raise
    if key.arity != 1:
        raise UsageError(
            f"{key} has {plural(key.arity, 'argument')}, and records are chosen by one",
            hint="name a predicate with one argument",
        )
    result = question.ask("select", [key], new_statistics(), lace=lace, snapshot=snapshot)
    values = sorted(value for (value,) in result.rows(str(key)))
    found = [value for value in values if snapshot.has(value)]
    strangers = len(values) - len(found)
    if strangers:
        are = "is no record" if strangers == 1 else "are no records"
        session.output.note(f"{plural(strangers, 'value')} of {key} {are} of this lace")
    return found


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
    _check_removal(records, rules, predicate, yes)
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
    session.output.counts({"removed": removed}, {"removed": removed, "ids": ids})
    return 0


def _check_removal(
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
