"""`lace export` and `lace remove`: records that are chosen by their names or by rules.

Apart from `pipeline_tables`: a lace is exported without Spark.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api.query import new_statistics
from lace.api.records import find_records, load_records, parse_address
from lace.api.rules import parse_allowed
from lace.cli.command import command as lace_command
from lace.cli.files import STANDARD_INPUT, refuse_terminal, written
from lace.cli.link_options import all_options
from lace.cli.output import ask, is_attended, plural
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.progress import Progress
from lace.cli.query import SELECTED, QueryRequest, read_rules
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from lace.api import Lace
    from lace.api.records import Snapshot, SqliteSnapshot, ValidRecord
    from lace.cli.output import Output
    from lace.cli.session import Session


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


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


# -- `lace export`.


class Target:
    """Where record bytes go, and the listing that `--json` adds."""

    def __init__(self, output: Output, file: IO[bytes] | None) -> None:
        self._output = output
        self._file = file
        self.records = 0
        self.bytes = 0

    def write(self, record: ValidRecord) -> None:
        """Write one record."""
        if self._file is not None:
            self._file.write(record.bytes)
        else:
            self._output.write(record.bytes)
        if self._output.json:
            self._output.json_line(
                {"id": record.hash_text, "offset": self.bytes, "bytes": len(record.bytes)}
            )
        self.records += 1
        self.bytes += len(record.bytes)


def _check_usage(
    output: Output,
    records: tuple[str, ...],
    everything: bool,
    rules: str | None,
    predicate: str | None,
    target: str | None,
) -> None:
    ways = bool(records) + everything + (rules is not None)
    if not ways:
        raise UsageError("nothing to export", hint="name RECORDs, or give --rules FILE or --all")
    if ways > 1:
        raise UsageError("RECORD, --rules and --all exclude each other", hint="give one of them")
    if predicate is not None and rules is None:
        raise UsageError("--predicate goes with --rules", hint="give --rules FILE")
    check_output(output, target)


def check_output(output: Output, target: str | None) -> None:
    """Refuse record bytes on a terminal, or mixed with JSON."""
    if output.json and not target:
        raise UsageError(
            "--json lists what is exported, and the bytes need a place",
            hint="name a file with -o FILE",
        )
    if not target:
        refuse_terminal(output, "record bytes")


@lace_command(
    "export",
    api="Lace.export",
    piped="The bytes of the records, one after another; nothing with -o.",
    json_keys={
        "id": "the record's hash; one line a record; wants -o",
        "offset": "where it begins in the file",
        "bytes": "how many bytes it has",
    },
    examples=[
        ("lace export --all -o backup.records", "write every record to a file"),
        ("lace export --rules policy.lace -o chosen.records", "the records that rules choose"),
        ("lace export //u//notes//today | lace --lace other import -", "copy one to another lace"),
    ],
)
@selection_options
@click.option("--all", "everything", is_flag=True, help="Every record, in the order of storing.")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, whole or not.")
@click.pass_obj
def command(
    session: Session,
    records: tuple[str, ...],
    rules: str | None,
    predicate: str | None,
    allow_undefined: tuple[str, ...],
    everything: bool,
    target: str | None,
) -> int:
    """Write the bytes of records.

    Of the RECORDs named, in that order, or of all, or of those that rules choose, sorted by
    hash. RECORD is a hash, ////hash or a coordinate, which means its newest version. When one
    is not there, nothing is written and the exit code is 1. Rules choose with Selected/1 or
    the predicate named; values of it that are no record of this lace are counted on standard
    error. `lace import` reads the result.
    """
    output = session.output
    _check_usage(output, records, everything, rules, predicate, target)
    opened: AbstractContextManager[IO[bytes] | None] = written(target) if target else nullcontext()
    asked = session.asking("export") if rules is not None else session.reading("export")
    with asked as lace, lace.snapshot() as snapshot:
        identifiers: Sequence[str] | None = None
        if rules is not None:
            identifiers = select_records(session, lace, snapshot, rules, predicate, allow_undefined)
        elif not everything:
            identifiers = [stored.id for stored in find_records(snapshot, records)]
        total = snapshot.totals().records if identifiers is None else len(identifiers)
        chosen = load_records(snapshot, identifiers)
        first = next(chosen, None)  # a record that is not there shows before a file is touched
        with opened as file, Progress(session, "export", total, "records") as progress:
            goal = Target(output, file)
            while first is not None:
                goal.write(first)
                progress.update(goal.records)
                first = next(chosen, None)
    if target:
        size = plural(goal.bytes, "byte")
        output.note(f"wrote {plural(goal.records, 'record')}, {size}, to {target}")
    return 0


# -- `lace remove`.

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
def remove_command(
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
