"""`lace export`: record bytes, one after another.

Apart from `pipeline_tables`: a lace is exported without Spark.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import IO, TYPE_CHECKING

import click

from lace.api.records import Order, find_records
from lace.cli.command import command as lace_command
from lace.cli.files import refuse_terminal, written
from lace.cli.output import plural
from lace.cli.progress import Progress
from lace.cli.remove import select_records, selection_options
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from lace.api.records import Snapshot, ValidRecord
    from lace.cli.output import Output
    from lace.cli.session import Session


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


def _load(snapshot: Snapshot, identifiers: Iterable[str]) -> Iterator[ValidRecord]:
    for identifier in identifiers:
        record = snapshot.load(identifier)
        if record is not None:
            yield record


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
    api="Lace.get",
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
        if everything:
            total = snapshot.totals().records
            chosen = snapshot.records(order=Order.STORED)
        else:
            identifiers = (
                select_records(session, lace, snapshot, rules, predicate, allow_undefined)
                if rules is not None
                else [stored.id for stored in find_records(snapshot, records)]
            )
            total = len(identifiers)
            chosen = _load(snapshot, identifiers)
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
